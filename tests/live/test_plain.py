# SPDX-License-Identifier: Apache-2.0
"""The cases can fail: on plain 0.27.0, which checks nothing, they do."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from lab.models.build import Model
from lab.servers import launches
from lab.servers.server import Server, running
from vllm_reuse_guard.tools.conformance import Attempt, Profile, cases
from vllm_reuse_guard.tools.conformance.endpoints import REFERENCE
from vllm_reuse_guard.tools.conformance.runner import Runner

SECONDS = 10


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    launch = launches.launch(Profile.CONNECTOR, "0.27.0", Model.TINY_QWEN2, guarded=False)
    with running(launch) as server:
        yield server


@pytest.fixture
def runner(server: Server) -> Iterator[Runner]:
    with httpx.Client(base_url=server.url, timeout=SECONDS) as client:
        yield launches.runner(server, client)


def chat(case: str, *, stream: bool = False) -> Attempt:
    """A case, tried as a chat completion."""
    return Attempt(cases()[case], REFERENCE, stream)


def test_control_holds(runner: Runner) -> None:
    """
    Plain vLLM does use good ids.
    """
    assert runner.run(chat("chat.forwarded-ids-are-used")).holds


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "case",
    [
        "chat.a-string-is-refused",
        "chat.an-empty-list-is-refused",
        "chat.a-list-of-fractions-is-refused",
        "chat.echo-renders",
        "content.image-url-renders",
        "content.image-url-called-text-renders",
        "content.media-of-system-renders",
    ],
)
def test_case_fails(runner: Runner, case: str, stream: bool) -> None:
    """
    What the guard is for does not hold without it.
    """
    assert runner.run(chat(case, stream=stream)).objection is not None


def test_server_says_nothing_of_a_guard(server: Server) -> None:
    """
    Without the plugin no process has the line.
    """
    assert " is active in the " not in server.log_text()


def test_true_hangs_the_server_while_it_says_that_it_is_healthy(
    server: Server, runner: Runner
) -> None:
    """
    The last test of this server: after one [true] nothing is answered any more.
    """
    verdict = runner.run(chat("chat.a-list-of-true-is-refused"))

    assert verdict.objection is not None
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(
            f"{server.url}/v1/chat/completions",
            json={"model": "model", "messages": [{"role": "user", "content": "Hello"}]},
            timeout=SECONDS,
        )
    assert httpx.get(f"{server.url}/health", timeout=SECONDS).status_code == 200
