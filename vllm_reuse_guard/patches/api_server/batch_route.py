# SPDX-License-Identifier: Apache-2.0
"""Serve batches inside the rejection cleanup, like single chats."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from ...installer import PatchPoints
from ...rules.outcome import KV_TRANSFER_PARAMS
from ...server.enforce import check_request


@dataclass(frozen=True)
class NoticeRequest:
    """The fields of a request that the cleanup reads; in a batch they are of any type."""

    request_id: str
    kv_transfer_params: dict[str, Any]


def apply(points: PatchPoints) -> None:
    """Wrap the function that serves a batch."""
    points.wrap("OpenAIServingChatBatch.create_batch_chat_completion", create_batch_chat_completion)


async def create_batch_chat_completion(
    wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """
    Serve a batch; vLLM notifies the connector if that fails.

    Raises VLLMValidationError, vLLM's 400, for invalid transfer params.
    """

    async def create(request: Any, raw_request: Any = None) -> Any:
        check_request(request, instance.engine_client.vllm_config)
        params = getattr(request, KV_TRANSFER_PARAMS, None)
        if params is None:
            return await wrapped(request, raw_request)
        return await instance._with_kv_transfer_rejection_cleanup(
            wrapped(request, raw_request),
            NoticeRequest(f"batch-{uuid4().hex}", params),
            raw_request,
        )

    return await create(*args, **kwargs)
