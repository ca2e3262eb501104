# SPDX-License-Identifier: Apache-2.0
"""The pages speak of the same things as the code."""

from __future__ import annotations

from pathlib import Path

import pytest

from vllm_reuse_guard.core.content import TEXT_TYPES
from vllm_reuse_guard.core.decision import Policy
from vllm_reuse_guard.core.outcome import Reason
from vllm_reuse_guard.releases import TESTED
from vllm_reuse_guard.settings import PREFIX, Settings

CHECKOUT = Path(__file__).parents[2]
README = (CHECKOUT / "README.md").read_text()
FEATURE = (CHECKOUT / "docs/features/disagg_prefill.md").read_text()


def test_readme_opens_with_the_tested_releases() -> None:
    """
    The releases are those of the one list.
    """
    assert ", ".join(TESTED) in README[:800]


@pytest.mark.parametrize("field", Settings.model_fields)
def test_readme_has_every_setting(field: str) -> None:
    """
    Each setting is in the README by the name of its variable.
    """
    assert f"`{PREFIX}{field.upper()}`" in README


@pytest.mark.parametrize("word", [*Reason, *Policy], ids=lambda word: word.value)
def test_feature_page_has_every_word(word: Reason | Policy) -> None:
    """
    Each word that a log line can name is explained.
    """
    assert f"`{word.value}`" in FEATURE + README


@pytest.mark.parametrize("kind", sorted(TEXT_TYPES))
def test_feature_page_names_what_is_text(kind: str) -> None:
    """
    The kinds of text are those of the rule.
    """
    assert f"`{kind}`" in FEATURE


def test_no_gap_is_left_in_the_pages() -> None:
    """
    Output in the pages was put there from a run.
    """
    assert "@@" not in README + FEATURE
