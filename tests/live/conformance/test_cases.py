# SPDX-License-Identifier: Apache-2.0
"""Each conformance case at each endpoint of real servers, release by release."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import httpx
import pytest

from lab.pages.results import Results
from tests.live.conformance.stage import ServerSpec, Stage, server_specs
from vllm_reuse_guard.rules.outcome import PROMPT_TOKEN_IDS
from vllm_reuse_guard.tools.conformance import Attempt, Profile

WITH_ENGINE = [
    pytest.param(server, id=server.id)
    for server in server_specs()
    if server.engine and server.profile is Profile.CONNECTOR
]


@pytest.fixture(scope="session")
def results() -> Iterator[Results]:
    with closing(Results("live")) as results:
        yield results


@pytest.mark.parametrize(
    ("wanted", "attempt"),
    [
        pytest.param(server, attempt, id=f"{server.id}-{attempt.id}", marks=server.marks)
        for server in server_specs()
        for attempt in server.attempts()
    ],
)
def test_case(stage: Stage, results: Results, wanted: ServerSpec, attempt: Attempt) -> None:
    """
    The server does what the case expects, and serves the next request.
    """
    result = stage.runner(wanted).run(attempt)

    results.enter(attempt.endpoint.path, wanted.release, holds=result.holds)
    assert (None, None) == (result.objection, result.not_applicable)


@pytest.mark.parametrize(
    "wanted", [pytest.param(server, id=server.id, marks=server.marks) for server in server_specs()]
)
def test_endpoint_is_there_since_its_release(stage: Stage, wanted: ServerSpec) -> None:
    """
    A server has the endpoints of its release, and none of a later one.
    """
    paths = httpx.get(f"{stage.server(wanted).url}/openapi.json", timeout=60).json()["paths"]

    assert {endpoint.path for endpoint in wanted.endpoints()} <= paths.keys()
    assert not {endpoint.path for endpoint in wanted.later_endpoints()} & paths.keys()


@pytest.mark.parametrize("wanted", WITH_ENGINE)
def test_engine_is_given_everything_but_the_ids(stage: Stage, wanted: ServerSpec) -> None:
    """
    No endpoint passes the key to the engine, and other keys reach it.
    """
    keys_by_request = stage.server(wanted).engine_was_given()

    assert ["tag"] in keys_by_request
    assert not [keys for keys in keys_by_request if PROMPT_TOKEN_IDS in keys]
