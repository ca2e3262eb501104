# SPDX-License-Identifier: Apache-2.0
"""Refuse bad transfer params where the connector is told of refusals; keep ids out of that."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from contextlib import closing
from types import ModuleType
from typing import Any

from .....effects import check_request, take_ids, will_tell
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
    Serve a request; upstream tells the connector if that fails.

    The ids go from the transfer params before the connector is told. The renderer has taken
    them already unless the request failed earlier, say for its model.
    """

    def cleanup(serving: Coroutine[Any, Any, Any], request: Any, raw_request: Any) -> Any:
        will_tell(raw_request)
        return wrapped(_guarded(serving, request, instance), request, raw_request)

    return cleanup(*args, **kwargs)


async def _guarded(serving: Coroutine[Any, Any, Any], request: Any, instance: Any) -> Any:
    try:
        with closing(serving):
            try:
                check_request(request, instance.engine_client.vllm_config)
            except Exception:
                # A request for a model that is not here is refused for that.
                if unknown := await instance._check_model(request):
                    return unknown
                raise
            return await serving
    finally:
        take_ids(request.kv_transfer_params)
