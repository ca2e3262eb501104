# SPDX-License-Identifier: Apache-2.0
"""Keep forwarded IDs out of the engine parameters of a completion."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....installer import PatchPoints
from ....rules.outcome import Reason
from ....server.forwarded_ids import ignore_ids


def apply(points: PatchPoints) -> None:
    """Wrap the function that makes engine parameters of a completion."""
    points.wrap("CompletionRequest.to_sampling_params", to_sampling_params)


def to_sampling_params(
    wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Make the engine parameters of a completion, which brings its own prompt."""
    ignore_ids(Reason.NOT_A_CHAT, instance.kv_transfer_params)
    return wrapped(*args, **kwargs)
