# SPDX-License-Identifier: Apache-2.0
"""The doctor says what a server that is started here would do, release by release."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
import vllm
import wrapt

from vllm_reuse_guard import settings
from vllm_reuse_guard.in_tree import LINES
from vllm_reuse_guard.patches import PATCHES, needed_by
from vllm_reuse_guard.tools import doctor
from vllm_reuse_guard.tools.doctor import PatchState, Report, Start, examine
from vllm_reuse_guard.tools.in_tree import Tree

INSTALLED = Path(vllm.__file__).parent
POLICY = "VLLM_REUSE_GUARD_PROMPT_TOKEN_IDS_POLICY"

pytestmark = pytest.mark.usefixtures("own_settings", "as_an_operator")


@pytest.fixture
def as_an_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is set that the tests set for themselves."""
    monkeypatch.delenv("VLLM_PLUGINS", raising=False)


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tree:
    """A copy of this release, which the doctor takes for the one that Python imports."""
    copy = tmp_path / "vllm"
    ignored = shutil.ignore_patterns("__pycache__", "*.so")
    shutil.copytree(INSTALLED, copy, copy_function=os.link, ignore=ignored)
    found = Tree(copy)
    monkeypatch.setattr(doctor.Tree, "at", lambda _path: found)
    return found


def bad(report: Report) -> dict[str, str]:
    """Return what was found to be bad, by its subject."""
    return {finding.subject: finding.says for finding in report.findings if not finding.good}


def test_guarded_by_the_plugin() -> None:
    """
    Beside a tested release, with nothing set, a server would be guarded.
    """
    report = examine()

    assert {} == bad(report)
    assert Start.GUARDED is report.start
    assert {PatchState.MISSING}.isdisjoint(patch.state for patch in report.patches)


def test_every_patch_has_its_state() -> None:
    """
    What this release does without is told from what applies.
    """
    states = {(patch.name, patch.module): patch.state for patch in examine().patches}

    needed = {(patch.name, patch.module) for patch in needed_by(vllm.__version__)}
    assert [(patch.name, patch.module) for patch in PATCHES] == list(states)
    assert needed == {name for name, state in states.items() if state is PatchState.APPLIES}
    upstream = {name for name, state in states.items() if state is PatchState.UPSTREAM}
    assert upstream == set(states) - needed


@pytest.mark.parametrize(
    ("name", "value", "subject", "start"),
    [
        ("VLLM_PLUGINS", "", "loading", Start.UNGUARDED),
        ("VLLM_PLUGINS", "other", "loading", Start.UNGUARDED),
        ("VLLM_PLUGINS", "other, reuse_guard", "loading", Start.UNGUARDED),
        (POLICY, "perhaps", "settings", Start.REFUSED),
        ("VLLM_REUSE_GUARD_NO_SUCH", "1", "settings", Start.REFUSED),
        ("VLLM_USE_RUST_FRONTEND", "1", "front end", Start.PARTLY),
        ("VLLM_USE_RUST_FRONTEND", "", "front end", Start.REFUSED),
        ("vllm_reuse_guard_prompt_token_ids_policy", "off", "settings", Start.REFUSED),
    ],
)
def test_environment_without_a_guard(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, subject: str, start: Start
) -> None:
    """
    A variable that keeps the guard out, or stops the start, is found and named.
    """
    monkeypatch.setenv(name, value)
    settings.current.cache_clear()

    report = examine()

    assert {subject} == bad(report).keys()
    assert name in bad(report)[subject]
    assert start is report.start


@pytest.mark.parametrize("plugins", ["reuse_guard", "other,reuse_guard"])
def test_plugins_that_are_named(monkeypatch: pytest.MonkeyPatch, plugins: str) -> None:
    """
    VLLM_PLUGINS may be set if it has the guard.
    """
    monkeypatch.setenv("VLLM_PLUGINS", plugins)

    assert Start.GUARDED is examine().start


