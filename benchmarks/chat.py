# SPDX-License-Identifier: Apache-2.0
"""
A chat without ids, from its body to the request that the engine gets, with the guard and without.

What a server does around the engine, but for HTTP, in one process: the body is parsed and
validated, rendered and tokenized, made into the request that the engine core gets, and the first
token of the answer is decoded.
"""

from __future__ import annotations

import asyncio
import gc
import json
import statistics
from collections.abc import Callable
from time import perf_counter
from typing import Any

from vllm.entrypoints.openai.chat_completion import protocol
from vllm.v1.engine import detokenizer

from lab.servers.in_process import engine_request
from vllm_reuse_guard.installer import install
from vllm_reuse_guard.patches import PATCHES

WORDS = (10, 300, 3_000)
ROUNDS = 30
CHATS, WARM_UP = 60, 60
"""How often the guard is put in and taken out, and the chats each time: timed, and before them."""


def measure(renderer: Any) -> dict[int, dict[str, float]]:
    """Return median seconds by number of words; renderer: an OnlineRenderer of plain vLLM."""
    return {words: _measure(renderer, words) for words in WORDS}


def _measure(renderer: Any, words: int) -> dict[str, float]:
    message = {"role": "user", "content": "the sea was calm " * (words // 4 + 1)}
    body = json.dumps({"model": "model", "messages": [message], "max_tokens": 8}).encode()
    tokenizer = renderer.renderer.tokenizer

    async def serve() -> None:
        request = protocol.ChatCompletionRequest.model_validate(json.loads(body))
        _, (prompt,) = await renderer.render_chat(request)
        made = engine_request(renderer, prompt, request.to_sampling_params(8, {}))
        stream = detokenizer.IncrementalDetokenizer.from_new_request(tokenizer, made)
        stream.update([5], False)

    times: dict[str, list[float]] = {"plain": [], "guard": []}
    for number in range(ROUNDS):
        order = [("plain", _plain), ("guard", _guarded)]
        for name, around in order if number % 2 else reversed(order):
            times[name] += around(lambda: asyncio.run(_several(serve)))
    return {name: statistics.median(found) for name, found in times.items()}


async def _several(serve: Callable[[], Any]) -> list[float]:
    times = []
    gc.collect()
    gc.disable()
    for _ in range(WARM_UP + CHATS):
        begin = perf_counter()
        await serve()
        times.append(perf_counter() - begin)
    gc.enable()
    # The first ones fill the caches that a change of code has emptied.
    return times[WARM_UP:]


def _plain(work: Callable[[], list[float]]) -> list[float]:
    return work()


def _guarded(work: Callable[[], list[float]]) -> list[float]:
    undo = install(PATCHES)
    try:
        return work()
    finally:
        undo()
