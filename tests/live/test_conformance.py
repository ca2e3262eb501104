# SPDX-License-Identifier: Apache-2.0
"""Every conformance case on real servers: HF on two releases, Harmony on one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing

import httpx
import pytest

from lab import launches
from lab.models import Model
from lab.server import running
from vllm_reuse_guard.conformance import Case, Profile, cases
from vllm_reuse_guard.conformance.runner import Runner

SERVERS = [
    *[
        (profile, release, Model.TINY_QWEN2_NARROW if narrow else Model.TINY_QWEN2)
        for release in ("0.27.0", "0.32.0")
        for profile in Profile
        for narrow in [profile is Profile.NARROW_EMBEDDING]
    ],
    (Profile.CONNECTOR, "0.32.0", Model.TINY_GPT_OSS),
]


class Stage:
    """One server at a time, kept while the tests ask for the same one."""

    def __init__(self) -> None:
        self._on_stage = ExitStack()
        self._wanted: object = None
        self._runner: Runner | None = None

    def runner(self, server: tuple[Profile, str, Model]) -> Runner:
        """Return a runner for this server; starts it unless it is the one on stage."""
        if self._runner is None or self._wanted != server:
            self.close()
            running_server = self._on_stage.enter_context(running(launches.launch(*server)))
            client = httpx.Client(base_url=running_server.url, timeout=60)
            self._on_stage.enter_context(client)
            self._wanted, self._runner = server, launches.runner(running_server, client)
        return self._runner

    def close(self) -> None:
        """Stop the server that is on stage."""
        self._runner = None
        self._on_stage.close()


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with closing(Stage()) as stage:
        yield stage


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    metafunc.parametrize(
        ("server", "case", "stream"),
        [
            pytest.param(
                server,
                case,
                stream,
                id=f"{server[1]}-{server[2].value}-{case.id}{'-stream' if stream else ''}",
            )
            for server in SERVERS
            for case in cases().values()
            if case.server is server[0]
            for stream in case.streams
        ],
    )


def test_case(stage: Stage, server: tuple[Profile, str, Model], case: Case, stream: bool) -> None:
    """
    The server does what the case says, and serves the next request.
    """
    assert stage.runner(server).run(case, stream=stream).objection is None
