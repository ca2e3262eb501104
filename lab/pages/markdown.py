# SPDX-License-Identifier: Apache-2.0
"""Text from the code as Markdown."""

from __future__ import annotations

from collections.abc import Iterable


def codes(names: Iterable[str]) -> str:
    """Return names as code, separated by commas."""
    return ", ".join(f"`{name}`" for name in names)


def plain(text: str) -> str:
    """Return text in which no character is markup."""
    return text.replace("*", "\\*").replace("|", "\\|")
