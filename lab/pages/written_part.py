# SPDX-License-Identifier: Apache-2.0
"""Pages of the docs, a part of which is written by a command."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class WrittenPart:
    """The part of a page between two lines, which stay."""

    page: Path
    begin: str
    end: str

    def page_with(self, content: str) -> str:
        """Return the whole page with this between the lines."""
        before, _, rest = self.page.read_text().partition(self.begin)
        _, _, after = rest.partition(self.end)
        return f"{before}{self.begin}\n{content}\n{self.end}{after}"
