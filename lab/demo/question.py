# SPDX-License-Identifier: Apache-2.0
"""A question that prefill reads and decode answers, and what decode's figures say about it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from openai import OpenAI

from ..servers.pair import TO_PREFILL, Handover, Pair
from ..servers.server import MODEL_NAME, Server
from .screen import Screen, mark

QUESTION = "What is the capital of France?"
ANSWER = "Paris"
OTHER_QUESTION = "What is two plus three?"

PULLED_TOKENS = "vllm:external_prefix_cache_hits_total"
TRANSFERS = "vllm:nixl_bytes_transferred_count"
TRANSFERRED_BYTES = "vllm:nixl_bytes_transferred_sum"

_SECONDS_FOR_METRICS = 10


@dataclass(frozen=True)
class Reply:
    """What decode says, and the ids of the prompt that it ran."""

    text: str
    prompt: list[int]


@dataclass(frozen=True)
class Counters:
    """Figures of an instance: prompt tokens taken from elsewhere, NIXL transfers, their bytes."""

    tokens: int
    transfers: int
    size: int

    @classmethod
    def read(cls, server: Server) -> Counters:
        """Read them from ``/metrics``."""
        return cls(
            int(server.metric(PULLED_TOKENS)),
            int(server.metric(TRANSFERS)),
            int(server.metric(TRANSFERRED_BYTES)),
        )

    @classmethod
    def read_after_transfer(cls, server: Server, before: Counters) -> Counters:
        """Read them when a transfer was counted, which can be after the answer, or in vain."""
        end = time.monotonic() + _SECONDS_FOR_METRICS
        while (now := cls.read(server)).transfers == before.transfers and time.monotonic() < end:
            time.sleep(0.5)
        return now


@dataclass(frozen=True)
class Fact:
    """One check: where the value is read, the value, and the expected value."""

    source: str
    seen: str
    wanted: str
    holds: bool


def show(pair: Pair, screen: Screen) -> bool:
    """
    Ask the question and show the answer and the figures; return whether all checks passed.

    Raises openai.OpenAIError and httpx.HTTPError for an instance that does not answer.
    """
    prefill, decode = connect(pair.prefill), connect(pair.decode)
    before = Counters.read(pair.decode)
    handover = hand_over(prefill, QUESTION)
    screen.say(f"prefill reads {QUESTION!r}: {len(handover.ids)} token ids to forward")
    reply = ask(decode, QUESTION, handover.with_ids(handover.ids))
    _say(screen, "1. the same messages, with these ids and KV blocks", reply)
    after = Counters.read_after_transfer(pair.decode, before)
    other = ask(decode, OTHER_QUESTION, {"prompt_token_ids": handover.ids})
    _say(screen, f"2. messages that ask {OTHER_QUESTION!r}, with these ids", other)
    plain = ask(decode, OTHER_QUESTION, None)
    _say(screen, f"3. messages that ask {OTHER_QUESTION!r}, without ids", plain)
    facts = [
        Fact("text, first answer", reply.text, f"names {ANSWER}", ANSWER in reply.text),
        *pulled(before, after, len(handover.ids)),
        *used(handover.ids, reply, other, plain),
    ]
    screen.table(
        ("read from decode", "actual", "expected", "ok"),
        [(fact.source, fact.seen, fact.wanted, mark(fact.holds)) for fact in facts],
    )
    return all(fact.holds for fact in facts)


def _say(screen: Screen, request: str, reply: Reply) -> None:
    screen.say(f"{request}: decode answers")
    screen.say(f"   {reply.text}", style="bold cyan")


def pulled(before: Counters, after: Counters, length: int) -> Iterator[Fact]:
    """Say whether decode pulled a whole prompt of this length, in one transfer."""
    tokens = after.tokens - before.tokens
    transfers = after.transfers - before.transfers
    size = after.size - before.size
    yield Fact(PULLED_TOKENS, f"+{tokens}", f"+{length}, the prompt", tokens == length)
    yield Fact(TRANSFERS, f"+{transfers}", "+1", transfers == 1)
    yield Fact(TRANSFERRED_BYTES, f"+{size:,}", "more", size > 0)


def used(ids: list[int], reply: Reply, other: Reply, plain: Reply) -> Iterator[Fact]:
    """Say whether the forwarded ids, and not the messages, were what decode ran."""
    for name, answer in (("first", reply), ("second", other)):
        same = answer.prompt == ids
        seen = f"{len(answer.prompt)} ids, {'all as' if same else 'not those'} forwarded"
        yield Fact(f"prompt_token_ids, {name} answer", seen, "as forwarded", same)
    for name, answer, wanted in (("second", other, True), ("third", plain, False)):
        same = answer.text == reply.text
        says = "the first answer again", "another answer"
        yield Fact(f"text, {name} answer", says[not same], says[not wanted], same is wanted)


def connect(server: Server) -> OpenAI:
    """Return a client that sends every request once: a retry would hide a failure."""
    return OpenAI(base_url=f"{server.url}/v1", api_key="unused", max_retries=0, timeout=120)


def hand_over(prefill: OpenAI, question: str) -> Handover:
    """Let prefill read a question; return what decode needs from it."""
    answer = prefill.chat.completions.create(
        model=MODEL_NAME,
        messages=[{"role": "user", "content": question}],
        max_tokens=1,
        extra_body={"return_token_ids": True, "kv_transfer_params": TO_PREFILL},
    )
    told = answer.model_extra or {}
    return Handover(told.get("kv_transfer_params") or {}, told.get("prompt_token_ids") or [])


def ask(decode: OpenAI, question: str, transfer_params: dict[str, Any] | None) -> Reply:
    """Let decode answer a question."""
    answer = decode.chat.completions.create(
        model=MODEL_NAME,
        messages=[{"role": "user", "content": question}],
        max_tokens=24,
        temperature=0,
        extra_body={"return_token_ids": True, "kv_transfer_params": transfer_params},
    )
    told = answer.model_extra or {}
    return Reply(answer.choices[0].message.content or "", told.get("prompt_token_ids") or [])
