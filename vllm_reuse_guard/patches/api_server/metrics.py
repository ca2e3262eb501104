# SPDX-License-Identifier: Apache-2.0
"""Count decisions by the endpoint of the request."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...installer import PatchPoints
from ...server.metrics import NameEndpoint


def apply(points: PatchPoints) -> None:
    """Wrap the function that adds ``/metrics`` to an application."""
    points.wrap("attach_router", attach_router)


def attach_router(
    wrapped: Callable[..., Any], instance: None, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Add ``/metrics``, and the middleware that keeps the route of a request."""

    def add_middleware(app: Any) -> None:
        app.add_middleware(NameEndpoint)

    add_middleware(*args, **kwargs)
    return wrapped(*args, **kwargs)
