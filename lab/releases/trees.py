# SPDX-License-Identifier: Apache-2.0
"""
Copies of the unpacked releases with the guard in their trees.

    python3 -m lab.releases.trees RELEASE...   # make them anew, and print where each is
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from vllm_reuse_guard.tools.in_tree import Tree

from ..paths import LAB, RELEASES

TREES = LAB / "trees"
"""Where the copies are."""


def make(release: str) -> Path:
    """Copy a release, put the guard into the copy; return its folder, to be put on PYTHONPATH."""
    folder = TREES / release
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    # Links, as nothing in a file is ever changed: a new file takes its place.
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(
        RELEASES / release, folder, copy_function=os.link, ignore=ignored, dirs_exist_ok=True
    )
    Tree.at(folder).apply()
    return folder


if __name__ == "__main__":
    print(*map(make, sys.argv[1:]), sep="\n")
