# SPDX-License-Identifier: Apache-2.0
"""Read the raw input of a response for media beside forwarded ids; keep unread ids back."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from types import ModuleType
from typing import Any

from .....core.outcome import Reason
from .....effects import leave_aside
from .....installer import Undo, wrap, wrap_validation
from .....raw_body import scan


def apply(module: ModuleType) -> Undo:
    """Add the reading, and wrap what makes engine parameters; return what undoes that."""
    request = module.ResponsesRequest
    with ExitStack() as undo:
        undo.callback(wrap_validation(request, scan("input")))
        undo.callback(wrap(request, "to_sampling_params", to_sampling_params))
        return undo.pop_all().close


def to_sampling_params(
    wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """
    Make engine parameters of a response that has been rendered.

    Ids that are still there have not been read: Harmony renders responses on a way of its own.
    """
    leave_aside(Reason.HARMONY_RESPONSE, instance.kv_transfer_params)
    return wrapped(*args, **kwargs)
