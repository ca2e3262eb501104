# SPDX-License-Identifier: Apache-2.0
"""
Time to first token on decode by the length of the prompt: rendered, reused by plain vLLM 0.32,
reused with the guard, and rendered with the guard. Real servers, one prompt after the other,
the servers in turns.

The prompt is in the prefix cache of both, so that what is timed is not the model but what comes
before it: the body is parsed, rendered or checked, sent to the engine, its first token decoded.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any

import httpx

from lab.models.build import Model
from lab.servers import launches
from lab.servers.server import (
    MODEL_NAME,
    NIXL,
    Launch,
    Server,
    starting,
    wait_until_healthy,
)
from vllm_reuse_guard.rules.outcome import PROMPT_TOKEN_IDS
from vllm_reuse_guard.tools.conformance import Profile

from .measure import medians

RELEASE = "0.32.0"
SIZES = (8_000, 30_000, 60_000, 125_000)
ROUNDS, TURN = 6, 5
PAUSE = 1.5
CONTEXT = 131_072
WORDS = "the sea was calm that day and def return import class value index self "
CHAT = "/v1/chat/completions"


def launch(*, guarded: bool) -> Launch:
    """Say how to start a decode instance of a long context."""
    usual = launches.launch(Profile.NO_CONNECTOR, RELEASE, Model.TINY_QWEN2_LONG, guarded=guarded)
    more = ("--max-model-len", str(CONTEXT), "--max-num-batched-tokens", "8192", *NIXL)
    kind = "guarded" if guarded else "plain"
    return replace(
        usual, name=f"first-token-{kind}", arguments=(*usual.arguments, *more), kv_cache=1024
    )


def conversation(client: httpx.Client, size: int) -> tuple[list[dict[str, str]], list[int]]:
    """Return messages that come to so many ids, give or take some, and the ids."""

    def rendered(words: int) -> tuple[list[dict[str, str]], list[int]]:
        messages = [{"role": "user", "content": WORDS * words}]
        told = client.post(f"{CHAT}/render", json={"model": MODEL_NAME, "messages": messages})
        return messages, told.raise_for_status().json()["token_ids"]

    _, few = rendered(100)
    return rendered(size * 100 // len(few))


def first_token(client: httpx.Client, content: bytes) -> None:
    """Send a body and wait for the first event of its stream."""
    headers = {"Content-Type": "application/json"}
    with client.stream("POST", CHAT, content=content, headers=headers) as answer:
        answer.raise_for_status()
        lines: Iterator[str] = answer.iter_lines()
        while not next(lines).startswith("data: "):
            pass
        # The first event says who speaks; the next has the first token.
        while not next(lines).startswith("data: "):
            pass


def body(messages: list[dict[str, str]], ids: list[int] | None) -> bytes:
    """Return a body as a router sends it to decode."""
    asked: dict[str, Any] = {
        "model": MODEL_NAME,
        "messages": messages,
        "max_tokens": 2,
        "temperature": 0,
        "stream": True,
    }
    if ids is not None:
        asked["kv_transfer_params"] = {PROMPT_TOKEN_IDS: ids}
    return json.dumps(asked).encode()


def measure(say: Any = print) -> dict[int, dict[str, float]]:
    """Return median seconds to first token by length of the prompt, in tokens."""
    found = {}
    with ExitStack() as stack:
        servers: dict[str, Server] = {
            name: stack.enter_context(starting(launch(guarded=name == "guard")))
            for name in ("plain", "guard")
        }
        clients = {}
        for name, server in servers.items():
            wait_until_healthy(server)
            client = httpx.Client(base_url=server.url, timeout=900)
            clients[name] = stack.enter_context(client)
            if ("reuse_guard_info" in client.get("/metrics").text) != (name == "guard"):
                raise RuntimeError(f"the server called {name} is not what it is called")
        for size in SIZES:
            messages, ids = conversation(clients["plain"], size)
            rendered, reused = body(messages, None), body(messages, ids)
            floor = partial(json.loads, reused)
            found[len(ids)] = medians(
                {
                    "plain, rendered": partial(first_token, clients["plain"], rendered),
                    "plain, reused": partial(first_token, clients["plain"], reused),
                    "guard, reused": partial(first_token, clients["guard"], reused),
                    "guard, rendered": partial(first_token, clients["guard"], rendered),
                    "parsing the body alone": floor,
                },
                rounds=ROUNDS,
                warm_up=1,
                turn=TURN,
                pause=PAUSE,
            )
            say(f"{len(ids)} ids: {found[len(ids)]}")
    return found


if __name__ == "__main__":
    measure()
