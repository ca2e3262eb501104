# SPDX-License-Identifier: Apache-2.0
"""Is a server guarded that is started here? Found out from files, without importing vLLM."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from importlib.metadata import entry_points
from typing import Any, NoReturn

from . import __version__, seams, settings
from .errors import OVERRIDE, SettingsError, TreeError
from .in_tree import FOLDER
from .in_tree.tree import State as TreeState
from .in_tree.tree import Tree
from .patches import PATCHES, needed_by
from .patches.engine.arg_utils import add_flags
from .plugin import GROUP, NAME
from .releases import TESTED, is_tested


class PatchState(str, Enum):
    """What becomes of a patch in the vLLM that is here."""

    APPLIES = "applies"
    UPSTREAM = "upstream has it"
    MISSING = "seam missing"


class Start(str, Enum):
    """What a server does that is started here, the worst first."""

    UNGUARDED = "runs WITHOUT the guard"
    PARTLY = "runs with a front end that is NOT guarded"
    REFUSED = "refuses to start"
    GUARDED = "is guarded"


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at, and what a server does for it."""

    subject: str
    start: Start
    says: str

    @property
    def good(self) -> bool:
        """Whether nothing of this keeps the guard out."""
        return self.start is Start.GUARDED


@dataclass(frozen=True)
class PatchFinding:
    """A patch: the module it patches, below ``vllm``, its state, and the seams it lacks."""

    module: str
    state: PatchState
    missing: tuple[str, ...]


@dataclass(frozen=True)
class SettingFinding:
    """A setting in force, and where its value comes from."""

    name: str
    value: str
    source: str


@dataclass(frozen=True)
class Report:
    """All that was found; vllm: the folder of the package, None if there is none."""

    guard: str
    vllm: str | None
    release: str | None
    findings: tuple[Finding, ...]
    patches: tuple[PatchFinding, ...]
    settings: tuple[SettingFinding, ...]

    @property
    def start(self) -> Start:
        """What a server does that is started here: the worst of what was found."""
        starts = {finding.start for finding in self.findings}
        # What is never loaded refuses nothing.
        return next(start for start in Start if start in starts)


class _FlagError(Exception):
    """A flag of the guard that means nothing; the message says which."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise _FlagError(message)


def examine(arguments: Sequence[str] = ()) -> Report:
    """
    Look at the environment of this Python as ``vllm serve`` would find it.

    arguments: what would follow ``vllm serve``; the guard's own flags among them are read.
    """
    chosen = _examine_settings(arguments)
    try:
        tree = Tree.at(None)
    except TreeError:
        missing = Finding("vLLM", Start.REFUSED, f"{sys.executable} imports no vllm")
        return Report(__version__, None, None, (missing, chosen), (), _settings_in_force(chosen))
    patches = tuple(_examine_patches(tree))
    findings = (
        _examine_release(tree),
        _examine_loading(tree),
        _examine_seams(patches),
        chosen,
        *_examine_arguments(arguments),
    )
    return Report(
        __version__, str(tree.vllm), tree.version, findings, patches, _settings_in_force(chosen)
    )


def _examine_settings(arguments: Sequence[str]) -> Finding:
    # Abbreviations are flags for vLLM too, and it takes underscores in names for dashes.
    parser = _Parser("vllm serve", add_help=False)
    add_flags(parser)
    try:
        settings.current()
        parser.parse_known_args([*map(_with_dashes, arguments)])
    except SettingsError as error:
        return Finding("settings", Start.REFUSED, "; ".join(error.problems))
    except _FlagError as error:
        return Finding("settings", Start.REFUSED, str(error))
    return Finding("settings", Start.GUARDED, "all of them have a meaning")


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
        f"vLLM {tree.version or 'of an unknown version'} is not among those that are tested "
        f"({', '.join(TESTED)}){f', but {OVERRIDE} is set' if _is_overridden() else ''}",
    )


def _is_overridden() -> bool:
    try:
        return settings.current().allow_unsupported
    except SettingsError:
        return False


def _examine_loading(tree: Tree) -> Finding:
    if tree.is_foreign:
        return Finding("loading", Start.REFUSED, f"{tree.vllm}/{FOLDER} is not the guard's")
    if tree.state is TreeState.APPLIED and tree.applied is not None:
        return Finding("loading", Start.GUARDED, f"in the tree, {tree.applied.version}")
    if tree.state is TreeState.PARTIAL:
        says = f"in the tree, but not as `in-tree apply` leaves it: {', '.join(tree.lacking)}"
        return Finding("loading", Start.REFUSED, says)
    if not entry_points(group=GROUP, name=NAME):
        says = f"{sys.executable} has no entry point {NAME} in {GROUP}: install the guard there"
        return Finding("loading", Start.UNGUARDED, says)
    allowed = os.environ.get("VLLM_PLUGINS")
    if allowed is not None and NAME not in allowed.split(","):
        says = f"{NAME!r} is not among VLLM_PLUGINS={allowed!r} (separated by commas, no blanks)"
        return Finding("loading", Start.UNGUARDED, says)
    says = f"as a plugin, VLLM_PLUGINS {'is not set' if allowed is None else f'has {NAME}'}"
    return Finding("loading", Start.GUARDED, says)


def _examine_patches(tree: Tree) -> Iterator[PatchFinding]:
    needed = PATCHES if tree.version is None else needed_by(tree.version)
    for patch in PATCHES:
        if patch not in needed:
            yield PatchFinding(patch.module, PatchState.UPSTREAM, ())
        else:
            missing = tuple(seams.missing(patch, tree.vllm))
            state = PatchState.MISSING if missing else PatchState.APPLIES
            yield PatchFinding(patch.module, state, missing)


def _examine_seams(patches: Sequence[PatchFinding]) -> Finding:
    missing = [seam for patch in patches for seam in patch.missing]
    if missing:
        start = Start.UNGUARDED if _is_overridden() else Start.REFUSED
        return Finding("seams", start, f"missing: {', '.join(missing)}")
    return Finding("seams", Start.GUARDED, "all of them are there")


def _examine_arguments(arguments: Sequence[str]) -> Iterator[Finding]:
    given = {_with_dashes(item).partition("=")[0] for item in arguments}
    rust = os.environ.get("VLLM_USE_RUST_FRONTEND", "0") not in ("", "0")
    ways = [
        *(["VLLM_USE_RUST_FRONTEND is set"] if rust else []),
        *(["--grpc is given"] if "--grpc" in given else []),
    ]
    if ways:
        yield Finding("front end", Start.PARTLY, f"{' and '.join(ways)}: not vLLM's own in Python")
    else:
        yield Finding("front end", Start.GUARDED, "vLLM's own, in Python")
    if given and "--kv-transfer-config" not in given:
        says = "no --kv-transfer-config: ids are used with the policy `always` alone"
        yield Finding("connector", Start.GUARDED, says)
    if "--config" in given:
        says = "not read: look yourself for settings of the guard in it"
        yield Finding("--config", Start.GUARDED, says)
