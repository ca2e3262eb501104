# SPDX-License-Identifier: Apache-2.0
"""What is installed is what is in the repository. Here, as only the lab has setuptools."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import vllm_reuse_guard
from lab.paths import CHECKOUT

PACKAGE = CHECKOUT / "vllm_reuse_guard"


def test_wheel_has_every_file_of_the_package(tmp_path: Path) -> None:
    """
    Modules, cases, the page of the probe and ``py.typed``; no test, nothing of the lab.
    """
    # In a copy: setuptools leaves a folder behind that would be part of the next wheel.
    source, wheels = tmp_path / "source", tmp_path / "wheels"
    shutil.copytree(PACKAGE, source / PACKAGE.name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("LICENSE", "README.md", "pyproject.toml", "setup.py"):
        shutil.copy(CHECKOUT / name, source)
    options = ["--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", str(wheels)]
    build = [sys.executable, "-m", "pip", "wheel", *options, str(source)]
    subprocess.run(build, check=True, capture_output=True)

    (wheel,) = wheels.glob(f"vllm_reuse_guard-{vllm_reuse_guard.__version__}-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
    ours = {
        str(file.relative_to(CHECKOUT))
        for file in PACKAGE.rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }
    assert "vllm_reuse_guard/py.typed" in held
    assert ours == held
