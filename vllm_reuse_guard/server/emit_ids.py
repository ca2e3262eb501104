# SPDX-License-Identifier: Apache-2.0
"""
Emit the prompt's token IDs in the transfer params of a prefill instance's answer.

Every router that copies the transfer params from prefill to decode then forwards the IDs. Only
text chats are emitted, whose IDs decode can reuse: the renderer patch marks them.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from ..rules.outcome import PROMPT_TOKEN_IDS
from ..rules.transfer_params import asks_prefill
from . import facts


def is_wanted(transfer_params: object) -> bool:
    """Tell whether the answer to a request carries its IDs, provided that it is a text chat."""
    return asks_prefill(transfer_params) and facts.emits_ids()


async def with_ids(outputs: AsyncGenerator[Any, None]) -> AsyncGenerator[Any, None]:
    """Yield the outputs of a request; add the prompt's IDs to the transfer params in them."""
    async with aclosing(outputs):
        async for output in outputs:
            if output.kv_transfer_params and output.prompt_token_ids:
                ids = list(output.prompt_token_ids)
                output.kv_transfer_params = {**output.kv_transfer_params, PROMPT_TOKEN_IDS: ids}
            yield output
