# SPDX-License-Identifier: Apache-2.0
"""Serve batches inside the cleanup that upstream has for single chats."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any
from uuid import uuid4

from .....effects import check_request
from .....installer import Undo, wrap


@dataclass(frozen=True)
class Refusable:
    """What the cleanup reads of a request; those of a batch are extra fields of any type."""

    request_id: str
    kv_transfer_params: dict[str, Any]


def apply(module: ModuleType) -> Undo:
    """Wrap what serves a batch; return what undoes that."""
    name = "create_batch_chat_completion"
    return wrap(module.OpenAIServingChatBatch, name, create_batch_chat_completion)


async def create_batch_chat_completion(
    wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """
    Serve a batch, and have the connector told if that fails.

    Raises VLLMValidationError, vLLM's 400, when its transfer params are refused.
    """

    async def create(request: Any, raw_request: Any = None) -> Any:
        check_request(request, instance.engine_client.vllm_config)
        params = getattr(request, "kv_transfer_params", None)
        if params is None:
            return await wrapped(request, raw_request)
        refusable = Refusable(f"batch-{uuid4().hex}", params)
        return await instance._with_kv_transfer_rejection_cleanup(
            wrapped(request, raw_request), refusable, raw_request
        )

    return await create(*args, **kwargs)
