# SPDX-License-Identifier: Apache-2.0
"""A real vision model uses an image beside forwarded IDs, in each way to pass it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import httpx
import pytest

from lab.models.build import Model
from lab.servers import launches
from lab.servers.server import MODEL_NAME, Server, running
from tests.vision.images import COLOURS, TEXT, WAYS, Way, chat
from vllm_reuse_guard.rules.outcome import PROMPT_TOKEN_IDS
from vllm_reuse_guard.tools.conformance import Profile
from vllm_reuse_guard.tools.conformance.answers import Answer, read
from vllm_reuse_guard.tools.conformance.endpoints import ENDPOINTS, REFERENCE

EVERY_WAY = ("--enable-mm-embeds", "--enable-prompt-embeds")
FIELDS = {"model": MODEL_NAME, "max_tokens": 8, "max_output_tokens": 8, "temperature": 0}
AT = {endpoint.path: endpoint for endpoint in ENDPOINTS}


@pytest.fixture(scope="module", params=["0.27.0", "0.30.0", "0.31.0", "0.32.0"])
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    launch = launches.launch(Profile.CONNECTOR, request.param, Model.TINY_QWEN2_VL)
    with running(replace(launch, arguments=(*launch.arguments, *EVERY_WAY))) as server:
        yield server


@pytest.fixture(scope="module")
def forwarded(server: Server) -> list[int]:
    """The token IDs of a chat without a picture, as prefill would forward them."""
    return ask(server, chat()).output.prompt or []


def ask(
    server: Server, body: dict[str, Any], *, path: str = REFERENCE.path, ids: Any = None
) -> Answer:
    """Send one body, with IDs or without."""
    fields = {**FIELDS, "return_token_ids": True, **body}
    if ids is not None:
        fields["kv_transfer_params"] = {PROMPT_TOKEN_IDS: ids}
    answer = httpx.post(f"{server.url}{path}", json=fields, timeout=60)
    return read(answer, AT[path].response_format)


def show(server: Server, way: Way, colour: str, *, ids: Any = None) -> Answer:
    """Send an image."""
    if way.first:
        assert ask(server, way.first(colour)).status == 200
    return ask(server, way.body(colour), path=way.path, ids=ids)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("way", WAYS)
def test_image_beside_ids(server: Server, forwarded: list[int], way: str, stream: bool) -> None:
    """
    The answer is the one without IDs, and differs for a picture of another colour.
    """
    streamed = replace(WAYS[way], body=lambda colour: {**WAYS[way].body(colour), "stream": stream})

    plain = [show(server, streamed, colour) for colour in COLOURS]
    beside = [show(server, streamed, colour, ids=forwarded) for colour in COLOURS]

    assert [200, 200] == [answer.status for answer in beside], beside[0].error
    assert plain == beside
    assert (beside[0] != beside[1]) == streamed.seen


@pytest.mark.parametrize("ids", [[True], "abc", []], ids=repr)
def test_ids_beside_an_image_are_not_checked(server: Server, ids: Any) -> None:
    """
    Malformed IDs beside an image are ignored.
    """
    way = WAYS["image-url"]

    assert show(server, way, "red") == show(server, way, "red", ids=ids)


def test_ids_beside_text_are_used(server: Server, forwarded: list[int]) -> None:
    """
    A vision model reuses the IDs of a text chat.
    """
    expected = ask(server, chat())
    other = {"messages": [{"role": "user", "content": [TEXT, TEXT, TEXT]}]}

    answer = ask(server, other, ids=forwarded)

    assert forwarded == answer.output.prompt
    assert expected == answer
