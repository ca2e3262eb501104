# SPDX-License-Identifier: Apache-2.0
"""The verdict on a case whose request fails without forwarded IDs too: a server in this process."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx
import msgspec
import pytest

from vllm_reuse_guard.tools.conformance import Attempt, cases
from vllm_reuse_guard.tools.conformance.endpoints import REFERENCE
from vllm_reuse_guard.tools.conformance.runner import AttemptResult, Runner
from vllm_reuse_guard.tools.conformance.values import ModelInfo

MODEL_INFO = ModelInfo(forwarded=[3, 4], embedding_rows=10, last_known=9, max_prompt_len=5)
REUSE, RENDER, REJECT = "chat.one-id-is-used", "chat.echo-renders", "chat.a-string-is-refused"
REJECT_PARAMS = "params.remote-port-0-is-refused"
REJECT_EXTRA_ARGS = "params.pull-among-engine-parameters-is-refused"
RENDER_NO_CONTROL = "chat.echo-does-not-check-ids"

Reply = Callable[[dict[str, Any]], httpx.Response]


def answer(prompt: list[int] | None = None) -> httpx.Response:
    choice = {"message": {"content": "blue"}, "token_ids": [7]}
    return httpx.Response(200, json={"prompt_token_ids": prompt or [1], "choices": [choice]})


def error(status: int, message: str, param: str | None = None) -> httpx.Response:
    return httpx.Response(status, json={"error": {"message": message, "param": param}})


def broken_stream(message: str, text: str = "") -> httpx.Response:
    events = [{"choices": [{"delta": {"content": text}}]}, {"error": {"message": message}}]
    lines = "".join(f"data: {json.dumps(event)}\n\n" for event in events)
    return httpx.Response(200, text=lines, headers={"content-type": "text/event-stream"})


def has_params(body: dict[str, Any]) -> bool:
    return "kv_transfer_params" in json.dumps(body)


def has_ids(body: dict[str, Any]) -> bool:
    return "prompt_token_ids" in (body.get("kv_transfer_params") or {})


def is_plain(body: dict[str, Any]) -> bool:
    """Whether the runner asks only whether the server still serves."""
    return body.keys() == {"model", *REFERENCE.plain_body}


def run(case: str, reply: Reply, *, stream: bool = False, dies: bool = False) -> AttemptResult:
    """Run a case, without its control, on a server that replies like this."""

    def handle(request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content)
        if is_plain(body):
            return error(500, "dead") if dies else answer()
        return reply(body)

    alone = msgspec.structs.replace(cases()[case], control=None)
    with httpx.Client(transport=httpx.MockTransport(handle), base_url="http://server") as client:
        return Runner(client, "model", MODEL_INFO).run(Attempt(alone, REFERENCE, stream))


def replica(response: httpx.Response) -> httpx.Response:
    """A response can be sent once."""
    headers = {"content-type": response.headers["content-type"]}
    return httpx.Response(response.status_code, content=response.content, headers=headers)


@pytest.mark.parametrize("case", [RENDER, RENDER_NO_CONTROL])
@pytest.mark.parametrize(
    ("failure", "remark"),
    [
        (broken_stream("list + str"), "an error inside a 200 stream"),
        (error(400, "no images"), "status 400: no images"),
    ],
    ids=["late", "whole"],
)
def test_rendered_request_that_fails_without_ids_too(
    case: str, failure: httpx.Response, remark: str
) -> None:
    """
    The case holds, and the result names the error.
    """
    result = run(case, lambda _body: replica(failure), stream=True)

    assert (True, None, None) == (result.holds, result.objection, result.not_applicable)
    assert remark in str(result.remark)


@pytest.mark.parametrize(
    ("with_ids", "without_ids"),
    [
        (broken_stream("one"), broken_stream("another")),
        (broken_stream("one", text="red"), broken_stream("one", text="blue")),
        (broken_stream("one"), answer()),
        (answer(), broken_stream("one")),
        (error(400, "one"), error(400, "another")),
        (error(500, "one"), answer()),
    ],
    ids=["other-late-error", "other-text", "late-error", "no-late-error", "other-error", "error"],
)
def test_rendered_request_with_another_answer(
    with_ids: httpx.Response, without_ids: httpx.Response
) -> None:
    """
    The case fails if the answers differ, whether or not both are errors.
    """
    result = run(RENDER, lambda body: replica(with_ids if has_ids(body) else without_ids))

    assert not result.holds
    assert result.objection is not None
    assert "without IDs" in result.objection


@pytest.mark.parametrize("case", [REUSE, REJECT, REJECT_PARAMS])
@pytest.mark.parametrize("failure", [broken_stream("no"), error(501, "no")], ids=["late", "whole"])
def test_request_that_fails_without_transfer_params_too(case: str, failure: httpx.Response) -> None:
    """
    A case that expects another outcome than Render is not applicable, and says why.
    """
    result = run(case, lambda _body: replica(failure), stream=True)

    assert (False, None) == (result.holds, result.objection)
    assert "vLLM answers the same request without transfer params with" in str(
        result.not_applicable
    )


@pytest.mark.parametrize("case", [REUSE, REJECT, REJECT_PARAMS])
def test_request_that_fails_only_with_transfer_params(case: str) -> None:
    """
    The case fails if the request without transfer params is served.
    """
    result = run(case, lambda body: error(500, "no") if has_params(body) else answer())

    assert "status 500: no" in str(result.objection)
    assert result.not_applicable is None


def test_transfer_params_in_extra_args_are_left_out_too() -> None:
    """
    The request to compare with has no transfer params in any field.
    """
    seen: list[bool] = []

    def reply(body: dict[str, Any]) -> httpx.Response:
        seen.append(has_params(body))
        return error(501, "no")

    result = run(REJECT_EXTRA_ARGS, reply)

    assert [True, False] == seen
    assert result.not_applicable is not None


def test_rejection_that_is_not_refused_fails() -> None:
    """
    Two answers with status 200 are not the same failure.
    """
    result = run(REJECT, lambda _body: answer())

    assert "status 200, expected 400" == result.objection


@pytest.mark.parametrize("case", [REUSE, RENDER, REJECT])
def test_server_that_dies_fails(case: str) -> None:
    """
    A server that answers every request with the same error, plain ones too, fails the case.
    """
    result = run(case, lambda _body: error(500, "dead"), dies=True)

    assert not result.alive
    assert "does not serve the next request" in str(result.objection)
    assert result.not_applicable is None


@pytest.mark.parametrize(
    ("reply", "objection", "not_applicable"),
    [
        (lambda _body: error(501, "no"), None, "its control chat.forwarded-ids-are-used is not"),
        (
            lambda body: error(500, "no") if has_ids(body) else answer(),
            "its control chat.forwarded-ids-are-used does not hold",
            None,
        ),
    ],
    ids=["not-applicable", "fails"],
)
def test_control(reply: Reply, objection: str | None, not_applicable: str | None) -> None:
    """
    A case is not applicable if its control is not, and fails if its control fails.
    """

    def handle(request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content)
        return answer() if is_plain(body) else reply(body)

    with httpx.Client(transport=httpx.MockTransport(handle), base_url="http://server") as client:
        runner = Runner(client, "model", MODEL_INFO)
        result = runner.run(Attempt(cases()[REJECT], REFERENCE, stream=False))

    assert objection == result.objection
    assert (not_applicable or "None") in str(result.not_applicable)
