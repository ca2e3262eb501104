# SPDX-License-Identifier: Apache-2.0
"""Transfer params that the engine or its connector could not live with are told apart."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_reuse_guard.rules.outcome import Reason
from vllm_reuse_guard.rules.transfer_params import (
    DO_REMOTE_DECODE,
    Connector,
    asks_prefill,
    judge_params,
    names_remote_blocks,
)

PULL = {
    "do_remote_prefill": True,
    "do_remote_decode": False,
    "remote_block_ids": [[0, 1, 2]],
    "remote_engine_id": "engine",
    "remote_request_id": "request",
    "remote_host": "10.0.0.1",
    "remote_port": 5600,
    "tp_size": 1,
}
EVERY_CONNECTOR = pytest.mark.parametrize("connector", Connector)


def judged(params: Any, *connectors: Connector) -> tuple[Reason, str] | None:
    reject = judge_params(params, connectors=set(connectors))
    return reject and (reject.reason, reject.parameter.removeprefix("kv_transfer_params."))


@EVERY_CONNECTOR
@pytest.mark.parametrize(
    "params",
    [
        None,
        {},
        PULL,
        {**PULL, "remote_blocks_expiry_time": 1.5, "remote_num_tokens": 0, "unknown": {"a": [1]}},
        {"do_remote_decode": True, "do_remote_prefill": False},
        {"do_remote_decode": True, "anything": [[[[{"a": [1]}]]]]},
        # What the proxy in vLLM's examples sends to prefill.
        {
            "do_remote_decode": True,
            "do_remote_prefill": False,
            "remote_engine_id": None,
            "remote_block_ids": None,
            "remote_host": None,
            "remote_port": None,
        },
    ],
    ids=repr,
)
def test_good_params(connector: Connector, params: Any) -> None:
    """
    What prefill returns and what routers send passes.
    """
    assert judged(params, connector) is None


@pytest.mark.parametrize("params", ["x", [], 1, True], ids=repr)
def test_what_is_no_object_is_refused(params: Any) -> None:
    """
    The field as a whole is named.
    """
    assert (Reason.MALFORMED_PARAMS, "kv_transfer_params") == judged(params)


@pytest.mark.parametrize("connector", [Connector.NIXL_PULL, Connector.NIXL_PUSH])
@pytest.mark.parametrize("missing", [False, True])
def test_each_needed_field(connector: Connector, missing: bool) -> None:
    """
    A field that is missing, null or empty is named; which are needed depends on the connector.
    """
    for field in connector.needs:
        params = {key: value for key, value in PULL.items() if key != field}
        # Numbers of ranks are computed with, null or not: see below.
        if not missing and field != "tp_size":
            params[field] = None

        assert (Reason.MISSING_FIELD, field) == judged(params, connector)


def test_no_block_at_all_is_refused_for_a_pull() -> None:
    """
    An empty list of blocks stops the scheduler as a missing one does.
    """
    params = {**PULL, "remote_block_ids": []}

    assert (Reason.MISSING_FIELD, "remote_block_ids") == judged(params, Connector.NIXL_PULL)


def test_unknown_connector_needs_nothing() -> None:
    """
    What other connectors need is not known, so only types are checked.
    """
    assert judged({"do_remote_prefill": True}, Connector.OTHER) is None


def test_several_connectors_need_what_each_needs() -> None:
    """
    Inside MultiConnector all are given the same params.
    """
    params = {"do_remote_prefill": True}

    assert judged(params, Connector.OTHER, Connector.NIXL_PULL) is not None


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("do_remote_prefill", 1),
        ("do_remote_prefill", "true"),
        ("do_remote_decode", []),
        ("remote_host", 5),
        ("remote_host", ""),
        ("remote_port", "5600"),
        ("remote_port", 5600.0),
        ("remote_port", True),
        ("remote_port", 0),
        ("remote_port", 65536),
        ("remote_block_ids", {"0": [1]}),
        ("remote_block_ids", "1"),
        ("remote_block_ids", [-1]),
        ("remote_block_ids", [[1], [-1]]),
        ("remote_block_ids", [True]),
        ("remote_block_ids", [[1.0]]),
        ("remote_block_ids", [[[1]]]),
        ("remote_block_ids", [None]),
        ("remote_engine_id", 7),
        ("remote_request_id", ["r"]),
        ("remote_num_tokens", -1),
        ("remote_num_tokens", "3"),
        ("tp_size", 0),
        ("tp_size", "1"),
        ("tp_size", 2**31 - 1),
        ("pp_size", 1025),
        ("pp_size", None),
        ("tp_size", None),
        ("dcp_size", None),
        ("remote_block_ids", [[]]),
        ("remote_block_ids", [[1], []]),
        ("remote_block_ids", [[2**31]]),
        ("_remote_blocks_processed", True),
        ("_p_side_truncated", 0),
        ("pp_size", 1.5),
        ("remote_blocks_expiry_time", "soon"),
        ("remote_block_ids", [2**64]),
        ("unknown", 2**64),
        ("unknown", {"deep": [-(2**63) - 1]}),
        ("unknown", "\ud800"),
    ],
    ids=lambda value: repr(value)[:30],
)
@EVERY_CONNECTOR
def test_wrong_type_names_its_field(connector: Connector, field: str, value: Any) -> None:
    """
    Whatever the connector, each field that has a known type has it, and all can be sent.
    """
    assert (Reason.MALFORMED_PARAMS, field) == judged({**PULL, field: value}, connector)


@pytest.mark.parametrize("ids", [[2**70], "x", ["\ud800"]], ids=repr)
def test_forwarded_ids_are_not_looked_at(ids: Any) -> None:
    """
    They have rules of their own, and beside an image nobody reads them.
    """
    assert judged({**PULL, "prompt_token_ids": ids}, Connector.NIXL_PULL) is None


@pytest.mark.parametrize("depth", [33, 400, 900])
def test_deep_nesting_is_refused(depth: int) -> None:
    """
    What the front end can encode, the pickle to the workers cannot: the engine dies of it.
    """
    nested: Any = {}
    for level in range(depth):
        nested = [nested] if level % 2 else {"a": nested}

    assert (Reason.MALFORMED_PARAMS, "unknown") == judged({"unknown": nested})


def test_key_that_is_no_unicode_is_not_named() -> None:
    """
    It cannot stand in an answer: the whole field is named.
    """
    assert (Reason.MALFORMED_PARAMS, "kv_transfer_params") == judged({"\ud800": 1})


def test_prefill_reads_no_blocks_unless_it_is_configured_to() -> None:
    """
    The scheduler would wait for ever for blocks that nobody reads, and keep those of the prompt.
    """
    params = {**PULL, "do_remote_prefill": False, "do_remote_decode": True}

    assert (Reason.CONTRADICTORY, "remote_block_ids") == judged(params, Connector.NIXL_PULL)
    assert (Reason.CONTRADICTORY, "remote_block_ids") == judged(params, Connector.NIXL_PUSH)
    assert judged(params, Connector.OTHER) is None


def test_prefill_that_reads_blocks_must_be_told_from_where() -> None:
    """
    With bidirectional transfers, each field is needed, and the number of tokens besides.
    """
    params = {**PULL, "do_remote_prefill": False, "do_remote_decode": True}
    both = Connector.NIXL_BOTH_WAYS

    assert (Reason.MISSING_FIELD, "remote_num_tokens") == judged(params, both)
    params["remote_num_tokens"] = 5
    assert judged(params, both) is None
    for field in set(both.needs) - {"remote_block_ids"}:
        assert (Reason.MISSING_FIELD, field) == judged({**params, field: None}, both)
    assert judged(PULL, both) is None


def test_endless_nesting_is_refused() -> None:
    """
    No encoder can send it, and looking at it does not end in an error of Python's own.
    """
    nested: list[Any] = []
    for _ in range(100_000):
        nested = [nested]

    assert (Reason.MALFORMED_PARAMS, "unknown") == judged({"unknown": nested})


def test_flat_list_of_blocks_is_not_for_nixl() -> None:
    """
    Its scheduler takes each item for a cache group and dies; other connectors send flat lists.
    """
    params = {**PULL, "remote_block_ids": [0, 1]}

    assert (Reason.MALFORMED_PARAMS, "remote_block_ids") == judged(params, Connector.NIXL_PULL)
    assert judged(params, Connector.OTHER) is None


def test_both_ways_at_once_is_refused() -> None:
    """
    A request is for prefill or for decode; what NixlConnector makes of both never ends.
    """
    params = {**PULL, "do_remote_decode": True}

    assert (Reason.CONTRADICTORY, "do_remote_decode") == judged(params, Connector.NIXL_PULL)
    assert judged(params, Connector.OTHER) is None


@pytest.mark.parametrize(
    ("params", "told"),
    [
        (PULL, True),
        ({**PULL, "do_remote_prefill": False}, False),
        ({"do_remote_prefill": True}, False),
        ({**PULL, "remote_port": "5600"}, False),
        (None, False),
        ("x", False),
    ],
    ids=repr,
)
def test_who_may_be_told(params: Any, told: bool) -> None:
    """
    Only params that name remote blocks are of use to a connector that is told of a refusal.
    """
    assert told == names_remote_blocks(params, connectors={Connector.NIXL_PULL})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from([*PULL, "unknown"]), inner, max_size=4)
    ),
)


@given(params=JSON)
def test_anything_has_an_answer(params: Any) -> None:
    """
    No JSON value makes the check raise or is changed by it.
    """
    before = copy.deepcopy(params)

    judge_params(params, connectors={Connector.NIXL_PULL, Connector.NIXL_PUSH})

    assert repr(before) == repr(params)


@pytest.mark.parametrize(
    "params", [None, [], "x", {}, {DO_REMOTE_DECODE: None}, {DO_REMOTE_DECODE: 1}, {"x": True}]
)
def test_only_true_asks_prefill(params: Any) -> None:
    """
    Whatever comes as transfer params; ids are emitted for those alone that keep blocks for decode.
    """
    assert not asks_prefill(params)
    assert asks_prefill({**(params if isinstance(params, dict) else {}), DO_REMOTE_DECODE: True})
