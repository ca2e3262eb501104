# SPDX-License-Identifier: Apache-2.0
"""
Run tests/live, two pytest processes at a time: three servers at most.

    python -m lab.checks.live [--releases "RELEASE..."] [PYTEST ARGUMENT...]

The start of a server keeps one core busy for half a minute: two processes use both. The first
process runs the tests on pairs, and then shares the rest with the second. Exit status: 0 if all
passed, 1 if not, or if no test was selected.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from vllm_reuse_guard.releases import TESTED

from ..paths import CHECKOUT
from .processes import run_pytest

_LIVE = CHECKOUT / "tests" / "live"
_AT_ONCE = 2
# At the end of the queue a long one would keep one core busy and leave the other idle.
_LONG = ("test_probe.py", "test_transfer_params.py")
# A file may have no test of these releases.
_PASSED = {pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED}


def jobs(releases: list[str]) -> Iterator[list[str]]:
    """Yield the pytest arguments of each process: the longest first, and no two with pairs."""
    these = ["--releases", " ".join(releases)]
    yield ["tests/live/pairs", *these]
    for release in releases:
        yield ["tests/live/conformance", "--releases", release]
    for file in sorted(_LIVE.glob("test_*.py"), key=lambda file: file.name not in _LONG):
        yield [str(file.relative_to(CHECKOUT)), *these]


def main() -> int:
    """Test what the command line names; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m lab.checks.live",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--releases", default="", metavar="RELEASES")
    options, arguments = parser.parse_known_args()
    releases = options.releases.split() or list(TESTED)

    def run(job: list[str]) -> pytest.ExitCode:
        return run_pytest(" ".join(job), *job, *arguments)

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        results = {*pool.map(run, jobs(releases))}
    return 0 if pytest.ExitCode.OK in results and results <= _PASSED else 1


if __name__ == "__main__":
    sys.exit(main())
