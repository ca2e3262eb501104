# SPDX-License-Identifier: Apache-2.0
"""
Run tests/contract against the code of vLLM releases, two at a time on two cores.

    python -m lab.checks.contract RELEASE... [--in-tree] [--pytest "ARGUMENT..."]

With --in-tree the guard is in the tree of each release, and no plugin is loaded.
Exit status: 0 if all of them passed, 1 if not.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from ..paths import CHECKOUT, RELEASES
from ..releases.trees import make
from .processes import run_pytest

_AT_ONCE = 2


def run(release: str, *, in_tree: bool, arguments: list[str]) -> pytest.ExitCode:
    """Test one release; return the exit code of pytest."""
    folder = make(release) if in_tree else RELEASES / release
    kind = " with the guard in its tree" if in_tree else ""
    return run_pytest(
        f"tests/contract on vLLM {release}{kind}",
        *_tests(in_tree),
        *arguments,
        variables={"PYTHONPATH": f"{folder}{os.pathsep}{CHECKOUT}"},
    )


def _tests(in_tree: bool) -> list[str]:
    return ["-p", "tests.in_tree", "tests/contract/behaviour"] if in_tree else ["tests/contract"]


def main() -> int:
    """Test what the command line names; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m lab.checks.contract",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--in-tree", action="store_true")
    parser.add_argument("releases", nargs="+", metavar="RELEASE")
    parser.add_argument("--pytest", default="", metavar="ARGUMENTS")
    options = parser.parse_args()
    test = partial(run, in_tree=options.in_tree, arguments=shlex.split(options.pytest))
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        results = {*pool.map(test, options.releases)}
    return 0 if results == {pytest.ExitCode.OK} else 1


if __name__ == "__main__":
    sys.exit(main())
