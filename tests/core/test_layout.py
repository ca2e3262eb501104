# SPDX-License-Identifier: Apache-2.0
"""The rules keep to themselves, and the patches hold none."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import vllm_reuse_guard
from vllm_reuse_guard.core.content import MEDIA_KEYS, TEXT_TYPES
from vllm_reuse_guard.patches import PATCHES
from vllm_reuse_guard.releases import TESTED, is_tested

PACKAGE = Path(vllm_reuse_guard.__file__).parent
CORE = sorted((PACKAGE / "core").glob("*.py"))
PATCH_FILES = sorted((PACKAGE / "patches").rglob("*.py"))
STANDARD_OR_MSGSPEC = sys.stdlib_module_names | {"msgspec"}


def imported(file: Path) -> set[str]:
    """Return the roots of the absolute imports of a file, wherever they stand."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            found.add(str(node.module).partition(".")[0])
    return found


@pytest.mark.parametrize("file", CORE, ids=lambda file: file.name)
def test_rule_imports_no_vllm(file: Path) -> None:
    """
    A rule needs nothing but the standard library and msgspec, and does no logging.
    """
    assert imported(file) <= STANDARD_OR_MSGSPEC - {"logging"}


def test_rules_load_without_the_rest() -> None:
    """
    Importing the rules brings in neither vllm nor torch nor a patch.
    """
    code = (
        "import sys, vllm_reuse_guard.core.decision;"
        "print([m for m in sys.modules if m.split('.')[0] in ('vllm', 'torch', 'wrapt')])"
    )

    output = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)

    assert b"[]" == output.stdout.strip()


@pytest.mark.parametrize("file", PATCH_FILES, ids=lambda file: str(file.relative_to(PACKAGE)))
def test_patch_holds_no_rule(file: Path) -> None:
    """
    A patch names no kind of content and compares no id: it asks ``core``.
    """
    tree = ast.parse(file.read_text())
    strings = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}
    orderings = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Compare)
        and any(isinstance(op, (ast.Lt, ast.Gt, ast.LtE, ast.GtE)) for op in node.ops)
    ]

    assert not strings & (MEDIA_KEYS | TEXT_TYPES)
    assert not orderings


@pytest.mark.parametrize("file", PATCH_FILES, ids=lambda file: str(file.relative_to(PACKAGE)))
def test_patch_imports_no_vllm_at_its_top(file: Path) -> None:
    """
    Importing a patch changes nothing and needs no vllm.
    """
    top = [node for node in ast.parse(file.read_text()).body if isinstance(node, ast.ImportFrom)]

    assert not [node for node in top if str(node.module).startswith("vllm")]


def test_patches_stand_at_the_path_of_what_they_patch() -> None:
    """
    Each entry of the registry has its file, and each file its entry.
    """
    files = {
        ".".join(file.relative_to(PACKAGE / "patches").with_suffix("").parts)
        for file in PATCH_FILES
        if file.name != "__init__.py"
    }

    assert files == {patch.module for patch in PATCHES}


def test_entry_point_imports_only_the_standard_library() -> None:
    """
    vLLM serves on without a plugin whose import fails, so there is nothing in it to fail.
    """
    top = ast.parse((PACKAGE / "plugin.py").read_text()).body
    names = {
        (node.names[0].name if isinstance(node, ast.Import) else str(node.module)).partition(".")[0]
        for node in top
        if isinstance(node, (ast.Import, ast.ImportFrom))
    }

    assert names <= sys.stdlib_module_names


@pytest.mark.parametrize(
    "version", [*TESTED, "0.32.0+cpu", "0.32.1", "0.30.0.post1", "0.33.0+cu130"]
)
def test_tested_releases_are_known(version: str) -> None:
    """
    Builds and patch releases of a tested release count as tested.
    """
    assert is_tested(version)


@pytest.mark.parametrize("version", ["0.26.0", "0.99.0", "0.33.1.dev7+g1234", "dev", "", "1.27.0"])
def test_other_releases_are_not(version: str) -> None:
    """
    Older, newer and in-between builds are not.
    """
    assert not is_tested(version)
