# SPDX-License-Identifier: Apache-2.0
"""Send the cases to one server and judge what it answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum

import httpx

from ...rules.outcome import OF_PARAMS, Reason
from ..conformance import Attempt, Case, Expected, attempts
from ..conformance.runner import Runner
from ..conformance.values import references, referred
from .discovery import NIXL, About

UNSAFE_WARNING = (
    "--unsafe sends requests that hang or kill a vLLM without the guard (its /health can go on "
    "saying 200), or leave KV blocks of its prefill instance taken until their lease ends. Send "
    "them to servers that nobody else is using."
)

_ABOUT_NIXL = frozenset(OF_PARAMS) - {Reason.FORBIDDEN_PEER}


class Verdict(str, Enum):
    """What was found about a case at one server."""

    HOLDS = "holds"
    FAILS = "fails"
    NOT_APPLICABLE = "not applicable"
    NOT_SENT = "not sent"


@dataclass(frozen=True)
class Result:
    """
    What came of one attempt, or of a case that was not tried.

    endpoint: its path, None for a case as a whole. happened: in a few words.
    """

    case: Case
    verdict: Verdict
    happened: str
    endpoint: str | None = None
    stream: bool = False

    @property
    def where(self) -> str:
        """The endpoint, and whether it was asked for a stream."""
        return f"{self.endpoint}{' as a stream' if self.stream else ''}"


@dataclass(frozen=True)
class Probed:
    """All that was found out about one server."""

    about: About
    results: tuple[Result, ...]

    @property
    def holds(self) -> bool:
        """Whether every case that was tried holds."""
        return not any(result.verdict is Verdict.FAILS for result in self.results)

    @property
    def tried(self) -> int:
        """How many attempts there were."""
        return sum(result.verdict in (Verdict.HOLDS, Verdict.FAILS) for result in self.results)


@dataclass(frozen=True)
class Planned:
    """A case, and how it is tried; not at all if ``instead`` says what is found without that."""

    case: Case
    attempts: tuple[Attempt, ...] = ()
    instead: Result | None = None


def should(case: Case) -> str:
    """Say in a few words what must come of a case."""
    expect = case.expect
    match expect.outcome:
        case Expected.REUSE:
            return "the ids are the prompt"
        case Expected.RENDER:
            return "the answer without ids"
        case Expected.REJECT:
            return f"400, {expect.param}" if expect.param else "400"


def plan(about: About, cases: Iterable[Case], *, unsafe: bool) -> tuple[Planned, ...]:
    """
    Say of each case how it is tried on a server, or why it is not.

    unsafe: whether cases may be sent that can harm a server without the guard; they come last.
    """
    ordered = sorted(cases, key=lambda case: not case.safe)
    return tuple(_plan(about, case, unsafe) for case in ordered)


def run(
    client: httpx.Client, about: About, planned: Iterable[Planned], progress: Callable[[], object]
) -> Probed:
    """
    Try what was planned, one after the other; never raises for what a server does.

    client: its base URL is the server's. progress: called after each case.
    """
    runner = Runner(client, about.model, about.model_info)
    results: list[Result] = []
    gone: str | None = None
    for one in planned:
        if one.instead is not None:
            results.append(one.instead)
        for attempt in one.attempts:
            if gone is not None:
                says = f"the server serves nothing since {gone}"
                results.append(_result(attempt, Verdict.NOT_SENT, says))
                continue
            verdict = runner.run(attempt)
            happened = should(one.case) if verdict.objection is None else verdict.objection
            kind = Verdict.HOLDS if verdict.holds else Verdict.FAILS
            results.append(_result(attempt, kind, happened))
            gone = None if verdict.alive else attempt.id
        progress()
    return Probed(about, tuple(results))


def _result(attempt: Attempt, verdict: Verdict, happened: str) -> Result:
    return Result(attempt.case, verdict, happened, attempt.endpoint.path, attempt.stream)


def _plan(about: About, case: Case, unsafe: bool) -> Planned:
    possible = tuple(
        attempt
        for attempt in attempts(case, harmony=about.harmony)
        if attempt.endpoint.path in about.paths
    )
    if (why := _why_not_applicable(about, case, possible)) is not None:
        return Planned(case, instead=Result(case, Verdict.NOT_APPLICABLE, why))
    if not (case.safe or unsafe):
        says = "needs --unsafe"
        return Planned(case, instead=Result(case, Verdict.NOT_SENT, says))
    return Planned(case, attempts=possible)


def _why_not_applicable(about: About, case: Case, possible: tuple[Attempt, ...]) -> str | None:
    if case.server not in about.profiles:
        return f"is about another kind of server: {case.server.value}"
    if not possible:
        return "the server has none of its endpoints"
    known = references(about.model_info)
    if unknown := sorted(name for name in referred(case.body) if known[name] is None):
        return f"{', '.join(unknown)} cannot be found out"
    if case.rule in _ABOUT_NIXL and about.connector != NIXL:
        return f"is about {NIXL}"
    return None
