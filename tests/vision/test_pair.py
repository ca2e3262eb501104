# SPDX-License-Identifier: Apache-2.0
"""Images through a prefill and a decode instance whose router forwards IDs too."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from lab.models.build import Model
from lab.servers import launches
from lab.servers.pair import Pair, running_pair
from lab.servers.server import Server
from tests.vision.images import COLOURS, WAYS, chat
from vllm_reuse_guard.tools.conformance import Profile


@pytest.fixture(scope="module", params=["0.27.0", "0.32.0"])
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    launch = launches.launch(Profile.NO_CONNECTOR, request.param, Model.TINY_QWEN2_VL)
    with running_pair(launch) as pair:
        yield pair


def reply(server: Server, **body: Any) -> tuple[str, list[int]]:
    """Return the text of the answer to a chat, and the token IDs of the prompt."""
    answer = server.chat(**body, return_token_ids=True).raise_for_status().json()
    return answer["choices"][0]["message"]["content"], answer["prompt_token_ids"]


def question(colour: str) -> dict[str, Any]:
    """Return the body of a chat about a picture."""
    return {**WAYS["image-url"].body(colour), "temperature": 0, "max_tokens": 8}


def test_decode_looks_at_the_image(pair: Pair) -> None:
    """
    With the IDs of prefill beside the image, each colour gets the answer of one instance alone.
    """
    answers = []
    for colour in COLOURS:
        handover = pair.run_prefill(**question(colour))
        params = handover.with_ids(handover.ids)
        answers.append(reply(pair.decode, **question(colour), kv_transfer_params=params))

    assert [reply(pair.prefill, **question(colour)) for colour in COLOURS] == answers
    assert answers[0][0] != answers[1][0]


def test_ids_of_another_chat_do_not_replace_an_image(pair: Pair) -> None:
    """
    Decode uses the image, not the IDs of another chat beside it.
    """
    text = pair.run_prefill(**chat(), temperature=0)
    handover = pair.run_prefill(**question("red"))

    answer = reply(pair.decode, **question("red"), kv_transfer_params=handover.with_ids(text.ids))

    assert reply(pair.prefill, **question("red")) == answer


def test_text_is_reused(pair: Pair) -> None:
    """
    The same model reuses the IDs of a chat without an image.
    """
    body = {**chat(), "temperature": 0, "max_tokens": 8}
    other = {"messages": [{"role": "user", "content": "Count to three."}]}
    handover = pair.run_prefill(**body)
    params = handover.with_ids(handover.ids)

    answer = reply(pair.decode, **{**body, **other}, kv_transfer_params=params)

    assert reply(pair.prefill, **body) == answer
