# SPDX-License-Identifier: Apache-2.0
"""
Run tests/live in two processes: the tests on pairs in one, those on single servers in the other.

    python -m lab.checks.live [PYTEST ARGUMENT...]

The start of a server keeps one core busy for half a minute: two processes use both. Each prints
what it did when it is done. Exit status: 0 if both passed, 1 if not.
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

from .processes import run_pytest

_SERVERS = ("pairs", "single")


def run(servers: str) -> bool:
    """Run the tests on these servers; return whether they passed."""
    return run_pytest(f"tests/live, {servers}", "tests/live", "--servers", servers, *sys.argv[1:])


def main() -> int:
    """Run both; return the exit status."""
    with ThreadPoolExecutor(len(_SERVERS)) as pool:
        return 0 if all([*pool.map(run, _SERVERS)]) else 1


if __name__ == "__main__":
    sys.exit(main())
