# SPDX-License-Identifier: Apache-2.0
"""No text of a prompt is in an answer, also if its ids end inside of a character (SPEC 4)."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from lab.models import Model
from lab.server import MODEL_NAME, Server
from tests.live.stage import IN_FULL, Played, Stage, played
from vllm_reuse_guard.conformance import Profile
from vllm_reuse_guard.conformance.answers import CHAT, COMPLETION, Dialect, Said, read

SYSTEM = "The word of the day is swordfish."
BROKEN = "\N{REPLACEMENT CHARACTER}"
MESSAGES = [
    {"role": "system", "content": SYSTEM},
    {"role": "user", "content": "Say it with a picture: 👍🏿"},
]

SERVERS = [
    pytest.param(server, id=server.id)
    for server in played()
    if server.engine and server.profile is Profile.CONNECTOR and server.release in IN_FULL
]
# A Harmony chat is not rendered as /tokenize renders it, so that it cannot be cut where it must be.
TEMPLATED = [server for server in SERVERS if Model.TINY_GPT_OSS.value not in str(server.id)]

pytestmark = pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])


def post(server: Server, path: str, **body: Any) -> httpx.Response:
    """Send one body; the answer must be good."""
    sent = {"model": MODEL_NAME, **body}
    return httpx.post(f"{server.url}{path}", json=sent, timeout=60).raise_for_status()


def cut(server: Server) -> list[int]:
    """Return the ids of the messages up to where they end inside of a character."""
    ids: list[int] = post(server, "/tokenize", messages=MESSAGES).json()["tokens"]
    for end in reversed(range(1, len(ids))):
        text = post(server, "/detokenize", tokens=ids[:end]).json()["prompt"]
        if text.endswith(BROKEN):
            assert SYSTEM in text
            return ids[:end]
    raise AssertionError("no cut of these ids is inside of a character")


def say(server: Server, path: str, dialect: Dialect, **body: Any) -> Said:
    """Have some tokens generated; the ids of the prompt come with them."""
    more = {"max_tokens": 8, "temperature": 0, "return_token_ids": True}
    return read(post(server, path, **more, **body), dialect).said


def require_silence(said: Said, prompt: list[int]) -> None:
    """Look that the prompt was the cut one, and that nothing of its text is in the answer."""
    assert prompt == said.prompt
    assert "word of the day" not in said.text
    assert "swordfish" not in said.text
    assert "picture" not in said.text


@pytest.mark.parametrize("wanted", SERVERS)
def test_forwarded_ids(stage: Stage, wanted: Played, stream: bool) -> None:
    """
    A chat with forwarded ids.
    """
    server = stage.server(wanted)
    ids = cut(server)
    said = say(
        server,
        "/v1/chat/completions",
        CHAT,
        stream=stream,
        messages=[{"role": "user", "content": "Hi"}],
        kv_transfer_params={"prompt_token_ids": ids},
    )
    require_silence(said, ids)


@pytest.mark.parametrize("wanted", SERVERS)
def test_ids_of_a_completion(stage: Stage, wanted: Played, stream: bool) -> None:
    """
    A completion, whose prompt can be ids.
    """
    server = stage.server(wanted)
    ids = cut(server)
    require_silence(say(server, "/v1/completions", COMPLETION, stream=stream, prompt=ids), ids)


@pytest.mark.parametrize("wanted", TEMPLATED)
def test_truncated_chat(stage: Stage, wanted: Played, stream: bool) -> None:
    """
    A chat that the client has cut.
    """
    server = stage.server(wanted)
    ids = cut(server)
    said = say(
        server,
        "/v1/chat/completions",
        CHAT,
        stream=stream,
        messages=MESSAGES,
        truncate_prompt_tokens=len(ids),
        truncation_side="right",
    )
    require_silence(said, ids)
