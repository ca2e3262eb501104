# SPDX-License-Identifier: Apache-2.0
"""A run that is told to stop takes its servers down first."""

from __future__ import annotations

import signal
from types import FrameType

from hypothesis import HealthCheck, settings


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
