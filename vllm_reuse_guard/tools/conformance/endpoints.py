# SPDX-License-Identifier: Apache-2.0
"""Every endpoint that takes transfer params: a plain body for it, and the format it answers in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from .answers import (
    ANTHROPIC_MESSAGE,
    CHAT_COMPLETION,
    COHERE_CHAT,
    COMPLETION,
    GENERATED,
    RENDERED,
    RESPONSE,
    TOKENS,
    ResponseFormat,
)

_QUESTION = "Name a colour."
_MESSAGES = {"messages": [{"role": "user", "content": _QUESTION}]}
_SHORT = {"max_tokens": 3, "temperature": 0}
_RETURN_IDS = {"return_token_ids": True}


@dataclass(frozen=True)
class Endpoint:
    """
    One endpoint of vLLM.

    plain_body: the body of a plain request, without the model; a case adds to it. since: the
    first release that has the endpoint. streams: whether it can answer as a stream. engine:
    whether it needs an engine, which a render server does not have. names_field: whether its
    errors have ``error.param``.
    """

    path: str
    plain_body: Mapping[str, Any]
    response_format: ResponseFormat
    since: str = "0.27.0"
    streams: bool = True
    engine: bool = True
    names_field: bool = True


_CHAT_COMPLETIONS = Endpoint(
    "/v1/chat/completions", {**_MESSAGES, **_SHORT, **_RETURN_IDS}, CHAT_COMPLETION
)
_BATCH = Endpoint(
    "/v1/chat/completions/batch",
    {**_SHORT, **_RETURN_IDS, "messages": [_MESSAGES["messages"], _MESSAGES["messages"]]},
    CHAT_COMPLETION,
    streams=False,
)
_RESPONSES = Endpoint(
    "/v1/responses",
    {"input": _QUESTION, "max_output_tokens": 3, "temperature": 0, "store": False},
    RESPONSE,
)
_ANTHROPIC = Endpoint("/v1/messages", {**_MESSAGES, **_SHORT}, ANTHROPIC_MESSAGE, names_field=False)
_COHERE = Endpoint("/cohere/v2/chat", {**_MESSAGES, **_SHORT}, COHERE_CHAT, names_field=False)
_COMPLETIONS = Endpoint(
    "/v1/completions", {"prompt": _QUESTION, **_SHORT, **_RETURN_IDS}, COMPLETION
)
_GENERATE = Endpoint(
    "/inference/v1/generate", {"token_ids": [5, 6, 7], "sampling_params": _SHORT}, GENERATED
)


def _render_route(endpoint: Endpoint, since: str = "0.27.0") -> Endpoint:
    return Endpoint(
        path=f"{endpoint.path}/render",
        plain_body=endpoint.plain_body,
        response_format=RENDERED,
        since=since,
        streams=False,
        # Cohere's route takes its conversion from the serving class.
        engine=endpoint is _COHERE,
        # The Anthropic route raises, and vLLM's own handler answers; Cohere's translates.
        names_field=endpoint is not _COHERE,
    )


_OPENAI_MESSAGES = (
    _CHAT_COMPLETIONS,
    Endpoint("/invocations", _CHAT_COMPLETIONS.plain_body, CHAT_COMPLETION),
    Endpoint("/tokenize", _MESSAGES, TOKENS, streams=False, engine=False),
    _render_route(_CHAT_COMPLETIONS),
)
_BATCHES = (_BATCH,)
_RESPONSES_INPUT = (_RESPONSES, _render_route(_RESPONSES, since="0.30.0"))
_ANTHROPIC_MESSAGES = (_ANTHROPIC, _render_route(_ANTHROPIC, since="0.29.0"))
_COHERE_MESSAGES = (_COHERE, _render_route(_COHERE, since="0.29.0"))
_PROMPTS = (_COMPLETIONS, _render_route(_COMPLETIONS), _GENERATE)

ENDPOINTS = (
    *_OPENAI_MESSAGES,
    *_BATCHES,
    *_RESPONSES_INPUT,
    *_ANTHROPIC_MESSAGES,
    *_COHERE_MESSAGES,
    *_PROMPTS,
)
"""Each endpoint."""


class Group(str, Enum):
    """The endpoints that a case is sent to."""

    CHAT_COMPLETIONS = "chat_completions"
    """/v1/chat/completions alone: for a rule that vLLM applies in one place for every endpoint."""
    OPENAI_MESSAGES = "openai_messages"
    """Endpoints that take the ``messages`` of chat completions."""
    RESPONSES = "responses"
    """Endpoints that take the ``input`` of a response, on a model that is not Harmony."""
    ANTHROPIC_MESSAGES = "anthropic_messages"
    """Endpoints that take Anthropic's ``messages``."""
    COHERE = "cohere"
    """Endpoints that take Cohere's ``messages``."""
    CONVERSATIONS = "conversations"
    """The OpenAI, response, Anthropic and Cohere groups: for a body that each of them accepts."""
    PROMPTS = "prompts"
    """Endpoints whose prompt is not a conversation."""
    GENERATE = "generate"
    """/inference/v1/generate alone."""
    BATCH = "batch"
    """/v1/chat/completions/batch alone."""
    ENGINE = "engine"
    """Endpoints that give the transfer params of a request to the engine."""
    XARGS = "xargs"
    """Endpoints that take ``vllm_xargs``."""
    HARMONY_RESPONSES = "harmony_responses"
    """Endpoints that take the ``input`` of a response, on a Harmony model, which renders it."""

    def endpoints(self, *, harmony: bool) -> tuple[Endpoint, ...]:
        """Return the endpoints of the group. harmony: whether the model is a Harmony model."""
        responses = () if harmony else _RESPONSES_INPUT
        return {
            Group.CHAT_COMPLETIONS: (_CHAT_COMPLETIONS,),
            Group.OPENAI_MESSAGES: _OPENAI_MESSAGES,
            Group.RESPONSES: responses,
            Group.ANTHROPIC_MESSAGES: _ANTHROPIC_MESSAGES,
            Group.COHERE: _COHERE_MESSAGES,
            Group.CONVERSATIONS: (
                *_OPENAI_MESSAGES,
                *responses,
                *_ANTHROPIC_MESSAGES,
                *_COHERE_MESSAGES,
            ),
            Group.PROMPTS: _PROMPTS,
            Group.GENERATE: (_GENERATE,),
            Group.BATCH: _BATCHES,
            Group.ENGINE: tuple(
                endpoint
                for endpoint in ENDPOINTS
                if endpoint.engine and endpoint.response_format != RENDERED
            ),
            Group.XARGS: (_CHAT_COMPLETIONS, _RESPONSES, _COMPLETIONS),
            Group.HARMONY_RESPONSES: _RESPONSES_INPUT if harmony else (),
        }[self]


REFERENCE = _CHAT_COMPLETIONS
"""It shows the token IDs of its prompt. Endpoints that do not are compared with it."""
