# SPDX-License-Identifier: Apache-2.0
"""Send the connector only notices that it can act on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...installer import PatchPoints
from ...server.notice import can_notify


def apply(points: PatchPoints) -> None:
    """Wrap the function that sends the rejection notice to the engine core."""
    points.wrap("AsyncLLM.notify_kv_transfer_request_rejected", notify_kv_transfer_request_rejected)


async def notify_kv_transfer_request_rejected(
    wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    """
    Send the notice if its transfer params name remote blocks at a host that may be dialled.

    Any other notice crashes the engine core, or makes it dial a forbidden host.
    """

    def params(request_id: str, kv_transfer_params: Any, **_: Any) -> Any:
        return kv_transfer_params

    if can_notify(params(*args, **kwargs), instance.vllm_config):
        await wrapped(*args, **kwargs)
