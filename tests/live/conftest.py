# SPDX-License-Identifier: Apache-2.0
"""
Which live tests run, and in which order: the start of a server takes half a minute.

``--releases`` keeps the tests of some vLLM releases, ``--servers`` those on pairs or on single
servers: two processes can share the tests, with three servers at most (lab/checks/live.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.live.stage import Stage, server_specs

_PAIR_FIXTURES = {"pair", "place"}
_RELEASE = re.compile(r"\b\d+\.\d+\.\d+\b")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--releases`` and ``--servers``."""
    parser.addoption(
        "--releases",
        default="",
        help="run the tests of these vLLM releases, separated by spaces, and those of no release",
    )
    parser.addoption(
        "--servers",
        choices=("pairs", "single"),
        help="run the tests on a prefill and decode pair, or the others",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the wanted tests; put the tests with a ``wanted`` server in the order of the servers."""
    releases = set(config.getoption("--releases").split())
    servers = config.getoption("--servers")
    wanted = {item: is_wanted(item, releases, servers) for item in items}
    config.hook.pytest_deselected(items=[item for item in items if not wanted[item]])
    order = {server.id: position for position, server in enumerate(server_specs())}

    def position(item: pytest.Item) -> int:
        server = item.callspec.params.get("wanted") if hasattr(item, "callspec") else None
        return -1 if server is None else order[server.id]

    items[:] = sorted(filter(wanted.get, items), key=position)


def is_wanted(item: pytest.Item, releases: set[str], servers: str | None) -> bool:
    """
    Tell whether a test runs.

    releases: vLLM releases, none for all; a test without a release in its name always runs.
    servers: "pairs", "single", or None for both.
    """
    release = _RELEASE.search(item.name)
    if releases and release and release[0] not in releases:
        return False
    on_pair = not _PAIR_FIXTURES.isdisjoint(getattr(item, "fixturenames", ()))
    return servers is None or on_pair is (servers == "pairs")


@pytest.fixture(scope="session")
def stage() -> Iterator[Stage]:
    with closing(Stage()) as stage:
        yield stage
