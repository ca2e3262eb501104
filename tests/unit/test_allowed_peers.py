# SPDX-License-Identifier: Apache-2.0
"""Who may be dialled: names, suffixes, addresses and ranges, with a port or not."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_reuse_guard.rules.allowed_peers import judge_peers, parse


def allowed(entries: str, params: Any) -> bool:
    return judge_peers(params, map(parse, entries.split())) is None


def at(host: Any, port: Any = 5600) -> dict[str, Any]:
    return {"remote_host": host, "remote_port": port}


@pytest.mark.parametrize(
    ("entries", "host", "port"),
    [
        ("prefill", "prefill", 5600),
        ("prefill", "PREFILL.", 5600),
        ("prefill:5600", "prefill", 5600),
        ("*.svc", "a.b.svc", 5600),
        ("*.svc:5600", "a.svc", 5600),
        ("10.0.0.0/8", "10.1.2.3", 1),
        ("10.0.0.1", "10.0.0.1", 1),
        ("10.0.0.1", "::ffff:10.0.0.1", 1),
        ("10.0.0.0/8:5600", "10.0.0.1", 5600),
        ("::1", "::1", 1),
        ("[::1]:5600", "::1", 5600),
        ("[fd00::/8]:5600", "fd00::5", 5600),
        ("fd00::/8", "[fd00::5]", 5600),
        ("other 10.0.0.0/8", "10.0.0.1", 1),
    ],
)
def test_allowed(entries: str, host: str, port: int) -> None:
    """
    Each kind of entry lets in what it names.
    """
    assert allowed(entries, at(host, port))


@pytest.mark.parametrize(
    ("entries", "host", "port"),
    [
        ("prefill", "prefill.evil", 5600),
        ("prefill", "evil", 5600),
        ("prefill:5600", "prefill", 5601),
        ("prefill:5600", "prefill", None),
        ("*.svc", "svc", 5600),
        ("*.svc", "evilsvc", 5600),
        ("*.svc", "evil.com/.svc", 5600),
        ("*.svc", "evil.com:80;x.svc", 5600),
        ("*.svc", "127.0.0.1\0.svc", 5600),
        ("10.0.0.0/8", "11.0.0.1", 1),
        ("127.0.0.1", "127.1", 1),
        ("127.0.0.1", "2130706433", 1),
        ("127.0.0.1", "localhost", 1),
        ("localhost", "127.0.0.1", 1),
        ("10.0.0.0/8", 5, 1),
        ("10.0.0.0/8", "", 1),
        ("", "10.0.0.1", 1),
    ],
)
def test_refused(entries: str, host: Any, port: int | None) -> None:
    """
    Nothing is looked up: a name is not its address, and odd spellings are names.
    """
    assert not allowed(entries, at(host, port))


@pytest.mark.parametrize(
    ("params", "field"),
    [
        ({"a": [{"b": at("evil")}]}, "a.b.remote_host"),
        ({"remote_hosts": ["10.0.0.1", "evil"]}, "remote_hosts"),
        ({"remote_bootstrap_addr": "http://evil:80"}, "remote_bootstrap_addr"),
        ({"remote_bootstrap_addr": "evil:80"}, "remote_bootstrap_addr"),
        ({"remote_bootstrap_addr": 5}, "remote_bootstrap_addr"),
        ({**at("10.0.0.1", 1), "remote_notify_port": 2}, None),
    ],
    ids=repr,
)
def test_every_depth_and_every_field(params: Any, field: str | None) -> None:
    """
    The field is named, wherever it stands and whichever connector reads it.
    """
    reject = judge_peers(params, [parse("10.0.0.0/8")])

    assert (reject and reject.parameter) == (field and f"kv_transfer_params.{field}")


def test_every_port_of_a_host_counts() -> None:
    """
    An entry with a port allows that one alone.
    """
    params = {**at("10.0.0.1", 1), "remote_notify_port": 2}

    assert not allowed("10.0.0.1:1", params)


@pytest.mark.parametrize(
    "entry",
    ["", "*", "*.", "a b", "http://x", "10.0.0.1/8", "1.2.3", "host:0", "host:99999", "[::1", "-"],
)
def test_what_is_no_peer(entry: str) -> None:
    """
    An entry that means nothing stops the start, and is named.
    """
    with pytest.raises(ValueError, match=r".") as error:
        parse(entry)

    assert repr(entry) in str(error.value)


@given(st.recursive(st.none() | st.text(max_size=5), lambda inner: st.lists(inner, max_size=3)))
def test_without_a_host_nothing_is_refused(params: Any) -> None:
    """
    Params that name no host are of no concern.
    """
    assert judge_peers(params, []) is None
