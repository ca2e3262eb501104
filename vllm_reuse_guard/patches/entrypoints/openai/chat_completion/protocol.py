# SPDX-License-Identifier: Apache-2.0
"""Read the raw body of a chat for media beside forwarded ids; refuse ids for a batch."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from types import ModuleType
from typing import Any

from .....core.decision import decide_batch, forwarded
from .....core.outcome import Reject
from .....core.transfer_params import FIELD
from .....effects import note, refusal, take_ids
from .....installer import Undo, wrap, wrap_validation
from .....raw_body import scan


def apply(module: ModuleType) -> Undo:
    """Add the reading to chat requests and the refusal to batches; return what undoes that."""
    with ExitStack() as undo:
        undo.callback(wrap_validation(module.ChatCompletionRequest, scan("messages")))
        batch = module.BatchChatCompletionRequest
        undo.callback(wrap_validation(batch, refuse_ids))
        undo.callback(wrap(batch, "to_chat_completion_request", to_chat_completion_request))
        return undo.pop_all().close


def refuse_ids(body: Any, validate: Callable[[Any], Any]) -> Any:
    """
    Validate a batch that forwards no ids.

    From 0.32 a validator of upstream's refuses others, unseen by logs and metrics of ours. Raises
    VLLMValidationError, vLLM's 400; what answers for it tells the connector.
    """
    _require_none(forwarded(body.get(FIELD)) if isinstance(body, dict) else None)
    return validate(body)


def to_chat_completion_request(
    wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """
    Make one chat of a batch; the ids travel in an extra field, not in one of the model's.

    Up to 0.30 the engine's parameters are made of a chat that is not rendered, so that a key
    of null has to go here. Raises VLLMValidationError, vLLM's 400, when the batch forwards ids.
    """
    _require_none(take_ids(getattr(instance, FIELD, None)))
    return wrapped(*args, **kwargs)


def _require_none(ids: object) -> None:
    outcome = decide_batch(ids)
    if isinstance(outcome, Reject):
        note(outcome)
        raise refusal(outcome)
