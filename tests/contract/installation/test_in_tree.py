# SPDX-License-Identifier: Apache-2.0
"""The guard goes into a vLLM tree and comes out to the byte, whatever happens in between."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import vllm

from vllm_reuse_guard import __version__
from vllm_reuse_guard.errors import TreeError
from vllm_reuse_guard.in_tree import FOLDER, LINES
from vllm_reuse_guard.installer import file_of, misfits
from vllm_reuse_guard.patches import PATCHES, needed_by
from vllm_reuse_guard.tools import in_tree as tool
from vllm_reuse_guard.tools import patch_points
from vllm_reuse_guard.tools.in_tree import State, Tree

INSTALLED = Path(vllm.__file__).parent
NEEDED = needed_by(vllm.__version__)
RENDERER = "renderers/online_renderer.py"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder with all of this release that the guard touches or looks at, as it was released."""
    modules = {patch.path_in(INSTALLED) for patch in PATCHES}
    modules |= {module for patch in PATCHES for other in patch.also for module in other.modules}
    files = {file_of(module, INSTALLED) for module in modules}
    for file in sorted({*files, INSTALLED / "_version.py"}):
        if file.is_file():
            copy = tmp_path / "vllm" / file.relative_to(INSTALLED)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(file, copy)
    return tmp_path


