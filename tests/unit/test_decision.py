# SPDX-License-Identifier: Apache-2.0
"""The rows of the decision, by example and for any JSON value."""

from __future__ import annotations

import copy
import enum
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_reuse_guard.rules.content import MEDIA_KEYS
from vllm_reuse_guard.rules.decision import (
    Policy,
    Prompt,
    ServerFacts,
    WithoutConnector,
    decide,
    decide_batch,
    forwarded,
    without_ids,
)
from vllm_reuse_guard.rules.outcome import PARAMETER, Reason, Reject, Render, Reuse
from vllm_reuse_guard.rules.token_ids import Vocabulary

TEXT = [{"role": "user", "content": "Hello"}]
IMAGE = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]
INSTANCE = ServerFacts(
    policy=Policy.CONNECTOR,
    without_connector=WithoutConnector.IGNORE,
    has_connector=True,
    vocabulary=Vocabulary(embedding_rows=100, highest_known=90),
    max_prompt_len=8,
    media_keys=MEDIA_KEYS,
    placeholders=frozenset(),
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)
INSTANCES = st.builds(
    ServerFacts,
    policy=st.sampled_from(Policy),
    without_connector=st.sampled_from(WithoutConnector),
    has_connector=st.booleans(),
    vocabulary=st.builds(
        Vocabulary,
        embedding_rows=st.integers(1, 200),
        highest_known=st.none() | st.integers(0, 200),
    ),
    max_prompt_len=st.integers(1, 20),
    media_keys=st.just(MEDIA_KEYS),
    placeholders=st.frozensets(st.integers(0, 200)),
)


def prompt(ids: Any, *, echo: bool = False, messages: Any = TEXT) -> Prompt:
    return Prompt(ids=ids, echo=echo, messages=messages, scanned=False)


def test_good_ids_are_reused_as_the_very_list() -> None:
    """
    Nothing speaks against the ids: they are the prompt, not a copy of them.
    """
    ids = [0, 1, 99]

    outcome = decide(prompt(ids), INSTANCE)

    assert isinstance(outcome, Reuse)
    assert ids is outcome.ids


@pytest.mark.parametrize(
    ("instance", "asked", "reason"),
    [
        (INSTANCE, prompt(None), Reason.NOT_FORWARDED),
        (replace(INSTANCE, policy=Policy.OFF), prompt([1]), Reason.DISABLED),
        (replace(INSTANCE, policy=Policy.OFF), prompt([True]), Reason.DISABLED),
        (INSTANCE, prompt([1], echo=True), Reason.ECHO),
        (INSTANCE, prompt([True], echo=True, messages=IMAGE), Reason.ECHO),
        (INSTANCE, prompt([1], messages=IMAGE), Reason.NON_TEXT_CONTENT),
        (INSTANCE, prompt([True], messages=IMAGE), Reason.NON_TEXT_CONTENT),
        (replace(INSTANCE, has_connector=False), prompt([1]), Reason.NO_CONNECTOR),
        (replace(INSTANCE, has_connector=False), prompt([True]), Reason.NO_CONNECTOR),
        (
            replace(INSTANCE, has_connector=False),
            prompt([1], messages=IMAGE),
            Reason.NON_TEXT_CONTENT,
        ),
    ],
)
def test_ids_that_cannot_be_used_render(
    instance: ServerFacts, asked: Prompt, reason: Reason
) -> None:
    """
    Rendering has its reason, the first row that applies, and the ids are not checked.
    """
    assert Render(reason) == decide(asked, instance)


def test_always_needs_no_connector() -> None:
    """
    The policy always honours ids on a server without a connector.
    """
    instance = replace(INSTANCE, has_connector=False, policy=Policy.ALWAYS)

    assert isinstance(decide(prompt([1]), instance), Reuse)


class Small(enum.IntEnum):
    """Equal to an int, and not a token id."""

    ONE = 1


@pytest.mark.parametrize(
    "ids",
    [
        "abc",
        "",
        b"ab",
        5,
        0,
        1.5,
        True,
        False,
        {},
        {"0": 1},
        (1, 2),
        range(3),
        [],
        [True],
        [1, True],
        [1.0],
        [float("nan")],
        ["1"],
        [None],
        [[1]],
        [{}],
        [Small.ONE],
        [-1],
        [1, -1, 500],
        [-(10**30)],
    ],
    ids=repr,
)
def test_malformed_ids_are_refused(ids: Any) -> None:
    """
    Only a non-empty list of exact, non-negative ints will do; dashboards match the words.
    """
    outcome = decide(prompt(ids), INSTANCE)

    assert isinstance(outcome, Reject)
    assert (Reason.MALFORMED, PARAMETER) == (outcome.reason, outcome.parameter)
    assert "non-negative integers" in outcome.message


@pytest.mark.parametrize(
    ("rows", "known", "first_past"),
    [(100, 90, 100), (100, 99, 100), (100, None, 100), (100, 107, 108)],
)
def test_bound_of_the_vocabulary_is_exact(rows: int, known: int | None, first_past: int) -> None:
    """
    The first id past both the table and the tokenizer is refused, the one before is not.
    """
    instance = replace(INSTANCE, vocabulary=Vocabulary(rows, known))

    past, last = (decide(prompt([1, id_]), instance) for id_ in (first_past, first_past - 1))

    assert isinstance(past, Reject)
    assert Reason.OUT_OF_VOCABULARY == past.reason
    assert f"Token id {first_past} is out of vocabulary" in past.message
    assert not isinstance(last, Reject)


