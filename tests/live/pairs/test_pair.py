# SPDX-License-Identifier: Apache-2.0
"""A real prefill and decode pair over NIXL: the ids are reused, and a refusal frees blocks."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from lab.models.build import Model
from lab.servers import launches
from lab.servers.pair import Pair, running_pair
from lab.servers.server import CONTEXT, MODEL_NAME, Server
from vllm_reuse_guard import __version__
from vllm_reuse_guard.rules.outcome import PARAMETER
from vllm_reuse_guard.tools.conformance import Profile
from vllm_reuse_guard.tools.conformance.answers import CHAT_COMPLETION, Output, read

TRANSFERS = "vllm:nixl_bytes_transferred_count"
PULLED = "vllm:external_prefix_cache_hits_total"
EXPIRED = "vllm:nixl_num_kv_expired_reqs_total"
SECONDS_TO_BE_FREED = 30


PAIRS = [
    pytest.param((release, model), id=f"{release}-{model.value}")
    for release, model in (
        ("0.27.0", Model.TINY_QWEN2),
        ("0.32.0", Model.TINY_QWEN2),
        # A Harmony model in float32 cannot run before 0.31 without a GPU.
        ("0.31.0", Model.TINY_GPT_OSS),
        ("0.32.0", Model.TINY_GPT_OSS),
    )
]


@pytest.fixture(scope="module", params=PAIRS)
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    with running_pair(launches.launch(Profile.NO_CONNECTOR, *request.param)) as pair:
        yield pair


def question(topic: str) -> dict[str, Any]:
    """A chat that no other test sends, so that no cache knows it; several blocks long."""
    story = " ".join(f"The {topic} of day {day} was unlike the others." for day in range(30))
    return {"messages": [{"role": "user", "content": story}], "temperature": 0, "max_tokens": 12}


def said(server: Server, *, stream: bool = False, **body: Any) -> Output:
    """Return what a chat came to, with the ids of its prompt and its answer."""
    answer = server.chat(**body, stream=stream, return_token_ids=True)
    return read(answer.raise_for_status(), CHAT_COMPLETION).output


@pytest.mark.parametrize("stream", [False, True])
def test_decode_pulls_the_whole_prompt_and_reuses_its_ids(pair: Pair, stream: bool) -> None:
    """
    One transfer of every token; the answer is that of a single instance.
    """
    asked = question("storm" if stream else "tide")
    handover = pair.run_prefill(**asked)
    before = {name: pair.decode.metric(name) for name in (TRANSFERS, PULLED)}
    params = handover.with_ids(handover.ids)

    answer = said(pair.decode, stream=stream, **asked, kv_transfer_params=params)

    assert handover.ids == answer.prompt
    assert 1 == pair.decode.metric(TRANSFERS) - before[TRANSFERS]
    assert len(handover.ids) == pair.decode.metric(PULLED) - before[PULLED]
    assert said(pair.prefill, stream=stream, **asked) == answer


def test_answer_belongs_to_the_ids_and_not_to_the_messages(pair: Pair) -> None:
    """
    Sent with the messages of another chat, the ids decide: nothing was rendered.
    """
    asked, other = question("wind"), question("calm")
    handover = pair.run_prefill(**asked)

    answer = said(pair.decode, **other, kv_transfer_params=handover.with_ids(handover.ids))

    assert said(pair.prefill, **asked) == answer


@pytest.mark.parametrize(
    ("ids", "stream"), [([1.5], False), ([1.5], True), ([True], False), ([10**9], True)], ids=repr
)
def test_refusal_frees_the_blocks_of_prefill_at_once(pair: Pair, ids: Any, stream: bool) -> None:
    """
    Prefill holds the blocks for decode until decode refuses the ids, not until a lease ends.
    """
    asked = question(f"harvest {ids!r} {stream}")
    handover = pair.run_prefill(**asked)
    held = pair.prefill.blocks_in_use()

    refused = pair.decode.chat(**asked, stream=stream, kv_transfer_params=handover.with_ids(ids))

    assert (400, PARAMETER) == (refused.status_code, refused.json()["error"]["param"])
    assert held > 0
    wait_until_freed(pair.prefill)


def test_pull_that_does_not_fit_fails_alone(pair: Pair) -> None:
    """
    A prompt of more blocks than prefill has handed over harms no other; the next one is served.
    """
    asked = question("eclipse")
    handover = pair.run_prefill(**asked)
    long = [index % 1000 + 10 for index in range(CONTEXT - 24)]

    failed = pair.decode.chat(**asked, kv_transfer_params=handover.with_ids(long))

    # 0.27.0 reads the blocks that there are; later releases assert, and without the guard die.
    assert failed.status_code in (200, 500)
    assert pair.decode.chat(**question("dawn")).status_code == 200
    # The pull that fits has prefill let go of the blocks, or the tests to come find them in use.
    said(pair.decode, **asked, kv_transfer_params=handover.with_ids(handover.ids))
    wait_until_freed(pair.prefill)


REFUSED = {
    "invalid-body": ("/v1/chat/completions", {"messages": 5}),
    "unknown-tool": (
        "/v1/chat/completions",
        {"messages": [], "tool_choice": {"type": "function", "function": {"name": "x"}}},
    ),
    "invalid-response": ("/v1/responses", {"input": "x", "temperature": "hot"}),
    "invalid-message": ("/v1/messages", {"messages": "x"}),
    "invalid-completion": ("/v1/completions", {"prompt": "x", "max_tokens": "x"}),
    "batch": ("/v1/chat/completions/batch", {"messages": [[{"role": "user", "content": "x"}]]}),
    "generate": ("/inference/v1/generate", {"token_ids": [5], "sampling_params": {"n": 10**4}}),
}


@pytest.mark.parametrize("refused", REFUSED)
def test_every_refusal_frees_the_blocks_of_prefill(pair: Pair, refused: str) -> None:
    """
    Whatever refuses the request, validation included, prefill is told at once.
    """
    handover = pair.run_prefill(**question(f"feast {refused}"))
    held = pair.prefill.blocks_in_use()
    path, body = REFUSED[refused]
    # Ids, too, that a batch is refused for; the others are refused for something else.
    params = handover.with_ids(handover.ids)

    answer = httpx.post(
        f"{pair.decode.url}{path}",
        json={"model": MODEL_NAME, **body, "kv_transfer_params": params},
        timeout=60,
    )

    assert 400 <= answer.status_code < 500, answer.text
    assert held > 0
    wait_until_freed(pair.prefill)


def wait_until_freed(prefill: Server) -> None:
    """Wait until prefill has no block in use; fail if it takes long or a lease ended."""
    deadline = time.monotonic() + SECONDS_TO_BE_FREED
    while prefill.blocks_in_use() > 0 and time.monotonic() < deadline:
        time.sleep(0.2)
    assert prefill.blocks_in_use() == 0
    assert prefill.metric(EXPIRED) == 0


def test_front_end_and_engine_core_say_that_they_are_guarded(pair: Pair) -> None:
    """
    One line in the process that serves, one in the engine core, none in the worker.
    """
    for server in (pair.prefill, pair.decode):
        lines = [line for line in server.log_text().splitlines() if " is active in the " in line]
        assert 2 == len(lines)
        for where in ("API server", "engine core"):
            (line,) = [line for line in lines if f"is active in the {where} (" in line]
            assert f"vllm-reuse-guard {__version__}" in line
            assert "KV connector: NixlConnector" in line
            assert "Worker" not in line
