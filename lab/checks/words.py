# SPDX-License-Identifier: Apache-2.0
"""
Find the words that must not come back into pages and messages ("Language" in CONTRIBUTING.md).

    python3 -m lab.checks.words FILE...

A line can keep such a word if its end says why: "words: the reason" in a comment. Needs only the
standard library. Exit status: 0 if the files have none of the words, 1 if not.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

INSTEAD = {
    r"seams?": "patch point",
    r"(?:left|leaves?) aside": "ignored, ignores",
    r"(?:is|are) none": "say what it is",
    r"what becomes of": "the outcome for, or what happens to",
    r"as it must be": "correct, or passed",
    r"start all the same": "start anyway",
    r"(?:has|have) a meaning": "valid",
    r"means? nothing": "invalid",
    r"no word of": "not mentioned in",
    r"ends with [012]": "Exit status: 0 if ...",
}
"""Each expression, and what to write instead."""

_EXEMPT = re.compile(r"words: \S")
_WORDS = {
    re.compile(rf"\b{words}\b(?! import)", re.IGNORECASE): instead
    for words, instead in INSTEAD.items()
}


def faults(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield the line number, the words, and what to write instead, for each place in a text."""
    for number, line in enumerate(text.splitlines(), 1):
        if _EXEMPT.search(line):
            continue
        for pattern, instead in _WORDS.items():
            for match in pattern.finditer(line):
                # "x is None" is Python, and no prose has that capital.
                if not match[0].endswith("None"):
                    yield number, match[0], instead


def main(files: list[str]) -> int:
    """Print each fault of the files; return the exit status."""
    found = False
    for name in files:
        for number, words, instead in faults(Path(name).read_text()):
            found = True
            print(f"{name}:{number}: {words!r}: write {instead!r} instead")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
