# SPDX-License-Identifier: Apache-2.0
"""Answer a refusal with 400 on routes that turn every exception into a 500."""

from __future__ import annotations

from ...installer import PatchPoints
from ...server.refusal import answer_refusals


def apply(points: PatchPoints) -> None:
    """Wrap each patch point: the serving method behind a route."""
    for name in points.names:
        points.wrap(name, answer_refusals)
