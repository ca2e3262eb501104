# SPDX-License-Identifier: Apache-2.0
"""Answers of every API are read into the same shape: samples of what vLLM 0.27.0 to 0.33.0 send."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from vllm_reuse_guard.tools.conformance import attempts, cases
from vllm_reuse_guard.tools.conformance.answers import (
    CHAT,
    COHERE,
    MESSAGE,
    RENDERED,
    RESPONSE,
    TOKENS,
    Output,
    ResponseFormat,
    read,
)
from vllm_reuse_guard.tools.conformance.endpoints import ENDPOINTS, Group


def whole(body: Any, status: int = 200) -> httpx.Response:
    return httpx.Response(status, json=body)


def stream(*events: Any) -> httpx.Response:
    lines = "".join(f"event: x\ndata: {json.dumps(event)}\n\n" for event in events)
    headers = {"content-type": "text/event-stream; charset=utf-8"}
    return httpx.Response(200, text=lines + "data: [DONE]\n\n", headers=headers)


@pytest.mark.parametrize(
    ("response_format", "body", "expected"),
    [
        (
            CHAT,
            {
                "prompt_token_ids": [1, 2],
                "choices": [{"message": {"content": "Hi"}, "token_ids": [3]}],
            },
            Output(prompt=[1, 2], token_ids=[3], text="Hi"),
        ),
        (
            RESPONSE,
            {"usage": {"input_tokens": 2}, "output": [{"content": [{"text": "Hi"}]}, {}]},
            Output(prompt_length=2, text="Hi"),
        ),
        (
            MESSAGE,
            {"usage": {"input_tokens": 2}, "content": [{"text": "Hi"}, {"type": "tool_use"}]},
            Output(prompt_length=2, text="Hi"),
        ),
        (
            COHERE,
            {
                "usage": {"tokens": {"input_tokens": 2.0}},
                "message": {"content": [{"text": "Hi"}]},
            },
            Output(prompt_length=2, text="Hi"),
        ),
        (TOKENS, {"tokens": [1, 2], "count": 2}, Output(prompt=[1, 2])),
        (
            RENDERED,
            [{"request_id": "r", "token_ids": [1], "model": "m"}],
            Output(prompt=[1], engine_params={"model": "m"}),
        ),
    ],
    ids=["chat", "response", "message", "cohere", "tokens", "rendered"],
)
def test_whole_answer(response_format: ResponseFormat, body: Any, expected: Output) -> None:
    """
    Prompt, or its length, and what was said.
    """
    assert expected == read(whole(body), response_format).output


@pytest.mark.parametrize(
    ("response_format", "events", "expected"),
    [
        (
            CHAT,
            [
                {"prompt_token_ids": [1], "choices": [{"delta": {"content": ""}}]},
                {"choices": [{"delta": {"content": "Hi"}, "token_ids": [3]}]},
                {"choices": []},
            ],
            Output(prompt=[1], token_ids=[3], text="Hi"),
        ),
        (
            RESPONSE,
            [
                {"type": "response.created"},
                {"type": "response.output_text.delta", "delta": "Hi"},
                {"type": "response.completed", "response": {"usage": {"input_tokens": 2}}},
            ],
            Output(prompt_length=2, text="Hi"),
        ),
        (
            MESSAGE,
            [
                {"type": "message_start", "message": {"usage": {"input_tokens": 0}}},
                {"type": "content_block_delta", "delta": {"text": "Hi"}},
                {"type": "message_delta", "delta": {}, "usage": {"input_tokens": 2}},
            ],
            Output(prompt_length=2, text="Hi"),
        ),
        (
            COHERE,
            [
                {"type": "content-delta", "delta": {"message": {"content": {"text": "Hi"}}}},
                {"type": "message-end", "delta": {"usage": {"tokens": {"input_tokens": 2}}}},
            ],
            Output(prompt_length=2, text="Hi"),
        ),
    ],
    ids=["chat", "response", "message", "cohere"],
)
def test_stream(response_format: ResponseFormat, events: list[Any], expected: Output) -> None:
    """
    The events of a stream add up to what the whole answer would say.
    """
    answer = read(stream(*events), response_format)

    assert expected == answer.output
    assert answer.late_error is None


@pytest.mark.parametrize(
    "event",
    [{"error": {"message": "no"}}, {"type": "error"}, {"type": "response.failed"}],
    ids=json.dumps,
)
def test_error_in_a_stream_is_not_overlooked(event: Any) -> None:
    """
    Each API has its own way to fail after the stream has begun.
    """
    assert read(stream(event), RESPONSE).late_error == json.dumps(event)


@pytest.mark.parametrize(
    ("body", "message", "param"),
    [
        ({"error": {"message": "no", "param": "p"}}, "no", "p"),
        ({"type": "error", "error": {"type": "BadRequestError", "message": "no"}}, "no", None),
        ({"message": "no", "id": "1"}, "no", None),
        ({"detail": "Not Found"}, '{"detail": "Not Found"}', None),
    ],
    ids=["openai", "anthropic", "cohere", "other"],
)
def test_error(body: Any, message: str, param: str | None) -> None:
    """
    The message, and the field if the API names one.
    """
    answer = read(whole(body, 400), CHAT)

    assert (400, message, param) == (answer.status, answer.error, answer.param)


@pytest.mark.parametrize("harmony", [False, True])
def test_every_endpoint_has_cases(harmony: bool) -> None:
    """
    No endpoint is left out, whatever the model.
    """
    tried = {t.endpoint.path for c in cases().values() for t in attempts(c, harmony=harmony)}

    assert {endpoint.path for endpoint in ENDPOINTS} == tried


def test_harmony_renders_its_responses() -> None:
    """
    On a Harmony model a response is not among the conversations whose ids are used.
    """
    paths = {e.path for e in Group.CONVERSATIONS.endpoints(harmony=True)}

    assert not {path for path in paths if "responses" in path}
