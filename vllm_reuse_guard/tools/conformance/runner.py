# SPDX-License-Identifier: Apache-2.0
"""Send cases to a running server and judge its answers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import httpx

from ...rules.decision import forwarded, without_ids
from ...rules.outcome import KV_TRANSFER_PARAMS, PROMPT_TOKEN_IDS
from . import Attempt, Case, Expected, cases
from .answers import Answer, read
from .endpoints import REFERENCE, Endpoint
from .values import ModelInfo

Body: TypeAlias = dict[str, Any]


@dataclass(frozen=True)
class AttemptResult:
    """
    The result of one attempt.

    objection: why the case does not hold, None if it holds. alive: whether the server served a
    plain request afterwards. answer: None if the server sent none that can be read.
    not_applicable: why the attempt decides nothing, for instance because vLLM answers the same
    request without transfer params with the same error. remark: a note on a case that holds.
    """

    attempt: Attempt
    objection: str | None
    alive: bool
    answer: Answer | None = None
    not_applicable: str | None = None
    remark: str | None = None

    @property
    def holds(self) -> bool:
        """Whether the server does what the case expects."""
        return self.objection is None and self.not_applicable is None


@dataclass(frozen=True)
class _Judgement:
    objection: str | None = None
    not_applicable: str | None = None
    remark: str | None = None


class Runner:
    """Sends cases to one server, and the control of a case before the case."""

    def __init__(self, client: httpx.Client, model: str, model_info: ModelInfo) -> None:
        self._client = client
        self._model = model
        self._model_info = model_info
        self._results: dict[str, AttemptResult] = {}

    def run(self, attempt: Attempt) -> AttemptResult:
        """
        Send a case, then a plain request to see whether the server still serves.

        A result is kept: the same attempt is sent once. Nothing that a server does raises; a
        time-out or a lost connection is a result.
        """
        if attempt.id not in self._results:
            self._results[attempt.id] = self._run(attempt)
        return self._results[attempt.id]

    def ask(self, endpoint: Endpoint, body: Body) -> Answer:
        """Send one body, with the name of the model added, and read the answer."""
        # json.dumps writes NaN, infinity and integers of any size; httpx's own does not.
        content = json.dumps({"model": self._model, **body})
        # vLLM drops the connection after a 500; the next request must not meet that.
        headers = {"Content-Type": "application/json", "Connection": "close"}
        response = self._client.post(endpoint.path, content=content, headers=headers)
        return read(response, endpoint.response_format)

    def _run(self, attempt: Attempt) -> AttemptResult:
        if attempt.case.control:
            control = self.run(replace(attempt, case=cases()[attempt.case.control]))
            if not control.holds:
                return _without_control(attempt, control)
        judgement, answer = self._try(attempt)
        if self._serves(attempt.endpoint):
            return AttemptResult(
                attempt,
                judgement.objection,
                alive=True,
                answer=answer,
                not_applicable=judgement.not_applicable,
                remark=judgement.remark,
            )
        # A server that is gone answers every request alike; that excuses nothing.
        first = judgement.objection or judgement.not_applicable
        gone = "the server does not serve the next request"
        return AttemptResult(attempt, f"{first}; {gone}" if first else gone, False, answer)

    def _try(self, attempt: Attempt) -> tuple[_Judgement, Answer | None]:
        answer = None
        try:
            body = attempt.body(self._model_info)
            answer = self.ask(attempt.endpoint, body)
            return self._judge(attempt, body, answer), answer
        except httpx.HTTPError as error:
            return _Judgement(f"no answer ({type(error).__name__})"), answer
        except Exception as error:
            # A server can send anything; each answer is a result.
            why = f"an answer that is not in this API's format ({type(error).__name__}: {error})"
            return _Judgement(why), answer

    def _serves(self, endpoint: Endpoint) -> bool:
        try:
            return self.ask(endpoint, dict(endpoint.plain_body)).status == httpx.codes.OK
        except Exception:
            return False

    def _judge(self, attempt: Attempt, body: Body, answer: Answer) -> _Judgement:
        case, endpoint = attempt.case, attempt.endpoint
        match case.expect.outcome:
            case Expected.RENDER:
                return _judge_render(answer, self.ask(endpoint, _without_any_ids(body)))
            case Expected.REUSE:
                objection = self._object_to_reuse(answer, body)
            case Expected.REJECT:
                objection = _object_to_reject(answer, case, endpoint)
        if objection is not None and answer.failed and self._fails_alike(endpoint, body, answer):
            why = f"vLLM answers the same request without transfer params with {answer.failure}"
            return _Judgement(not_applicable=why)
        return _Judgement(objection)

    def _fails_alike(self, endpoint: Endpoint, body: Body, answer: Answer) -> bool:
        try:
            # Without IDs is not enough: the other transfer params may be what is wrongly refused.
            plain = self.ask(endpoint, _without_any_transfer_params(body))
            return _is_same_failure(answer, plain)
        except Exception:
            return False

    def _object_to_reuse(self, answer: Answer, body: Body) -> str | None:
        ids = body[KV_TRANSFER_PARAMS][PROMPT_TOKEN_IDS]
        if answer.failed:
            return f"{answer.failure}, expected 200"
        if answer.output.prompt is None:
            return self._object_to_unseen_reuse(answer, ids)
        if answer.output.prompt != ids:
            return "the prompt is not the forwarded IDs"
        if PROMPT_TOKEN_IDS in json.dumps(answer.output.engine_params):
            return "the IDs are in the parameters for the engine"
        return None

    def _object_to_unseen_reuse(self, answer: Answer, ids: list[int]) -> str | None:
        body = {**REFERENCE.plain_body, KV_TRANSFER_PARAMS: {PROMPT_TOKEN_IDS: ids}}
        expected = self.ask(REFERENCE, body).output.text
        if answer.output.prompt_length != len(ids):
            return f"the prompt has {answer.output.prompt_length} tokens, expected {len(ids)}"
        if answer.output.text != expected:
            return f"the text is {answer.output.text!r}, but {expected!r} at {REFERENCE.path}"
        return None


def _without_control(attempt: Attempt, control: AttemptResult) -> AttemptResult:
    name = control.attempt.case.id
    if control.not_applicable is None:
        return AttemptResult(attempt, f"its control {name} does not hold", control.alive)
    why = f"its control {name} is not applicable: {control.not_applicable}"
    return AttemptResult(attempt, None, control.alive, not_applicable=why)


def _without_any_ids(body: Body) -> Body:
    plain = body if forwarded(body.get(KV_TRANSFER_PARAMS)) is None else without_ids(body)
    params = body.get("sampling_params", {})
    if "extra_args" not in params:
        return plain
    return {**plain, "sampling_params": {**params, "extra_args": without_ids(params["extra_args"])}}


def _without_any_transfer_params(body: Body) -> Body:
    # In each of the fields that can hold them: docs/reference/specification.md, transfer params.
    plain = _without_key(body, KV_TRANSFER_PARAMS)
    if "vllm_xargs" in plain:
        plain["vllm_xargs"] = _without_key(plain["vllm_xargs"], KV_TRANSFER_PARAMS)
    params = plain.get("sampling_params", {})
    if "extra_args" in params:
        extra_args = _without_key(params["extra_args"], KV_TRANSFER_PARAMS)
        plain["sampling_params"] = {**params, "extra_args": extra_args}
    return plain


def _without_key(value: Mapping[str, Any], key: str) -> Body:
    return {name: item for name, item in value.items() if name != key}


def _is_same_failure(answer: Answer, plain: Answer) -> bool:
    # What came before an error inside a stream may differ.
    return answer.failed and replace(answer, output=plain.output) == plain


def _judge_render(answer: Answer, plain: Answer) -> _Judgement:
    if answer != plain:
        return _Judgement(_difference(answer, plain))
    return _Judgement(remark=f"the error without IDs: {answer.failure}" if answer.failed else None)


def _difference(answer: Answer, plain: Answer) -> str:
    if _is_same_failure(answer, plain):
        return "the answer before the error is not the one without IDs"
    if answer.late_error != plain.late_error:
        return f"{answer.failure}, but {plain.failure} without IDs"
    if answer.status != plain.status:
        return f"{answer.failure}, but {plain.status} without IDs"
    if answer.error != plain.error:
        return f"the error is not the one without IDs: {answer.error}"
    if answer.output.prompt != plain.output.prompt:
        return "the prompt is not the one without IDs"
    return "the answer is not the one without IDs"


def _object_to_reject(answer: Answer, case: Case, endpoint: Endpoint) -> str | None:
    expect = case.expect
    message = answer.error or ""
    if answer.status != httpx.codes.BAD_REQUEST:
        return f"{answer.failure}, expected 400"
    if answer.media_type != "application/json":
        return f"the answer is {answer.media_type}, expected application/json"
    if endpoint.names_field and answer.param != expect.param:
        return f"error.param is {answer.param}, expected {expect.param}"
    for words in (expect.says, expect.param):
        if words and words not in message:
            return f"the message does not contain {words!r}: {message}"
    return None
