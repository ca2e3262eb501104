# SPDX-License-Identifier: Apache-2.0
"""Prefill puts the ids of a prompt into what it hands over, and routers hand them on."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import httpx
import pytest

from lab.models.build import Model
from lab.servers import launches
from lab.servers.pair import EMIT, REUSED, TO_PREFILL, Pair, running_pair
from lab.servers.routers import Route, Router, routing
from lab.servers.server import MODEL_NAME, Server
from vllm_reuse_guard.rules.outcome import KV_TRANSFER_PARAMS, PROMPT_TOKEN_IDS
from vllm_reuse_guard.tools.conformance import Profile
from vllm_reuse_guard.tools.conformance.answers import CHAT_COMPLETION, read

TEXT = [{"type": "text", "text": "Name a river."}]
PAIRS = [
    pytest.param((release, model), id=f"{release}-{model.value}")
    for release, model in (
        ("0.27.0", Model.TINY_QWEN2),
        ("0.32.0", Model.TINY_QWEN2),
    )
]
CHATS = {
    "text": [{"role": "user", "content": "Name a colour of the sea at dawn."}],
    "parts": [{"role": "user", "content": TEXT}],
    "turns": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": TEXT},
        {"role": "assistant", "content": [{"type": "text", "text": "The Elbe."}]},
        {"role": "user", "content": "And a longer one? 🌊 日本の川"},
    ],
}


@pytest.fixture(scope="module", params=PAIRS)
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    launch = launches.launch(Profile.NO_CONNECTOR, *request.param)
    with running_pair(replace(launch, arguments=(*launch.arguments, EMIT))) as pair:
        yield pair


@pytest.fixture(scope="module")
def urls(pair: Pair) -> Iterator[dict[Router, str]]:
    """Both routers, in front of the same pair."""
    route = Route(pair.prefill.url, pair.decode.url, pair.prefill.launch.model)
    with ExitStack() as stack:
        yield {router: stack.enter_context(routing(router, route)) for router in Router}


def post(url: str, path: str, **body: Any) -> Any:
    """Send one body and return what comes back, which must be good."""
    answer = httpx.post(f"{url}{path}", json={"model": MODEL_NAME, **body}, timeout=120)
    return answer.raise_for_status().json()


def ids_of(server: Server, messages: list[dict[str, Any]]) -> list[int]:
    """Return the ids that the server renders a chat to."""
    told = post(server.url, "/v1/chat/completions/render", messages=messages)
    ids: list[int] = told["token_ids"]
    return ids


def prefill(pair: Pair, path: str = "/v1/chat/completions", **body: Any) -> Any:
    """Have prefill compute a prompt; return its whole answer."""
    least = {"max_output_tokens": 1} if path == "/v1/responses" else {"max_tokens": 1}
    return post(pair.prefill.url, path, **{**least, KV_TRANSFER_PARAMS: TO_PREFILL, **body})


@pytest.mark.parametrize("name", CHATS)
@pytest.mark.parametrize("asked", [False, True])
def test_chat(pair: Pair, name: str, asked: bool) -> None:
    """
    The ids are those that the engine ran; at the top level they are only if asked for.
    """
    answer = prefill(pair, messages=CHATS[name], **({"return_token_ids": True} if asked else {}))

    assert ids_of(pair.prefill, CHATS[name]) == answer[KV_TRANSFER_PARAMS][PROMPT_TOKEN_IDS]
    assert answer[KV_TRANSFER_PARAMS]["remote_block_ids"]
    assert bool(answer.get("prompt_token_ids")) == asked
    assert bool(answer["choices"][0].get("token_ids")) == asked


def test_messages(pair: Pair) -> None:
    """
    Anthropic's messages carry them too.
    """
    answer = prefill(pair, "/v1/messages", messages=CHATS["text"])

    assert ids_of(pair.prefill, CHATS["text"]) == answer[KV_TRANSFER_PARAMS][PROMPT_TOKEN_IDS]


def test_responses(pair: Pair) -> None:
    """
    So do responses.
    """
    answer = prefill(pair, "/v1/responses", input=CHATS["text"], store=False)

    assert answer["usage"]["input_tokens"] == len(answer[KV_TRANSFER_PARAMS][PROMPT_TOKEN_IDS])


@pytest.mark.parametrize(
    "body",
    [
        {"messages": [{"role": "user", "content": [*TEXT, {"type": "weird", "x": 1}]}]},
        {"messages": [{"role": "user", "content": [{**TEXT[0], "image_url": "x"}]}]},
        {"messages": CHATS["text"], KV_TRANSFER_PARAMS: {}},
        {"messages": CHATS["text"], KV_TRANSFER_PARAMS: {"do_remote_decode": False}},
    ],
    ids=["unknown part", "media key", "no transfer", "not for prefill"],
)
def test_others_have_none(pair: Pair, body: dict[str, Any]) -> None:
    """
    What decode could not reuse, and what is not for prefill, is answered as ever.
    """
    sent = {"model": MODEL_NAME, "max_tokens": 1, KV_TRANSFER_PARAMS: TO_PREFILL, **body}
    answer = httpx.post(f"{pair.prefill.url}/v1/chat/completions", json=sent, timeout=60)

    assert PROMPT_TOKEN_IDS not in (answer.json().get(KV_TRANSFER_PARAMS) or {})


def test_prompts_have_none(pair: Pair) -> None:
    """
    A completion's prompt is its own; so is each of a batch.
    """
    completion = prefill(pair, "/v1/completions", prompt="Name a colour.")
    batch = prefill(pair, "/v1/chat/completions/batch", messages=[CHATS["text"], CHATS["parts"]])

    assert PROMPT_TOKEN_IDS not in completion[KV_TRANSFER_PARAMS]
    assert PROMPT_TOKEN_IDS not in (batch.get(KV_TRANSFER_PARAMS) or {})


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", CHATS)
@pytest.mark.parametrize("router", Router, ids=lambda router: router.value)
def test_router_hands_them_on(
    pair: Pair, urls: dict[Router, str], router: Router, name: str, stream: bool
) -> None:
    """
    Through a router that knows nothing of ids every chat is reused, with the same answer.
    """
    body = {"messages": CHATS[name], "max_tokens": 12, "temperature": 0}
    alone = post(pair.prefill.url, "/v1/chat/completions", **body)["choices"][0]["message"]
    before = pair.decode.metric(REUSED)

    sent = {"model": MODEL_NAME, **body, "stream": stream}
    answer = httpx.post(f"{urls[router]}/v1/chat/completions", json=sent, timeout=120)

    assert 200 == answer.status_code, answer.text
    assert 1 == pair.decode.metric(REUSED) - before
    assert alone["content"] == text_of(answer, stream=stream)


def text_of(answer: httpx.Response, *, stream: bool) -> str:
    """Return what an answer says, whole or streamed."""
    assert ("event-stream" in answer.headers["content-type"]) == stream
    return read(answer, CHAT_COMPLETION).output.text


@pytest.mark.parametrize("router", Router, ids=lambda router: router.value)
def test_ids_of_a_client_do_not_get_through(
    pair: Pair, urls: dict[Router, str], router: Router
) -> None:
    """
    The router overwrites what a client sends: decode runs the prompt of the messages.
    """
    body = {"messages": CHATS["text"], "max_tokens": 12, "temperature": 0}
    alone = post(pair.prefill.url, "/v1/chat/completions", **body)["choices"][0]["message"]

    answer = post(
        urls[router],
        "/v1/chat/completions",
        **body,
        **{KV_TRANSFER_PARAMS: {PROMPT_TOKEN_IDS: [5] * 20, "tag": "client"}},
    )

    assert alone["content"] == answer["choices"][0]["message"]["content"]


def test_many_through_the_routers(pair: Pair, urls: dict[Router, str]) -> None:
    """
    Of a stream of chats each one is reused, and none keeps blocks of prefill.
    """
    before = pair.decode.metric(REUSED)
    held = pair.prefill.blocks_in_use()
    for number in range(20):
        url = urls[list(Router)[number % 2]]
        chat = [{"role": "user", "content": f"Number {number} of many. " * (number + 1)}]
        post(url, "/v1/chat/completions", messages=chat, max_tokens=4)

    assert 20 == pair.decode.metric(REUSED) - before
    deadline = time.monotonic() + 30
    while pair.prefill.blocks_in_use() != held and time.monotonic() < deadline:
        time.sleep(0.5)
    assert held == pair.prefill.blocks_in_use()
