# SPDX-License-Identifier: Apache-2.0
"""Keep forwarded ids out of the engine parameters of a completion."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

from .....core.outcome import Reason
from .....effects import leave_aside
from .....installer import Undo, wrap


def apply(module: ModuleType) -> Undo:
    """Wrap what makes engine parameters of a completion; return what undoes that."""
    return wrap(module.CompletionRequest, "to_sampling_params", to_sampling_params)


def to_sampling_params(
    wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Make engine parameters of a completion, whose prompt is its own."""
    leave_aside(Reason.NOT_A_CHAT, instance.kv_transfer_params)
    return wrapped(*args, **kwargs)
