# SPDX-License-Identifier: Apache-2.0
"""Send the cases to one server and judge its answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum

import httpx

from ...rules.outcome import OF_PARAMS, Reason
from ..conformance import Attempt, Case, Expected, attempts
from ..conformance.profiles import ALLOWED_PEER, UNLISTED_NAME
from ..conformance.runner import AttemptResult, Runner
from ..conformance.values import reference_names, references
from .discovery import NIXL, ServerInfo

UNSAFE_WARNING = (
    "--unsafe sends requests that can hang or crash a vLLM without the guard (while its /health "
    "returns 200), or keep KV blocks of its prefill instance allocated until their lease ends. "
    "Use it on servers that serve nobody else."
)

_ABOUT_NIXL = frozenset(OF_PARAMS) - {Reason.FORBIDDEN_PEER}


class Verdict(str, Enum):
    """The result of a case at one server."""

    HOLDS = "holds"
    FAILS = "fails"
    NOT_APPLICABLE = "not applicable"
    NOT_SENT = "not sent"


@dataclass(frozen=True)
class Result:
    """
    The result of one attempt, or of a case that was not sent at all.

    happened: the answer, or the reason for the verdict, in a few words. endpoint: its path, None
    for a case that was not sent at all.
    """

    case: Case
    verdict: Verdict
    happened: str
    endpoint: str | None = None
    stream: bool = False

    @property
    def where(self) -> str:
        """The endpoint, and whether the answer was streamed."""
        return f"{self.endpoint}{' with stream' if self.stream else ''}"

    @property
    def sent(self) -> bool:
        """Whether the server got the request."""
        return self.endpoint is not None and self.verdict is not Verdict.NOT_SENT


@dataclass(frozen=True)
class ProbeReport:
    """All results of one server."""

    server: ServerInfo
    results: tuple[Result, ...]

    @property
    def holds(self) -> bool:
        """Whether no case fails."""
        return not any(result.verdict is Verdict.FAILS for result in self.results)

    @property
    def sent(self) -> int:
        """The number of attempts that the server got."""
        return sum(result.sent for result in self.results)


@dataclass(frozen=True)
class PlannedCase:
    """A case and its attempts; ``instead``: its result without attempts."""

    case: Case
    attempts: tuple[Attempt, ...] = ()
    instead: Result | None = None


def should(case: Case) -> str:
    """Return the outcome that a case must have, in a few words."""
    expect = case.expect
    match expect.outcome:
        case Expected.REUSE:
            return "the IDs are the prompt"
        case Expected.RENDER:
            return "the answer without IDs"
        case Expected.REJECT:
            return f"400, {expect.param}" if expect.param else "400"


def plan(server: ServerInfo, cases: Iterable[Case], *, unsafe: bool) -> tuple[PlannedCase, ...]:
    """
    Return the attempts at each case on a server, or the reason for no attempt.

    unsafe: whether to send cases that can harm a server without the guard; they come last.
    """
    ordered = sorted(cases, key=lambda case: not case.safe)
    return tuple(_plan(server, case, unsafe) for case in ordered)


def run(
    client: httpx.Client,
    server: ServerInfo,
    planned: Iterable[PlannedCase],
    progress: Callable[[], object],
) -> ProbeReport:
    """
    Send each attempt, one after the other. Nothing that a server does raises.

    client: its base URL is the server's. progress: called after each case.
    """
    runner = Runner(client, server.model, server.model_info)
    results: list[Result] = []
    last_served: str | None = None
    for one in planned:
        if one.instead is not None:
            results.append(one.instead)
        for attempt in one.attempts:
            if last_served is not None:
                why = f"the server stopped serving after {last_served}"
                results.append(_result(attempt, Verdict.NOT_SENT, why))
                continue
            attempt_result = runner.run(attempt)
            results.append(_judged(attempt_result))
            last_served = None if attempt_result.alive else attempt.id
        progress()
    return ProbeReport(server, tuple(results))


def _judged(result: AttemptResult) -> Result:
    attempt = result.attempt
    if result.objection is not None:
        return _result(attempt, Verdict.FAILS, result.objection)
    if result.not_applicable is not None:
        return _result(attempt, Verdict.NOT_APPLICABLE, result.not_applicable)
    return _result(attempt, Verdict.HOLDS, result.remark or should(attempt.case))


def _result(attempt: Attempt, verdict: Verdict, happened: str) -> Result:
    return Result(attempt.case, verdict, happened, attempt.endpoint.path, attempt.stream)


def _plan(server: ServerInfo, case: Case, unsafe: bool) -> PlannedCase:
    possible = tuple(
        attempt
        for attempt in attempts(case, harmony=server.harmony)
        if attempt.endpoint.path in server.paths
    )
    if (why := _why_not_applicable(server, case, possible)) is not None:
        return PlannedCase(case, instead=Result(case, Verdict.NOT_APPLICABLE, why))
    if not (case.safe or unsafe):
        return PlannedCase(case, instead=Result(case, Verdict.NOT_SENT, "requires --unsafe"))
    return PlannedCase(case, attempts=possible)


def _why_not_applicable(
    server: ServerInfo, case: Case, possible: tuple[Attempt, ...]
) -> str | None:
    if case.server not in server.profiles:
        return f"for another kind of server: {case.server.value}"
    if not possible:
        return "the server has none of its endpoints"
    if case.rule in _ABOUT_NIXL and server.connector != NIXL:
        return f"requires {NIXL}"
    return _why_no_value(server, case)


def _why_no_value(server: ServerInfo, case: Case) -> str | None:
    values, names = references(server.model_info), reference_names(case.body)
    if unknown := sorted(name for name in names if values[name] is None):
        return f"cannot determine {', '.join(unknown)}"
    if "allowed_peer" in names and ALLOWED_PEER not in server.allowed_peers:
        return f"{ALLOWED_PEER} is not in the allowed peers of the server"
    if "unlisted_name" in names and UNLISTED_NAME in server.allowed_peers:
        return f"{UNLISTED_NAME} is in the allowed peers of the server"
    return None
