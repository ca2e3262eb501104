# SPDX-License-Identifier: Apache-2.0
"""Run pytest in a process of its own, beside others."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping

import pytest

from ..paths import CHECKOUT
from ..servers.server import end_with_parent


def run_pytest(
    title: str, *arguments: str, variables: Mapping[str, str] | None = None
) -> pytest.ExitCode:
    """
    Run pytest to its end, then print a title, the seconds and the output; return its exit code.

    The output of several processes does not mix. A process ends, and stops its servers, if this
    one is killed. variables: those beyond this process's own.
    """
    print(f"== {title}: started", flush=True)
    begin = time.monotonic()
    process = subprocess.run(
        [sys.executable, "-m", "pytest", *arguments],
        cwd=CHECKOUT,
        env={**os.environ, **(variables or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        preexec_fn=end_with_parent,
    )
    seconds = time.monotonic() - begin
    print(f"== {title}: {seconds:.0f} s\n{process.stdout}", flush=True)
    return pytest.ExitCode(process.returncode)
