# SPDX-License-Identifier: Apache-2.0
"""Check transfer params where vLLM notifies the connector of refusals."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from contextlib import closing
from typing import Any

from ...installer import PatchPoints
from ...server.enforce import check_request
from ...server.forwarded_ids import take_ids
from ...server.marks import mark_notified


def apply(points: PatchPoints) -> None:
    """Wrap the rejection cleanup."""
    points.wrap(
        "GenerateBaseServing._with_kv_transfer_rejection_cleanup",
        with_kv_transfer_rejection_cleanup,
    )


def with_kv_transfer_rejection_cleanup(
    wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """
    Serve a request; vLLM notifies the connector if that fails.

    The notice must not carry the forwarded IDs. The renderer has removed them unless the request
    failed earlier, for its model, say.
    """

    def cleanup(serving: Coroutine[Any, Any, Any], request: Any, raw_request: Any) -> Any:
        mark_notified(raw_request)
        return wrapped(_check_and_serve(serving, request, instance), request, raw_request)

    return cleanup(*args, **kwargs)


async def _check_and_serve(serving: Coroutine[Any, Any, Any], request: Any, instance: Any) -> Any:
    try:
        with closing(serving):
            try:
                check_request(request, instance.engine_client.vllm_config)
            except Exception:
                # An unknown model is the first thing that vLLM refuses a request for.
                if unknown_model := await instance._check_model(request):
                    return unknown_model
                raise
            return await serving
    finally:
        take_ids(request.kv_transfer_params)
