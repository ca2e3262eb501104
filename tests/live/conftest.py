# SPDX-License-Identifier: Apache-2.0
"""
Which live tests run, and in which order: the start of a server takes half a minute.

``--releases`` keeps the tests of some vLLM releases. With ``-n 2`` two processes share the tests;
those on one server stay together, and all pairs are in one process: three servers at most.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.live.stage import Stage, server_specs

PAIRS = "pairs"
_PAIR_FIXTURES = {"pair", "place"}
_RELEASE = re.compile(r"\b\d+\.\d+\.\d+\b")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--releases``."""
    parser.addoption(
        "--releases",
        default="",
        help="run the tests of these vLLM releases, separated by spaces, and those of no release",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the tests of the wanted releases; put tests of one server next to each other."""
    wanted = set(config.getoption("--releases").split())
    others = [item for item in items if wanted and not release_of(item) & {*wanted, ""}]
    if others:
        config.hook.pytest_deselected(items=others)
    order = {server.id: position for position, server in enumerate(server_specs())}

    def position(item: pytest.Item) -> tuple[bool, int]:
        server = _server(item)
        return group_of(item) != PAIRS, -1 if server is None else order[server]

    items[:] = sorted((item for item in items if item not in set(others)), key=position)
    for item in items:
        item.add_marker(pytest.mark.xdist_group(group_of(item)))


def release_of(item: pytest.Item) -> set[str]:
    """Return the vLLM release in the name of a test, or the empty name of no release."""
    match = _RELEASE.search(item.name)
    return {match[0] if match else ""}


def group_of(item: pytest.Item) -> str:
    """Return the name of the tests that run in one process one after the other."""
    if _PAIR_FIXTURES & set(getattr(item, "fixturenames", ())):
        return PAIRS
    return f"{Path(item.path).stem}-{''.join(release_of(item))}"


def _server(item: pytest.Item) -> str | None:
    spec = item.callspec.params.get("wanted") if hasattr(item, "callspec") else None
    return None if spec is None else str(spec.id)


@pytest.fixture(scope="session")
def stage() -> Iterator[Stage]:
    with closing(Stage()) as stage:
        yield stage
