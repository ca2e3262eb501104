# SPDX-License-Identifier: Apache-2.0
"""Tests that are played on the same server follow each other: a start takes half a minute."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.live.stage import Stage, server_specs


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the tests with a ``wanted`` server in the order of the servers, after the others."""
    order = {server.id: position for position, server in enumerate(server_specs())}

    def position(item: pytest.Item) -> int:
        wanted = item.callspec.params.get("wanted") if hasattr(item, "callspec") else None
        return -1 if wanted is None else order[wanted.id]

    items.sort(key=position)


@pytest.fixture(scope="session")
def stage() -> Iterator[Stage]:
    with closing(Stage()) as stage:
        yield stage
