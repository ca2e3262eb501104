# SPDX-License-Identifier: Apache-2.0
"""Nothing in transfer params takes a server down, slows others, or makes it dial a stranger."""

from __future__ import annotations

import asyncio
import json
import socket
import statistics
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import httpx
import psutil
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lab.models.build import Model
from lab.servers import launches
from lab.servers.server import CONTEXT, MODEL_NAME, Server, running
from tests.live.releases import FULL_MATRIX, MOSTLY_ON_NEWEST, ON_BOTH
from vllm_reuse_guard.rules.transfer_params import Connector
from vllm_reuse_guard.tools.conformance import Attempt, Expected, Profile, attempts, cases
from vllm_reuse_guard.tools.conformance.endpoints import REFERENCE

CLIENTS = 16
BAD_REQUESTS = 480
SECONDS = 20
MEGABYTES = 200
MESSAGES = [{"role": "user", "content": "Name a colour."}]
PULL = {
    "do_remote_prefill": True,
    "remote_block_ids": [[0, 1, 2]],
    "remote_engine_id": "engine",
    "remote_request_id": "request",
    "remote_host": "127.0.0.1",
    "remote_port": 1,
    "tp_size": 1,
}
# The engine core cannot decode it: a prompt that leaves no room for the tokens that it wants.
UNDECODABLE = {
    "token_ids": [5] * (CONTEXT - 5),
    "sampling_params": {"min_tokens": 10, "skip_clone": True},
}


@contextmanager
def serving(release: str, *arguments: str) -> Iterator[Server]:
    """A guarded server with NixlConnector, and more arguments."""
    launch = launches.launch(Profile.CONNECTOR, release, Model.TINY_QWEN2)
    with running(replace(launch, arguments=(*launch.arguments, *arguments))) as server:
        yield server


def processes(server: Server) -> dict[int, psutil.Process]:
    """Return the server's processes by id."""
    first = psutil.Process(server.process.pid)
    return {process.pid: process for process in [first, *first.children(recursive=True)]}


def memory(server: Server) -> float:
    """Return the megabytes that the server's processes hold of their own."""
    return sum(process.memory_full_info().uss for process in processes(server).values()) / 2**20


@dataclass
class Tally:
    """What clients saw: the seconds of each good request, and what came of the bad ones."""

    good: list[float] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def summary(self) -> str:
        """Return how long the good requests took."""
        median, slowest = statistics.median(self.good), max(self.good)
        return f"{len(self.good)} good: median {median:.3f} s, slowest {slowest:.3f} s"


async def good_traffic(client: httpx.AsyncClient, tally: Tally, until: asyncio.Event) -> None:
    """Ask something plain over and over."""
    while not until.is_set():
        begin = time.monotonic()
        body = {"model": MODEL_NAME, "messages": MESSAGES, "max_tokens": 4}
        answer = await client.post(REFERENCE.path, json=body)
        tally.good.append(time.monotonic() - begin)
        if answer.status_code != 200:
            tally.wrong.append(f"good: {answer.status_code} {answer.text[:200]}")
        health = await client.get("/health")
        if health.status_code != 200:
            tally.wrong.append(f"health: {health.status_code}")
        await asyncio.sleep(0.05)


async def bad_traffic(client: httpx.AsyncClient, tally: Tally, share: list[Any]) -> None:
    """Send bad requests, a pause between them."""
    for path, body, allowed in share:
        content = json.dumps({"model": MODEL_NAME, **body})
        headers = {"Content-Type": "application/json"}
        answer = await client.post(path, content=content, headers=headers)
        if answer.status_code not in allowed:
            tally.wrong.append(f"{path} {content[:200]}: {answer.status_code} {answer.text[:200]}")
        await asyncio.sleep(SECONDS / (BAD_REQUESTS / CLIENTS))


def bad_requests(server: Server) -> list[tuple[str, Any, set[int]]]:
    """Return a few hundred requests that must be refused, everything that can do harm first."""
    model_info = launches.describe(server)
    refused = [
        attempt
        for case in cases().values()
        if case.server is Profile.CONNECTOR and case.expect.outcome is Expected.REJECT
        for attempt in attempts(case, harmony=False)
    ]
    harmful = [attempt for attempt in refused if attempt.case.id.startswith("params.")]
    # A stride that is no divisor: every case, endpoint and way of streaming has its turn.
    others = [refused[n * 7 % len(refused)] for n in range(BAD_REQUESTS)]
    wanted = [
        _request(attempt, model_info) for attempt in [*harmful, *others][: BAD_REQUESTS - CLIENTS]
    ]
    # Up to 0.30 the client of such a request is told of the error in a 200.
    return [*wanted, *[("/inference/v1/generate", UNDECODABLE, {200, 500})] * CLIENTS]


