# SPDX-License-Identifier: Apache-2.0
"""On which releases a test runs, and on which of them in ``make test``."""

from __future__ import annotations

import pytest

FULL_MATRIX = pytest.mark.full_matrix
"""Left to ``make test-all``: ``make test`` shows the same on another release or server."""

EARLIEST, NEWEST = "0.27.0", "0.32.0"
"""The earliest and the newest release that have a CPU build."""

ON_BOTH = pytest.mark.parametrize("release", [EARLIEST, NEWEST])
MOSTLY_ON_NEWEST = pytest.mark.parametrize(
    "release", [pytest.param(EARLIEST, marks=FULL_MATRIX), NEWEST]
)
"""On both in ``make test-all``, on the newest alone in ``make test``."""
