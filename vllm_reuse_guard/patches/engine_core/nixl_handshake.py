# SPDX-License-Identifier: Apache-2.0
"""Keep answering handshakes after one that cannot be answered."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from threading import Event
from typing import Any

from ...installer import PatchPoints
from ...log import logger

_SECONDS_BETWEEN = 0.2


def apply(points: PatchPoints) -> None:
    """Wrap the function of the thread that answers handshakes."""
    points.wrap("NixlBaseConnectorScheduler._nixl_handshake_listener", nixl_handshake_listener)


def nixl_handshake_listener(
    wrapped: Callable[..., Any], instance: None, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    """
    Listen again if listening has failed, unless it never began or is to end.

    A message that cannot be read, or that asks for a rank which is not here, ends the thread:
    no instance could get the blocks of this one any more, while ``/health`` says 200.
    """

    def events(_data: Any, ready: Event, stop: Event, *_: Any, **__: Any) -> tuple[Event, Event]:
        return ready, stop

    ready, stop = events(*args, **kwargs)
    while not _listened(partial(wrapped, *args, **kwargs), ready, stop):
        time.sleep(_SECONDS_BETWEEN)


def _listened(listen: Callable[[], object], ready: Event, stop: Event) -> bool:
    try:
        listen()
    except Exception:
        if stop.is_set() or not ready.is_set():
            raise
        logger.warning("A NIXL handshake failed; listening for others", exc_info=True)
        return False
    return True
