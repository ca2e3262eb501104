# SPDX-License-Identifier: Apache-2.0
"""Notify the connector of requests that are refused before a serving class gets them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...installer import PatchPoints
from ...log import logger
from ...server.notice import notify_refused_body


def apply(points: PatchPoints) -> None:
    """Wrap the exception handlers that answer a refused request."""
    for name in points.names:
        points.wrap(name, handle)


async def handle(
    wrapped: Callable[..., Any], instance: None, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """
    Answer an exception of a route, and have prefill free its blocks.

    vLLM does so for exceptions of serving classes. For an invalid body, prefill would keep its
    blocks until their lease ends.
    """
    raw_request = args[0]
    try:
        await notify_refused_body(raw_request)
    except Exception:
        logger.warning("Cannot notify the KV connector of a refused request", exc_info=True)
    return await wrapped(*args, **kwargs)
