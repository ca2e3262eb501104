# SPDX-License-Identifier: Apache-2.0
"""Read the raw body of a chat that is to be tokenized for media beside forwarded ids."""

from __future__ import annotations

from types import ModuleType

from .....installer import Undo, wrap_validation
from .....raw_body import scan


def apply(module: ModuleType) -> Undo:
    """Add the reading; return what undoes that."""
    return wrap_validation(module.TokenizeChatRequest, scan("messages"))
