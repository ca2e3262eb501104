# SPDX-License-Identifier: Apache-2.0
"""Answer a refused render request with the 400 that it is, whichever route it came by."""

from __future__ import annotations

from types import ModuleType

from .....effects import answer_refusals
from .....installer import Undo, wrap


def apply(module: ModuleType) -> Undo:
    """Wrap the rendering of chats, which the routes of other APIs use too."""
    return wrap(module.ServingRender, "render_chat_request", answer_refusals)
