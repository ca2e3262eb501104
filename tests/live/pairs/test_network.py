# SPDX-License-Identifier: Apache-2.0
"""Prefill, decode and the router are hosts of their own, and the cable between them is pulled."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from types import MappingProxyType

import httpx
import pytest

from lab.models.build import Model
from lab.servers import launches, network
from lab.servers.network import Host, hosts
from lab.servers.pair import EMIT, REUSED, Pair, starting_pair
from lab.servers.routers import Route, Router, routing
from lab.servers.server import MODEL_NAME, NIXL, Launch, running, wait_until_healthy
from tests.live.releases import FULL_MATRIX
from vllm_reuse_guard.tools.conformance import Profile

pytestmark = [
    FULL_MATRIX,
    pytest.mark.skipif(
        not network.can_be_made(), reason="network namespaces need root, and iproute2"
    ),
]

RELEASE = "0.32.0"
LONG = [{"role": "user", "content": "the sea was calm " * 80}]
SECONDS_TO_ANSWER = 150
UCX = {"UCX_TCP_USER_TIMEOUT": "10s", "UCX_TCP_SYN_CNT": "2"}
"""How soon UCX gives up a link, and a dial: the kernel takes a quarter of an hour, two minutes."""


@dataclass(frozen=True)
class Place:
    """The hosts, the servers on two of them, and the URLs of the routers on the third."""

    launch: Launch
    prefill: Host
    decode: Host
    pair: Pair
    routers: dict[Router, str]


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    usual = launches.launch(Profile.NO_CONNECTOR, RELEASE, Model.TINY_QWEN2)
    with ExitStack() as stack:
        first, second, third = stack.enter_context(hosts(3))
        on_hosts = on(first, "prefill", usual), on(second, "decode", usual)
        pair = stack.enter_context(starting_pair(*on_hosts))
        for server in (pair.prefill, pair.decode):
            wait_until_healthy(server)
        route = Route(pair.prefill.url, pair.decode.url, usual.model)
        there = {"host": third.address, "prefix": third.prefix}
        urls = {router: stack.enter_context(routing(router, route, **there)) for router in Router}
        yield Place(usual, first, second, pair, urls)


def on(host: Host, role: str, launch: Launch) -> Launch:
    """A server of a pair, on a host of its own."""
    variables = {
        "VLLM_HOST_IP": host.address,
        "VLLM_NIXL_SIDE_CHANNEL_HOST": host.address,
        **UCX,
    }
    return replace(
        launch,
        name=f"{role}-on-{host.namespace}",
        arguments=(*launch.arguments, *NIXL, EMIT),
        environment=MappingProxyType({**launch.environment, **variables}),
        host=host.address,
        prefix=host.prefix,
    )


def ask(url: str, messages: list[dict[str, str]], **more: object) -> httpx.Response:
    """Send a chat that has one right answer."""
    body = {"model": MODEL_NAME, "messages": messages, "max_tokens": 12, "temperature": 0, **more}
    return httpx.post(f"{url}/v1/chat/completions", json=body, timeout=SECONDS_TO_ANSWER)


def text_of(answer: httpx.Response) -> str:
    """Return what a good answer says."""
    said: str = answer.raise_for_status().json()["choices"][0]["message"]["content"]
    return said


def sent_by(host: Host) -> int:
    """Return the bytes that a host has sent so far."""
    asked = [*host.prefix, "ip", "-s", "-j", "link", "show", "eth0"]
    (link,) = json.loads(subprocess.run(asked, check=True, capture_output=True).stdout)
    sent: int = link["stats64"]["tx"]["bytes"]
    return sent


@pytest.mark.parametrize("router", Router, ids=lambda router: router.value)
def test_routers_bring_reuse(place: Place, router: Router) -> None:
    """
    From host to host too, chats are reused, with the answer of a single instance.
    """
    chats = [[{"role": "user", "content": f"{router.value} {n}. " * (n + 1)}] for n in range(4)]
    before = place.pair.decode.metric(REUSED)

    answers = [text_of(ask(place.routers[router], chat)) for chat in chats]

    assert [text_of(ask(place.pair.prefill.url, chat)) for chat in chats] == answers
    assert len(chats) == place.pair.decode.metric(REUSED) - before


def test_instances_name_their_own_address(place: Place) -> None:
    """
    Decode is told to dial the host of prefill, not itself.
    """
    handover = place.pair.run_prefill(messages=[{"role": "user", "content": "Hi"}])

    assert place.prefill.address == handover.transfer_params["remote_host"]


@contextmanager
def transfer_under_way(place: Place, salt: str) -> Iterator[Future[httpx.Response]]:
    """Have a chat handed over so slowly that its blocks are on their way to decode."""
    messages = chat_of(salt)
    handover = place.pair.run_prefill(messages=messages)
    params = handover.with_ids(handover.ids)
    place.prefill.slow_down("256kbit")
    try:
        with ThreadPoolExecutor() as pool:
            before = sent_by(place.prefill)
            url = place.pair.decode.url
            answer = pool.submit(ask, url, messages, kv_transfer_params=params)
            while sent_by(place.prefill) < before + 40_000 and not answer.done():
                time.sleep(0.05)
            assert not answer.done(), "the transfer was over too soon"
            yield answer
    finally:
        place.prefill.speed_up()


def test_link_is_cut_and_comes_back(place: Place) -> None:
    """
    A cable that is out for some seconds: the answer is right, and everything goes on.
    """
    with transfer_under_way(place, "comes back") as answer:
        with place.prefill.unplugged():
            time.sleep(4)
        place.prefill.slow_down("1gbit")
        told = answer.result(SECONDS_TO_ANSWER)

    assert alone(place, "comes back") == text_of(told)
    for router, url in place.routers.items():
        chat = [{"role": "user", "content": f"{router.value} goes on."}]
        assert text_of(ask(place.pair.prefill.url, chat)) == text_of(ask(url, chat))


def test_link_is_cut_for_good(place: Place) -> None:
    """
    A cable that stays out: the client gets an error, and both instances serve on.

    Decode does not dial a prefill again whose link UCX has given up; one that is started anew does.
    """
    with transfer_under_way(place, "for good") as answer, place.prefill.unplugged():
        told = answer.result(SECONDS_TO_ANSWER)

    assert 500 == told.status_code
    assert alone(place, "for good") == text_of(ask(place.pair.decode.url, chat_of("for good")))
    with running(on(place.decode, "decode-again", place.launch)) as decode:
        again = replace(place.pair, decode=decode)
        handover = again.run_prefill(messages=chat_of("once more"))
        params = handover.with_ids(handover.ids)
        pulled = ask(decode.url, chat_of("once more"), kv_transfer_params=params)
        assert alone(place, "once more") == text_of(pulled)
        assert 1 == decode.metric(REUSED)


def alone(place: Place, salt: str) -> str:
    """Return what a single instance answers to a long chat."""
    return text_of(ask(place.pair.prefill.url, chat_of(salt)))


def chat_of(salt: str) -> list[dict[str, str]]:
    """A long chat that no cache has yet."""
    return [{"role": "system", "content": salt}, *LONG]
