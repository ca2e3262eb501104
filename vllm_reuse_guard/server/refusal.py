# SPDX-License-Identifier: Apache-2.0
"""Turn a Reject into vLLM's own 400."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from ..log import logger
from ..rules.outcome import Reason, Reject


def validation_error(outcome: Reject) -> Exception:
    """
    Return the VLLMValidationError for a rejection, which vLLM answers with HTTP 400.

    It is not a ValueError, which some endpoints catch. A forbidden peer is logged as a warning:
    somebody tries to choose which host this server dials.
    """
    from vllm.exceptions import VLLMValidationError

    level = logging.WARNING if outcome.reason is Reason.FORBIDDEN_PEER else logging.DEBUG
    logger.log(level, "Request rejected (%s): %s", outcome.reason.value, outcome.parameter)
    error: Exception = VLLMValidationError(outcome.message, parameter=outcome.parameter)
    return error


async def answer_refusals(
    wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """
    Return a validation error as an error response (a wrapt wrapper for serving methods).

    Some routes answer 500 to every exception but translate a returned error response into the
    shape of their API: /v1/messages in 0.27, /cohere/v2/chat up to 0.31.
    """
    from vllm.exceptions import VLLMValidationError

    try:
        return await wrapped(*args, **kwargs)
    except VLLMValidationError as error:
        return instance.create_error_response(error)
