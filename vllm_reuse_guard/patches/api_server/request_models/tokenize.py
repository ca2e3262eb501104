# SPDX-License-Identifier: Apache-2.0
"""Scan the raw body of a chat to tokenize for media beside forwarded IDs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....installer import PatchPoints
from ....server.raw_body import forward_ids, scan

_CONVERSION = "TokenizeChatRequest.to_chat_completion_request"


def apply(points: PatchPoints) -> None:
    """Add the scan, and wrap the conversion to a chat where the release has one."""
    points.wrap_validation("TokenizeChatRequest", scan("messages"))
    if _CONVERSION in points:
        points.wrap(_CONVERSION, to_chat_completion_request)


def to_chat_completion_request(
    wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """
    Make a chat of a request to tokenize, forwarded IDs included.

    From 0.33 vLLM does so for Harmony models, and loses the IDs, which are an extra field.
    """
    request = wrapped(*args, **kwargs)
    forward_ids(instance, request)
    return request
