# SPDX-License-Identifier: Apache-2.0
"""A model that takes images does not reuse forwarded IDs with an image placeholder."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import httpx
import pytest

from lab.models.build import Model
from lab.servers import launches
from lab.servers.server import Server, running
from tests.vision.images import COLOURS, WAYS
from vllm_reuse_guard.tools.conformance import Attempt, Profile, attempts, cases
from vllm_reuse_guard.tools.conformance.runner import Runner

RELEASES = ("0.27.0", "0.32.0")
HITS = "vllm:prefix_cache_hits_total"
ATTEMPTS = [
    attempt
    for case in cases().values()
    if case.server is Profile.MEDIA
    for attempt in attempts(case, harmony=False)
]


@pytest.fixture(scope="module", params=RELEASES)
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    with running(launches.launch(Profile.MEDIA, request.param, Model.TINY_QWEN2_VL)) as server:
        yield server


@pytest.fixture(scope="module")
def runner(server: Server) -> Iterator[Runner]:
    with httpx.Client(base_url=server.url, timeout=60) as client:
        yield launches.runner(server, client)


@pytest.mark.parametrize("attempt", ATTEMPTS, ids=lambda attempt: attempt.id)
def test_case(runner: Runner, attempt: Attempt) -> None:
    """
    The server does what the case expects.
    """
    result = runner.run(attempt)

    assert (None, None) == (result.objection, result.not_applicable)


def shared_tokens(server: Server) -> float:
    """
    Forward the IDs of a chat about one image, then of another. Return the tokens they share.

    The conversation is long enough to fill KV blocks.
    """
    story = {"type": "text", "text": "What is in the picture? " * 12}
    short = {"max_tokens": 1, "temperature": 0}
    forwarded = []
    for colour in COLOURS:
        body = WAYS["image-url"].body(colour)
        body["messages"][0]["content"][-1] = story
        answer = server.chat(**body, **short, return_token_ids=True).json()
        forwarded.append(answer["prompt_token_ids"])
    # A router that forwards IDs and drops the images: the placeholders are the same.
    hits = []
    for ids in forwarded:
        before = server.metric(HITS)
        text = [{"role": "user", "content": "Hello"}]
        server.chat(messages=text, kv_transfer_params={"prompt_token_ids": ids}, **short)
        hits.append(server.metric(HITS) - before)
    return hits[1]


@pytest.mark.parametrize("release", RELEASES)
def test_images_cannot_share_blocks(release: str) -> None:
    """
    Two images share blocks of placeholders on plain vLLM, and none with the guard.
    """
    shared = {}
    for guarded in (False, True):
        launch = launches.launch(Profile.MEDIA, release, Model.TINY_QWEN2_VL, guarded=guarded)
        with running(replace(launch, name=f"placeholders-{guarded}")) as server:
            shared[guarded] = shared_tokens(server)

    assert shared[False] > 0
    assert shared[True] == 0
