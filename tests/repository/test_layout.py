# SPDX-License-Identifier: Apache-2.0
"""Each folder keeps to its job: rules know no vLLM, patches hold no rule, tools stay outside."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import vllm_reuse_guard
from vllm_reuse_guard.patches import PATCHES
from vllm_reuse_guard.releases import TESTED, is_tested
from vllm_reuse_guard.rules.content import MEDIA_KEYS, TEXT_TYPES

PACKAGE = Path(vllm_reuse_guard.__file__).parent
RULES = sorted((PACKAGE / "rules").glob("*.py"))
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


@pytest.mark.parametrize("file", RULES, ids=lambda file: file.name)
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
        "import sys, vllm_reuse_guard.rules.decision;"
        "print([m for m in sys.modules if m.split('.')[0] in ('vllm', 'torch', 'wrapt')])"
    )

    output = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)

    assert b"[]" == output.stdout.strip()


@pytest.mark.parametrize("file", PATCH_FILES, ids=lambda file: str(file.relative_to(PACKAGE)))
def test_patch_holds_no_rule(file: Path) -> None:
    """
    A patch names no kind of content and compares no id: it asks ``rules``.
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


def test_each_patch_has_its_file_and_each_file_its_patch() -> None:
    """
    The registry names every module below ``patches``, by process and topic.
    """
    files = {
        ".".join(file.relative_to(PACKAGE / "patches").with_suffix("").parts)
        for file in PATCH_FILES
        if file.name != "__init__.py"
    }

    assert files == {patch.name for patch in PATCHES}
    assert {"api_server", "engine_core", "worker"} == {name.partition(".")[0] for name in files}


def reached(file: Path) -> set[str]:
    """Return the roots of what a file of the package imports at its top, through our own files."""
    names: set[str] = set()
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names.add(str(node.module).partition(".")[0])
        elif isinstance(node, ast.ImportFrom):
            names |= reached(file.parents[node.level - 1] / f"{node.module}.py")
    return names


def test_entry_point_imports_only_the_standard_library() -> None:
    """
    vLLM skips a plugin whose import fails and serves unguarded: this import cannot fail.
    """
    assert reached(PACKAGE / "plugin.py") <= sys.stdlib_module_names


ALLOWED_ARROWS = {
    "rules": set(),
    "server": {"rules", "installer", "log", "settings"},
    "patches": {"server", "rules", "installer", "log", "releases", "settings", "errors"},
    "tools": {
        "errors", "in_tree", "installer", "patches", "plugin", "releases", "rules", "settings",
    },
    "in_tree": {"errors", "installer", "patches", "plugin"},
    "installer": set(),
    "settings": {"errors", "rules"},
    "plugin": {"errors", "installer", "log", "patches", "releases", "settings"},
    "errors": set(), "log": set(), "releases": set(), "__main__": {"errors", "tools"},
}  # fmt: skip
"""Which rooms of the package each room imports: arrows point down, from tools to rules."""


def rooms_imported(file: Path) -> set[str]:
    """Return the rooms of the package that a file imports anywhere, its own left out."""
    rooms = set()
    here = file.relative_to(PACKAGE).with_suffix("").parts
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = (*here[: len(here) - node.level], *(node.module or "").split("."))
            names = [base[0]] if base[0] else [alias.name for alias in node.names]
            rooms |= {name for name in names if name != "__version__"}
    return rooms - {here[0]}


@pytest.mark.parametrize("room", ALLOWED_ARROWS)
def test_room_imports_only_the_rooms_below_it(room: str) -> None:
    """
    No arrow points upwards, so that no import goes round in a circle.
    """
    single = PACKAGE / f"{room}.py"
    files = [single] if single.exists() else sorted((PACKAGE / room).rglob("*.py"))

    assert files
    assert {name for file in files for name in rooms_imported(file)} <= ALLOWED_ARROWS[room]


def marks_in(file: Path) -> list[str]:
    """Return the statements of a file that put a mark on an object: as vLLM never reads it."""
    found = []
    for node in ast.walk(ast.parse(file.read_text())):
        match node:
            case ast.ClassDef(bases=[ast.Subscript(value=ast.Name("dict")), *_]):
                found.append(node.name)
            case ast.Assign(targets=[ast.Subscript(value=ast.Call(func=ast.Name("vars")))]):
                found.append(ast.unparse(node))
            case ast.Assign(targets=[ast.Attribute(value=ast.Attribute(attr="state"))]):
                found.append(ast.unparse(node))
    return found


def test_marks_stand_in_one_file() -> None:
    """
    Every mark that the guard leaves on vLLM's objects is listed in ``server/marks.py``.
    """
    files = [*(PACKAGE / "server").rglob("*.py"), *(PACKAGE / "patches").rglob("*.py")]

    assert {"marks.py"} == {file.name for file in files if marks_in(file)}


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
