# SPDX-License-Identifier: Apache-2.0
"""Bad requests to decode: conformance cases, and what came of each."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from textwrap import shorten

import httpx
from rich.text import Text

from vllm_reuse_guard.tools.conformance import Attempt, Case, Expected, attempts, cases
from vllm_reuse_guard.tools.conformance.runner import AttemptResult

from ..servers import launches
from ..servers.server import Server
from .screen import Screen, mark

BAD_REQUESTS: Mapping[str, str] = {
    "chat.a-string-is-refused": "a string for ids",
    "chat.true-among-ids-is-refused": "true among ids",
    "chat.whole-floats-are-refused": "1.0 among ids",
    "chat.nan-is-refused": "NaN among ids",
    "chat.deeply-nested-lists-are-refused": "lists, 400 deep",
    "chat.a-negative-id-among-ids-is-refused": "a negative id",
    "chat.the-first-id-past-the-vocabulary-is-refused": "one past the last id",
    "chat.an-id-of-hundreds-of-digits-is-refused": "an id of 400 digits",
    "chat.a-prompt-beyond-the-context-is-refused": "more ids than fit",
    "chat.a-prompt-beyond-the-context-with-truncation-is-refused": "more, to be truncated",
    "batch.ids-are-refused": "one list for a batch",
    "content.image-url-renders": "ids beside an image",
    "content.ids-beside-media-are-not-checked": "bad ids beside an image",
    "content.no-type-renders": "ids, part without type",
    "chat.echo-renders": "ids beside echo",
}
"""The ids of the cases that are sent, with what the table calls each request."""

_SECONDS_TO_ANSWER = 60
_LONGEST_MESSAGE = 110
_REPEATED = re.compile(r"^`kv_transfer_params\S+ | \(parameter=.*|(?<=[^.])\. .*")
"""What the table leaves out of a message: the parameter, and all after the first sentence."""


@dataclass(frozen=True)
class Outcome:
    """What came of one case, in every way that it is sent, and whether decode still serves."""

    case: Case
    verdicts: tuple[AttemptResult, ...]
    serving: bool

    @property
    def holds(self) -> bool:
        """Whether all checks passed."""
        return self.serving and all(verdict.holds for verdict in self.verdicts)


def show(decode: Server, screen: Screen) -> bool:
    """Send every bad request and show what came of it; return whether every case held."""
    outcomes = list[Outcome]()
    with screen.waiting(f"sending {len(BAD_REQUESTS)} bad requests to decode"):
        for outcome in send(decode):
            outcomes.append(outcome)
    screen.table(
        ("request to decode", "answer", "still\nserving"), [_row(outcome) for outcome in outcomes]
    )
    screen.say(
        "Each is sent without and with stream: true, but for the batch, which cannot stream.\n"
        "After each one, a plain request shows whether decode still serves."
    )
    if unsent := len(BAD_REQUESTS) - len(outcomes):
        screen.say(f"decode no longer serves; {unsent} requests were not sent", style="bold red")
    return not unsent and all(outcome.holds for outcome in outcomes)


def send(decode: Server) -> Iterator[Outcome]:
    """Send one case after the other, up to one after which decode no longer serves."""
    with httpx.Client(base_url=decode.url, timeout=_SECONDS_TO_ANSWER) as client:
        runner = launches.runner(decode, client)
        for case in map(cases().__getitem__, BAD_REQUESTS):
            verdicts = tuple(runner.run(attempt) for attempt in _trials(case))
            # A case that holds has been followed by a plain request already.
            serving = all(verdict.holds for verdict in verdicts) or _serves(decode)
            yield Outcome(case, verdicts, serving)
            if not serving:
                return


def _trials(case: Case) -> list[Attempt]:
    first, *_ = tried = attempts(case, harmony=False)
    return [attempt for attempt in tried if attempt.endpoint is first.endpoint]


def _serves(server: Server) -> bool:
    try:
        answer = server.chat(messages=[{"role": "user", "content": "Hello"}], max_tokens=1)
    except httpx.HTTPError:
        return False
    return answer.status_code == 200


def _row(outcome: Outcome) -> tuple[str, Text, Text]:
    name = BAD_REQUESTS[outcome.case.id]
    return name, _describe(outcome), mark(outcome.serving)


def _describe(outcome: Outcome) -> Text:
    for verdict in outcome.verdicts:
        if not verdict.holds:
            way = "with stream" if verdict.attempt.stream else "without stream"
            return Text(f"{way}: {verdict.objection or verdict.not_applicable}", "bold red")
    answer = outcome.verdicts[-1].answer
    if answer is None:
        return Text("nothing", "bold red")
    first = f"{answer.status} {answer.param or ''}"
    if outcome.case.expect.outcome is Expected.RENDER:
        first = f"{answer.status}, as without ids"
    words = _REPEATED.sub("", answer.error) if answer.error else f"says {answer.output.text!r}"
    return Text(f"{first}\n{shorten(words, _LONGEST_MESSAGE, placeholder=' ...')}")
