# SPDX-License-Identifier: Apache-2.0
"""Scan the raw input of a response for media; remove IDs that the renderer did not read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....installer import PatchPoints
from ....rules.outcome import Reason
from ....server.forwarded_ids import ignore_ids
from ....server.raw_body import scan


def apply(points: PatchPoints) -> None:
    """Add the scan, and wrap the function that makes engine parameters."""
    points.wrap_validation("ResponsesRequest", scan("input"))
    points.wrap("ResponsesRequest.to_sampling_params", to_sampling_params)


def to_sampling_params(
    wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """
    Make the engine parameters of a rendered response.

    IDs that are still there were not read: vLLM renders Harmony responses by another function.
    """
    ignore_ids(Reason.HARMONY_RESPONSE, instance.kv_transfer_params)
    return wrapped(*args, **kwargs)
