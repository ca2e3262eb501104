# SPDX-License-Identifier: Apache-2.0
"""Try cases on a running server and judge what it answers."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

import httpx

from ...rules.decision import forwarded, without_ids
from ...rules.outcome import PROMPT_TOKEN_IDS
from . import Attempt, Case, Expected, cases
from .answers import Answer, read
from .endpoints import REFERENCE, Endpoint
from .values import ModelInfo


@dataclass(frozen=True)
class Verdict:
    """
    The outcome of one attempt; the case holds there if there is nothing to object to.

    alive: whether the server has served something plain afterwards. answer: None if none came.
    """

    attempt: Attempt
    objection: str | None
    alive: bool
    answer: Answer | None = None

    @property
    def holds(self) -> bool:
        """Whether the server does what the case says."""
        return self.objection is None


class Runner:
    """Tries cases on one server, each control before what it is the control of."""

    def __init__(self, client: httpx.Client, model: str, model_info: ModelInfo) -> None:
        self._client = client
        self._model = model
        self._subject = model_info
        self._verdicts: dict[str, Verdict] = {}

    def run(self, attempt: Attempt) -> Verdict:
        """
        Try a case, and ask the server something plain afterwards to see it is still there.

        Does not raise for what a server does; a time-out or a lost connection is a verdict.
        """
        if attempt.id not in self._verdicts:
            self._verdicts[attempt.id] = self._judge(attempt)
        return self._verdicts[attempt.id]

    def ask(self, endpoint: Endpoint, body: dict[str, Any]) -> Answer:
        """Send one body as it is, but for the model, and read the answer."""
        # json.dumps writes NaN, infinity and integers of any size; httpx's own does not.
        content = json.dumps({"model": self._model, **body})
        # vLLM drops the connection after a 500; the next request must not meet that.
        headers = {"Content-Type": "application/json", "Connection": "close"}
        response = self._client.post(endpoint.path, content=content, headers=headers)
        return read(response, endpoint.response_format)

    def _judge(self, attempt: Attempt) -> Verdict:
        control = attempt.case.control
        if control:
            needed = self.run(replace(attempt, case=cases()[control]))
            if not needed.holds:
                return Verdict(attempt, f"its control {control} does not hold", needed.alive)
        objection, answer = self._try(attempt)
        alive = self._serves(attempt.endpoint)
        if not alive:
            after = "the next request is not served"
            objection = f"{objection}; {after}" if objection else after
        return Verdict(attempt, objection, alive, answer)

    def _try(self, attempt: Attempt) -> tuple[str | None, Answer | None]:
        answer = None
        try:
            body = attempt.body(self._subject)
            answer = self.ask(attempt.endpoint, body)
            return self._object(attempt, body, answer), answer
        except httpx.HTTPError as error:
            return f"no answer ({type(error).__name__})", answer
        except Exception as error:
            # Whatever a server says is a verdict about it.
            return f"no answer of this API ({type(error).__name__}: {error})", answer

    def _serves(self, endpoint: Endpoint) -> bool:
        try:
            return self.ask(endpoint, dict(endpoint.asks)).status == 200
        except Exception:
            return False

    def _object(self, attempt: Attempt, body: dict[str, Any], answer: Answer) -> str | None:
        case, endpoint = attempt.case, attempt.endpoint
        if answer.late_error is not None:
            return f"an error inside a 200 stream: {answer.late_error}"
        match case.expect.outcome:
            case Expected.REUSE:
                ids = body["kv_transfer_params"][PROMPT_TOKEN_IDS]
                if answer.status == 200 and answer.output.prompt is None:
                    return self._object_to_unseen_reuse(answer, ids)
                return _object_to_reuse(answer, ids)
            case Expected.RENDER:
                return _object_to_render(answer, self.ask(endpoint, _without_any_ids(body)))
            case Expected.REJECT:
                return _object_to_reject(answer, case, endpoint)

    def _object_to_unseen_reuse(self, answer: Answer, ids: list[int]) -> str | None:
        asks = {**REFERENCE.asks, "kv_transfer_params": {PROMPT_TOKEN_IDS: ids}}
        expected = self.ask(REFERENCE, asks).output.text
        if answer.output.prompt_length != len(ids):
            return f"the prompt has {answer.output.prompt_length} tokens, not {len(ids)}"
        if answer.output.text != expected:
            return f"the text is {answer.output.text!r}, but {expected!r} by {REFERENCE.path}"
        return None


def _without_any_ids(body: dict[str, Any]) -> dict[str, Any]:
    plain = body if forwarded(body.get("kv_transfer_params")) is None else without_ids(body)
    params = body.get("sampling_params", {})
    if "extra_args" not in params:
        return plain
    return {**plain, "sampling_params": {**params, "extra_args": without_ids(params["extra_args"])}}


def _object_to_reuse(answer: Answer, ids: list[int]) -> str | None:
    if answer.status != 200:
        return f"status {answer.status} instead of 200: {answer.error}"
    if answer.output.prompt != ids:
        return "the prompt is not the forwarded ids"
    if PROMPT_TOKEN_IDS in json.dumps(answer.output.engine_params):
        return "the ids are among what the engine is to be told"
    return None


def _object_to_render(answer: Answer, plain: Answer) -> str | None:
    if answer == plain:
        return None
    if answer.status != plain.status:
        error = f": {answer.error}" if answer.error else ""
        return f"status {answer.status}, but {plain.status} without ids{error}"
    if answer.error != plain.error:
        return f"the error is not the one without ids: {answer.error}"
    if answer.output.prompt != plain.output.prompt:
        return "the prompt is not the one without ids"
    return "the answer is not the one without ids"


def _object_to_reject(answer: Answer, case: Case, endpoint: Endpoint) -> str | None:
    expect = case.expect
    message = answer.error or ""
    if answer.status != 400:
        return f"status {answer.status} instead of 400{f': {message}' if message else ''}"
    if answer.media_type != "application/json":
        return f"the answer is {answer.media_type}, not JSON"
    if endpoint.names_field and answer.param != expect.param:
        return f"error.param is {answer.param}, not {expect.param}"
    for words in (expect.says, expect.param):
        if words and words not in message:
            return f"the message does not say {words!r}: {message}"
    return None
