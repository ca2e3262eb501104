# SPDX-License-Identifier: Apache-2.0
"""Guard what /inference/v1/generate gives the engine."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

from .....core.outcome import Reason
from .....core.transfer_params import FIELD
from .....effects import check_params, leave_aside
from .....installer import Undo, wrap


def apply(module: ModuleType) -> Undo:
    """Wrap what serves prompts of token ids; return what undoes that."""
    return wrap(module.ServingTokens, "serve_tokens", serve_tokens)


async def serve_tokens(
    wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """
    Serve a request that names its prompt itself, inside the cleanup that upstream has for others.

    The client writes engine parameters as it likes, so there are two places for transfer params.
    Raises VLLMValidationError, vLLM's 400, when they are refused.
    """

    async def serve(request: Any, raw_request: Any = None) -> Any:
        given = (request.sampling_params.extra_args or {}).get(FIELD)
        leave_aside(Reason.NOT_A_CHAT, request.kv_transfer_params, given)
        check_params(
            given, instance.engine_client.vllm_config, field=f"sampling_params.extra_args.{FIELD}"
        )
        return await instance._with_kv_transfer_rejection_cleanup(
            wrapped(request, raw_request), request, raw_request
        )

    return await serve(*args, **kwargs)
