# SPDX-License-Identifier: Apache-2.0
"""The written part of the specification: the endpoints and cases of each row, from the data."""

from __future__ import annotations

from collections.abc import Iterable

from vllm_reuse_guard.rules.outcome import Reason
from vllm_reuse_guard.tools.conformance import Case, cases
from vllm_reuse_guard.tools.conformance.endpoints import ENDPOINTS, Endpoint, Group

from .markdown import codes, plain


def text() -> str:
    """Return the groups of each endpoint, and a section with the cases of each word."""
    by_word: dict[Reason, list[Case]] = {}
    for case in cases().values():
        by_word.setdefault(case.rule, []).append(case)
    sections = (_cases(word, by_word[word]) for word in Reason if word in by_word)
    return "\n".join([_endpoints(), *sections])


def _endpoints() -> str:
    head = "| endpoint | since | groups | cases |\n| --- | --- | --- | --- |\n"
    return f"### Endpoint groups\n\n{head}{''.join(map(_endpoint, ENDPOINTS))}"


def _endpoint(endpoint: Endpoint) -> str:
    groups = [group for group in Group if endpoint in _members(group)]
    count = sum(case.at in groups for case in cases().values())
    words = codes(group.value for group in groups)
    return f"| `{endpoint.path}` | {endpoint.since} | {words} | {count} |\n"


def _members(group: Group) -> tuple[Endpoint, ...]:
    # Some groups have endpoints only with a Harmony model, some only without one.
    return (*group.endpoints(harmony=False), *group.endpoints(harmony=True))


def _cases(word: Reason, rows: Iterable[Case]) -> str:
    head = "| case | description | outcome | group |\n| --- | --- | --- | --- |\n"
    lines = "".join(
        f"| `{case.id}` | {plain(case.description)} "
        f"| {case.expect.outcome.value.capitalize()} | `{case.at.value}` |\n"
        for case in rows
    )
    return f"### Cases: `{word.value}`\n\n{head}{lines}"
