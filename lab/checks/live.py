# SPDX-License-Identifier: Apache-2.0
"""
Run tests/live in two processes: the tests on pairs in one, those on single servers in the other.

    python -m lab.checks.live [PYTEST ARGUMENT...]

The start of a server keeps one core busy for half a minute: two processes use both. Each prints
what it did when it is done. Exit status: 0 if both passed, 1 if not.
"""

from __future__ import annotations

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from ..paths import CHECKOUT

_SERVERS = ("pairs", "single")


def run(servers: str) -> bool:
    """Run the tests on these servers, and print the output of pytest at the end."""
    begin = time.monotonic()
    process = subprocess.run(
        [sys.executable, "-m", "pytest", "tests/live", "--servers", servers, *sys.argv[1:]],
        cwd=CHECKOUT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    seconds = time.monotonic() - begin
    print(f"== tests/live, {servers}, {seconds:.0f} s\n{process.stdout}", flush=True)
    return process.returncode == 0


def main() -> int:
    """Run both; return the exit status."""
    with ThreadPoolExecutor(len(_SERVERS)) as pool:
        return 0 if all([*pool.map(run, _SERVERS)]) else 1


if __name__ == "__main__":
    sys.exit(main())
