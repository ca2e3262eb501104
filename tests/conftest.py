# SPDX-License-Identifier: Apache-2.0
"""A run that is told to stop takes its servers down first; what it notes stands at its end."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from types import FrameType

import pytest
from hypothesis import HealthCheck, settings

from vllm_reuse_guard import settings as guard_settings

_NOTES = pytest.StashKey[list[str]]()


def pytest_configure() -> None:
    """Treat SIGTERM like Ctrl-C, at which pytest tears its fixtures down."""
    signal.signal(signal.SIGTERM, _interrupt)
    # A busy machine is no fault of what is tested.
    settings.register_profile(
        "patient", deadline=None, suppress_health_check=[HealthCheck.too_slow]
    )
    settings.load_profile("patient")


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


@pytest.fixture
def note(pytestconfig: pytest.Config) -> Callable[[str], None]:
    """Puts a line at the end of the run: no failure, and no warning, which would be an error."""
    return pytestconfig.stash.setdefault(_NOTES, []).append


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Print what tests have noted."""
    if notes := config.stash.get(_NOTES, []):
        terminalreporter.section("to note", yellow=True)
        for line in notes:
            terminalreporter.line(line)


@pytest.fixture
def own_settings(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a test chooses, by variables or flags, is gone after it."""
    monkeypatch.setattr(guard_settings, "_chosen", set())
    monkeypatch.setattr(os, "environ", dict(os.environ))
    guard_settings.current.cache_clear()
    yield
    guard_settings.current.cache_clear()
