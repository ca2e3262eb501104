# SPDX-License-Identifier: Apache-2.0
"""
Read the raw body of a conversation for media beside forwarded ids, before it is validated.

Validation drops the media keys of some parts and turns some content into one-shot iterators;
afterwards nobody can tell whether all of it was text.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from . import facts
from .core.content import is_text_only
from .core.decision import forwarded, without_ids
from .core.outcome import KEY, Reason, Render
from .core.transfer_params import FIELD
from .effects import note
from .emission import is_wanted

Scan: TypeAlias = Callable[[Any, Callable[[Any], Any]], Any]

_SCANNED = "_reuse_guard_scanned_ids"
_UNREAD = object()


def scan(field: str) -> Scan:
    """
    Return a validator for ``installer.wrap_validation`` that reads one field for media.

    It takes the ids out of a body with media and has it validated; what was found to be text
    is noted on the request for the renderer. It raises nothing of its own: the connector
    would not be told, and a batch file would be given up as a whole.

    field: where the conversation is: ``messages``, or ``input`` of a response.
    """

    def scanned(body: Any, validate: Callable[[Any], Any]) -> Any:
        params = body.get(FIELD) if isinstance(body, dict) else None
        ids = forwarded(params)
        # A body without the field is none of this kind: another model of a union may know it.
        if (ids is None and not is_wanted(params)) or field not in body:
            return validate(body)
        is_text = is_text_only(
            body.get(field), media_keys=facts.media_keys(), iterators_are_text=False
        )
        if not is_text and ids is not None:
            note(Render(Reason.NON_TEXT_CONTENT))
            body = without_ids(body)
        request = validate(body)
        if is_text:
            vars(request)[_SCANNED] = ids
        return request

    return scanned


def was_scanned(request: Any, ids: object) -> bool:
    """
    Tell whether the whole conversation came in the body that forwarded these very ids, as text.

    ids: None for a body without any. False for ids that were set on a request made in process, and
    for a client that sends a field of the same name: it is the same list or it is not. False as
    well if the server itself adds messages that it has kept, which no body holds.
    """
    return (
        vars(request).get(_SCANNED, _UNREAD) is ids
        and getattr(request, "previous_response_id", None) is None
    )


def hand_on(made_from: Any, request: Any) -> None:
    """Forward the ids of one request with another that was made from it, read or not."""
    ids = forwarded(getattr(made_from, "kv_transfer_params", None))
    if ids is None:
        return
    request.kv_transfer_params = {KEY: ids}
    if was_scanned(made_from, ids):
        vars(request)[_SCANNED] = ids
