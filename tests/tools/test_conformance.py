# SPDX-License-Identifier: Apache-2.0
"""The cases are consistent: each reference exists, and each row has a case."""

from __future__ import annotations

import pytest

from vllm_reuse_guard.rules.outcome import Reason
from vllm_reuse_guard.tools.conformance import Case, Expected, cases
from vllm_reuse_guard.tools.conformance.values import ModelInfo, resolve

MODEL_INFO = ModelInfo(forwarded=[3, 4], embedding_rows=10, last_known=12, max_prompt_len=5)
EVERY = pytest.mark.parametrize("case", cases().values(), ids=cases())


@pytest.mark.parametrize("reason", Reason)
def test_every_row_has_a_case(reason: Reason) -> None:
    """
    Each row of the specification is the rule of at least one case.
    """
    assert reason in {case.rule for case in cases().values()}


@EVERY
def test_description_is_a_sentence_in_lower_case(case: Case) -> None:
    """
    A description is one line of a table.
    """
    assert case.description
    assert not case.description.endswith(".")


def test_descriptions_are_unique() -> None:
    """
    No two cases have the same description.
    """
    descriptions = [case.description for case in cases().values()]

    assert len(descriptions) == len(set(descriptions))


@EVERY
def test_control_is_safe_and_of_the_same_server(case: Case) -> None:
    """
    A control exists, is safe, is about the same server, and has no control.
    """
    if case.control is not None:
        control = cases()[case.control]
        assert (control.server, control.safe, control.control) == (case.server, True, None)


@EVERY
def test_values_resolve(case: Case) -> None:
    """
    Each reference in a body is known.
    """
    assert resolve(case.body, MODEL_INFO).keys() == case.body.keys()


@EVERY
def test_rejection_names_its_field(case: Case) -> None:
    """
    A rejection has a field and a part of the message; other outcomes have neither.
    """
    rejects = case.expect.outcome is Expected.REJECT

    assert rejects == (case.expect.param is not None)
    assert rejects == (case.expect.says is not None)


def test_references_and_lists_resolve() -> None:
    """
    References are replaced and lists are joined, at any depth.
    """
    value = {"a": [{"$concat": [{"$ref": "forwarded"}, [True]]}], "b": {"$ref": "first_past"}}

    assert {"a": [[3, 4, True]], "b": 13} == resolve(value, MODEL_INFO)


def test_unknown_reference_is_an_error() -> None:
    """
    A reference to an unknown name raises, so that a typing error does not become a value.
    """
    with pytest.raises(KeyError, match="forwardde"):
        resolve({"$ref": "forwardde"}, MODEL_INFO)


def test_objects_are_merged_in_order() -> None:
    """
    A later object overrides the keys of an earlier one, which keep their place.
    """
    value = {"$merge": [{"a": 1, "b": 2}, {"a": [{"$ref": "forwarded"}]}, {"c": 3}]}

    assert [("a", [[3, 4]]), ("b", 2), ("c", 3)] == list(resolve(value, MODEL_INFO).items())


def test_keys_are_removed() -> None:
    """
    An object comes without the keys that follow it, and keeps the others.
    """
    whole = resolve({"$ref": "pull"}, MODEL_INFO)

    part = resolve({"$without": [{"$ref": "pull"}, "remote_host", "tp_size"]}, MODEL_INFO)

    assert whole.keys() - {"remote_host", "tp_size"} == part.keys()
    assert whole == {**part, "remote_host": "127.0.0.1", "tp_size": 1}


def test_removing_an_unknown_key_is_an_error() -> None:
    """
    A key to remove that the object does not have raises.
    """
    with pytest.raises(KeyError, match="remote_hots"):
        resolve({"$without": [{"$ref": "pull"}, "remote_hots"]}, MODEL_INFO)


def test_a_body_does_not_share_the_pull() -> None:
    """
    A change to one body does not show in the next.
    """
    resolve({"$ref": "pull"}, MODEL_INFO)["remote_block_ids"].append([3])

    assert [[0, 1, 2]] == resolve({"$ref": "pull"}, MODEL_INFO)["remote_block_ids"]
