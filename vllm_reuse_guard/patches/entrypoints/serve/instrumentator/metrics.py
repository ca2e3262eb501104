# SPDX-License-Identifier: Apache-2.0
"""Know the endpoint of what is counted."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

from .....installer import Undo, wrap
from .....metrics import NameEndpoint


def apply(module: ModuleType) -> Undo:
    """Wrap what puts ``/metrics`` into an application; return what undoes that."""
    return wrap(module, "attach_router", attach_router)


def attach_router(
    wrapped: Callable[..., Any], instance: None, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Add ``/metrics``, and the middleware that keeps the path of a request."""

    def add_middleware(app: Any) -> None:
        app.add_middleware(NameEndpoint)

    add_middleware(*args, **kwargs)
    return wrapped(*args, **kwargs)
