# SPDX-License-Identifier: Apache-2.0
"""
Every mark that the guard leaves on vLLM's objects, with the function that reads it.

A mark carries a decision from the patch that makes it to the patch that acts on it. Each is a
subclass or an attribute that vLLM does not look at.
"""

from __future__ import annotations

from typing import Any

from ..rules.outcome import KV_TRANSFER_PARAMS

_SCANNED_IDS = "_reuse_guard_scanned_ids"
_UNSCANNED = object()


class ReusedPrompt(dict[str, Any]):
    """
    A prompt of forwarded IDs that the rules accepted: the renderer makes it, the input check
    of the engine's requests does not look at its IDs again.
    """


class TextChatParams(dict[str, Any]):
    """The transfer params of a text chat on a prefill instance: its answer carries the IDs."""


def mark_text_chat(request: Any) -> None:
    """Mark a request whose answer carries its prompt's IDs; request: has transfer params."""
    request.kv_transfer_params = TextChatParams(request.kv_transfer_params)


def is_text_chat(sampling_params: Any) -> bool:
    """Tell whether engine parameters come from a request that ``mark_text_chat`` marked."""
    extra_args = getattr(sampling_params, "extra_args", None) or {}
    return isinstance(extra_args.get(KV_TRANSFER_PARAMS), TextChatParams)


def mark_scanned_text(request: Any, ids: object) -> None:
    """Mark a validated request whose raw body holds text only; ids: those that it forwards."""
    vars(request)[_SCANNED_IDS] = ids


def is_scanned_text(request: Any, ids: object) -> bool:
    """
    Tell whether the raw body that forwarded these IDs held the whole conversation, as text.

    ids: the very list of the body; None for a body without IDs. False for IDs that a Python
    router set on an existing request, for a client that sends a field of the same name, and for
    a response that continues a stored one, whose messages no body holds.
    """
    return (
        vars(request).get(_SCANNED_IDS, _UNSCANNED) is ids
        and getattr(request, "previous_response_id", None) is None
    )


def mark_notified(raw_request: Any) -> None:
    """Mark an HTTP request for which vLLM sends the rejection notice from here on."""
    if raw_request is not None:
        raw_request.state.reuse_guard_notified = True


def is_notified(raw_request: Any) -> bool:
    """Tell whether vLLM itself sends the rejection notice for an HTTP request."""
    return bool(getattr(raw_request.state, "reuse_guard_notified", False))
