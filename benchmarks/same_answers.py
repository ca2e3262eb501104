# SPDX-License-Identifier: Apache-2.0
"""
Two hundred prompts on a real model, through prefill and decode with reuse and without: are the
answers the same, token by token?

    make answers    # some twenty minutes on two cores; writes docs/benchmarks
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from lab.models.build import Model
from lab.servers import launches
from lab.servers.pair import Pair, running_pair
from vllm_reuse_guard.tools.conformance import Profile
from vllm_reuse_guard.tools.conformance.answers import CHAT_COMPLETION, read

from . import report
from .report import FOLDER

RELEASE = "0.32.0"
FILE = FOLDER / "same_answers.json"
TOKENS = 16
CONTEXT = 8192
TOPICS = (
    "rivers", "tea", "lighthouses", "prime numbers", "whales", "bread", "chess", "rain", "bridges",
    "volcanoes", "clocks", "maps", "bees", "glass", "trains", "the moon", "ink", "sand", "bells",
    "ice",
)  # fmt: skip
QUESTIONS = ("What are {}?", "Tell me one thing about {}.", "Why do people care about {}?")
UNICODE = (
    "Übersetze ins Englische: Eine Brücke über den Fluß. ({})",
    "日本語で答えてください: {} とは何ですか?",
    "Что такое {}? Ответь коротко.",
    "👩‍👩‍👧‍👦 🏳️‍🌈 {} 🧑🏽‍💻 — what do these have in common?",
)
CODE = """def total_of_{}(values):
    result = 0
    for value in values:
        result += value
    return result
"""
TOOL = {
    "type": "function",
    "function": {
        "name": "look_up",
        "description": "Look a word up.",
        "parameters": {"type": "object", "properties": {"word": {"type": "string"}}},
    },
}


def prompts() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield two hundred chats, each with its kind."""
    for number, topic in enumerate(TOPICS):
        for question in QUESTIONS:
            yield "short", chat(question.format(topic))
        for text in UNICODE[number % 2 :: 2]:
            yield "unicode", chat(text.format(topic))
        name = topic.replace(" ", "_")
        yield "code", chat(f"Explain this code:\n```python\n{CODE.format(name)}```")
        yield "turns", {"messages": list(turns(topic))}
        yield "tools", {**chat(f"Look up {topic}."), "tools": [TOOL], "tool_choice": "none"}
        yield "longer", chat(story(topic, 40 if number % 2 else 120))
    for topic in TOPICS[:8]:
        yield "4k tokens", chat(story(topic, 520))
    for topic in TOPICS[8:]:
        yield (
            "system",
            {
                "messages": [
                    {"role": "system", "content": "Answer in one word."},
                    *chat(topic)["messages"],
                ]
            },
        )


def chat(text: str) -> dict[str, Any]:
    """One question of a user."""
    return {"messages": [{"role": "user", "content": text}]}


def turns(topic: str) -> Iterator[dict[str, str]]:
    """A conversation of several turns."""
    for question, answer in (
        ("Do you know {}?", "Yes, I know {}."),
        ("Are they old?", "Very old."),
    ):
        yield {"role": "user", "content": question.format(topic)}
        yield {"role": "assistant", "content": answer.format(topic)}
    yield {"role": "user", "content": f"Then tell me more about {topic}."}


def story(topic: str, sentences: int) -> str:
    """A text of so many sentences, of seven or eight tokens each, and a question."""
    chance = random.Random(topic)  # noqa: S311 - the same text each time
    said = (f"On day {day} of {topic} it was {chance.choice(TOPICS)}." for day in range(sentences))
    return f"{' '.join(said)} What was this about?"


def answer(pair: Pair, asked: dict[str, Any], salt: str, *, reuse: bool) -> list[int]:
    """Return the ids of decode's answer, whose KV blocks are pulled from prefill."""
    body = {**asked, "temperature": 0}
    handover = pair.run_prefill(**body)
    params = handover.with_ids(handover.ids) if reuse else handover.transfer_params
    # Prefill has the prompt in its cache the second time; decode must not.
    told = pair.decode.chat(
        **body, max_tokens=TOKENS, return_token_ids=True, kv_transfer_params=params, cache_salt=salt
    )
    said = read(told.raise_for_status(), CHAT_COMPLETION).output
    if reuse and said.prompt != handover.ids:
        raise AssertionError("decode did not use the ids of prefill")
    return said.token_ids


def main() -> int:
    """Ask all, or the kinds that the command line names; write and return whether all agree."""
    usual = launches.launch(Profile.NO_CONNECTOR, RELEASE, Model.SMOLLM2)
    arguments = tuple(str(CONTEXT) if item == "1024" else item for item in usual.arguments)
    chosen = [(kind, asked) for kind, asked in prompts() if kind in (sys.argv[1:] or [kind])]
    kinds = {kind for kind, _ in chosen}
    saved = json.loads(FILE.read_text()) if FILE.exists() else {"same of": {}, "different": []}
    found = {kind: counts for kind, counts in saved["same of"].items() if kind not in kinds}
    different = [answered for answered in saved["different"] if answered["kind"] not in kinds]
    with running_pair(replace(usual, arguments=arguments, kv_cache=1024), print) as pair:
        for number, (kind, asked) in enumerate(chosen, 1):
            off = answer(pair, asked, f"off {number}", reuse=False)
            on = answer(pair, asked, f"on {number}", reuse=True)
            same, tried = found.setdefault(kind, [0, 0])
            found[kind] = [same + (on == off), tried + 1]
            if on != off:
                different.append({"kind": kind, "asked": asked, "on": on, "off": off})
            if number % 5 == 0 or number == len(chosen):
                print(f"{number} of {len(chosen)}: {found}", flush=True)
                document = {"release": RELEASE, "tokens": TOKENS, "same of": found}
                FILE.write_text(json.dumps({**document, "different": different}, indent=1) + "\n")
    report.write()
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