def test_where_settings_come_from(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    From a flag, written either way, from a variable, or from nowhere.
    """
    monkeypatch.setenv("VLLM_REUSE_GUARD_KV_TRANSFER_ALLOWED_PEERS", "10.0.0.0/8,prefill:5600")
    settings.current.cache_clear()

    report = examine(["MODEL", "--prompt_token_ids_without_connector=reject", "--port", "80"])

    found = {setting.name: (setting.value, setting.source) for setting in report.settings}
    assert ("connector", "default") == found["prompt_token_ids_policy"]
    flag = "--prompt-token-ids-without-connector"
    assert ("reject", flag) == found["prompt_token_ids_without_connector"]
    variable = "VLLM_REUSE_GUARD_KV_TRANSFER_ALLOWED_PEERS"
    assert ("10.0.0.0/8 prefill:5600", variable) == found["kv_transfer_allowed_peers"]
    assert settings.Settings.model_fields.keys() == found.keys()


def test_flag_that_is_abbreviated() -> None:
    """
    What vLLM takes for a flag of the guard is one here too.
    """
    report = examine(["MODEL", "--prompt-token-ids-pol", "off"])

    found = {setting.name: setting.value for setting in report.settings}
    assert "off" == found["prompt_token_ids_policy"]


def test_folder_of_somebody_else(tree: Tree) -> None:
    """
    A package of the guard's name that is not the guard is told from one that is incomplete.
    """
    (tree.vllm / "reuse_guard").mkdir()

    assert "was not created by `in-tree apply`" in bad(examine())["loading"]


def test_grpc() -> None:
    """
    A front end that is not vLLM's own in Python goes past the guard.
    """
    assert "--grpc" in bad(examine(["MODEL", "--grpc"]))["front end"]


@pytest.mark.parametrize(
    "values",
    [
        [],
        ["no.such.module:register"],
        ["vllm_reuse_guard.plugin:register", "builtins:print"],
        ["vllm_reuse_guard.plugin:active"],
    ],
)
def test_entry_point_that_is_not_the_guards(
    monkeypatch: pytest.MonkeyPatch, values: list[str]
) -> None:
    """
    vLLM passes over what does not load, and of two of a name takes the last.
    """
    found = [EntryPoint("reuse_guard", value, "vllm.general_plugins") for value in values]
    monkeypatch.setattr(doctor, "entry_points", lambda **_: found)

    assert Start.UNGUARDED is examine().start
    assert "reuse_guard" in bad(examine())["loading"]


def test_entry_point_that_is_there_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    An old one that does not load is no harm beside the guard's.
    """
    values = ["no.such.module:register", "vllm_reuse_guard.plugin:register"]
    found = [EntryPoint("reuse_guard", value, "vllm.general_plugins") for value in values]
    monkeypatch.setattr(doctor, "entry_points", lambda **_: found)

    assert Start.GUARDED is examine().start


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("grpc: true\n", Start.PARTLY),
        ("prompt-token-ids-policy: perhaps\n", Start.REFUSED),
        ("port: 80\nkv_transfer_allowed_peers: [10.0.0.0/8, pre_fill]\n", Start.GUARDED),
        ("{", Start.REFUSED),
        (None, Start.REFUSED),
    ],
)
def test_configuration_file(tmp_path: Path, text: str | None, start: Start) -> None:
    """
    What a --config file says is read as vLLM reads it.
    """
    file = tmp_path / "config.yaml"
    if text is not None:
        file.write_text(text)

    report = examine(["MODEL", "--config", str(file)])

    assert start is report.start
    if "peers" in (text or ""):
        found = {setting.name: setting.value for setting in report.settings}
        assert "10.0.0.0/8 pre_fill" == found["kv_transfer_allowed_peers"]


def test_copy_in_the_tree_that_was_changed(tree: Tree) -> None:
    """
    A guard in the tree is what was put there.
    """
    tree.apply()
    (tree.vllm / "reuse_guard" / "plugin.py").write_text("def guard_module(*_): pass\n")

    assert "reuse_guard/plugin.py" in bad(examine())["loading"]


def test_missing_patch_point(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A vLLM that was changed is found out from its files.
    """
    file = tree.vllm / "renderers" / "online_renderer.py"
    text = file.read_text().replace("_reused_prompt_token_ids", "_renamed")
    file.unlink()
    file.write_text(text)

    report = examine()

    name = "vllm.renderers.online_renderer._reused_prompt_token_ids"
    assert name in bad(report)["patch points"]
    (patch,) = [patch for patch in report.patches if patch.state is PatchState.MISSING]
    assert (name,) == patch.missing
    assert Start.REFUSED is report.start

    monkeypatch.setenv("VLLM_REUSE_GUARD_ALLOW_UNSUPPORTED", "1")
    settings.current.cache_clear()
    assert Start.UNGUARDED is examine().start


def test_release_that_is_not_tested(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    It is bad news unless the operator has overridden that.
    """
    (tree.vllm / "_version.py").unlink()
    (tree.vllm / "_version.py").write_text("__version__ = version = '0.99.0'\n")

    assert "0.99.0" in bad(examine())["release"]

    monkeypatch.setenv("VLLM_REUSE_GUARD_ALLOW_UNSUPPORTED", "1")
    settings.current.cache_clear()
    assert Start.GUARDED is examine().start


def test_in_tree_form(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    In the tree it is loaded whatever VLLM_PLUGINS says; in part of the tree it stops the start.
    """
    monkeypatch.setenv("VLLM_PLUGINS", "")
    tree.apply()
    assert Start.GUARDED is examine().start

    file = tree.vllm / "engine" / "arg_utils.py"
    whole = file.read_bytes()
    file.unlink()
    file.write_bytes(whole.removesuffix(LINES))
    report = examine()
    assert "engine/arg_utils.py" in bad(report)["loading"]
    assert Start.REFUSED is report.start


@pytest.mark.parametrize(
    ("environment", "arguments", "status"),
    [
        ({}, [], 0),
        ({"VLLM_PLUGINS": ""}, [], 1),
        ({}, ["--", "MODEL", "--prompt-token-ids-policy", "perhaps"], 1),
    ],
    ids=["guarded", "not guarded", "a flag that means nothing"],
)
def test_command(environment: dict[str, str], arguments: list[str], status: int) -> None:
    """
    The exit status says it, the JSON has all of it, and nothing of vLLM is imported.
    """
    command = [sys.executable, "-X", "importtime", "-m", "vllm_reuse_guard", "doctor", "--json"]

    ended = subprocess.run(
        [*command, *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )

    assert status == ended.returncode, ended.stderr
    imported = {line.rpartition("|")[2].strip() for line in ended.stderr.splitlines()}
    assert wrapt.__name__ in imported
    assert not {"vllm", "torch"} & imported
    assert "Traceback" not in ended.stderr
    assert (status == 0) == (json.loads(ended.stdout)["start"] == Start.GUARDED.value)


def test_no_vllm(tmp_path: Path) -> None:
    """
    Without a vLLM there is nothing to guard, said in words and not by a traceback.
    """
    path = os.pathsep.join(p for p in sys.path if p and not (Path(p) / "vllm").exists())
    command: list[str] = [sys.executable, "-m", "vllm_reuse_guard", "doctor"]
    environment = {**os.environ, "PYTHONPATH": path}

    ended = subprocess.run(
        command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
    )

    assert 1 == ended.returncode
    assert "cannot import vllm" in ended.stdout
    assert "Traceback" not in ended.stderr
