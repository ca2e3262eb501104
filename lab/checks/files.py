# SPDX-License-Identifier: Apache-2.0
"""
Two small checks of the repository itself, for pre-commit. Needs only the standard library.

    python3 -m lab.checks.files headers FILE...    each file says its licence in its first lines
    python3 -m lab.checks.files pins               no package is pinned to two versions
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

from ..paths import CHECKOUT

_HEADER = "# SPDX-License-Identifier: Apache-2.0\n"
_HEADER_WITHIN_LINES = 2  # the first may be "#!"
_PIN = re.compile(r"\b([A-Za-z][\w.-]*)===?(\d[\w.]*)(?:; *(.+))?")


def find_headerless(files: Iterable[str]) -> Iterator[str]:
    """Say of each file without the licence header, unless it is empty, that it has none."""
    for file in files:
        with Path(file).open(encoding="utf-8") as lines:
            first = list(islice(lines, _HEADER_WITHIN_LINES))
            if first and _HEADER not in first:
                yield f"{file}: must begin with {_HEADER!r}"


def find_disagreements(files: Iterable[Path]) -> Iterator[str]:
    """Say of each package that is pinned to different versions where it is pinned to which."""
    seen: defaultdict[str, dict[str, str]] = defaultdict(dict)
    for file in files:
        for name, version, _ in filter(_is_for_this_python, _PIN.findall(file.read_text())):
            normal = re.sub(r"[-_.]+", "-", name).lower()
            seen[normal].setdefault(version, file.name)
    for name, versions in seen.items():
        if len(versions) > 1:
            places = ", ".join(f"{version} in {file}" for version, file in versions.items())
            yield f"{name}: {places}"


def _is_for_this_python(pin: tuple[str, str, str]) -> bool:
    # Python 3.10 has pins of its own, of the last releases that still support it.
    return "python_version <" not in pin[2]


def main(arguments: list[str]) -> int:
    """Run the check that is named first; print what it found and return the exit status."""
    check, *files = arguments
    if check == "headers":
        found = list(find_headerless(files))
    else:
        requirements = sorted((CHECKOUT / "requirements").glob("*.txt"))
        found = list(find_disagreements([*requirements, CHECKOUT / ".pre-commit-config.yaml"]))
    print(*found, sep="\n", end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
