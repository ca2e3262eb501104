# SPDX-License-Identifier: Apache-2.0
"""The responses of all endpoints, each in its own format, read into one type to compare."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from textwrap import shorten
from typing import Any, TypeAlias

import httpx

Json: TypeAlias = dict[str, Any]

_MOST_CHARACTERS = 200
"""Of an error that a report shows."""


@dataclass(frozen=True)
class Output:
    """
    The content of a whole answer or of one event of a stream.

    prompt: the IDs of the prompt. prompt_length: their number, where the API shows only that.
    token_ids: the generated IDs. text: the generated text.
    engine_params: the engine parameters, from an endpoint that answers with them.
    """

    prompt: list[int] | None = None
    prompt_length: int | None = None
    token_ids: list[int] = field(default_factory=list)
    text: str = ""
    engine_params: Json | None = None

    def then(self, later: Output) -> Output:
        """Join this with a later event of the same stream."""
        return Output(
            prompt=self.prompt or later.prompt,
            prompt_length=later.prompt_length or self.prompt_length,
            token_ids=self.token_ids + later.token_ids,
            text=self.text + later.text,
        )


@dataclass(frozen=True)
class Answer:
    """
    What a server answers, streamed or not.

    error, param: the message and ``error.param`` if the status is not 200. late_error: the error
    event of a stream that began with status 200.
    """

    status: int
    media_type: str
    output: Output = field(default_factory=Output)
    error: str | None = None
    param: str | None = None
    late_error: str | None = None

    @property
    def failed(self) -> bool:
        """Whether the answer is an error, or a stream that ends with one."""
        return self.status != httpx.codes.OK or self.late_error is not None

    @property
    def failure(self) -> str:
        """The error in a few words, for an answer that failed."""
        if self.late_error is not None:
            return f"an error inside a {self.status} stream: {self.late_error.strip()}"
        message = shorten(self.error or "", _MOST_CHARACTERS, placeholder=" ...")
        return f"status {self.status}{f': {message}' if message else ''}"


@dataclass(frozen=True)
class ResponseFormat:
    """How to read an API: ``whole`` reads a JSON body, ``event`` one event of a stream."""

    whole: Callable[[Json], Output]
    event: Callable[[Json], Output]


def read(response: httpx.Response, response_format: ResponseFormat) -> Answer:
    """
    Read a response, successful or not, whole or streamed.

    A response that is not in this format raises an exception of any type.
    """
    media_type = response.headers.get("content-type", "").partition(";")[0]
    if media_type == "text/event-stream":
        return _read_stream(response, media_type, response_format)
    try:
        body = response.json()
    except ValueError:
        return Answer(response.status_code, media_type, error=response.text[:_MOST_CHARACTERS])
    if response.status_code == 200:
        return Answer(response.status_code, media_type, response_format.whole(body))
    error = body.get("error", body)
    message = error.get("message", json.dumps(error))
    return Answer(response.status_code, media_type, error=message, param=error.get("param"))


def _read_stream(
    response: httpx.Response, media_type: str, response_format: ResponseFormat
) -> Answer:
    output, late_error = Output(), None
    for event in _events(response.text):
        if "error" in event or event.get("type") in ("error", "response.failed"):
            late_error = json.dumps(_without_response(event))[:_MOST_CHARACTERS]
        else:
            output = output.then(response_format.event(event))
    return Answer(response.status_code, media_type, output, late_error=late_error)


def _without_response(event: Json) -> Json:
    # A failed response comes whole, with IDs and times that differ from request to request.
    response = event.get("response")
    if not isinstance(response, dict):
        return event
    return {"type": event.get("type"), "error": response.get("error")}


def _events(stream: str) -> Iterator[Json]:
    for line in stream.splitlines():
        data = line.removeprefix("data: ")
        if data != line and data != "[DONE]":
            yield json.loads(data)


def _chat(body: Json) -> Output:
    return Output(
        prompt=body.get("prompt_token_ids"),
        token_ids=_token_ids(body),
        text="".join(choice["message"]["content"] or "" for choice in body["choices"]),
    )


def _chat_event(event: Json) -> Output:
    return Output(
        prompt=event.get("prompt_token_ids"),
        token_ids=_token_ids(event),
        text="".join(choice["delta"].get("content") or "" for choice in event["choices"]),
    )


def _completion(body: Json) -> Output:
    ids = [choice.get("prompt_token_ids") for choice in body["choices"]]
    return Output(
        prompt=ids[0] if ids else None,
        token_ids=_token_ids(body),
        text="".join(choice["text"] for choice in body["choices"]),
    )


def _token_ids(body: Json) -> list[int]:
    return [item for choice in body["choices"] for item in choice.get("token_ids") or []]


def _response(body: Json) -> Output:
    parts = [part for item in body["output"] for part in item.get("content") or []]
    return Output(
        prompt_length=body["usage"]["input_tokens"],
        text="".join(part.get("text", "") for part in parts),
    )


def _response_event(event: Json) -> Output:
    if event["type"] == "response.completed":
        return Output(prompt_length=event["response"]["usage"]["input_tokens"])
    has_text = event["type"].endswith("text.delta")
    return Output(text=event["delta"]) if has_text else Output()


def _message(body: Json) -> Output:
    return Output(
        prompt_length=body["usage"]["input_tokens"],
        text="".join(block.get("text") or "" for block in body["content"]),
    )


def _message_event(event: Json) -> Output:
    usage = event.get("usage") or event.get("message", {}).get("usage") or {}
    text = (event.get("delta") or {}).get("text") or ""
    return Output(prompt_length=usage.get("input_tokens"), text=text)


def _cohere(body: Json) -> Output:
    return Output(
        prompt_length=int(body["usage"]["tokens"]["input_tokens"]),
        text="".join(part.get("text", "") for part in body["message"].get("content") or []),
    )


def _cohere_event(event: Json) -> Output:
    delta = event.get("delta") or {}
    usage = delta.get("usage")
    content = (delta.get("message") or {}).get("content") or {}
    return Output(
        prompt_length=int(usage["tokens"]["input_tokens"]) if usage else None,
        text=content.get("text", "") if isinstance(content, dict) else "",
    )


def _tokens(body: Json) -> Output:
    return Output(prompt=body["tokens"])


def _rendered(body: Json | list[Json]) -> Output:
    (prompt,) = body if isinstance(body, list) else [body]
    params = {key: value for key, value in prompt.items() if key not in ("request_id", "token_ids")}
    return Output(prompt=prompt["token_ids"], engine_params=params)


def _generated(body: Json) -> Output:
    return Output(token_ids=_token_ids(body))


CHAT_COMPLETION = ResponseFormat(_chat, _chat_event)
COMPLETION = ResponseFormat(_completion, _completion)
RESPONSE = ResponseFormat(_response, _response_event)
ANTHROPIC_MESSAGE = ResponseFormat(_message, _message_event)
COHERE_CHAT = ResponseFormat(_cohere, _cohere_event)
TOKENS = ResponseFormat(_tokens, _tokens)
RENDERED = ResponseFormat(_rendered, _rendered)
GENERATED = ResponseFormat(_generated, _generated)
