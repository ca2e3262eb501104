# SPDX-License-Identifier: Apache-2.0
"""What an outcome does: takes the ids away, says why in the log, is raised as vLLM's own 400."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from .core.decision import forwarded
from .core.outcome import KEY, Reason, Reject

logger = logging.getLogger("vllm.reuse_guard")


def take_ids(transfer_params: object) -> object:
    """
    Take the forwarded ids out of transfer params, which may be of any type; return them or None.

    The key is gone afterwards, null or not: it would travel to the engine and the connector.
    """
    ids = forwarded(transfer_params)
    if isinstance(transfer_params, dict):
        transfer_params.pop(KEY, None)
    return ids


def leave_aside(transfer_params: object, reason: Reason) -> None:
    """Take the forwarded ids, if there are any, out of transfer params without using them."""
    if take_ids(transfer_params) is not None:
        say_not_used(reason)


def say_not_used(reason: Reason) -> None:
    """Say in the log why the ids of a request are not used; never says which ids."""
    logger.debug(
        "kv_transfer_params['prompt_token_ids'] is not used (%s): the prompt comes from the rest "
        "of the request",
        reason.value,
    )


def refusal(outcome: Reject) -> Exception:
    """Return vLLM's own error for a 400; it is no ValueError, which some endpoints catch."""
    from vllm.exceptions import VLLMValidationError

    error: Exception = VLLMValidationError(outcome.message, parameter=outcome.parameter)
    return error


async def answer_refusals(
    wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """
    Return a refusal as a serving class returns its own errors; a wrapt wrapper for its methods.

    Some routes answer 500 for whatever is raised, but translate what is returned into their
    API's shape: /v1/messages up to 0.27, /cohere/v2/chat up to 0.31.
    """
    from vllm.exceptions import VLLMValidationError

    try:
        return await wrapped(*args, **kwargs)
    except VLLMValidationError as error:
        return instance.create_error_response(error)
