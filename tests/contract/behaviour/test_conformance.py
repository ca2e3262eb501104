# SPDX-License-Identifier: Apache-2.0
"""Each conformance case up to the engine's request, on each release: no engine, no HTTP."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from typing import Any

import httpx
import pytest
import vllm
from vllm.entrypoints.anthropic.protocol import AnthropicMessagesRequest
from vllm.entrypoints.anthropic.serving import AnthropicServingMessages
from vllm.entrypoints.cohere.protocol import CohereChatV2Request
from vllm.entrypoints.cohere.serving import CohereServingChatV2
from vllm.entrypoints.openai.chat_completion.protocol import (
    BatchChatCompletionRequest,
    ChatCompletionRequest,
)
from vllm.entrypoints.openai.completion.protocol import CompletionRequest
from vllm.entrypoints.openai.responses.protocol import ResponsesRequest
from vllm.exceptions import VLLMValidationError

from lab.models.build import Model
from lab.pages.results import Results
from lab.servers.in_process import engine_request, make_renderer
from lab.servers.launches import model_for
from lab.servers.server import CONTEXT
from vllm_reuse_guard.rules.outcome import PROMPT_TOKEN_IDS
from vllm_reuse_guard.tools.conformance import Attempt, Profile, attempts, cases
from vllm_reuse_guard.tools.conformance.answers import Answer, Output
from vllm_reuse_guard.tools.conformance.endpoints import Endpoint, Group
from vllm_reuse_guard.tools.conformance.runner import Runner
from vllm_reuse_guard.tools.conformance.values import ModelInfo

JSON = "application/json"
TRANSFER = "kv_transfer_params"
RENDERED = [
    # The environments of the releases have no image processor: tests/vision.
    *[(profile, model_for(profile)) for profile in Profile if profile is not Profile.MEDIA],
    (Profile.CONNECTOR, Model.TINY_QWEN2_LIST_CONTENT),
    (Profile.CONNECTOR, Model.TINY_GPT_OSS),
]


class InProcess(Runner):
    """Runs cases on an OnlineRenderer. An answer holds the request that the engine would get."""

    def __init__(self, renderer: Any) -> None:
        tokenizer = renderer.renderer.tokenizer
        rows = renderer.model_config.get_vocab_size()
        model_info = ModelInfo(
            forwarded=tokenizer.encode("What is for dinner, and is there enough of it?"),
            embedding_rows=rows,
            last_known=max(rows - 1, *tokenizer.get_vocab().values()),
            max_prompt_len=CONTEXT - 1,
        )
        super().__init__(httpx.Client(), "model", model_info)
        self._renderer = renderer

    def ask(self, endpoint: Endpoint, body: dict[str, Any]) -> Answer:
        """Validate and render one body as the endpoint does."""
        raw = json.loads(json.dumps({"model": "model", **body}))
        try:
            return asyncio.run(HANDLERS[endpoint.path](self._renderer, raw))
        except VLLMValidationError as error:
            return Answer(400, JSON, error=str(error), param=error.parameter)
        except Exception as error:
            # An error of vLLM's own: the case compares it with the one without IDs.
            return Answer(500, JSON, error=f"{type(error).__name__}: {error}")


async def chat(renderer: Any, raw: dict[str, Any]) -> Answer:
    """/v1/chat/completions."""
    return await render_chat(renderer, ChatCompletionRequest.model_validate(raw))


async def batch(renderer: Any, raw: dict[str, Any]) -> Answer:
    """/v1/chat/completions/batch."""
    batch = BatchChatCompletionRequest.model_validate(raw)
    chats = [batch.to_chat_completion_request(chat) for chat in batch.messages]
    answers = [await render_chat(renderer, chat) for chat in chats]
    # Up to 0.30 vLLM takes the engine parameters from one more chat, which it does not render.
    copy = batch.to_chat_completion_request(batch.messages[0])
    assert PROMPT_TOKEN_IDS not in (copy.to_sampling_params(1, {}).extra_args or {}).get(
        TRANSFER, {}
    )
    return Answer(
        200, JSON, Output(token_ids=[i for answer in answers for i in answer.output.prompt])
    )


async def messages(renderer: Any, raw: dict[str, Any]) -> Answer:
    """/v1/messages."""
    request = AnthropicMessagesRequest.model_validate(raw)
    # Before 0.29 the conversion is a private method.
    serving: Any = AnthropicServingMessages
    convert = getattr(serving, "to_chat_completion_request", None)
    return await render_chat(
        renderer, (convert or serving._convert_anthropic_to_openai_request)(request)
    )


async def cohere(renderer: Any, raw: dict[str, Any]) -> Answer:
    """/cohere/v2/chat."""
    request = CohereChatV2Request.model_validate(raw)
    return await render_chat(renderer, CohereServingChatV2._convert_v2_to_chat_completion(request))


async def completion(renderer: Any, raw: dict[str, Any]) -> Answer:
    """/v1/completions."""
    request = CompletionRequest.model_validate(raw)
    rendered = await renderer.render_completion(request)
    return to_engine(renderer, request, rendered)


async def response(renderer: Any, raw: dict[str, Any]) -> Answer:
    """/v1/responses. Before 0.30 its serving class renders, which needs an engine."""
    request = ResponsesRequest.model_validate(raw)
    rendered = await renderer.render_responses(request)
    engine_input = getattr(rendered, "engine_input", None)
    return to_engine(renderer, request, rendered if engine_input is None else [engine_input])


async def render_chat(renderer: Any, request: ChatCompletionRequest) -> Answer:
    """Render a chat, which is what each API converts its body to."""
    try:
        rendered = await renderer.render_chat(request)
    finally:
        assert PROMPT_TOKEN_IDS not in (request.kv_transfer_params or {})
    return to_engine(renderer, request, rendered[1] if isinstance(rendered, tuple) else rendered)


def to_engine(renderer: Any, request: Any, rendered: Any) -> Answer:
    """Make the engine's request as the front end does, and look for the key in it."""
    if not isinstance(rendered, list):
        return Answer(rendered.error.code, JSON, error=rendered.error.message)
    (engine_input,) = rendered
    to_send = engine_request(renderer, engine_input, request.to_sampling_params(6, {}))
    params = (to_send.sampling_params.extra_args or {}).get(TRANSFER, {})
    assert PROMPT_TOKEN_IDS not in params
    return Answer(
        200,
        JSON,
        Output(prompt=to_send.prompt_token_ids, text=str(to_send.cache_salt), engine_params=params),
    )


