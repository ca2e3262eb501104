# SPDX-License-Identifier: Apache-2.0
"""Keep forwarded ids out of the notice that tells the connector of a refused request."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import ModuleType
from typing import Any

from .....effects import take_ids
from .....installer import Undo, wrap


def apply(module: ModuleType) -> Undo:
    """Wrap the rejection cleanup; return what undoes that."""
    return wrap(
        module.GenerateBaseServing,
        "_with_kv_transfer_rejection_cleanup",
        with_kv_transfer_rejection_cleanup,
    )


def with_kv_transfer_rejection_cleanup(
    wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """
    Take the ids out of the transfer params before the cleanup sends those to the connector.

    The renderer has done so already unless the request failed earlier, say for its model.
    """

    def cleanup(awaitable: Awaitable[Any], request: Any, *rest: Any, **more: Any) -> Any:
        return wrapped(_less_ids(awaitable, request), request, *rest, **more)

    return cleanup(*args, **kwargs)


async def _less_ids(awaitable: Awaitable[Any], request: Any) -> Any:
    try:
        return await awaitable
    finally:
        take_ids(request.kv_transfer_params)
