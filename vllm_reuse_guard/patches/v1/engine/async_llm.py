# SPDX-License-Identifier: Apache-2.0
"""Tell the connector of refused requests only what it can act on."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

from ....effects import can_be_told
from ....installer import Undo, wrap


def apply(module: ModuleType) -> Undo:
    """Wrap what sends the notice; return what undoes that."""
    name = "notify_kv_transfer_request_rejected"
    return wrap(module.AsyncLLM, name, notify_kv_transfer_request_rejected)


async def notify_kv_transfer_request_rejected(
    wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    """
    Send the notice if its transfer params name remote blocks, at a host that may be dialled.

    Any other kills the engine, or makes it dial where it must not.
    """

    def params(request_id: str, kv_transfer_params: Any, **_: Any) -> Any:
        return kv_transfer_params

    if can_be_told(params(*args, **kwargs), instance.vllm_config):
        await wrapped(*args, **kwargs)
