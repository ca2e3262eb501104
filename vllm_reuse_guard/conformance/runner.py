# SPDX-License-Identifier: Apache-2.0
"""Send cases to a running server and judge what it answers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx

from ..core.decision import forwarded, without_ids
from . import Case, Expected, cases
from .values import Subject, resolve

_QUESTION = [{"role": "user", "content": "Name a colour."}]
_FILLED_IN = {"messages": _QUESTION, "max_tokens": 6, "temperature": 0, "return_token_ids": True}


@dataclass(frozen=True)
class Answer:
    """
    What came back, stream or not.

    prompt: the ids that the engine ran. output: the ids that it made. text: all it said.
    late_error: an error inside a stream whose status was 200.
    """

    status: int
    media_type: str
    prompt: list[int] | None = None
    output: list[int] = field(default_factory=list)
    text: str = ""
    error: str | None = None
    param: str | None = None
    late_error: str | None = None


@dataclass(frozen=True)
class Verdict:
    """The outcome of one case; it holds if there is nothing to object to."""

    case: Case
    stream: bool
    objection: str | None
    answer: Answer | None

    @property
    def holds(self) -> bool:
        """Whether the server does what the case says."""
        return self.objection is None


class Runner:
    """Runs cases on one server, each control before what it is the control of."""

    def __init__(self, client: httpx.Client, model: str, subject: Subject) -> None:
        self._client = client
        self._model = model
        self._subject = subject
        self._verdicts: dict[tuple[str, bool], Verdict] = {}

    def run(self, case: Case, *, stream: bool) -> Verdict:
        """
        Run a case, and ask the server something plain afterwards to see it is still there.

        Does not raise for what a server does; a time-out or a lost connection is a verdict.
        """
        key = case.id, stream
        if key not in self._verdicts:
            self._verdicts[key] = Verdict(case, stream, *self._judge(case, stream))
        return self._verdicts[key]

    def ask(self, endpoint: str, body: dict[str, Any]) -> Answer:
        """Send one body as it is, but for the model, and read the answer."""
        # json.dumps writes NaN, infinity and integers of any size; httpx's own does not.
        content = json.dumps({"model": self._model, **body})
        # vLLM drops the connection after a 500; the next request must not meet that.
        headers = {"Content-Type": "application/json", "Connection": "close"}
        return _read(self._client.post(endpoint, content=content, headers=headers))

    def _judge(self, case: Case, stream: bool) -> tuple[str | None, Answer | None]:
        if case.control and not self.run(cases()[case.control], stream=stream).holds:
            return f"its control {case.control} does not hold", None
        answer = None
        try:
            body = resolve({**_FILLED_IN, "stream": stream, **case.body}, self._subject)
            answer = self.ask(case.endpoint, body)
            objection = self._object(case, body, answer)
            alive = self.ask("/v1/chat/completions", _FILLED_IN).status == 200
            return objection or (None if alive else "the next request is not served"), answer
        except httpx.HTTPError as error:
            return f"the server does not answer: {error!r}", answer

    def _object(self, case: Case, body: dict[str, Any], answer: Answer) -> str | None:
        if answer.late_error is not None:
            return f"an error inside a 200 stream: {answer.late_error}"
        match case.expect.outcome:
            case Expected.REUSE:
                return _object_to_reuse(answer, body["kv_transfer_params"]["prompt_token_ids"])
            case Expected.RENDER:
                ids = forwarded(body.get("kv_transfer_params"))
                plain = body if ids is None else without_ids(body)
                return _object_to_render(answer, self.ask(case.endpoint, plain))
            case Expected.REJECT:
                return _object_to_reject(answer, case)


def _object_to_reuse(answer: Answer, ids: list[int]) -> str | None:
    if answer.status != 200:
        return f"status {answer.status} instead of 200: {answer.error}"
    if answer.prompt != ids:
        return "the prompt is not the forwarded ids"
    return None if answer.output else "the answer is empty"


def _object_to_render(answer: Answer, plain: Answer) -> str | None:
    if answer == plain:
        return None
    if answer.status != plain.status:
        return f"status {answer.status}, but {plain.status} without ids: {answer.error}"
    return "the answer is not the one without ids"


def _object_to_reject(answer: Answer, case: Case) -> str | None:
    expect = case.expect
    if answer.status != 400:
        return f"status {answer.status} instead of 400: {answer.error}"
    if answer.media_type != "application/json":
        return f"the answer is {answer.media_type}, not JSON"
    if answer.param != expect.param:
        return f"error.param is {answer.param}, not {expect.param}"
    if expect.says and expect.says not in (answer.error or ""):
        return f"error.message does not say {expect.says!r}: {answer.error}"
    return None


def _read(response: httpx.Response) -> Answer:
    media_type = response.headers.get("content-type", "").partition(";")[0]
    if media_type == "text/event-stream":
        return _read_stream(response, media_type)
    try:
        body = response.json()
    except ValueError:
        return Answer(response.status_code, media_type, error=response.text[:200])
    if response.status_code != 200:
        error = body.get("error", body)
        return Answer(
            response.status_code, media_type, error=error.get("message"), param=error.get("param")
        )
    choices = body["choices"]
    return Answer(
        response.status_code,
        media_type,
        prompt=body.get("prompt_token_ids"),
        output=[item for choice in choices for item in choice.get("token_ids") or []],
        text="".join(choice["message"]["content"] or "" for choice in choices),
    )


def _read_stream(response: httpx.Response, media_type: str) -> Answer:
    prompt, output, text, late_error = None, list[int](), "", None
    for event in _events(response.text):
        if "error" in event:
            late_error = json.dumps(event["error"])[:200]
            continue
        prompt = prompt or event.get("prompt_token_ids")
        for choice in event["choices"]:
            output += choice.get("token_ids") or []
            text += choice["delta"].get("content") or ""
    return Answer(response.status_code, media_type, prompt, output, text, late_error=late_error)


def _events(stream: str) -> Iterator[dict[str, Any]]:
    for line in stream.splitlines():
        data = line.removeprefix("data: ")
        if data != line and data != "[DONE]":
            yield json.loads(data)
