# SPDX-License-Identifier: Apache-2.0
"""Responses of every API are read into one type: samples of what vLLM 0.27.0 to 0.33.0 send."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from vllm_reuse_guard.tools.conformance import attempts, cases
from vllm_reuse_guard.tools.conformance.answers import (
    ANTHROPIC_MESSAGE,
    CHAT_COMPLETION,
    COHERE_CHAT,
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
            CHAT_COMPLETION,
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
            ANTHROPIC_MESSAGE,
            {"usage": {"input_tokens": 2}, "content": [{"text": "Hi"}, {"type": "tool_use"}]},
            Output(prompt_length=2, text="Hi"),
        ),
        (
            COHERE_CHAT,
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
    Reading a whole response returns the prompt, or its length, and the text.
    """
    assert expected == read(whole(body), response_format).output


@pytest.mark.parametrize(
    ("response_format", "events", "expected"),
    [
        (
            CHAT_COMPLETION,
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
            ANTHROPIC_MESSAGE,
            [
                {"type": "message_start", "message": {"usage": {"input_tokens": 0}}},
                {"type": "content_block_delta", "delta": {"text": "Hi"}},
                {"type": "message_delta", "delta": {}, "usage": {"input_tokens": 2}},
            ],
            Output(prompt_length=2, text="Hi"),
        ),
        (
            COHERE_CHAT,
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
    The events of a stream add up to what the whole response contains.
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
    An error after the stream has begun is read from the events of each API.
    """
    assert read(stream(event), RESPONSE).late_error == json.dumps(event)


def test_failed_response_reads_the_same_twice() -> None:
    """
    The ID and the times of a failed response are not part of the error.
    """
    first, second = (
        {"type": "response.failed", "response": {"id": number, "error": {"message": "no"}}}
        for number in ("resp_1", "resp_2")
    )

    assert read(stream(first), RESPONSE) == read(stream(second), RESPONSE)


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
    Reading an error returns the message, and the field if the API names one.
    """
    answer = read(whole(body, 400), CHAT_COMPLETION)

    assert (400, message, param) == (answer.status, answer.error, answer.param)


@pytest.mark.parametrize("harmony", [False, True])
def test_every_endpoint_has_cases(harmony: bool) -> None:
    """
    Each endpoint has a case, with a Harmony model and without one.
    """
    paths = {t.endpoint.path for c in cases().values() for t in attempts(c, harmony=harmony)}

    assert {endpoint.path for endpoint in ENDPOINTS} == paths


def test_harmony_renders_its_responses() -> None:
    """
    On a Harmony model, a response is not among the conversations whose IDs are reused.
    """
    paths = {e.path for e in Group.CONVERSATIONS.endpoints(harmony=True)}

    assert not {path for path in paths if "responses" in path}
