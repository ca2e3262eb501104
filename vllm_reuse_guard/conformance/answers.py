# SPDX-License-Identifier: Apache-2.0
"""What endpoints answer, each in its own shape, read into one that can be judged."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import httpx

Json: TypeAlias = dict[str, Any]


@dataclass(frozen=True)
class Said:
    """
    What a server says in a whole answer or in one event of a stream.

    prompt: the ids that it ran. prompt_length: how many, where it says only that.
    output: the ids that it made. text: what it said in words.
    engine_params: what the engine is to be told, from an endpoint that answers with that.
    """

    prompt: list[int] | None = None
    prompt_length: int | None = None
    output: list[int] = field(default_factory=list)
    text: str = ""
    engine_params: Json | None = None

    def then(self, later: Said) -> Said:
        """Join this with what is said later in the same stream."""
        return Said(
            prompt=self.prompt or later.prompt,
            prompt_length=later.prompt_length or self.prompt_length,
            output=self.output + later.output,
            text=self.text + later.text,
        )


@dataclass(frozen=True)
class Answer:
    """
    What came back, stream or not.

    error, param: of an answer that is not a 200. late_error: inside a stream that began as one.
    """

    status: int
    media_type: str
    said: Said = field(default_factory=Said)
    error: str | None = None
    param: str | None = None
    late_error: str | None = None


@dataclass(frozen=True)
class Dialect:
    """How an API answers: ``whole`` reads its JSON, ``event`` one event of its streams."""

    whole: Callable[[Json], Said]
    event: Callable[[Json], Said]


def read(response: httpx.Response, dialect: Dialect) -> Answer:
    """Read an answer, good or bad, whole or streamed."""
    media_type = response.headers.get("content-type", "").partition(";")[0]
    if media_type == "text/event-stream":
        return _read_stream(response, media_type, dialect)
    try:
        body = response.json()
    except ValueError:
        return Answer(response.status_code, media_type, error=response.text[:200])
    if response.status_code == 200:
        return Answer(response.status_code, media_type, dialect.whole(body))
    error = body.get("error", body)
    message = error.get("message", json.dumps(error))
    return Answer(response.status_code, media_type, error=message, param=error.get("param"))


def _read_stream(response: httpx.Response, media_type: str, dialect: Dialect) -> Answer:
    said, late_error = Said(), None
    for event in _events(response.text):
        if "error" in event or event.get("type") in ("error", "response.failed"):
            late_error = json.dumps(event)[:200]
        else:
            said = said.then(dialect.event(event))
    return Answer(response.status_code, media_type, said, late_error=late_error)


def _events(stream: str) -> Iterator[Json]:
    for line in stream.splitlines():
        data = line.removeprefix("data: ")
        if data != line and data != "[DONE]":
            yield json.loads(data)


def _chat(body: Json) -> Said:
    return Said(
        prompt=body.get("prompt_token_ids"),
        output=_output(body),
        text="".join(choice["message"]["content"] or "" for choice in body["choices"]),
    )


def _chat_event(event: Json) -> Said:
    return Said(
        prompt=event.get("prompt_token_ids"),
        output=_output(event),
        text="".join(choice["delta"].get("content") or "" for choice in event["choices"]),
    )


def _completion(body: Json) -> Said:
    ids = [choice.get("prompt_token_ids") for choice in body["choices"]]
    return Said(
        prompt=ids[0] if ids else None,
        output=_output(body),
        text="".join(choice["text"] for choice in body["choices"]),
    )


def _output(body: Json) -> list[int]:
    return [item for choice in body["choices"] for item in choice.get("token_ids") or []]


def _response(body: Json) -> Said:
    parts = [part for item in body["output"] for part in item.get("content") or []]
    return Said(
        prompt_length=body["usage"]["input_tokens"],
        text="".join(part.get("text", "") for part in parts),
    )


def _response_event(event: Json) -> Said:
    if event["type"] == "response.completed":
        return Said(prompt_length=event["response"]["usage"]["input_tokens"])
    spoken = event["type"].endswith("text.delta")
    return Said(text=event["delta"]) if spoken else Said()


def _message(body: Json) -> Said:
    return Said(
        prompt_length=body["usage"]["input_tokens"],
        text="".join(block.get("text") or "" for block in body["content"]),
    )


def _message_event(event: Json) -> Said:
    usage = event.get("usage") or event.get("message", {}).get("usage") or {}
    text = (event.get("delta") or {}).get("text") or ""
    return Said(prompt_length=usage.get("input_tokens"), text=text)


def _cohere(body: Json) -> Said:
    return Said(
        prompt_length=int(body["usage"]["tokens"]["input_tokens"]),
        text="".join(part.get("text", "") for part in body["message"].get("content") or []),
    )


def _cohere_event(event: Json) -> Said:
    delta = event.get("delta") or {}
    usage = delta.get("usage")
    content = (delta.get("message") or {}).get("content") or {}
    return Said(
        prompt_length=int(usage["tokens"]["input_tokens"]) if usage else None,
        text=content.get("text", "") if isinstance(content, dict) else "",
    )


def _tokens(body: Json) -> Said:
    return Said(prompt=body["tokens"])


def _rendered(body: Json | list[Json]) -> Said:
    (prompt,) = body if isinstance(body, list) else [body]
    params = {key: value for key, value in prompt.items() if key not in ("request_id", "token_ids")}
    return Said(prompt=prompt["token_ids"], engine_params=params)


def _generated(body: Json) -> Said:
    return Said(output=_output(body))


CHAT = Dialect(_chat, _chat_event)
COMPLETION = Dialect(_completion, _completion)
RESPONSE = Dialect(_response, _response_event)
MESSAGE = Dialect(_message, _message_event)
COHERE = Dialect(_cohere, _cohere_event)
TOKENS = Dialect(_tokens, _tokens)
RENDERED = Dialect(_rendered, _rendered)
GENERATED = Dialect(_generated, _generated)
