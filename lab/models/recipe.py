# SPDX-License-Identifier: Apache-2.0
"""How to build one model, and the error if that fails."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

MIB = 1024 * 1024


class ModelBuildError(Exception):
    """A model cannot be built. The message is one line with what to do."""


@dataclass(frozen=True)
class Recipe:
    """
    How to build one model, and what that takes.

    version: raised whenever the files change; part of the name of the folder. write: writes the
    whole checkpoint into an empty folder. space: the bytes that must be free on the disk.
    needs: the modules that ``write`` imports, each with the package that has it.
    """

    version: int
    write: Callable[[Path], None]
    space: int
    needs: Mapping[str, str]
