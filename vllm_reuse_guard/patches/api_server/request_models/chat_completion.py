# SPDX-License-Identifier: Apache-2.0
"""Scan the raw body of a chat for media beside forwarded IDs; refuse IDs in a batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....installer import PatchPoints
from ....rules.decision import decide_batch, forwarded
from ....rules.outcome import KV_TRANSFER_PARAMS, Reject
from ....server.forwarded_ids import record, take_ids
from ....server.raw_body import scan
from ....server.refusal import validation_error


def apply(points: PatchPoints) -> None:
    """Add the scan to chat requests and the refusal to batches."""
    points.wrap_validation("ChatCompletionRequest", scan("messages"))
    points.wrap_validation("BatchChatCompletionRequest", refuse_ids)
    points.wrap("BatchChatCompletionRequest.to_chat_completion_request", to_chat_completion_request)


def refuse_ids(body: Any, validate: Callable[[Any], Any]) -> Any:
    """
    Validate a batch that forwards no IDs.

    From 0.32 vLLM's own validator refuses IDs here, past the guard's log and metrics. Raises
    VLLMValidationError, vLLM's 400, for a batch with IDs; the exception handler notifies the
    connector.
    """
    _require_no_ids(forwarded(body.get(KV_TRANSFER_PARAMS)) if isinstance(body, dict) else None)
    return validate(body)


def to_chat_completion_request(
    wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """
    Make one chat of a batch, whose IDs travel in an extra field.

    Up to 0.30 vLLM makes the engine parameters from a chat that it does not render: even a null
    key has to go here. Raises VLLMValidationError, vLLM's 400, for a batch with IDs.
    """
    _require_no_ids(take_ids(getattr(instance, KV_TRANSFER_PARAMS, None)))
    return wrapped(*args, **kwargs)


def _require_no_ids(ids: object) -> None:
    outcome = decide_batch(ids)
    if isinstance(outcome, Reject):
        record(outcome)
        raise validation_error(outcome)
