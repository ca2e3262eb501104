# SPDX-License-Identifier: Apache-2.0
"""The pages speak of the same things as the code."""

from __future__ import annotations

import ast
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from lab.pages import reference
from vllm_reuse_guard.installer import Patch
from vllm_reuse_guard.patches import PATCHES
from vllm_reuse_guard.releases import TESTED
from vllm_reuse_guard.rules.content import TEXT_TYPES
from vllm_reuse_guard.rules.decision import Policy
from vllm_reuse_guard.rules.outcome import Reason
from vllm_reuse_guard.settings import PREFIX, Settings
from vllm_reuse_guard.tools.cli import app
from vllm_reuse_guard.tools.conformance import cases
from vllm_reuse_guard.tools.probe.reports import Format

CHECKOUT = Path(__file__).parents[2]
PAGES = sorted(
    page.relative_to(CHECKOUT) for page in [*CHECKOUT.glob("*.md"), *CHECKOUT.glob("docs/**/*.md")]
)
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


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_no_gap_is_left_in_the_pages(page: Path) -> None:
    """
    Output in the pages was put there from a run.
    """
    assert not re.findall(r"@@[a-z]", (CHECKOUT / page).read_text())


def anchors(page: Path) -> set[str]:
    """Return what the headings of a page can be linked by."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_links_lead_somewhere(page: Path) -> None:
    """
    Each relative link of a page leads to a file, and to a heading in it.
    """
    for link in re.findall(r"\]\(([^)\s]+)\)", (CHECKOUT / page).read_text()):
        if "://" not in link:
            path, _, anchor = link.partition("#")
            target = (CHECKOUT / page).parent / path if path else CHECKOUT / page
            assert target.exists(), link
            assert not anchor or anchor in anchors(target), link


def test_alerts_lead_to_what_to_do() -> None:
    """
    The page and the heading that an alert names are there.
    """
    rules = (CHECKOUT / "docs/monitoring/alert-rules.yaml").read_text()
    runbooks = re.findall(r"runbook: (\S+)#(\S+)", rules)

    assert rules.count("- alert:") == len(runbooks)
    for page, anchor in runbooks:
        assert anchor in anchors(CHECKOUT / page)


def test_probe_page_has_every_option() -> None:
    """
    What the command can be told is explained.
    """
    page = (CHECKOUT / "docs/commands/probe.md").read_text()
    helped = CliRunner().invoke(app, ["probe", "--help"], env={"COLUMNS": "200"}).output

    options = set(re.findall(r"--[a-z-]+", helped)) - {"--help"}
    assert options
    assert options <= set(re.findall(r"--[a-z-]+", page))
    assert all(form.value in page for form in Format)


@pytest.mark.parametrize("page", reference.PAGES, ids=lambda page: page.path.name)
def test_written_page_says_what_the_code_says(page: reference.Reference) -> None:
    """
    After a change of a setting or a patch its page is written anew: ``make reference``.
    """
    assert page.text() == page.path.read_text()


def test_page_is_stale_after_a_setting_has_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The test above can fail: for a description.
    """
    monkeypatch.setattr(Settings.model_fields["allow_unsupported"], "description", "Other words.")

    assert not reference.SETTINGS.is_up_to_date()
    assert reference.PATCHED.is_up_to_date()


@pytest.mark.parametrize(
    "changed",
    [
        {"why": "Other words."},
        {"patch_points": ("another",)},
        {"upstream_since": "0.33.0"},
        {"tests": ()},
    ],
    ids=str,
)
def test_page_is_stale_after_a_patch_has_changed(
    monkeypatch: pytest.MonkeyPatch, changed: dict[str, Any]
) -> None:
    """
    And for whatever a patch says of itself.
    """
    patches = (*PATCHES[:-1], replace(PATCHES[-1], **changed))
    monkeypatch.setattr(reference, "PATCHES", patches)

    assert not reference.PATCHED.is_up_to_date()
    assert reference.SETTINGS.is_up_to_date()


@pytest.mark.parametrize("patch", PATCHES, ids=lambda patch: f"{patch.name}-{patch.module}")
def test_patch_names_tests_that_are_there(patch: Patch) -> None:
    """
    Each patch has a test against vLLM, and each test that it names is a function of that file.
    """
    assert patch.tests
    for test in patch.tests:
        file, _, name = test.partition("::")
        function, _, case = name.partition("[")
        assert not case or any(f"-{id_}@/" in case for id_ in cases()), test
        assert file.startswith(("tests/contract/", "tests/live/")), test
        body = ast.parse((CHECKOUT / file).read_text()).body
        assert function in {node.name for node in body if isinstance(node, ast.FunctionDef)}, test
