# SPDX-License-Identifier: Apache-2.0
"""Servers of a vLLM that has the guard in its tree."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import httpx
import pytest

from lab.models.build import Model
from lab.releases import trees
from lab.servers import launches
from lab.servers.server import Server, running
from tests.live.releases import EARLIEST, FULL_MATRIX, NEWEST
from vllm_reuse_guard.tools.conformance import Attempt, Profile, attempts, cases
from vllm_reuse_guard.tools.conformance.runner import Runner

CASES = (
    "chat.forwarded-ids-are-used",
    "chat.echo-renders",
    "chat.a-list-of-true-is-refused",
    "chat.a-string-is-refused",
    "content.image-url-renders",
    "batch.ids-are-refused",
    "prompts.ids-are-taken-out",
    "params.string-among-xargs-is-refused",
    "params.pull-among-engine-parameters-is-refused",
)
"""Cases whose rules are kept by different patches; tests/contract has all of them in a tree."""


@pytest.fixture(
    scope="module",
    params=[
        pytest.param((EARLIEST, False), marks=FULL_MATRIX),
        (NEWEST, False),
        pytest.param((NEWEST, True), marks=FULL_MATRIX),
    ],
    ids=["0.27.0", "0.32.0", "0.32.0-and-plugin"],
)
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A server that has the guard in its tree; the plugin is there as well, or disabled."""
    release, plugin = request.param
    launch = launches.launch(Profile.CONNECTOR, release, Model.TINY_QWEN2, guarded=plugin)
    with running(replace(launch, name="in-tree", tree=trees.make(release))) as server:
        yield server


@pytest.fixture(scope="module")
def runner(server: Server) -> Iterator[Runner]:
    with httpx.Client(base_url=server.url, timeout=60) as client:
        yield launches.runner(server, client)


@pytest.mark.parametrize(
    "attempt",
    [
        pytest.param(attempt, id=attempt.id)
        for case in CASES
        for attempt in attempts(cases()[case], harmony=False)
        if attempt.endpoint.since == "0.27.0"
    ],
)
def test_case(runner: Runner, attempt: Attempt) -> None:
    """
    The guard in the tree does what the plugin does.
    """
    assert runner.run(attempt).holds


def test_guard_is_there_once(server: Server) -> None:
    """
    Each process says it once, and each patch is in it once, also beside the plugin.
    """
    log = server.log_text()
    metrics = httpx.get(f"{server.url}/metrics", timeout=30).text

    assert 1 == log.count("is active in the API server")
    assert 1 == log.count("is active in the engine core")
    assert metrics.count("reuse_guard_patch_info{") == len(
        {line for line in metrics.splitlines() if line.startswith("reuse_guard_patch_info{")}
    )
    (counted,) = [
        float(line.rsplit(" ", 1)[1])
        for line in metrics.splitlines()
        if line.startswith("reuse_guard_decisions_total{")
        and 'reason="malformed"' in line
        and "/v1/chat/completions" in line
        and "render" not in line
    ]
    tried = [case for case in CASES if cases()[case].rule.value == "malformed"]
    assert counted == 2 * len(tried)
