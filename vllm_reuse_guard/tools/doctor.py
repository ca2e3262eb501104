# SPDX-License-Identifier: Apache-2.0
"""Check, from files and without importing vLLM, whether a server started here is guarded."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from enum import Enum
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, NoReturn

from .. import __version__, settings
from ..errors import OVERRIDE, SettingsError, TreeError
from ..in_tree import FOLDER
from ..patches import PATCHES, needed_by
from ..patches.api_server.flags import add_flags
from ..plugin import GROUP, NAME, register
from ..releases import TESTED, is_tested
from . import patch_points
from .in_tree import State as TreeState
from .in_tree import Tree


class PatchState(str, Enum):
    """The state of a patch in the installed vLLM."""

    APPLIES = "applies"
    UPSTREAM = "upstream has it"
    MISSING = "patch point missing"


class Start(str, Enum):
    """What ``vllm serve``, started here, does; the worst first."""

    UNGUARDED = "runs UNGUARDED"
    PARTLY = "runs with an UNGUARDED front end"
    REFUSED = "refuses to start"
    GUARDED = "is guarded"


@dataclass(frozen=True)
class Finding:
    """The result of one check; ``start``: what the server does because of it."""

    subject: str
    start: Start
    says: str

    @property
    def good(self) -> bool:
        """Whether this check lets the server start guarded."""
        return self.start is Start.GUARDED


@dataclass(frozen=True)
class PatchFinding:
    """A patch, the upstream module below ``vllm``, its state, and its missing patch points."""

    name: str
    module: str
    state: PatchState
    missing: tuple[str, ...]


@dataclass(frozen=True)
class SettingFinding:
    """A setting in force, and the source of its value."""

    name: str
    value: str
    source: str


@dataclass(frozen=True)
class Report:
    """All findings; vllm: the folder of the vLLM package, None without one."""

    guard: str
    vllm: str | None
    release: str | None
    findings: tuple[Finding, ...]
    patches: tuple[PatchFinding, ...]
    settings: tuple[SettingFinding, ...]

    @property
    def start(self) -> Start:
        """What ``vllm serve``, started here, does: the worst finding decides."""
        starts = {finding.start for finding in self.findings}
        # A plugin that vLLM never loads cannot refuse a start.
        return next(start for start in Start if start in starts)


class _FlagError(Exception):
    """An invalid flag of the guard; the message names it."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Raise where argparse would end the process."""
        raise _FlagError(message)


def examine(arguments: Sequence[str] = ()) -> Report:
    """
    Examine the environment of this Python as ``vllm serve`` would find it.

    arguments: those of ``vllm serve``, flags of the guard included.
    """
    file: list[str] = []
    try:
        # The command line overrides its configuration file.
        file = _read_config(arguments)
        chosen = _examine_settings(file, arguments)
    except _FlagError as error:
        chosen = Finding("settings", Start.REFUSED, str(error))
    try:
        tree = Tree.at(None)
    except TreeError:
        missing = Finding("vLLM", Start.REFUSED, f"{sys.executable} cannot import vllm")
        return Report(__version__, None, None, (missing, chosen), (), _settings_in_force(chosen))
    patches = tuple(_examine_patches(tree))
    findings = (
        _examine_release(tree),
        _examine_loading(tree),
        _examine_patch_points(patches),
        chosen,
        *_examine_arguments([*file, *arguments]),
    )
    return Report(
        __version__, str(tree.vllm), tree.version, findings, patches, _settings_in_force(chosen)
    )


def _examine_settings(*told: Sequence[str]) -> Finding:
    # vLLM also accepts abbreviated flags, and underscores for dashes.
    parser = _Parser("vllm serve", add_help=False)
    add_flags(parser)
    try:
        settings.current()
        for arguments in told:
            parser.parse_known_args([*map(_with_dashes, arguments)])
    except SettingsError as error:
        return Finding("settings", Start.REFUSED, "; ".join(error.problems))
    return Finding("settings", Start.GUARDED, "valid")


def _with_dashes(argument: str) -> str:
    name, equals, value = argument.partition("=")
    return f"{name.replace('_', '-')}{equals}{value}" if name.startswith("--") else argument


def _settings_in_force(found: Finding) -> tuple[SettingFinding, ...]:
    if not found.good:
        return ()
    chosen = settings.current()
    return tuple(
        SettingFinding(name, _show(getattr(chosen, name)), settings.source(name))
        for name in settings.Settings.model_fields
    )


def _show(value: Any) -> str:
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, tuple):
        return " ".join(map(str, value)) or "none"
    return "any" if value is None else str(value).lower()


