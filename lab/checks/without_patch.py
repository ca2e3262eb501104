# SPDX-License-Identifier: Apache-2.0
"""
Take one patch out after the other, and see the tests fail that its entry in the registry names.

    python -m lab.checks.without_patch [NAME...]

NAME: the name of a patch, such as engine_core.requests. Without a name the command tries every
patch, which takes half an hour. Exit status: 0 if every test fails without its patch, 1 if not.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from collections.abc import Sequence

from vllm_reuse_guard.installer import Patch
from vllm_reuse_guard.patches import PATCHES, needed_by

from ..demo.__main__ import RUNNABLE
from ..paths import CHECKOUT, RELEASES, SITE

VARIABLE = "LAB_WITHOUT_PATCH"
"""Names the patch that sitecustomize takes out of the registry of a process."""
# Not by the exit status, which is the same for a server that did not start.
_FAILED = re.compile(r"^(?!.*\berrors?\b).*\b1 failed\b", re.MULTILINE)
_FAULT = re.compile(r"^E +(.+)$", re.MULTILINE)


def fails(patch: Patch, test: str) -> bool:
    """Run a test without a patch; say in a line what came of it, and whether the test fails."""
    release = next(old for old in reversed(RUNNABLE) if patch in needed_by(old))
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", test],
        cwd=CHECKOUT,
        env={
            **os.environ,
            VARIABLE: patch.name,
            "PYTHONPATH": os.pathsep.join(map(str, (SITE, RELEASES / release, CHECKOUT))),
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    failed = _FAILED.search(ended.stdout) is not None
    fault = _FAULT.search(ended.stdout)
    said = fault[1] if fault else (ended.stdout + ended.stderr).strip().splitlines()[-1]
    verdict = "fails" if failed else "DOES NOT FAIL"
    print(f"{verdict}  {patch.name}  {test}\n    {said}", flush=True)
    return failed


def main(arguments: Sequence[str] | None = None) -> int:
    """Try the patches that the command line names; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m lab.checks.without_patch",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = {patch.name for patch in PATCHES}
    parser.add_argument("names", nargs="*", metavar="NAME", choices=[[], *names])
    wanted = parser.parse_args(arguments).names or names
    chosen = [patch for patch in PATCHES if patch.name in wanted]
    results = [fails(patch, test) for patch in chosen for test in patch.tests]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
