# SPDX-License-Identifier: Apache-2.0
"""The order of the tests: the start of a server takes half a minute, so each starts once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.live.conformance.stage import Stage, server_specs


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the tests with a ``wanted`` server in the order of the servers, after the others."""
    order = {server.id: position for position, server in enumerate(server_specs())}

    def position(item: pytest.Item) -> int:
        server = item.callspec.params.get("wanted") if hasattr(item, "callspec") else None
        return -1 if server is None else order[server.id]

    items.sort(key=position)


@pytest.fixture(scope="session")
def stage() -> Iterator[Stage]:
    with closing(Stage()) as stage:
        yield stage