def _request(attempt: Attempt, model_info: Any) -> tuple[str, Any, set[int]]:
    return attempt.endpoint.path, attempt.body(model_info), {400}


async def play(server: Server, bad: list[Any]) -> Tally:
    """Send good requests while the bad ones last, or for as long without any."""
    tally, done = Tally(), asyncio.Event()
    limits = httpx.Limits(max_connections=2 * CLIENTS)
    async with httpx.AsyncClient(base_url=server.url, timeout=60, limits=limits) as client:
        good = asyncio.create_task(good_traffic(client, tally, done))
        if bad:
            await asyncio.gather(
                *(bad_traffic(client, tally, bad[n::CLIENTS]) for n in range(CLIENTS))
            )
        else:
            await asyncio.sleep(SECONDS)
        done.set()
        await good
    return tally


@pytest.mark.parametrize(
    ("release", "arguments"),
    [
        pytest.param("0.27.0", (), id="0.27.0", marks=FULL_MATRIX),
        pytest.param("0.32.0", (), id="0.32.0"),
        pytest.param(
            "0.32.0",
            ("--api-server-count", "2"),
            id="0.32.0-two-api-servers",
            marks=FULL_MATRIX,
        ),
    ],
)
def test_bad_requests_harm_nobody(release: str, arguments: tuple[str, ...]) -> None:
    """
    16 clients send hundreds of bad requests; the others are served as if they did not.
    """
    with serving(release, *arguments) as server:
        bad = bad_requests(server)
        asyncio.run(play(server, bad[:CLIENTS]))
        before, held = processes(server).keys(), memory(server)
        quiet = asyncio.run(play(server, []))

        stormy = asyncio.run(play(server, bad))

        grown = memory(server) - held
        print(f"\n{release} {arguments}: without bad ones {quiet.summary()}")
        print(f"with {len(bad)} bad ones {stormy.summary()}; memory grew by {grown:.0f} MB")
        assert [] == quiet.wrong + stormy.wrong
        assert before == processes(server).keys()
        assert max(stormy.good) < max(2.0, 5 * max(quiet.good))
        assert statistics.median(stormy.good) < 0.1 + 2 * statistics.median(quiet.good)
        assert grown < MEGABYTES


@ON_BOTH
def test_refused_anyway(release: str) -> None:
    """
    What a request is refused for comes first, and a notice that names no blocks is not sent.
    """
    asks = (
        (REFERENCE.path, {"messages": MESSAGES}),
        ("/v1/completions", {"prompt": "x"}),
        ("/v1/responses", {"input": "x"}),
        ("/v1/messages", {"messages": MESSAGES, "max_tokens": 2}),
    )
    with serving(release) as server:
        before = processes(server).keys()
        for path, body in asks:
            for params in ({"do_remote_prefill": True}, {**PULL, "remote_port": "1"}):
                unknown = {"model": "none", **body, "kv_transfer_params": params}
                answer = httpx.post(f"{server.url}{path}", json=unknown, timeout=30)
                assert 404 == answer.status_code, answer.text
                assert server_asked(server, {}).status_code == 200
        assert before == processes(server).keys()
        assert not [keys for keys in server.engine_was_given() if "do_remote_prefill" in keys]
        assert 0 == server.metric("reuse_guard_engine_core_refused_transfer_params_total")


CONNECTORS = {
    "push": {"kv_connector": "NixlPushConnector"},
    "multi": {
        "kv_connector": "MultiConnector",
        "kv_connector_extra_config": {
            "connectors": [
                {"kv_connector": "NixlConnector", "kv_role": "kv_both", "kv_buffer_device": "cpu"}
            ]
        },
    },
}


@MOSTLY_ON_NEWEST
@pytest.mark.parametrize("kind", CONNECTORS)
def test_other_ways_to_have_nixl(release: str, kind: str) -> None:
    """
    Push mode, and inside MultiConnector: each field that is needed is asked for.
    """
    config = {"kv_role": "kv_both", "kv_buffer_device": "cpu", **CONNECTORS[kind]}
    needs = (Connector.NIXL_PUSH if kind == "push" else Connector.NIXL_PULL).needs
    launch = launches.launch(Profile.NO_CONNECTOR, release, Model.TINY_QWEN2)
    arguments = (*launch.arguments, "--kv-transfer-config", json.dumps(config))
    with running(replace(launch, name=kind, arguments=arguments)) as server:
        before = processes(server).keys()
        for field_ in needs:
            params = {key: value for key, value in PULL.items() if key != field_}
            answer = server_asked(server, params)
            assert 400 == answer.status_code
            assert f"kv_transfer_params.{field_}" == answer.json()["error"]["param"]
            assert server_asked(server, {}).status_code == 200
        assert before == processes(server).keys()


