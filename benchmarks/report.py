# SPDX-License-Identifier: Apache-2.0
"""The figures as JSON, and the page that shows them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from lab.pages import WrittenPart

FOLDER = Path(__file__).parents[1] / "docs" / "benchmarks"
PAGE = FOLDER / "README.md"
_PART = WrittenPart(
    PAGE, "<!-- The tables are written by `make bench`. -->\n", "<!-- End of the tables. -->\n"
)

Figures = Mapping[int, Mapping[str, float]]


def save(name: str, figures: Figures) -> None:
    """Write one measurement: median seconds by size and subject."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / f"{name}.json").write_text(json.dumps(figures, indent=1) + "\n")


def load(name: str) -> dict[int, dict[str, float]]:
    """Return one measurement, empty if there is none."""
    file = FOLDER / f"{name}.json"
    found = json.loads(file.read_text()) if file.exists() else {}
    return {int(size): times for size, times in found.items()}


def write() -> None:
    """Put the tables into the page."""
    tables = "\n\n".join(
        [
            _table("checks", "ids", "guard", "upstream"),
            _table("chat", "words", "guard", "plain"),
            _table("first_token", "ids", "guard, reused", "plain, reused", "plain, rendered"),
        ]
    )
    PAGE.write_text(_PART.page_with(f"{tables}\n"))


def _table(name: str, unit: str, ours: str, *others: str) -> str:
    figures = load(name)
    subjects = list(next(iter(figures.values()))) if figures else []
    ratios = [f"{ours} / {other}" for other in others]
    lines = [
        f"| {unit} | {' | '.join([*(f'{s}, ms' for s in subjects), *ratios])} |",
        f"|{' ---: |' * (1 + len(subjects) + len(ratios))}",
    ]
    for size, times in figures.items():
        cells = [f"{times[subject] * 1000:.3f}" for subject in subjects]
        cells += [f"{times[ours] / times[other]:.3f}" for other in others]
        lines.append(f"| {size} | {' | '.join(cells)} |")
    return "\n".join(lines)
