# SPDX-License-Identifier: Apache-2.0
"""Answer a refused Cohere chat with a 400 in Cohere's shape."""

from __future__ import annotations

from types import ModuleType

from ....effects import answer_refusals
from ....installer import Undo, wrap


def apply(module: ModuleType) -> Undo:
    """Wrap what serves Cohere's chats; return what undoes that."""
    return wrap(module.CohereServingChatV2, "create_chat_v2", answer_refusals)
