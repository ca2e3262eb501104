# SPDX-License-Identifier: Apache-2.0
"""Read the raw body of a chat that is to be tokenized for media beside forwarded ids."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from types import ModuleType
from typing import Any

from .....installer import Undo, wrap, wrap_validation
from .....raw_body import hand_on, scan

_CONVERSION = "to_chat_completion_request"


def apply(module: ModuleType) -> Undo:
    """Add the reading, and wrap the conversion if there is one; return what undoes that."""
    request = module.TokenizeChatRequest
    with ExitStack() as undo:
        undo.callback(wrap_validation(request, scan("messages")))
        if _CONVERSION in vars(request):
            undo.callback(wrap(request, _CONVERSION, to_chat_completion_request))
        return undo.pop_all().close


def to_chat_completion_request(
    wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """
    Make a chat of a request to tokenize, ids included.

    From 0.33 that is done for Harmony models. The ids are an extra field, which gets lost.
    """
    request = wrapped(*args, **kwargs)
    hand_on(instance, request)
    return request