def content(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Return what is in every file of a folder, and the file's mode, by its path."""
    return {
        str(file.relative_to(folder)): (file.read_bytes(), file.stat().st_mode)
        for file in folder.rglob("*")
        if file.is_file() and ".git" not in file.parts
    }


def test_apply_adds_two_lines_and_the_package(checkout: Path) -> None:
    """
    Each patched module ends with the same two lines; nothing else changes but for the package.
    """
    before = content(checkout)
    at = Tree.at(checkout)

    assert at.apply()

    after = content(checkout)
    targets = {f"vllm/{patch.path_in(INSTALLED).replace('.', '/')}.py" for patch in NEEDED}
    for path, (data, mode) in before.items():
        assert (data + (LINES if path in targets else b""), mode) == after[path]
    assert 2 == LINES.count(b"\n")
    new = after.keys() - before.keys()
    assert new
    assert all(path.startswith(f"vllm/{FOLDER}/") for path in new)
    assert State.APPLIED is at.state


def test_apply_twice_and_revert_twice(checkout: Path) -> None:
    """
    The second time nothing is done; in the end every byte is what it was.
    """
    before = content(checkout)
    at = Tree.at(checkout)

    assert at.apply()
    applied = content(checkout)
    assert not at.apply()
    assert applied == content(checkout)
    assert at.revert()
    assert not at.revert()

    assert before == content(checkout)
    assert State.ABSENT is at.state


def test_diff_is_what_apply_does(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """
    `git apply` takes the patch, and comes to the same as `apply`; revert takes it out again.
    """
    other = tmp_path_factory.mktemp("other")
    shutil.copytree(checkout / "vllm", other / "vllm")
    before = content(other)
    patch = Tree.at(checkout).diff()
    for command in (["init", "--quiet"], ["apply", "--check", "-"], ["apply", "-"]):
        git = ["git", *command]
        subprocess.run(git, cwd=other, input=patch, text=True, check=True)
    Tree.at(checkout).apply()

    applied = content(checkout)

    assert applied == content(other)
    assert not Tree.at(other).apply()
    assert "" == Tree.at(other).diff()
    assert Tree.at(other).revert()
    assert before == content(other)


@pytest.mark.parametrize("action", ["apply", "revert"])
def test_interrupted(checkout: Path, monkeypatch: pytest.MonkeyPatch, action: str) -> None:
    """
    Wherever it is interrupted, it can be gone on with or taken back.
    """
    before = content(checkout)
    at = Tree.at(checkout)
    at.apply()
    applied = content(checkout)
    real, steps = tool._replace, len(at.applied.originals) if at.applied else 0
    assert steps > 1

    for step in range(steps):
        for next_action, wanted in (("apply", applied), ("revert", before)):
            at.revert() if action == "apply" else at.apply()
            done: list[Path] = []

            def stop(file: Path, data: bytes, done: list[Path] = done, step: int = step) -> None:
                if len(done) == step:
                    # As if killed between writing and replacing.
                    tool._scratch(file).write_bytes(data)
                    raise KeyboardInterrupt
                done.append(file)
                real(file, data)

            monkeypatch.setattr(tool, "_replace", stop)
            with pytest.raises(KeyboardInterrupt):
                getattr(at, action)()
            monkeypatch.setattr(tool, "_replace", real)

            untouched = action == "revert" and step == 0
            assert (State.APPLIED if untouched else State.PARTIAL) is at.state
            getattr(at, next_action)()
            assert wanted == content(checkout)


def test_half_written_package_is_not_taken_for_one(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    The folder appears whole: interrupted before that, the tree is as it was for vLLM.
    """
    before = content(checkout)
    at = Tree.at(checkout)
    real = Path.rename

    def stop(self: Path, target: Any) -> Path:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "rename", stop)
    with pytest.raises(KeyboardInterrupt):
        at.apply()
    monkeypatch.setattr(Path, "rename", real)

    assert State.ABSENT is at.state
    at.revert()
    assert before == content(checkout)


def test_partial_tree_does_not_start(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A module that lacks its lines ends every process, with one line that says which and what to do.
    """
    Tree.at(checkout).apply()
    file = checkout / "vllm" / RENDERER
    file.write_bytes(file.read_bytes().removesuffix(LINES))
    # The real vLLM, and the copy of the guard beside it.
    code = (
        f"import vllm; vllm.__path__.insert(0, {str(checkout / 'vllm')!r})\n"
        "from vllm.reuse_guard.in_tree import guard; guard('vllm.engine.arg_utils')"
    )

    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )

    assert 1 == ended.returncode
    last = ended.stderr.strip().splitlines()[-1]
    assert f"its in-tree form is incomplete in this vLLM ({RENDERER})" in last
    assert "in-tree apply" in last


def change_module(vllm: Path) -> None:
    (vllm / RENDERER).write_bytes(b"# ours\n" + (vllm / RENDERER).read_bytes())


def change_package(vllm: Path) -> None:
    (vllm / FOLDER / "settings.py").write_text("")


def add_to_package(vllm: Path) -> None:
    (vllm / FOLDER / "extra.py").write_text("")


def lose_module(vllm: Path) -> None:
    (vllm / RENDERER).unlink()


@pytest.mark.parametrize("change", [change_module, change_package, add_to_package, lose_module])
@pytest.mark.parametrize("action", ["apply", "revert"])
def test_what_was_changed_afterwards_is_not_touched(
    checkout: Path, change: Any, action: str
) -> None:
    """
    Somebody's own changes are not lost: it says what was changed and does nothing.
    """
    at = Tree.at(checkout)
    at.apply()
    change(checkout / "vllm")
    before = content(checkout)

    with pytest.raises(TreeError, match="Nothing was changed"):
        getattr(at, action)()

    assert before == content(checkout)


def test_folder_of_somebody_else(checkout: Path) -> None:
    """
    A package of the same name that is not the guard stays as it is.
    """
    (checkout / "vllm" / FOLDER).mkdir()
    (checkout / "vllm" / FOLDER / "__init__.py").write_text("theirs = True\n")
    before = content(checkout)

    for action in ("diff", "apply", "revert"):
        with pytest.raises(TreeError, match="was not created by this tool; move it away"):
            getattr(Tree.at(checkout), action)()

    assert before == content(checkout)


@pytest.mark.parametrize("record", ["{'version': '1', 'originals': [], 'copies': {}}", "7", "x"])
def test_record_that_is_none(checkout: Path, record: str) -> None:
    """
    A record that says nothing readable is somebody else's.
    """
    Tree.at(checkout).apply()
    (checkout / "vllm" / FOLDER / "in_tree" / "applied.py").write_text(f"APPLIED = {record}\n")

    with pytest.raises(TreeError, match="was not created by this tool; move it away"):
        Tree.at(checkout).revert()


def test_record_that_names_nothing_is_not_complete(checkout: Path) -> None:
    """
    What must have its lines follows from the patches and not from what a record says.
    """
    at = Tree.at(checkout)
    at.apply()
    for path in at.applied.originals if at.applied else ():
        file = checkout / "vllm" / path
        file.write_bytes(file.read_bytes().removesuffix(LINES))
    record = f"{{'version': '{__version__}', 'originals': {{}}, 'copies': {{}}}}"
    (checkout / "vllm" / FOLDER / "in_tree" / "applied.py").write_text(f"APPLIED = {record}\n")

    assert State.PARTIAL is at.state
    assert RENDERER in at.lacking


def test_link_is_refused(checkout: Path) -> None:
    """
    A module that is a symbolic link to a file elsewhere is not replaced by a file.
    """
    file = checkout / "vllm" / RENDERER
    file.rename(checkout / "elsewhere.py")
    file.symlink_to(checkout / "elsewhere.py")

    with pytest.raises(TreeError, match=f"{RENDERER} is a symbolic link"):
        Tree.at(checkout).apply()


def test_several_at_a_time(checkout: Path) -> None:
    """
    They wait for each other: the tree is whole in the end.
    """
    before = content(checkout)
    command = [sys.executable, "-m", "vllm_reuse_guard", "in-tree"]
    for action in ("apply", "revert"):
        several = [
            subprocess.Popen([*command, action, "--tree", str(checkout)], stdout=subprocess.DEVNULL)
            for _ in range(4)
        ]
        assert {0} == {process.wait() for process in several}
        at = Tree.at(checkout)
        assert (State.APPLIED if action == "apply" else State.ABSENT) is at.state
        assert [] == at.changes()

    assert before == content(checkout)


def test_other_version_of_the_guard(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    It is taken out by any version and overwritten by none.
    """
    before = content(checkout)
    Tree.at(checkout).apply()
    monkeypatch.setattr(tool, "__version__", "9.9.9")

    with pytest.raises(TreeError, match=f"in-tree form {__version__}"):
        Tree.at(checkout).apply()
    assert Tree.at(checkout).revert()

    assert before == content(checkout)


def test_release_that_is_not_tested(checkout: Path) -> None:
    """
    The guard does not go into a vLLM that nobody tried it on.
    """
    version = checkout / "vllm" / "_version.py"
    version.write_text(version.read_text().replace(f"'{Tree.at(checkout).version}'", "'0.99.0'"))

    with pytest.raises(TreeError, match=r"the guard is not tested on vLLM 0\.99\.0"):
        Tree.at(checkout).apply()


def test_checkout_that_was_never_built(checkout: Path) -> None:
    """
    Git has no version in it; the patch points decide.
    """
    (checkout / "vllm" / "_version.py").unlink()
    before = content(checkout)

    assert Tree.at(checkout).apply()
    assert Tree.at(checkout).revert()
    assert before == content(checkout)


@pytest.mark.parametrize("patch", NEEDED, ids=lambda patch: f"{patch.name}-{patch.module}")
def test_missing_patch_point_is_found_in_the_files(checkout: Path, patch: Any) -> None:
    """
    Each patch point is looked for; without it nothing is changed.
    """
    file = file_of(patch.path_in(checkout / "vllm"), checkout / "vllm")
    whole = file.read_text()
    for name in patch.patch_points:
        last = name.rpartition(".")[2]
        file.write_text(whole.replace(last, f"{last}_no_more"))
        before = content(checkout)

        with pytest.raises(TreeError, match=f"{name} is missing"):
            Tree.at(checkout).apply()
        assert before == content(checkout)


def test_files_and_modules_have_the_same_patch_points() -> None:
    """
    What is found in the files of a release is what its imported modules have.
    """
    found = tuple(name for patch in PATCHES for name in patch_points.missing(patch, INSTALLED))

    assert misfits(PATCHES) == found == ()


def test_no_vllm_here(tmp_path: Path) -> None:
    """
    A folder without vLLM is named.
    """
    with pytest.raises(TreeError, match="not a vLLM checkout or package"):
        Tree.at(tmp_path)


def test_copy_stands_alone(checkout: Path) -> None:
    """
    The copy imports none of the tools, which are not copied, and nothing of the plugin.
    """
    Tree.at(checkout).apply()
    copy = checkout / "vllm" / FOLDER

    assert not [file for file in copy.rglob("*.py") if "vllm_reuse_guard" in imports(file)]
    assert not (copy / "cli.py").exists()
    assert not (copy / "conformance").exists()


def imports(file: Path) -> set[str]:
    """Return the first words of what a file imports."""
    lines = (line.split() for line in file.read_text().splitlines())
    return {words[1].partition(".")[0] for words in lines if words[:1] in (["import"], ["from"])}
