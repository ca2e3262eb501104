# SPDX-License-Identifier: Apache-2.0
"""Check what /inference/v1/generate hands to the engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...installer import PatchPoints
from ...rules.outcome import KV_TRANSFER_PARAMS, Reason
from ...server.enforce import check_params
from ...server.forwarded_ids import ignore_ids


def apply(points: PatchPoints) -> None:
    """Wrap the function that serves prompts of token IDs."""
    points.wrap("ServingTokens.serve_tokens", serve_tokens)


async def serve_tokens(
    wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """
    Serve a request that holds its prompt as token IDs, inside vLLM's rejection cleanup.

    The client writes the engine parameters: they are a second place for transfer params.
    Raises VLLMValidationError, vLLM's 400, for invalid ones.
    """

    async def serve(request: Any, raw_request: Any = None) -> Any:
        extra_params = (request.sampling_params.extra_args or {}).get(KV_TRANSFER_PARAMS)
        ignore_ids(Reason.NOT_A_CHAT, request.kv_transfer_params, extra_params)
        check_params(
            extra_params,
            instance.engine_client.vllm_config,
            field=f"sampling_params.extra_args.{KV_TRANSFER_PARAMS}",
        )
        return await instance._with_kv_transfer_rejection_cleanup(
            wrapped(request, raw_request), request, raw_request
        )

    return await serve(*args, **kwargs)
