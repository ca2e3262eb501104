# SPDX-License-Identifier: Apache-2.0
"""The figures as JSON, and the page that shows them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from lab.pages.written_part import WrittenPart

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
    """Put the tables and the plots into the page."""
    reuse = "guard, reused"
    parts = [
        "## 1. Checks",
        _table("checks", "ids", "guard", "upstream", grows=True),
        _plot("checks", "Checks of forwarded ids, ms by ids", "upstream", "guard"),
        "## 2. A chat without ids",
        _table("chat", "words", "guard", "plain"),
        "## 3. Time to first token",
        _table("first_token", "ids", reuse, "plain, reused", "plain, rendered", grows=True),
        _plot("first_token", "First token, ms by ids", "plain, rendered", "plain, reused", reuse),
        "## 4. The same answers",
        _answers(),
    ]
    PAGE.write_text(_PART.page_with("\n\n".join(parts) + "\n"))


def _table(name: str, unit: str, ours: str, *others: str, grows: bool = False) -> str:
    figures = load(name)
    subjects = list(next(iter(figures.values()))) if figures else []
    ratios = [f"{ours} / {other}" for other in others]
    growth = [f"{ours}, ms for 1000 {unit} more"] if grows else []
    heads = [unit, *(f"{subject}, ms" for subject in subjects), *ratios, *growth]
    lines = [f"| {' | '.join(heads)} |", f"|{' ---: |' * len(heads)}"]
    before: tuple[int, float] | None = None
    for size, times in figures.items():
        cells = [f"{times[subject] * 1000:.3f}" for subject in subjects]
        cells += [f"{times[ours] / times[other]:.3f}" for other in others]
        if grows:
            # Milliseconds for a thousand: the factors cancel out to a million.
            slope = (times[ours] - before[1]) / (size - before[0]) * 1e6 if before else None
            cells.append("-" if slope is None else f"{slope:.3f}")
            before = size, times[ours]
        lines.append(f"| {' | '.join([str(size), *cells])} |")
    return "\n".join(lines)


def _plot(name: str, title: str, *subjects: str) -> str:
    figures = load(name)
    lines = [
        f"line [{', '.join(f'{times[subject] * 1000:.2f}' for times in figures.values())}]"
        for subject in subjects
    ]
    chart = [f'title "{title}"', f"x-axis [{', '.join(map(str, figures))}]", *lines]
    legend = f"From the top: {'; '.join(subjects)}."
    return "\n".join(
        ["```mermaid", "xychart-beta", *(f"    {x}" for x in chart), "```", "", legend]
    )


def _answers() -> str:
    file = FOLDER / "same_answers.json"
    found = json.loads(file.read_text())["same of"] if file.exists() else {}
    same, asked = (sum(column) for column in zip(*found.values(), strict=True)) if found else (0, 0)
    rows = [f"| {kind} | {same} | {asked} |" for kind, (same, asked) in found.items()]
    heads = ["| prompts | the same answer | of |", "| --- | ---: | ---: |"]
    return "\n".join([*heads, *rows, f"| all | {same} | {asked} |"])
