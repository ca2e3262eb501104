# SPDX-License-Identifier: Apache-2.0
"""
The guard inside a vLLM tree: the function that the last two lines of each patched module call.

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
"""The folder of the copy of this package, below ``vllm``."""

LINES = (
    b"from vllm.reuse_guard.in_tree import guard as _reuse_guard  # noqa: E402\n"
    b"_reuse_guard(__name__)\n"
)
"""The last lines of each patched module."""

RECORD = "applied"
"""The module beside this one in the copy; its APPLIED is the record of ``apply``."""


@dataclass(frozen=True)
class Applied:
    """
    The record of ``apply`` in a tree.

    version: the version of the guard. originals: the SHA-256 of each patched file before, by its
    path below ``vllm``. copies: the SHA-256 of each copied file, by its path below the copy.
    """

    version: str
    originals: dict[str, str]
    copies: dict[str, str]


def guard(module: str) -> None:
    """
    Patch an imported upstream module; module: its ``__name__``.

    Raises SystemExit with one line if the guard cannot work.
    """
    from ..plugin import guard_module

    guard_module(module, require_complete)


@cache
def require_complete() -> None:
    """
    Raise IncompleteTreeError if a module of this tree that needs a patch lacks its lines.

    Checked once in each process: an interrupted ``apply`` or ``revert`` must not leave a server
    half guarded.
    """
    from ..installer import folder_of_vllm
    from ..patches import needed_by

    vllm = folder_of_vllm()
    needed = needed_by(sys.modules["vllm"].__version__)
    if lacking := unguarded(vllm, files_of(needed, vllm)):
        raise IncompleteTreeError(", ".join(lacking))


def files_of(patches: Iterable[Patch], vllm: Path) -> list[str]:
    """Return the files that patches change, by their paths below ``vllm``."""
    from ..installer import file_of

    files = (file_of(patch.path_in(vllm), vllm) for patch in patches)
    return sorted({str(file.relative_to(vllm)) for file in files})


def unguarded(vllm: Path, files: Iterable[str]) -> list[str]:
    """Return the files, by their paths below ``vllm``, that lack the lines of the guard."""
    return [file for file in files if not _ends_with_lines(vllm / file)]


def _ends_with_lines(file: Path) -> bool:
    try:
        return file.read_bytes().endswith(LINES)
    except OSError:
        return False