def _examine_release(tree: Tree) -> Finding:
    if tree.version is not None and is_tested(tree.version):
        return Finding("release", Start.GUARDED, f"vLLM {tree.version} is tested")
    return Finding(
        "release",
        Start.GUARDED if _is_overridden() else Start.REFUSED,
        f"the guard is not tested on vLLM {tree.version or 'of unknown version'} "
        f"(tested: {', '.join(TESTED)}){f'; {OVERRIDE} is set' if _is_overridden() else ''}",
    )


def _is_overridden() -> bool:
    try:
        return settings.current().allow_unsupported
    except SettingsError:
        return False


def _examine_loading(tree: Tree) -> Finding:
    if tree.is_foreign:
        return Finding(
            "loading", Start.REFUSED, f"{tree.vllm}/{FOLDER} was not created by `in-tree apply`"
        )
    if tree.state is not TreeState.ABSENT:
        if faults := [*tree.lacking, *tree.changes()]:
            says = f"incomplete in-tree form: {', '.join(faults)}"
            return Finding("loading", Start.REFUSED, says)
        return Finding("loading", Start.GUARDED, "in-tree form")
    found = _loaded()
    if found is not register:
        return Finding(
            "loading", Start.UNGUARDED, f"entry point {NAME} in {GROUP}: {found or 'not installed'}"
        )
    allowed = os.environ.get("VLLM_PLUGINS")
    if allowed is not None and NAME not in allowed.split(","):
        says = f"VLLM_PLUGINS={allowed!r} does not contain {NAME!r} (comma-separated, no spaces)"
        return Finding("loading", Start.UNGUARDED, says)
    says = f"plugin; VLLM_PLUGINS {'is not set' if allowed is None else f'contains {NAME}'}"
    return Finding("loading", Start.GUARDED, says)


def _loaded() -> object:
    # As vLLM does: it skips an entry point that fails to load, and the last of several counts.
    loaded = [_load(entry) for entry in entry_points(group=GROUP, name=NAME)]
    good = [one for one in loaded if not isinstance(one, str)]
    return (good or loaded or [None])[-1]


def _load(entry: EntryPoint) -> object:
    try:
        return entry.load()
    except Exception as error:
        return f"{entry.value} fails to load ({error})"


def _examine_patches(tree: Tree) -> Iterator[PatchFinding]:
    needed = PATCHES if tree.version is None else needed_by(tree.version)
    for patch in PATCHES:
        if patch not in needed:
            yield PatchFinding(patch.name, patch.module, PatchState.UPSTREAM, ())
        else:
            missing = tuple(patch_points.missing(patch, tree.vllm))
            state = PatchState.MISSING if missing else PatchState.APPLIES
            yield PatchFinding(patch.name, patch.module, state, missing)


def _examine_patch_points(patches: Sequence[PatchFinding]) -> Finding:
    missing = [name for patch in patches for name in patch.missing]
    if missing:
        start = Start.UNGUARDED if _is_overridden() else Start.REFUSED
        return Finding("patch points", start, f"missing: {', '.join(missing)}")
    return Finding("patch points", Start.GUARDED, "all present")


def _examine_arguments(arguments: Sequence[str]) -> Iterator[Finding]:
    given = {_with_dashes(item).partition("=")[0] for item in arguments}
    yield _examine_front_end(given)
    if given and "--kv-transfer-config" not in given:
        says = "no --kv-transfer-config: IDs are reused only with the policy `always`"
        yield Finding("connector", Start.GUARDED, says)


def _examine_front_end(given: Set[str]) -> Finding:
    rust = os.environ.get("VLLM_USE_RUST_FRONTEND", "0")
    try:
        is_rust = int(rust) != 0
    except ValueError:
        says = f"invalid VLLM_USE_RUST_FRONTEND: must be an integer, got {rust!r}"
        return Finding("front end", Start.REFUSED, says)
    if is_rust:
        return Finding("front end", Start.PARTLY, "VLLM_USE_RUST_FRONTEND is set")
    if {"--grpc", "--grp"} & given:
        return Finding("front end", Start.PARTLY, "--grpc is set")
    return Finding("front end", Start.GUARDED, "vLLM's Python API server")


def _read_config(arguments: Sequence[str]) -> list[str]:
    for position, item in enumerate(arguments):
        name, equals, path = item.partition("=")
        if name == "--config":
            path = path if equals else "".join(arguments[position + 1 : position + 2])
            return list(_as_arguments(path))
    return []


def _as_arguments(path: str) -> Iterator[str]:
    try:
        # A dependency of vLLM, which reads the file with it.
        said = import_module("yaml").safe_load(Path(path).read_text())
    except Exception as error:
        reason = " ".join(str(error).split())
        raise _FlagError(f"cannot read --config {path}: {reason}") from None
    for name, value in said.items() if isinstance(said, dict) else ():
        if isinstance(value, list):
            yield from (f"--{name}", *map(str, value))
        elif value is True:
            yield f"--{name}"
        elif value is not False:
            yield f"--{name}={value}"
