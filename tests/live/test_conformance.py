# SPDX-License-Identifier: Apache-2.0
"""Every conformance case at every endpoint of real servers, release by release."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import httpx
import pytest

from lab.results import Results
from tests.live.stage import Played, Stage, played
from vllm_reuse_guard.conformance import Profile, Trial
from vllm_reuse_guard.core.outcome import KEY

WITH_ENGINE = [
    pytest.param(server, id=server.id)
    for server in played()
    if server.engine and server.profile is Profile.CONNECTOR
]


@pytest.fixture(scope="session")
def results() -> Iterator[Results]:
    with closing(Results("live")) as results:
        yield results


@pytest.mark.parametrize(
    ("wanted", "trial"),
    [
        pytest.param(server, trial, id=f"{server.id}-{trial.id}")
        for server in played()
        for trial in server.trials()
    ],
)
def test_case(stage: Stage, results: Results, wanted: Played, trial: Trial) -> None:
    """
    The server does what the case says, and serves the next request.
    """
    verdict = stage.runner(wanted).run(trial)

    results.enter(trial.endpoint.path, wanted.release, holds=verdict.holds)
    assert verdict.objection is None


@pytest.mark.parametrize("wanted", [pytest.param(server, id=server.id) for server in played()])
def test_endpoint_is_there_since_its_release(stage: Stage, wanted: Played) -> None:
    """
    The releases that are said to have an endpoint have it, those before do not.
    """
    paths = httpx.get(f"{stage.server(wanted).url}/openapi.json", timeout=60).json()["paths"]

    assert {endpoint.path for endpoint in wanted.endpoints()} <= paths.keys()
    assert not {endpoint.path for endpoint in wanted.later_endpoints()} & paths.keys()


@pytest.mark.parametrize("wanted", WITH_ENGINE)
def test_engine_is_given_everything_but_the_ids(stage: Stage, wanted: Played) -> None:
    """
    Whatever endpoint the requests came by, the key is not among the engine's parameters.
    """
    given = stage.server(wanted).engine_was_given()

    assert ["tag"] in given
    assert not [keys for keys in given if KEY in keys]