HANDLERS: dict[str, Callable[[Any, dict[str, Any]], Awaitable[Answer]]] = {
    "/v1/chat/completions": chat,
    "/invocations": chat,
    "/v1/chat/completions/batch": batch,
    "/v1/messages": messages,
    "/cohere/v2/chat": cohere,
    "/v1/completions": completion,
}
if hasattr(vllm.renderers.online_renderer.OnlineRenderer, "render_responses"):
    HANDLERS["/v1/responses"] = response


@pytest.fixture(scope="session")
def results() -> Iterator[Results]:
    with closing(Results("in process")) as results:
        yield results


@pytest.mark.parametrize(
    ("attempt", "model"),
    [
        pytest.param(attempt, model, id=f"{model.value}-{profile.value}-{attempt.id}")
        for profile, model in RENDERED
        for case in cases().values()
        if case.server is profile
        for attempt in attempts(case, harmony=model is Model.TINY_GPT_OSS)
        if attempt.endpoint.path in HANDLERS and not attempt.stream
        # The serving classes check transfer params, and need an engine.
        if case.at not in (Group.ENGINE, Group.XARGS)
    ],
)
@pytest.mark.usefixtures("guarded")
def test_case(
    attempt: Attempt, model: Model, settings_of: Callable[[Profile], None], results: Results
) -> None:
    """
    What would reach the engine is what the case expects, without the key.
    """
    profile = attempt.case.server
    settings_of(profile)

    result = InProcess(make_renderer(model, connector=profile.has_connector)).run(attempt)

    release = vllm.__version__.partition("+")[0]
    results.enter(attempt.endpoint.path, release, holds=result.holds)
    assert (None, None) == (result.objection, result.not_applicable)