class Listener:
    """A port of this machine, and whether anybody has connected to it."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._socket.settimeout(0.1)
        self.port: int = self._socket.getsockname()[1]

    def was_dialled(self, seconds: float) -> bool:
        """Wait for a connection."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            try:
                self._socket.accept()
            except TimeoutError:
                continue
            return True
        return False

    def close(self) -> None:
        """Stop listening."""
        self._socket.close()


@MOSTLY_ON_NEWEST
def test_only_allowed_peers_are_dialled(release: str) -> None:
    """
    A listener that is not on the list is never connected to, one that is on it is.
    """
    with closing(Listener()) as friend, closing(Listener()) as stranger:
        allowed = f"127.0.0.1:{friend.port}"
        with serving(release, "--kv-transfer-allowed-peers", allowed) as server:
            to_stranger = {**PULL, "remote_port": stranger.port}
            for path, body, status in _ways_to_dial(to_stranger):
                answer = httpx.post(f"{server.url}{path}", json=body, timeout=30)
                assert status == answer.status_code, answer.text
                if status == 400:
                    assert "allowed-peers" in answer.text
            assert not stranger.was_dialled(3)

            with pytest.raises(httpx.ReadTimeout):
                server_asked(server, {**PULL, "remote_port": friend.port})
            assert friend.was_dialled(5)
            assert server_asked(server, {}).status_code == 200


def _ways_to_dial(params: dict[str, Any]) -> list[tuple[str, Any, int]]:
    chat = {"model": MODEL_NAME, "messages": MESSAGES, "max_tokens": 2}
    completion = {"model": MODEL_NAME, "prompt": "x"}
    ids = {"model": MODEL_NAME, "token_ids": [5, 6, 7]}
    generate = "/inference/v1/generate"
    extra = {"sampling_params": {"max_tokens": 2, "extra_args": {"kv_transfer_params": params}}}
    return [
        (REFERENCE.path, {**chat, "kv_transfer_params": params}, 400),
        (REFERENCE.path, {**chat, "kv_transfer_params": {"deep": [params]}}, 400),
        # Refused for its model: what tells the connector must not dial either.
        (REFERENCE.path, {**chat, "model": "none", "kv_transfer_params": params}, 404),
        ("/v1/messages", {**chat, "kv_transfer_params": params}, 400),
        ("/v1/completions", {**completion, "kv_transfer_params": params}, 400),
        (generate, {**ids, **extra}, 400),
    ]


def server_asked(server: Server, params: dict[str, Any]) -> httpx.Response:
    """Send a chat with transfer params; one that is served by nobody has no answer."""
    body = {"model": MODEL_NAME, "messages": MESSAGES, "max_tokens": 2}
    return httpx.post(
        f"{server.url}{REFERENCE.path}", json={**body, "kv_transfer_params": params}, timeout=3
    )


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(min_value=2**63 - 2, max_value=2**64 + 2)
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["10.0.0.1", "evil.example"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)
ODD = st.dictionaries(
    st.sampled_from([*PULL, "do_remote_decode", "prompt_token_ids", "pp_size", "anything"]),
    VALUES,
    max_size=6,
)
BASES = st.sampled_from([{}, PULL, {"do_remote_decode": True}, {"do_remote_prefill": True}])
XARGS = st.none() | st.fixed_dictionaries({"kv_transfer_params": VALUES})
PARAMS = st.tuples(BASES, ODD).map(lambda both: {**both[0], **both[1]})


@MOSTLY_ON_NEWEST
def test_fuzz(release: str) -> None:
    """
    Whatever the transfer params and the extra arguments are, the answer is 200 or 4xx.
    """
    with serving(release, "--kv-transfer-allowed-peers", "10.255.255.255") as server:
        before = processes(server).keys()
        client = httpx.Client(base_url=server.url, timeout=60)

        @settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
        @given(
            params=VALUES | PARAMS,
            xargs=st.none() | st.fixed_dictionaries({"kv_transfer_params": VALUES}),
        )
        def fuzz(params: Any, xargs: Any) -> None:
            body = {"model": MODEL_NAME, "messages": MESSAGES, "max_tokens": 2}
            body |= {"kv_transfer_params": params, "vllm_xargs": xargs}
            answer = client.post(
                REFERENCE.path,
                content=json.dumps(body),
                headers={"Content-Type": "application/json"},
            )
            assert answer.status_code < 500, answer.text

        with closing(client):
            fuzz()
        assert server_asked(server, {}).status_code == 200
        assert before == processes(server).keys()
