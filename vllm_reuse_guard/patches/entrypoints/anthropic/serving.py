# SPDX-License-Identifier: Apache-2.0
"""Answer refused messages with a 400 in Anthropic's shape."""

from __future__ import annotations

from types import ModuleType

from ....effects import answer_refusals
from ....installer import Undo, wrap


def apply(module: ModuleType) -> Undo:
    """Wrap what serves messages; return what undoes that."""
    return wrap(module.AnthropicServingMessages, "create_messages", answer_refusals)
