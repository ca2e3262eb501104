# SPDX-License-Identifier: Apache-2.0
"""A run that is told to stop takes its servers down first."""

from __future__ import annotations

import signal
from types import FrameType


def pytest_configure() -> None:
    """Treat SIGTERM like Ctrl-C, at which pytest tears its fixtures down."""
    signal.signal(signal.SIGTERM, _interrupt)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
