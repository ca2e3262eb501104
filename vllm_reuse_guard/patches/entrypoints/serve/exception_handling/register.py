# SPDX-License-Identifier: Apache-2.0
"""Tell the connector of requests that are refused before anything serves them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from types import ModuleType
from typing import Any
from uuid import uuid4

from .....core.transfer_params import FIELD
from .....effects import logger, take_ids, was_told
from .....facts import connectors
from .....installer import Undo, wrap

_HANDLERS = ("validation_exception_handler", "vllm_error_handler", "exception_handler")


def apply(module: ModuleType) -> Undo:
    """Wrap the handlers that answer for a refused request; return what undoes that."""
    with ExitStack() as undo:
        for name in _HANDLERS:
            undo.callback(wrap(module, name, answer))
        return undo.pop_all().close


async def answer(
    wrapped: Callable[..., Any], instance: None, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """
    Answer for what a route has raised, and have prefill free the blocks that it keeps.

    Upstream does so for what raises while it serves a request; a body that is not valid, and
    what refuses before that, leave the blocks until their lease ends.
    """
    request = args[0]
    try:
        await tell_connector(request)
    except Exception:
        logger.warning("The KV connector could not be told of a refused request", exc_info=True)
    return await wrapped(*args, **kwargs)


async def tell_connector(request: Any) -> None:
    """Send the notice for the transfer params of a body, if there are any."""
    client = getattr(request.app.state, "engine_client", None)
    if client is None or not connectors(client.vllm_config) or was_told(request):
        return
    # What the route has read of the body; to read it here could mean to wait for the client.
    body = vars(request).get("_json")
    params = body.get(FIELD) if isinstance(body, dict) else None
    if isinstance(params, dict):
        named = dict(params)
        take_ids(named)
        await client.notify_kv_transfer_request_rejected(f"refused-{uuid4().hex}", named)
