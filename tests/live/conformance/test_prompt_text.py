# SPDX-License-Identifier: Apache-2.0
"""No text of the prompt is in an answer, even if its IDs end inside a character."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from lab.models.build import Model
from lab.servers.server import MODEL_NAME, Server
from tests.live.conformance.stage import IN_FULL, ServerSpec, Stage, server_specs
from vllm_reuse_guard.tools.conformance import Profile
from vllm_reuse_guard.tools.conformance.endpoints import ENDPOINTS, REFERENCE, Endpoint
from vllm_reuse_guard.tools.conformance.runner import Runner

SYSTEM = "The word of the day is swordfish."
BROKEN = "\N{REPLACEMENT CHARACTER}"
MESSAGES = [
    {"role": "system", "content": SYSTEM},
    {"role": "user", "content": "Say it with a picture: 👍🏿"},
]

(COMPLETIONS,) = (endpoint for endpoint in ENDPOINTS if endpoint.path == "/v1/completions")
SERVERS = [
    pytest.param(server, id=server.id)
    for server in server_specs()
    if server.engine
    and server.profile is Profile.CONNECTOR
    and server.release in IN_FULL
    and server.model is not Model.TINY_QWEN2_LIST_CONTENT
]
# A Harmony chat is not rendered as /tokenize renders it, so that it cannot be cut where it must be.
TEMPLATED = [server for server in SERVERS if Model.TINY_GPT_OSS.value not in str(server.id)]

pytestmark = pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])


def cut(server: Server) -> list[int]:
    """Return the ids of the messages up to where they end inside of a character."""

    def ask(path: str, **body: Any) -> Any:
        sent = {"model": MODEL_NAME, **body}
        return httpx.post(f"{server.url}{path}", json=sent, timeout=60).raise_for_status().json()

    ids: list[int] = ask("/tokenize", messages=MESSAGES)["tokens"]
    for end in reversed(range(1, len(ids))):
        text = ask("/detokenize", tokens=ids[:end])["prompt"]
        if text.endswith(BROKEN):
            assert SYSTEM in text
            return ids[:end]
    raise AssertionError("no cut of these ids is inside of a character")


def require_silence(runner: Runner, endpoint: Endpoint, ids: list[int], **body: Any) -> None:
    """Look that the prompt of an answer is this one, and that nothing of its text is in it."""
    said = runner.ask(endpoint, {**endpoint.plain_body, "max_tokens": 8, **body}).output
    assert ids == said.prompt
    assert "word of the day" not in said.text
    assert "swordfish" not in said.text
    assert "picture" not in said.text


@pytest.mark.parametrize("wanted", SERVERS)
def test_forwarded_ids(stage: Stage, wanted: ServerSpec, stream: bool) -> None:
    """
    A chat with forwarded ids.
    """
    ids = cut(stage.server(wanted))
    forwarded = {"kv_transfer_params": {"prompt_token_ids": ids}}
    require_silence(stage.runner(wanted), REFERENCE, ids, stream=stream, **forwarded)


@pytest.mark.parametrize("wanted", SERVERS)
def test_ids_of_a_completion(stage: Stage, wanted: ServerSpec, stream: bool) -> None:
    """
    A completion, whose prompt can be ids.
    """
    ids = cut(stage.server(wanted))
    require_silence(stage.runner(wanted), COMPLETIONS, ids, stream=stream, prompt=ids)


@pytest.mark.parametrize("wanted", TEMPLATED)
def test_truncated_chat(stage: Stage, wanted: ServerSpec, stream: bool) -> None:
    """
    A chat that the client has cut.
    """
    ids = cut(stage.server(wanted))
    truncated = {"truncate_prompt_tokens": len(ids), "truncation_side": "right"}
    require_silence(
        stage.runner(wanted), REFERENCE, ids, stream=stream, messages=MESSAGES, **truncated
    )
