# SPDX-License-Identifier: Apache-2.0
"""The check of the words that must not come back."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.checks.words import faults, main


@pytest.mark.parametrize(
    "line",
    [
        "Ids that cannot be used are left aside.",
        "a Seam is missing",
        "`1.0` is none",
        "what becomes of the request",
        "Ends with 0 if so.",
        "A value that means nothing stops the start.",
    ],
)
def test_word_is_found(line: str) -> None:
    """
    A forbidden word is reported with its line number.
    """
    (fault,) = faults(f"A good line.\n{line}\n")

    assert 2 == fault[0]


@pytest.mark.parametrize(
    "line", ["if x is None:", "seamless", "is nonempty", "no seam  # words: upstream's own name"]
)
def test_other_words_pass(line: str) -> None:
    """
    Python's None, longer words and lines with a reason pass.
    """
    assert not list(faults(line))


def test_exit_status(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """
    The command names file and line, and fails; without a fault it prints nothing.
    """
    good, bad = tmp_path / "good.md", tmp_path / "bad.md"
    good.write_text("All checks passed.\n")
    bad.write_text("All is as it must be.\n")

    assert 0 == main([str(good)])
    assert "" == capsys.readouterr().out
    assert 1 == main([str(good), str(bad)])
    assert f"{bad}:1: 'as it must be'" in capsys.readouterr().out
