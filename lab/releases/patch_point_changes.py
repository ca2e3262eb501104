# SPDX-License-Identifier: Apache-2.0
"""
What became of the guard's patch_points from one unpacked vLLM release to another; imports neither.

    python -m lab.releases.patch_point_changes OLD NEW [--diff]

Exit status: 0 if NEW has every patch point, changed or not, 1 if not.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from difflib import unified_diff
from itertools import islice
from pathlib import Path

from vllm_reuse_guard.installer import Patch
from vllm_reuse_guard.patches import needed_by
from vllm_reuse_guard.tools import patch_points

from ..paths import RELEASES

_PLACES = 4


@dataclass(frozen=True)
class Change:
    """
    What became of one patch point.

    name: its full name in the new release. before: its full name in the old one.
    diff: the lines of a unified diff of its source; none if the same is defined in both.
    gone: whether the new release does not define it.
    """

    name: str
    before: str
    diff: tuple[str, ...]
    gone: bool

    @property
    def moved(self) -> bool:
        """Whether it is there and its module is another one."""
        return not self.gone and self.name != self.before

    @property
    def size(self) -> str:
        """How many lines were added and taken away, as in "+3 -1"."""
        added, removed = (sum(line.startswith(sign) for line in self.diff[2:]) for sign in "+-")
        return f"+{added} -{removed}"


def changes(patches: Iterable[Patch], old: Path, new: Path) -> Iterator[Change]:
    """Yield what became of each patch point of the patches; old, new: the folders of two vLLMs."""
    for patch in patches:
        pairs = zip(patch_points.sources(patch, old), patch_points.sources(patch, new), strict=True)
        for (before, then), (name, now) in pairs:
            diff = unified_diff(then.splitlines(), now.splitlines(), before, name, "", "", 3, "")
            yield Change(name, before, tuple(diff), gone=not now)


def places(name: str, vllm: Path) -> list[str]:
    """Return the first files, below the folder of a vLLM, that define what has lost its place."""
    # A method is looked for by its class: classes begin with a capital letter, modules do not.
    parts = name.split(".")
    name = next((part for part in parts if part.lstrip("_")[:1].isupper()), parts[-1])
    defines = re.compile(rf"^(?:class|def|async def) {name}\b|^{name}\s*[:=]", re.MULTILINE)
    found = (
        str(file.relative_to(vllm))
        for file in sorted(vllm.rglob("*.py"))
        if defines.search(file.read_text(errors="replace"))
    )
    return list(islice(found, _PLACES))


def _lines(found: list[Change], vllm: Path, *, diff: bool) -> Iterator[str]:
    for change in found:
        if change.gone:
            now = ", ".join(places(change.before, vllm)) or "no file"
            yield f"  gone     {change.before} (something of its name is defined in: {now})"
        elif change.moved:
            yield f"  moved    {change.before} -> {change.name}"
        if change.diff and not change.gone:
            yield f"  changed  {change.name} ({change.size})"
            yield from (f"    {line}" for line in change.diff if diff)


def main() -> int:
    """Compare what the command line names; print what changed and return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m lab.releases.patch_point_changes",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("old", metavar="OLD")
    parser.add_argument("new", metavar="NEW")
    parser.add_argument("--diff", action="store_true", help="print what changed as well")
    options = parser.parse_args()
    old, new = (RELEASES / release / "vllm" for release in (options.old, options.new))
    found = list(changes(needed_by(options.new), old, new))
    gone = sum(change.gone for change in found)
    moved = sum(change.moved for change in found)
    changed = sum(bool(change.diff) and not change.gone for change in found)
    print(
        f"== {len(found)} patch points of vLLM {options.new}, compared with {options.old}: "
        f"{gone} gone, {moved} moved, {changed} changed"
    )
    for line in _lines(found, new, diff=options.diff):
        print(line)
    return 1 if gone else 0


if __name__ == "__main__":
    sys.exit(main())
