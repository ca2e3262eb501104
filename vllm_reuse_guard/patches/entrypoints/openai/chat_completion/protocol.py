# SPDX-License-Identifier: Apache-2.0
"""Read the raw body of a chat for media beside forwarded ids; refuse ids for a batch."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import ExitStack
from types import ModuleType
from typing import Any

from pydantic import BaseModel
from pydantic_core import core_schema

from ..... import facts
from .....core.content import is_text_only
from .....core.decision import decide_batch, forwarded, without_ids
from .....core.outcome import Reason, Reject
from .....installer import Undo, wrap

logger = logging.getLogger("vllm.reuse_guard")

_SCHEMA_HOOK = "__get_pydantic_core_schema__"


def apply(module: ModuleType) -> Undo:
    """Add the reading to chat requests and the refusal to batches; return what undoes that."""
    with ExitStack() as undo:
        undo.callback(wrap_validation(module.ChatCompletionRequest, scan))
        batch = module.BatchChatCompletionRequest
        undo.callback(wrap(batch, "to_chat_completion_request", to_chat_completion_request))
        return undo.pop_all().close


def scan(body: Any, validate: Callable[[Any], Any]) -> Any:
    """
    Take the ids out of a raw body with media, then have it validated.

    The raw body is read because validation drops the media keys of some parts and turns
    some content into one-shot iterators. What was found is noted on the request for the
    renderer. Raises nothing of its own: the connector would not be told, and a batch file
    would be given up as a whole.
    """
    ids = forwarded(body.get("kv_transfer_params")) if isinstance(body, dict) else None
    if ids is None:
        return validate(body)
    if not is_text_only(
        body.get("messages"), media_keys=facts.media_keys(), iterators_are_text=False
    ):
        logger.debug(facts.NOT_USED, Reason.NON_TEXT_CONTENT.value)
        return validate(without_ids(body))
    request = validate(body)
    facts.note_scanned(request, ids)
    return request


def to_chat_completion_request(
    wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """
    Make one chat of a batch; the ids travel in an extra field, not in one of the model's.

    Raises VLLMValidationError, vLLM's 400, when the batch forwards ids.
    """
    outcome = decide_batch(forwarded(getattr(instance, "kv_transfer_params", None)))
    if isinstance(outcome, Reject):
        raise facts.bad_request(outcome.message, outcome.parameter)
    return wrapped(*args, **kwargs)


def wrap_validation(model: type[BaseModel], validator: Callable[..., Any]) -> Undo:
    """
    Run a validator around the validation of a pydantic model that exists already.

    validator: called with the input and the function that validates it.
    Returns the call that makes the model what it was, object by object.
    """
    raw = dict(vars(model))

    def schema(cls: type[BaseModel], source: Any, handler: Any) -> core_schema.CoreSchema:
        return core_schema.no_info_wrap_validator_function(validator, handler(source))

    with ExitStack() as undo:
        undo.callback(_restore, model, raw)
        setattr(model, _SCHEMA_HOOK, classmethod(schema))
        model.model_rebuild(force=True)
        return undo.pop_all().close


def _restore(model: type[BaseModel], raw: dict[str, Any]) -> None:
    # A rebuild replaces more than the schema: the signature, and descriptors of old fields.
    now = dict(vars(model))
    for name in now.keys() - raw.keys():
        delattr(model, name)
    for name, value in raw.items():
        if now.get(name, raw) is not value:
            setattr(model, name, value)
