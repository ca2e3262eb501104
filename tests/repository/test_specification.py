# SPDX-License-Identifier: Apache-2.0
"""Each row of the specification has a case or a test, and each case has a row."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from vllm_reuse_guard.rules.content import MEDIA_KEYS, MESSAGE_TYPES, TEXT_TYPES
from vllm_reuse_guard.rules.outcome import Reason
from vllm_reuse_guard.tools.conformance import Case, cases
from vllm_reuse_guard.tools.conformance.endpoints import ENDPOINTS

CHECKOUT = Path(__file__).parents[2]
PAGE = (CHECKOUT / "docs/reference/specification.md").read_text()


@dataclass(frozen=True)
class Row:
    """
    A row of a table whose first column is ``word``.

    shown_by: the last cell, a link to the cases of the word or the names of tests.
    """

    word: str
    shown_by: str

    @property
    def links_to_cases(self) -> bool:
        """Whether the row names the section that lists the cases of its word."""
        return f"[cases](#cases-{self.word})" in self.shown_by

    @property
    def tests(self) -> list[tuple[str, str]]:
        """The file and the function of each test that the row names."""
        return re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", self.shown_by)


def tables(page: str, first_column: str) -> list[list[str]]:
    """Return the cells of every row in the tables whose first column has this heading."""
    blocks = re.findall(rf"^\| {first_column} \|.*\n\| ---.*\n((?:\|.*\n)+)", page, re.MULTILINE)
    return [row.strip("| ").split(" | ") for block in blocks for row in block.splitlines()]


def rows(page: str) -> list[Row]:
    """Return every row that has a word."""
    return [Row(cells[0].strip("`"), cells[-1]) for cells in tables(page, "word")]


@cache
def functions(file: str) -> set[str]:
    """Return the names of the functions that a file defines; empty if it does not exist."""
    path = CHECKOUT / file
    body = ast.parse(path.read_text()).body if path.is_file() else []
    return {node.name for node in body if isinstance(node, ast.FunctionDef)}


def gaps(page: str, every_case: Collection[Case]) -> list[str]:
    """Return what is missing between the rows of a page and the cases, one line each."""
    rules = {case.rule.value for case in every_case}
    found = rows(page)
    words = [row.word for row in found]
    needed = rules | {reason.value for reason in Reason}
    return [
        *(f"no row: {word}" for word in needed - set(words)),
        *(f"two rows: {word}" for word in set(words) if words.count(word) > 1),
        *(gap for row in found for gap in gaps_of(row, rules)),
    ]


def gaps_of(row: Row, rules: Collection[str]) -> list[str]:
    """Return why nothing shows that a row holds; rules: the words that have a case."""
    if row.links_to_cases:
        return [] if row.word in rules else [f"no case: {row.word}"]
    if row.word in rules or not row.tests:
        return [f"neither cases nor a test: {row.word}"]
    return [f"no test: {file}::{name}" for file, name in row.tests if name not in functions(file)]


def new_gaps(page: str, every_case: Collection[Case]) -> list[str]:
    """Return the gaps that the page itself, with every case, does not have."""
    return [gap for gap in gaps(page, every_case) if gap not in gaps(PAGE, cases().values())]


def paths(case: Case) -> set[str]:
    """Return the paths of the endpoints that a case is sent to, on servers of any model."""
    return {
        endpoint.path
        for harmony in (False, True)
        for endpoint in case.at.endpoints(harmony=harmony)
    }


def endpoint_gaps(page: str, every_case: Collection[Case]) -> list[str]:
    """Return the endpoints without a row, the rows without an endpoint or a case for it."""
    described = {
        cells[0].strip("`") for cells in tables(page.partition("\n## Cases\n")[0], "endpoint")
    }
    tried = {path for case in every_case for path in paths(case)}
    every = {endpoint.path for endpoint in ENDPOINTS}
    return [
        *(f"no row: {path}" for path in every - described),
        *(f"no endpoint: {path}" for path in described - every),
        *(f"no case: {path}" for path in described - tried),
    ]


def test_every_row_and_every_case_has_its_other_half() -> None:
    """
    A row links to the cases of its word or names existing tests; each case has a row.
    """
    assert [] == gaps(PAGE, cases().values())


def test_every_endpoint_has_a_row_and_a_case() -> None:
    """
    The endpoints of the page are those that the cases are sent to.
    """
    assert [] == endpoint_gaps(PAGE, cases().values())


@pytest.mark.parametrize("word", sorted(TEXT_TYPES | MEDIA_KEYS | MESSAGE_TYPES))
def test_page_names_what_is_text_and_what_is_media(word: str) -> None:
    """
    The types of text and the media keys of the page are those of the rule.
    """
    section = PAGE.partition("\n## Non-text content\n")[2].partition("\n## ")[0]

    assert f"`{word}`" in section


@pytest.mark.parametrize("reason", Reason, ids=lambda reason: reason.value)
def test_row_without_a_case_is_found(reason: Reason) -> None:
    """
    A row fails the check once its last case is gone.
    """
    others = [case for case in cases().values() if case.rule is not reason]

    assert [f"no case: {reason.value}"] == new_gaps(PAGE, others)


@pytest.mark.parametrize("reason", Reason, ids=lambda reason: reason.value)
def test_case_without_a_row_is_found(reason: Reason) -> None:
    """
    A case fails the check once the row of its word is gone.
    """
    page = re.sub(rf"^\| `{reason.value}` \|.*\n", "", PAGE, flags=re.MULTILINE)

    assert [f"no row: {reason.value}"] == new_gaps(page, cases().values())


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ("| `new` | Any. | Render. | |", "neither cases nor a test: new"),
        ("| `new` | Any. | Render. | [cases](#cases-new) |", "no case: new"),
        ("| `new` | Any. | Render. | [cases](#cases-echo) |", "neither cases nor a test: new"),
        ("| `echo` | Any. | Render. | [cases](#cases-echo) |", "two rows: echo"),
        (
            "| `new` | Any. | Render. | `tests/live/pairs/test_pair.py::test_gone` |",
            "no test: tests/live/pairs/test_pair.py::test_gone",
        ),
        (
            "| `new` | Any. | Render. | `tests/gone.py::test_gone` |",
            "no test: tests/gone.py::test_gone",
        ),
    ],
)
def test_row_that_nothing_shows_is_found(row: str, expected: str) -> None:
    """
    A new row needs cases of its own word, or a test that exists.
    """
    head = "| word | condition | outcome | shown by |\n| --- | --- | --- | --- |\n"

    assert [expected] == new_gaps(f"{PAGE}\n{head}{row}\n", cases().values())


def test_endpoint_without_a_row_is_found() -> None:
    """
    An endpoint fails the check if the page or the code alone has it.
    """
    path = "/v1/chat/completions/batch"
    renamed = PAGE.replace(f"| `{path}` |", "| `/v1/other` |", 1)

    assert {f"no row: {path}", "no endpoint: /v1/other", "no case: /v1/other"} == set(
        endpoint_gaps(renamed, cases().values())
    )


@pytest.mark.parametrize("path", sorted({endpoint.path for endpoint in ENDPOINTS}))
def test_endpoint_without_a_case_is_found(path: str) -> None:
    """
    An endpoint fails the check once no case is sent to it.
    """
    others = [case for case in cases().values() if path not in paths(case)]

    assert f"no case: {path}" in endpoint_gaps(PAGE, others)