def test_known_id_without_embedding_row_renders() -> None:
    """
    An id that only the tokenizer knows can only crash the engine.
    """
    instance = replace(INSTANCE, vocabulary=Vocabulary(embedding_rows=100, highest_known=107))

    assert Render(Reason.NO_EMBEDDING) == decide(prompt([1, 100]), instance)


def test_huge_id_is_not_printed() -> None:
    """
    Thousands of digits stay out of the answer.
    """
    outcome = decide(prompt([10**4000]), INSTANCE)

    assert isinstance(outcome, Reject)
    assert Reason.OUT_OF_VOCABULARY == outcome.reason
    assert len(outcome.message) < 400


def test_context_takes_the_longest_prompt_and_no_more() -> None:
    """
    The last length that fits is used, one id more is refused.
    """
    fits, too_long = (decide(prompt([1] * count), INSTANCE) for count in (8, 9))

    assert isinstance(fits, Reuse)
    assert isinstance(too_long, Reject)
    assert (Reason.TOO_LONG, PARAMETER) == (too_long.reason, too_long.parameter)


@given(ids=JSON, echo=st.booleans(), messages=JSON | st.just(TEXT), instance=INSTANCES)
def test_any_json_value_has_an_outcome(
    ids: Any, echo: bool, messages: Any, instance: ServerFacts
) -> None:
    """
    Whatever is sent, the outcome is one of three, nothing is changed and nothing raised.
    """
    before = copy.deepcopy((ids, messages))

    outcome = decide(prompt(ids, echo=echo, messages=messages), instance)

    assert isinstance(outcome, (Reuse, Render, Reject))
    assert repr(before) == repr((ids, messages))
    if isinstance(outcome, Reuse):
        assert outcome.ids is ids


@given(
    ids=st.lists(st.integers(-3, 220) | st.booleans() | st.floats(), max_size=25),
    instance=INSTANCES,
)
def test_reuse_means_that_the_engine_can_take_the_ids(ids: Any, instance: ServerFacts) -> None:
    """
    Reused ids are exact ints with embedding rows, stand for no media and fit; no others are.
    """
    instance = replace(instance, policy=Policy.ALWAYS)
    takes = 0 < len(ids) <= instance.max_prompt_len and all(
        type(item) is int
        and 0 <= item < instance.vocabulary.embedding_rows
        and item not in instance.placeholders
        for item in ids
    )

    assert takes == isinstance(decide(prompt(ids), instance), Reuse)


@given(ids=JSON)
def test_batch_refuses_any_ids(ids: Any) -> None:
    """
    One list cannot be the prompt of several conversations; null is no list.
    """
    assert (ids is None) == isinstance(decide_batch(ids), Render)


@given(params=JSON)
def test_ids_are_found_in_transfer_params_of_any_type(params: Any) -> None:
    """
    Looking for the ids never raises; without them the other params stay.
    """
    assert forwarded(params) is None or isinstance(params, dict)


def test_body_without_ids_is_a_copy() -> None:
    """
    The ids go, everything else stays, and the client's body is not changed.
    """
    body = {"model": "m", "kv_transfer_params": {"prompt_token_ids": [1], "remote_port": 5}}
    before = json.dumps(body)

    assert {"model": "m", "kv_transfer_params": {"remote_port": 5}} == without_ids(body)
    assert before == json.dumps(body)


@pytest.mark.parametrize("ids", [[1], [True], "x"], ids=repr)
def test_server_without_connector_can_refuse(ids: Any) -> None:
    """
    Set to reject, ids are refused unread, and the message says what to start the server with.
    """
    instance = replace(INSTANCE, has_connector=False, without_connector=WithoutConnector.REJECT)

    outcome = decide(prompt(ids), instance)

    assert isinstance(outcome, Reject)
    assert (Reason.NO_CONNECTOR, PARAMETER) == (outcome.reason, outcome.parameter)
    assert "--kv-transfer-config" in outcome.message
    assert "--enable-prompt-token-ids" in outcome.message


@pytest.mark.parametrize("policy", [Policy.CONNECTOR, Policy.ALWAYS])
def test_reject_is_for_servers_without_connector(policy: Policy) -> None:
    """
    Where ids may be used the setting says nothing.
    """
    instance = replace(
        INSTANCE,
        policy=policy,
        has_connector=policy is Policy.CONNECTOR,
        without_connector=WithoutConnector.REJECT,
    )

    assert isinstance(decide(prompt([1]), instance), Reuse)


def test_placeholder_of_media_renders() -> None:
    """
    Ids with a placeholder would share cached blocks between different images.
    """
    instance = replace(INSTANCE, placeholders=frozenset({5}))

    assert Render(Reason.MEDIA_PLACEHOLDER) == decide(prompt([1, 5]), instance)
    assert isinstance(decide(prompt([1, 6]), instance), Reuse)


def test_bad_ids_beside_a_placeholder_are_refused() -> None:
    """
    The ids are checked first.
    """
    instance = replace(INSTANCE, placeholders=frozenset({5}))

    assert isinstance(decide(prompt([5, True]), instance), Reject)
