# SPDX-License-Identifier: Apache-2.0
"""
Put the prompt's token ids into the transfer params that prefill answers with (SPEC 5).

Every router that hands the transfer params of prefill to decode hands the ids on with them. Meant
are requests whose ids decode can use: chats of text, whose transfer params the renderer marks.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from . import settings
from .core.outcome import KEY
from .core.transfer_params import FIELD, asks_prefill


class OfText(dict[str, Any]):
    """The transfer params of a chat of text, on their way to the engine of prefill."""


def is_wanted(transfer_params: object) -> bool:
    """Tell whether the answer to a request is to have its ids, if it is text."""
    return asks_prefill(transfer_params) and settings.current().emit_prompt_token_ids


def mark(request: Any) -> None:
    """Mark the transfer params of a request, which engine parameters are made of later."""
    request.kv_transfer_params = OfText(request.kv_transfer_params)


def are_marked(sampling_params: Any) -> bool:
    """Tell whether engine parameters are those of a request that was marked."""
    return isinstance((getattr(sampling_params, "extra_args", None) or {}).get(FIELD), OfText)


async def with_ids(outputs: AsyncGenerator[Any, None]) -> AsyncGenerator[Any, None]:
    """Yield a request's outputs; transfer params that are among them get the ids of its prompt."""
    async with aclosing(outputs):
        async for output in outputs:
            if output.kv_transfer_params and output.prompt_token_ids:
                ids = list(output.prompt_token_ids)
                output.kv_transfer_params = {**output.kv_transfer_params, KEY: ids}
            yield output
