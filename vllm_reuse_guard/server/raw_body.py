# SPDX-License-Identifier: Apache-2.0
"""
Scan the raw body of a conversation for media beside forwarded IDs, before its validation.

Validation drops the media keys of some parts and turns some content into one-shot iterators:
only the raw body tells whether a conversation is text.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from ..rules.content import is_text_only
from ..rules.decision import forwarded, without_ids
from ..rules.outcome import KV_TRANSFER_PARAMS, PROMPT_TOKEN_IDS, Reason, Render
from . import facts
from .emit_ids import is_wanted
from .forwarded_ids import record
from .marks import is_scanned_text, mark_scanned_text

Scan: TypeAlias = Callable[[Any, Callable[[Any], Any]], Any]


def scan(field: str) -> Scan:
    """
    Return a validator for ``PatchPoints.wrap_validation`` that scans one field for media.

    It removes the IDs from a body with media and marks a text conversation for the renderer. It
    raises nothing itself: an exception here would skip the rejection notice and abort a whole
    batch file.

    field: the field with the conversation: ``messages``, or ``input`` of a response.
    """

    def scanned(body: Any, validate: Callable[[Any], Any]) -> Any:
        params = body.get(KV_TRANSFER_PARAMS) if isinstance(body, dict) else None
        ids = forwarded(params)
        # A body without the field belongs to another model of the union.
        if (ids is None and not is_wanted(params)) or field not in body:
            return validate(body)
        is_text = is_text_only(
            body.get(field), media_keys=facts.media_keys(), iterators_are_text=False
        )
        if not is_text and ids is not None:
            record(Render(Reason.NON_TEXT_CONTENT))
            body = without_ids(body)
        request = validate(body)
        if is_text:
            mark_scanned_text(request, ids)
        return request

    return scanned


def forward_ids(source: Any, request: Any) -> None:
    """Copy the forwarded IDs of one request, and its mark, to a request that vLLM made from it."""
    ids = forwarded(getattr(source, KV_TRANSFER_PARAMS, None))
    if ids is None:
        return
    request.kv_transfer_params = {PROMPT_TOKEN_IDS: ids}
    if is_scanned_text(source, ids):
        mark_scanned_text(request, ids)
