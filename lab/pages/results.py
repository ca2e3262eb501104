# SPDX-License-Identifier: Apache-2.0
"""
The conformance cases that hold, by endpoint and release, as a file and as a table.

    python3 -m lab.pages.results          # print the table of the last run
    python3 -m lab.pages.results --write  # write the table into the docs
    python3 -m lab.pages.results --check  # fail if the table in the docs differs

Only the tests write the file.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import sys
from collections import Counter

from vllm_reuse_guard.releases import TESTED

from ..paths import CHECKOUT, LAB
from .written_part import WrittenPart

RUN = LAB / "endpoints.json"
"""The counts of the last run."""

PAGE = CHECKOUT / "docs" / "features" / "endpoints.md"
"""The page with the table."""

_PART = WrittenPart(
    PAGE,
    "<!-- The table is written by `python3 -m lab.pages.results --write`. -->\n",
    "<!-- End of the table. -->\n",
)


class Results:
    """Counts attempts, and those that hold. ``close`` saves the counts."""

    def __init__(self, how: str) -> None:
        """how: ``live``, or ``in process`` for tests without a server."""
        self._how = how
        self._counts: Counter[tuple[str, str, str]] = Counter()

    def enter(self, endpoint: str, release: str, *, holds: bool) -> None:
        """Count one attempt."""
        self._counts[endpoint, release, "tried"] += 1
        self._counts[endpoint, release, "held"] += holds

    def close(self) -> None:
        """Write the counts into the file, in place of earlier counts for the same cells."""
        RUN.parent.mkdir(parents=True, exist_ok=True)
        # Two processes of tests may close at the same time.
        with RUN.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            saved = load()
            for endpoint, release, _ in self._counts:
                cell = {word: self._counts[endpoint, release, word] for word in ("tried", "held")}
                saved.setdefault(endpoint, {}).setdefault(release, {})[self._how] = cell
            RUN.write_text(json.dumps(saved, indent=1, sort_keys=True) + "\n")


def load() -> dict[str, dict[str, dict[str, dict[str, int]]]]:
    """Return the counts by endpoint, by release, and by ``live`` or ``in process``."""
    counts: dict[str, dict[str, dict[str, dict[str, int]]]] = (
        json.loads(RUN.read_text()) if RUN.exists() else {}
    )
    return counts


def table() -> str:
    """Return the counts as a Markdown table, an endpoint in a row and a release in a column."""
    counts = load()
    lines = [
        f"| endpoint | {' | '.join(TESTED)} |",
        f"| --- |{' --- |' * len(TESTED)}",
    ]
    for endpoint in sorted(counts):
        cells = (_cell(counts[endpoint].get(release, {})) for release in TESTED)
        lines.append(f"| `{endpoint}` | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _cell(counts: dict[str, dict[str, int]]) -> str:
    how = "live" if "live" in counts else "in process"
    if how not in counts:
        return "-"
    held, tried = counts[how]["held"], counts[how]["tried"]
    number = str(held) if held == tried else f"**{held} of {tried}**"
    return number if how == "live" else f"{number} ({how})"


def main() -> int:
    """Print, write or check the table. Returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python3 -m lab.pages.results",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    page = _PART.page_with(table())
    if options.check and page != PAGE.read_text():
        print(f"error: {PAGE} differs from the last run:\n{table()}", file=sys.stderr)
        return 1
    if options.write:
        PAGE.write_text(page)
    elif not options.check:
        print(table(), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
