# SPDX-License-Identifier: Apache-2.0
"""A pull that does not fit fails alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...installer import PatchPoints
from ...log import logger


def apply(points: PatchPoints) -> None:
    """Wrap the function that begins the pull of one request."""
    points.wrap("NixlPullConnectorWorker._read_blocks_for_req", read_blocks_for_req)


def read_blocks_for_req(
    wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    """
    Begin to read the blocks of a request; if that raises, have the request fail as vLLM does.

    How many blocks and groups there must be depends on both instances and on what decode has
    cached, so that no rule at the front end can tell; the worker asserts it, and dies.
    """

    def read(req_id: str, *rest: Any, **more: Any) -> None:
        try:
            wrapped(req_id, *rest, **more)
        except Exception:
            logger.exception("The KV blocks of request %s cannot be read; it fails", req_id)
            instance._failed_recv_reqs.put(req_id)

    read(*args, **kwargs)
