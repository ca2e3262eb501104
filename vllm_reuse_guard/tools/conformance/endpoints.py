# SPDX-License-Identifier: Apache-2.0
"""Every endpoint that takes transfer params: what to ask it, and how it answers (SPEC 3)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from .answers import (
    CHAT,
    COHERE,
    COMPLETION,
    GENERATED,
    MESSAGE,
    RENDERED,
    RESPONSE,
    TOKENS,
    ResponseFormat,
)

_SAY = "Name a colour."
_MESSAGES = {"messages": [{"role": "user", "content": _SAY}]}
_SHORT = {"max_tokens": 3, "temperature": 0}
_IDS = {"return_token_ids": True}


@dataclass(frozen=True)
class Endpoint:
    """
    One endpoint of vLLM.

    asks: the body of a plain question; a case adds to it. since: the first release that has it.
    streams: whether it can answer as a stream. engine: whether it needs one; a render server
    has none. names_field: whether its errors have a place for the name of the field.
    """

    path: str
    asks: Mapping[str, Any]
    response_format: ResponseFormat
    since: str = "0.27.0"
    streams: bool = True
    engine: bool = True
    names_field: bool = True


_CHAT = Endpoint("/v1/chat/completions", {**_MESSAGES, **_SHORT, **_IDS}, CHAT)
_BATCH = Endpoint(
    "/v1/chat/completions/batch",
    {**_SHORT, **_IDS, "messages": [_MESSAGES["messages"], _MESSAGES["messages"]]},
    CHAT,
    streams=False,
)
_RESPONSES = Endpoint(
    "/v1/responses",
    {"input": _SAY, "max_output_tokens": 3, "temperature": 0, "store": False},
    RESPONSE,
)
_ANTHROPIC = Endpoint("/v1/messages", {**_MESSAGES, **_SHORT}, MESSAGE, names_field=False)
_COHERE = Endpoint("/cohere/v2/chat", {**_MESSAGES, **_SHORT}, COHERE, names_field=False)
_COMPLETIONS = Endpoint("/v1/completions", {"prompt": _SAY, **_SHORT, **_IDS}, COMPLETION)


def _renders(endpoint: Endpoint, since: str = "0.27.0") -> Endpoint:
    return Endpoint(
        path=f"{endpoint.path}/render",
        asks=endpoint.asks,
        response_format=RENDERED,
        since=since,
        streams=False,
        # Cohere's route takes its conversion from the serving class.
        engine=endpoint is _COHERE,
        # The Anthropic route raises, and vLLM's own handler answers; Cohere's translates.
        names_field=endpoint is not _COHERE,
    )


_OF_CHATS = (
    _CHAT,
    Endpoint("/invocations", _CHAT.asks, CHAT),
    Endpoint("/tokenize", _MESSAGES, TOKENS, streams=False, engine=False),
    _renders(_CHAT),
)
_OF_RESPONSES = (_RESPONSES, _renders(_RESPONSES, since="0.30.0"))
_OF_MESSAGES = (_ANTHROPIC, _renders(_ANTHROPIC, since="0.29.0"))
_OF_COHERE = (_COHERE, _renders(_COHERE, since="0.29.0"))
_OF_PROMPTS = (
    _COMPLETIONS,
    _renders(_COMPLETIONS),
    Endpoint(
        "/inference/v1/generate", {"token_ids": [5, 6, 7], "sampling_params": _SHORT}, GENERATED
    ),
)
_OF_BATCHES = (_BATCH,)

ENDPOINTS = (
    *_OF_CHATS,
    *_OF_BATCHES,
    *_OF_RESPONSES,
    *_OF_MESSAGES,
    *_OF_COHERE,
    *_OF_PROMPTS,
)
"""All of them."""


class Group(str, Enum):
    """The endpoints that a case speaks about."""

    CHAT = "chat"
    """Chat completions alone: a rule that is decided behind every endpoint in the same place."""
    CHATS = "chats"
    """Those that take ``messages`` as chat completions do."""
    RESPONSES = "responses"
    """Those that take the ``input`` of a response."""
    MESSAGES = "messages"
    """Those that take Anthropic's messages."""
    COHERE = "cohere"
    """Those that take Cohere's."""
    CONVERSATIONS = "conversations"
    """All of these: whatever a case adds to a body is understood everywhere."""
    PROMPTS = "prompts"
    """Those whose prompt is no conversation."""
    GENERATE = "generate"
    """/inference/v1/generate alone."""
    BATCH = "batch"
    """Several conversations at once."""
    ENGINE = "engine"
    """Those that give the engine the transfer params of a request."""
    XARGS = "xargs"
    """Those that take engine parameters of a client's own as ``vllm_xargs``."""
    HARMONY_RESPONSES = "harmony_responses"
    """Those that take the ``input`` of a response, on a Harmony model, which renders it always."""

    def endpoints(self, *, harmony: bool) -> tuple[Endpoint, ...]:
        """Return the endpoints on a server whose model is a Harmony one, or is not."""
        responses = () if harmony else _OF_RESPONSES
        return {
            Group.CHAT: (_CHAT,),
            Group.CHATS: _OF_CHATS,
            Group.RESPONSES: responses,
            Group.MESSAGES: _OF_MESSAGES,
            Group.COHERE: _OF_COHERE,
            Group.CONVERSATIONS: (*_OF_CHATS, *responses, *_OF_MESSAGES, *_OF_COHERE),
            Group.PROMPTS: _OF_PROMPTS,
            Group.GENERATE: (_OF_PROMPTS[-1],),
            Group.BATCH: _OF_BATCHES,
            Group.ENGINE: tuple(
                one for one in ENDPOINTS if one.engine and one.response_format != RENDERED
            ),
            Group.XARGS: (_CHAT, _RESPONSES, _COMPLETIONS),
            Group.HARMONY_RESPONSES: _OF_RESPONSES if harmony else (),
        }[self]


REFERENCE = _CHAT
"""Shows the ids of its prompt: what endpoints that do not are compared with."""
