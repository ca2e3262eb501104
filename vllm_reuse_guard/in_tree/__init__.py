# SPDX-License-Identifier: Apache-2.0
"""
The guard inside of a vLLM tree: what the last two lines of each patched module call.

``vllm-reuse-guard in-tree apply`` copies this package to ``vllm/reuse_guard`` and adds the lines.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import IncompleteTreeError

if TYPE_CHECKING:
    from ..installer import Patch

FOLDER = "reuse_guard"
"""Where the copy of this package is, below ``vllm``."""

LINES = (
    b"from vllm.reuse_guard.in_tree import guard as _reuse_guard  # noqa: E402\n"
    b"_reuse_guard(__name__)\n"
)
"""What each patched module ends with."""

RECORD = "applied"
"""The module, beside this one in the copy, whose APPLIED says what was done to the tree."""


@dataclass(frozen=True)
class Applied:
    """
    What was done to a tree.

    version: of the guard. originals: the SHA-256 of each patched file as it was before, by its
    path below ``vllm``. copies: that of each file of the copied package, by its path below it.
    """

    version: str
    originals: dict[str, str]
    copies: dict[str, str]


def guard(module: str) -> None:
    """
    Guard an upstream module that is imported to its end; module: its ``__name__``.

    Raises SystemExit with one line if the guard cannot do its work.
    """
    from ..plugin import guard_module

    guard_module(module, require_complete)


@cache
def require_complete() -> None:
    """
    Raise IncompleteTreeError unless every module of this tree that has a patch has its lines.

    Looked at once per process: an ``apply`` or ``revert`` that was interrupted must not leave a
    server half guarded.
    """
    from ..installer import folder_of_vllm
    from ..patches import needed_by

    vllm = folder_of_vllm()
    needed = needed_by(sys.modules["vllm"].__version__)
    if lacking := unguarded(vllm, files_of(needed, vllm)):
        raise IncompleteTreeError(", ".join(lacking))


def files_of(patches: Iterable[Patch], vllm: Path) -> list[str]:
    """Return the files that patches are for, by their paths below ``vllm``, each once."""
    from ..installer import file_of

    files = (file_of(patch.path_in(vllm), vllm) for patch in patches)
    return sorted({str(file.relative_to(vllm)) for file in files})


def unguarded(vllm: Path, files: Iterable[str]) -> list[str]:
    """Return those of the files, given by their paths below ``vllm``, that lack the lines."""
    return [file for file in files if not _ends_with_lines(vllm / file)]


def _ends_with_lines(file: Path) -> bool:
    try:
        return file.read_bytes().endswith(LINES)
    except OSError:
        return False
