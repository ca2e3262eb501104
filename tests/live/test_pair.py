# SPDX-License-Identifier: Apache-2.0
"""A real prefill and decode pair over NIXL: the ids are reused, and a refusal frees blocks."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from lab import launches
from lab.models import Model
from lab.pair import Pair, running_pair
from lab.server import MODEL_NAME, Server
from vllm_reuse_guard import __version__
from vllm_reuse_guard.conformance import Profile
from vllm_reuse_guard.core.outcome import PARAMETER

TRANSFERS = "vllm:nixl_bytes_transferred_count"
PULLED = "vllm:external_prefix_cache_hits_total"
EXPIRED = "vllm:nixl_num_kv_expired_reqs_total"
BLOCKS_IN_USE = "vllm:kv_cache_usage_perc"
SECONDS_TO_BE_FREED = 30


@pytest.fixture(scope="module", params=["0.27.0", "0.32.0"])
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    launch = launches.launch(Profile.NO_CONNECTOR, request.param, Model.TINY_QWEN2)
    with running_pair(launch) as pair:
        yield pair


def question(topic: str) -> dict[str, Any]:
    """A chat that no other test sends, so that no cache knows it; several blocks long."""
    story = " ".join(f"The {topic} of day {day} was unlike the others." for day in range(30))
    return {"messages": [{"role": "user", "content": story}], "temperature": 0, "max_tokens": 12}


def streamed(server: Server, **body: Any) -> str:
    """Return the text of a streamed chat."""
    body = {"model": MODEL_NAME, "stream": True, **body}
    with httpx.stream("POST", f"{server.url}/v1/chat/completions", json=body, timeout=60) as answer:
        assert answer.status_code == 200
        events = [line.removeprefix("data: ") for line in answer.iter_lines() if line]
    chunks = [json.loads(event) for event in events if event != "[DONE]"]
    return "".join(c["choices"][0]["delta"].get("content") or "" for c in chunks if c["choices"])


def in_use(server: Server) -> float:
    """Return the share of KV blocks in use; a small request makes the engine report it."""
    server.chat(messages=[{"role": "user", "content": "tick"}], max_tokens=1).raise_for_status()
    return server.metric(BLOCKS_IN_USE)


@pytest.mark.parametrize("stream", [False, True])
def test_decode_pulls_the_whole_prompt_and_reuses_its_ids(pair: Pair, stream: bool) -> None:
    """
    One transfer of every token; the answer is that of a single instance.
    """
    asked = question("storm" if stream else "tide")
    handover = pair.run_prefill(**asked)
    before = {name: pair.decode.metric(name) for name in (TRANSFERS, PULLED)}
    params = handover.with_ids(handover.ids)

    if stream:
        text = streamed(pair.decode, **asked, kv_transfer_params=params)
    else:
        answer = pair.decode.chat(**asked, kv_transfer_params=params, return_token_ids=True).json()
        assert handover.ids == answer["prompt_token_ids"]
        text = answer["choices"][0]["message"]["content"]

    assert 1 == pair.decode.metric(TRANSFERS) - before[TRANSFERS]
    assert len(handover.ids) == pair.decode.metric(PULLED) - before[PULLED]
    assert pair.prefill.chat(**asked).json()["choices"][0]["message"]["content"] == text


def test_answer_belongs_to_the_ids_and_not_to_the_messages(pair: Pair) -> None:
    """
    Sent with the messages of another chat, the ids decide: nothing was rendered.
    """
    asked, other = question("wind"), question("calm")
    handover = pair.run_prefill(**asked)

    answer = pair.decode.chat(**other, kv_transfer_params=handover.with_ids(handover.ids)).json()

    expected = pair.prefill.chat(**asked).json()["choices"][0]["message"]["content"]
    assert expected == answer["choices"][0]["message"]["content"]


@pytest.mark.parametrize(
    ("ids", "stream"), [([1.5], False), ([1.5], True), ([True], False), ([10**9], True)], ids=repr
)
def test_refusal_frees_the_blocks_of_prefill_at_once(pair: Pair, ids: Any, stream: bool) -> None:
    """
    Prefill holds the blocks for decode until decode refuses the ids, not until a lease ends.
    """
    asked = question(f"harvest {ids!r} {stream}")
    handover = pair.run_prefill(**asked)
    held = in_use(pair.prefill)

    refused = pair.decode.chat(**asked, stream=stream, kv_transfer_params=handover.with_ids(ids))

    assert (400, PARAMETER) == (refused.status_code, refused.json()["error"]["param"])
    assert held > 0
    deadline = time.monotonic() + SECONDS_TO_BE_FREED
    while in_use(pair.prefill) > 0 and time.monotonic() < deadline:
        time.sleep(0.2)
    assert in_use(pair.prefill) == 0
    assert pair.prefill.metric(EXPIRED) == 0


def test_only_the_front_end_says_that_it_is_guarded(pair: Pair) -> None:
    """
    One line in the process that serves, none in engine and worker, which have no patch.
    """
    for server in (pair.prefill, pair.decode):
        (line,) = [line for line in server.log_text().splitlines() if " is active (" in line]
        assert f"vllm-reuse-guard {__version__} is active" in line
        assert "EngineCore" not in line
        assert "Worker" not in line
