# SPDX-License-Identifier: Apache-2.0
"""The option ``--releases``: run the tests of some vLLM releases, and those of no release."""

from __future__ import annotations

import re

import pytest

_RELEASE = re.compile(r"\b\d+\.\d+\.\d+\b")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--releases``."""
    parser.addoption(
        "--releases",
        default="",
        help="run the tests of these vLLM releases, separated by spaces, and those of no release",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the tests of the wanted releases: all without ``--releases``."""
    releases = set(config.getoption("--releases").split())
    wanted = {item: is_wanted(item, releases) for item in items}
    config.hook.pytest_deselected(items=[item for item in items if not wanted[item]])
    items[:] = filter(wanted.get, items)


def is_wanted(item: pytest.Item, releases: set[str]) -> bool:
    """Tell whether a test has one of the releases in its name, or none."""
    release = _RELEASE.search(item.name)
    return not (releases and release and release[0] not in releases)
