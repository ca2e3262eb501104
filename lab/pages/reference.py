# SPDX-License-Identifier: Apache-2.0
"""
The pages of the docs that are written from the code: settings, patches, and the cases of the
specification.

    python3 -m lab.pages.reference --write  # put them into the docs
    python3 -m lab.pages.reference --check  # fail if the docs say something else than the code

Needs what the guard itself needs, and no vLLM.
"""

from __future__ import annotations

import argparse
import inspect
import sys
import textwrap
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from vllm_reuse_guard import settings
from vllm_reuse_guard.installer import Patch
from vllm_reuse_guard.patches import PATCHES, needed_by
from vllm_reuse_guard.releases import TESTED

from ..paths import CHECKOUT
from . import specification
from .markdown import codes, plain
from .written_part import WrittenPart

_FOLDER = CHECKOUT / "docs" / "reference"
_COLUMNS = 110
_HEAD = "| | |\n| --- | --- |\n"


@dataclass(frozen=True)
class Reference:
    """A page whose middle is written from the code."""

    path: Path
    content: Callable[[], str]

    def text(self) -> str:
        """Return the whole page as the code would have it."""
        part = WrittenPart(
            self.path,
            "<!-- Written by `make reference`. -->\n",
            "<!-- End of what is written. -->\n",
        )
        return part.page_with(self.content())

    def is_up_to_date(self) -> bool:
        """Tell whether the page says what the code says."""
        return self.path.read_text() == self.text()


def settings_text() -> str:
    """Return a section for each setting."""
    return "\n".join(
        _section(f"`{field}`", *_setting(field)) for field in settings.Settings.model_fields
    )


def patches_text() -> str:
    """Return a section for each patch, in the order in which they are applied."""
    return "\n".join(
        _section(f"`{patch.name}` for `{patch.module}`", *_patch(patch)) for patch in PATCHES
    )


SETTINGS = Reference(_FOLDER / "settings.md", settings_text)
PATCHED = Reference(_FOLDER / "patches.md", patches_text)
SPECIFICATION = Reference(_FOLDER / "specification.md", specification.text)
PAGES = (SETTINGS, PATCHED, SPECIFICATION)


def _section(heading: str, introduction: str, rows: Iterable[tuple[str, str]]) -> str:
    lines = "".join(f"| {name} | {value} |\n" for name, value in rows)
    text = textwrap.fill(introduction, _COLUMNS, break_long_words=False, break_on_hyphens=False)
    return f"## {heading}\n\n{text}\n\n{_HEAD}{lines}"


def _setting(field: str) -> tuple[str, list[tuple[str, str]]]:
    flag = f"`{settings.flag(field)}`" if field in settings.FLAGS else "none"
    rows = [("flag", flag), ("environment variable", f"`{settings.variable(field)}`")]
    return plain(settings.Settings.model_fields[field].description or ""), rows + _values(field)


def _values(field: str) -> list[tuple[str, str]]:
    info = settings.Settings.model_fields[field]
    if info.annotation is bool:
        of_flag = "; the flag takes none" if field in settings.FLAGS else ""
        return [("values", f"`0`, `1`{of_flag}"), ("default", f"`{int(info.default)}`")]
    if isinstance(info.default, Enum):
        values = ", ".join(f"`{member.value}`" for member in type(info.default))
        return [("values", values), ("default", f"`{info.default.value}`")]
    return [("values", "a list"), ("default", "unset" if info.default is None else "set")]


def _patch(patch: Patch) -> tuple[str, list[tuple[str, str]]]:
    rows = [
        ("why", plain(patch.why)),
        ("vLLM itself", plain(patch.upstream)),
        ("left as it is", plain(patch.unchanged)),
        ("attaches to", codes([*patch.patch_points, *patch.optional, *map(str, patch.also)])),
        ("applied on", _releases(patch)),
        ("tests", codes(patch.tests)),
        ("can go when", plain(patch.remove_when)),
    ]
    if patch.earlier is not None:
        rows.append(("in earlier releases", f"`{patch.earlier}`"))
    if patch.only_with is not None:
        rows.append(("only where there is", f"`{patch.only_with}`"))
    return plain(inspect.getdoc(patch.load()) or ""), rows


def _releases(patch: Patch) -> str:
    releases = [release for release in TESTED if patch in needed_by(release)]
    if len(releases) == len(TESTED):
        return "every tested release"
    return f"{', '.join(releases)}; vLLM does without from {patch.upstream_since}"


def main() -> int:
    """Write or check the pages; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python3 -m lab.pages.reference",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--write", action="store_true")
    what.add_argument("--check", action="store_true")
    stale = [page for page in PAGES if not page.is_up_to_date()]
    if parser.parse_args().write:
        for page in stale:
            page.path.write_text(page.text())
        return 0
    for page in stale:
        path = page.path.relative_to(CHECKOUT)
        print(f"error: {path} is not what the code says: make reference", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
