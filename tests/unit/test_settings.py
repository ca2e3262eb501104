# SPDX-License-Identifier: Apache-2.0
"""Settings come from the environment, and a bad one stops the start."""

from __future__ import annotations

import os

import pytest

from vllm_reuse_guard import settings
from vllm_reuse_guard.errors import SettingsError
from vllm_reuse_guard.rules.allowed_peers import parse
from vllm_reuse_guard.rules.decision import Policy

POLICY = "VLLM_REUSE_GUARD_PROMPT_TOKEN_IDS_POLICY"


ENABLE = "VLLM_REUSE_GUARD_ENABLE_PROMPT_TOKEN_IDS"
PEERS = "VLLM_REUSE_GUARD_KV_TRANSFER_ALLOWED_PEERS"


pytestmark = pytest.mark.usefixtures("own_settings")


def test_defaults_are_safe() -> None:
    """
    Without any variable ids are used where a connector runs, and nowhere else.
    """
    assert Policy.CONNECTOR is settings.current().prompt_token_ids_policy
    assert not settings.current().allow_unsupported


@pytest.mark.parametrize("policy", Policy)
def test_variable_sets_the_policy(monkeypatch: pytest.MonkeyPatch, policy: Policy) -> None:
    """
    Each value of the policy can be set by its word.
    """
    monkeypatch.setenv(POLICY, policy.value)

    assert policy is settings.current().prompt_token_ids_policy


def test_bad_value_names_the_allowed_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The error names the variable, its value and what it may be.
    """
    monkeypatch.setenv(POLICY, "sometimes")

    with pytest.raises(SettingsError, match=f"{POLICY}=sometimes.*connector.*always.*off"):
        settings.current()


def test_unknown_variable_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A typing error in a name does not quietly leave the default in force.
    """
    monkeypatch.setenv("VLLM_REUSE_GUARD_POLICY", "off")

    with pytest.raises(
        SettingsError, match="unknown setting VLLM_REUSE_GUARD_POLICY; valid settings: "
    ):
        settings.current()


def test_enable_is_short_for_always(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The policy need not be named.
    """
    monkeypatch.setitem(os.environ, ENABLE, "1")

    assert Policy.ALWAYS is settings.current().policy


def test_enable_contradicts_another_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Two variables that say different things stop the start.
    """
    monkeypatch.setitem(os.environ, ENABLE, "1")
    monkeypatch.setitem(os.environ, POLICY, "off")

    with pytest.raises(SettingsError, match="contradicts --prompt-token-ids-policy off"):
        settings.current()


@pytest.mark.parametrize(
    ("variable", "flag", "expected"),
    [
        ({POLICY: "off"}, ("prompt_token_ids_policy", "always"), Policy.ALWAYS),
        ({POLICY: "off"}, ("enable_prompt_token_ids", "true"), Policy.ALWAYS),
        ({ENABLE: "1"}, ("prompt_token_ids_policy", "off"), Policy.OFF),
    ],
    ids=["same", "enable", "policy"],
)
def test_flag_is_above_the_variables(
    variable: dict[str, str], flag: tuple[str, str], expected: Policy
) -> None:
    """
    A flag wins over its variable, and over the variable that says the same in another way.
    """
    os.environ.update(variable)

    settings.choose(*flag)

    assert expected is settings.current().policy


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_contradicting_flags_are_refused(order: tuple[int, int]) -> None:
    """
    Neither flag is above the other, in whichever order they stand.
    """
    flags = [("prompt_token_ids_policy", "off"), ("enable_prompt_token_ids", "true")]
    settings.choose(*flags[order[0]])

    with pytest.raises(SettingsError, match="contradicts"):
        settings.choose(*flags[order[1]])


@pytest.mark.parametrize(
    "text", ["10.0.0.0/8 *.svc:80", "10.0.0.0/8,*.svc:80", " 10.0.0.0/8, *.svc:80 "]
)
def test_peers_are_read(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """
    Spaces or commas separate them.
    """
    monkeypatch.setitem(os.environ, PEERS, text)

    assert (parse("10.0.0.0/8"), parse("*.svc:80")) == settings.current().kv_transfer_allowed_peers


def test_no_peers_is_not_any_peer(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Unset, every host may be named; set to nothing, none.
    """
    assert settings.current().kv_transfer_allowed_peers is None
    settings.current.cache_clear()
    monkeypatch.setitem(os.environ, PEERS, "")

    assert () == settings.current().kv_transfer_allowed_peers


def test_bad_peer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The error names the variable and the entry.
    """
    monkeypatch.setitem(os.environ, PEERS, "10.0.0.0/8 http://x")

    with pytest.raises(
        SettingsError, match=f"{PEERS}.*invalid peer 'http://x': expected a host name"
    ):
        settings.current()
