# SPDX-License-Identifier: Apache-2.0
"""The servers that the cases are played on, one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import httpx
import pytest

from lab.env.environment import WITHOUT_CPU_BUILD
from lab.models.build import Model
from lab.servers import launches
from lab.servers.server import Launch, Server, running
from tests.live.releases import EARLIEST, FULL_MATRIX, NEWEST
from vllm_reuse_guard.releases import TESTED
from vllm_reuse_guard.rules.outcome import Reason
from vllm_reuse_guard.tools.conformance import Attempt, Case, Profile, attempts, cases
from vllm_reuse_guard.tools.conformance.endpoints import ENDPOINTS, Endpoint, Group
from vllm_reuse_guard.tools.conformance.runner import Runner

IN_FULL = (EARLIEST, NEWEST)
"""The releases on which every case is tried live; on the others only those about endpoints."""

ABOUT_RULES = (Group.CHAT_COMPLETIONS, Group.ENGINE)
"""The groups of cases that try many values of a rule, which is the same on every release."""


ABOUT_TEMPLATES = (
    Reason.ECHO,
    Reason.NON_TEXT_CONTENT,
    Reason.NOT_FORWARDED,
    Reason.NOT_A_CHAT,
    Reason.REUSED,
)
"""The words whose cases depend on how vLLM renders: those for a model with another template."""


@dataclass(frozen=True)
class ServerSpec:
    """One server: what it is like, and whether it has an engine or only renders."""

    profile: Profile
    release: str
    model: Model
    engine: bool = True

    @property
    def marks(self) -> tuple[pytest.MarkDecorator, ...]:
        """The marks of its tests: settings have the same effect on each release."""
        by_settings = self.profile not in (Profile.CONNECTOR, Profile.NO_CONNECTOR)
        return (FULL_MATRIX,) if by_settings and self.release == EARLIEST else ()

    @property
    def id(self) -> str:
        """What a test's name begins with."""
        kind = () if self.engine else ("render",)
        return "-".join([self.release, self.model.value, *kind, self.profile.value])

    def launch(self) -> Launch:
        """Say how to start it."""
        make = launches.launch if self.engine else launches.render_launch
        return make(self.profile, self.release, self.model)

    def endpoints(self) -> list[Endpoint]:
        """Return the endpoints that it has."""
        later = self.later_endpoints()
        return [
            endpoint
            for endpoint in ENDPOINTS
            if endpoint not in later and (self.engine or not endpoint.engine)
        ]

    def later_endpoints(self) -> list[Endpoint]:
        """Return the endpoints that only releases after its own have."""
        position = TESTED.index(self.release)
        return [endpoint for endpoint in ENDPOINTS if TESTED.index(endpoint.since) > position]

    def attempts(self) -> Iterator[Attempt]:
        """Yield what is tried on it."""
        there = self.endpoints()
        for case in cases().values():
            if case.server is self.profile and self._gets(case):
                for attempt in attempts(case, harmony=self.model is Model.TINY_GPT_OSS):
                    if attempt.endpoint in there:
                        yield attempt

    def _gets(self, case: Case) -> bool:
        if self.model is Model.TINY_QWEN2_LIST_CONTENT:
            return case.rule in ABOUT_TEMPLATES
        return self.release in IN_FULL or case.at not in ABOUT_RULES


def server_specs() -> list[ServerSpec]:
    """Return the servers, each of them once."""
    servers = []
    for release in TESTED:
        if release in IN_FULL:
            # The model that takes images has an environment of its own: tests/vision.
            profiles = [profile for profile in Profile if profile is not Profile.MEDIA]
            servers += [ServerSpec(p, release, launches.model_for(p)) for p in profiles]
            servers.append(ServerSpec(Profile.CONNECTOR, release, Model.TINY_QWEN2_LIST_CONTENT))
        elif release not in WITHOUT_CPU_BUILD:
            servers.append(ServerSpec(Profile.CONNECTOR, release, Model.TINY_QWEN2))
    servers.append(ServerSpec(Profile.CONNECTOR, "0.32.0", Model.TINY_GPT_OSS))
    for release in WITHOUT_CPU_BUILD:
        servers += [
            ServerSpec(profile, release, model, engine=False)
            for profile, model in (
                (Profile.CONNECTOR, Model.TINY_QWEN2),
                (Profile.NO_CONNECTOR, Model.TINY_QWEN2),
                (Profile.CONNECTOR, Model.TINY_GPT_OSS),
            )
        ]
    return servers


class Stage:
    """One server at a time, kept while the tests ask for the same one."""

    def __init__(self) -> None:
        self._on_stage = ExitStack()
        self._wanted: ServerSpec | None = None
        self._server: Server | None = None
        self._runner: Runner | None = None

    def server(self, wanted: ServerSpec) -> Server:
        """Return the server; starts it unless it is the one on stage."""
        if self._server is None or self._wanted != wanted:
            self.close()
            self._server = self._on_stage.enter_context(running(wanted.launch()))
            self._wanted = wanted
        return self._server

    def runner(self, wanted: ServerSpec) -> Runner:
        """Return a runner for the server."""
        server = self.server(wanted)
        if self._runner is None:
            client = self._on_stage.enter_context(httpx.Client(base_url=server.url, timeout=60))
            self._runner = launches.runner(server, client)
        return self._runner

    def close(self) -> None:
        """Stop the server that is on stage."""
        self._server = self._runner = None
        self._on_stage.close()
