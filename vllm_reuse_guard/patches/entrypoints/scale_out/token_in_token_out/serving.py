# SPDX-License-Identifier: Apache-2.0
"""Keep forwarded ids out of what /inference/v1/generate gives the engine."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

from .....core.outcome import Reason
from .....effects import leave_aside
from .....installer import Undo, wrap


def apply(module: ModuleType) -> Undo:
    """Wrap what serves prompts of token ids; return what undoes that."""
    return wrap(module.ServingTokens, "serve_tokens", serve_tokens)


def serve_tokens(
    wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """
    Serve a request that names its prompt itself.

    The client writes engine parameters as it likes, so there are two places for the ids.
    """

    def serve(request: Any, *rest: Any, **more: Any) -> Any:
        leave_aside(request.kv_transfer_params, Reason.NOT_A_CHAT)
        extra_args = request.sampling_params.extra_args or {}
        leave_aside(extra_args.get("kv_transfer_params"), Reason.NOT_A_CHAT)
        return wrapped(request, *rest, **more)

    return serve(*args, **kwargs)
