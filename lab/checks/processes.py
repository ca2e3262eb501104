# SPDX-License-Identifier: Apache-2.0
"""Run pytest in a process of its own, beside others."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping

from ..paths import CHECKOUT


def run_pytest(title: str, *arguments: str, variables: Mapping[str, str] | None = None) -> bool:
    """
    Run pytest to its end, then print a title and its output; return whether it passed.

    The output of several processes does not mix. variables: those beyond this process's own.
    """
    process = subprocess.run(
        [sys.executable, "-m", "pytest", *arguments],
        cwd=CHECKOUT,
        env={**os.environ, **(variables or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    print(f"== {title}\n{process.stdout}", flush=True)
    return process.returncode == 0
