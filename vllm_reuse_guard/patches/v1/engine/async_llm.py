# SPDX-License-Identifier: Apache-2.0
"""Tell the connector what it can act on; answer for prefill with the ids of the prompt."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from types import ModuleType
from typing import Any

from ....effects import can_be_told
from ....emission import are_marked, with_ids
from ....installer import Undo, wrap


def apply(module: ModuleType) -> Undo:
    """Wrap what sends the notice and what runs a request; return what undoes that."""
    notify = "notify_kv_transfer_request_rejected"
    with ExitStack() as undo:
        undo.callback(wrap(module.AsyncLLM, notify, notify_kv_transfer_request_rejected))
        undo.callback(wrap(module.AsyncLLM, "generate", generate))
        return undo.pop_all().close


async def notify_kv_transfer_request_rejected(
    wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    """
    Send the notice if its transfer params name remote blocks, at a host that may be dialled.

    Any other kills the engine, or makes it dial where it must not.
    """

    def params(request_id: str, kv_transfer_params: Any, **_: Any) -> Any:
        return kv_transfer_params

    if can_be_told(params(*args, **kwargs), instance.vllm_config):
        await wrapped(*args, **kwargs)


def generate(
    wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Run a request; the outputs of one that is marked for it get the ids of its prompt."""

    def marked(prompt: Any, sampling_params: Any, *_: Any, **__: Any) -> bool:
        return are_marked(sampling_params)

    outputs = wrapped(*args, **kwargs)
    return with_ids(outputs) if marked(*args, **kwargs) else outputs
