# SPDX-License-Identifier: Apache-2.0
"""What the demo shows: lines, tables, and a sign of life while something takes long."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Event, Thread

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

_SECONDS_BETWEEN_SIGNS = 10
_COLUMNS_OF_A_FILE = 100


class Screen:
    """Standard output: with colours and a spinner on a terminal, plain lines elsewhere."""

    def __init__(self) -> None:
        # What servers say must not be taken for markup.
        self._console = Console(markup=False, highlight=False, emoji=False)
        self._live = self._console.is_terminal and not self._console.is_dumb_terminal
        if not self._live and "COLUMNS" not in os.environ:
            self._console.width = _COLUMNS_OF_A_FILE

    def title(self, text: str) -> None:
        """Begin a part."""
        self._console.print()
        self._console.print(text, style="bold")

    def say(self, line: str, style: str = "") -> None:
        """Print a line, never broken: it may be a command to copy."""
        self._console.print(line, style=style, soft_wrap=True)

    def table(self, heads: Sequence[str], rows: Sequence[Sequence[Text | str]]) -> None:
        """Print a table."""
        table = Table(show_lines=any("\n" in str(cell) for row in rows for cell in row))
        for head in heads:
            table.add_column(head, no_wrap=head is heads[0], overflow="fold")
        for row in rows:
            table.add_row(*row)
        self._console.print(table)

    @contextmanager
    def waiting(self, what: str) -> Iterator[None]:
        """Say what takes long and for how many seconds so far; at the end, how many it took."""
        begin = time.monotonic()
        with self._spinner(what) if self._live else self._signs(what, begin):
            yield
        self.say(f"{what}: {time.monotonic() - begin:.0f} s")

    def _spinner(self, what: str) -> Progress:
        columns = SpinnerColumn("line"), TextColumn("{task.description}"), TimeElapsedColumn()
        progress = Progress(*columns, console=self._console, transient=True)
        progress.add_task(what, total=None)
        return progress

    @contextmanager
    def _signs(self, what: str, begin: float) -> Iterator[None]:
        done = Event()

        def tell() -> None:
            while not done.wait(_SECONDS_BETWEEN_SIGNS):
                self.say(f"{what}, {time.monotonic() - begin:.0f} s so far")

        self.say(what)
        thread = Thread(target=tell, daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()


def mark(holds: bool) -> Text:
    """Return a green yes or a red no."""
    return Text("yes", "green") if holds else Text("no", "bold red")
