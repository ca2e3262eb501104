# SPDX-License-Identifier: Apache-2.0
"""The cases themselves are tested: what they refer to exists, and no row is a hole."""

from __future__ import annotations

import pytest

from vllm_reuse_guard.rules.outcome import Reason
from vllm_reuse_guard.tools.conformance import Case, Expected, cases
from vllm_reuse_guard.tools.conformance.values import ModelInfo, resolve

SUBJECT = ModelInfo(forwarded=[3, 4], embedding_rows=10, last_known=12, max_prompt_len=5)
EVERY = pytest.mark.parametrize("case", cases().values(), ids=cases())


@pytest.mark.parametrize("reason", Reason)
def test_every_row_has_a_case(reason: Reason) -> None:
    """
    Each row of the decision is the rule of at least one case.
    """
    assert reason in {case.rule for case in cases().values()}


@EVERY
def test_description_is_a_sentence_in_lower_case(case: Case) -> None:
    """
    Descriptions read as one line of a table.
    """
    assert case.description
    assert not case.description.endswith(".")


def test_descriptions_are_unique() -> None:
    """
    No two cases say the same.
    """
    descriptions = [case.description for case in cases().values()]

    assert len(descriptions) == len(set(descriptions))


@EVERY
def test_control_is_safe_and_of_the_same_server(case: Case) -> None:
    """
    A control exists, harms nobody, and is not itself in need of one.
    """
    if case.control is not None:
        control = cases()[case.control]
        assert (control.server, control.safe, control.control) == (case.server, True, None)


@EVERY
def test_values_resolve(case: Case) -> None:
    """
    Every reference in a body is known.
    """
    assert resolve(case.body, SUBJECT).keys() == case.body.keys()


@EVERY
def test_rejection_names_its_field(case: Case) -> None:
    """
    A rejection says which field and has words to look for; the others have neither.
    """
    rejects = case.expect.outcome is Expected.REJECT

    assert rejects == (case.expect.param is not None)
    assert rejects == (case.expect.says is not None)


def test_references_and_lists_resolve() -> None:
    """
    References are replaced and lists are joined, at any depth.
    """
    value = {"a": [{"$concat": [{"$ref": "forwarded"}, [True]]}], "b": {"$ref": "first_past"}}

    assert {"a": [[3, 4, True]], "b": 13} == resolve(value, SUBJECT)


def test_unknown_reference_is_an_error() -> None:
    """
    A typing error in a case does not become a value.
    """
    with pytest.raises(KeyError, match="forwardde"):
        resolve({"$ref": "forwardde"}, SUBJECT)
