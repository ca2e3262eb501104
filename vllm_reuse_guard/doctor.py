# SPDX-License-Identifier: Apache-2.0
"""Would a server that is started here be guarded? Found out from files, without importing vLLM."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from importlib.metadata import entry_points
from typing import Any

from . import __version__, seams, settings
from .errors import OVERRIDE, SettingsError, TreeError
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


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at; a server is guarded if all of them are good."""

    subject: str
    good: bool
    says: str


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
    def guarded(self) -> bool:
        """Whether a server that is started here would be guarded."""
        return all(finding.good for finding in self.findings)


def examine(arguments: Sequence[str] = ()) -> Report:
    """
    Look at the environment of this Python as ``vllm serve`` would find it.

    arguments: what would follow ``vllm serve``. Flags of the guard among them that mean nothing
    end the process as they would end ``vllm serve``.
    """
    chosen = _examine_settings(arguments)
    try:
        tree = Tree.at(None)
    except TreeError:
        missing = Finding("vLLM", good=False, says=f"{sys.executable} imports no vllm")
        return Report(__version__, None, None, (missing, *chosen), (), _settings_in_force(chosen))
    patches = tuple(_examine_patches(tree))
    findings = (
        _examine_release(tree),
        _examine_loading(tree),
        _examine_seams(patches),
        *chosen,
        *_examine_bypasses(arguments),
    )
    return Report(
        __version__, str(tree.vllm), tree.version, findings, patches, _settings_in_force(chosen)
    )


def _examine_settings(arguments: Sequence[str]) -> tuple[Finding, ...]:
    parser = argparse.ArgumentParser("vllm serve", add_help=False, allow_abbrev=False)
    add_flags(parser)
    try:
        settings.current()
        # vLLM takes underscores in the names of flags for dashes.
        parser.parse_known_args(
            [item.replace("_", "-") if item.startswith("--") else item for item in arguments]
        )
    except SettingsError as error:
        return (Finding("settings", good=False, says="; ".join(error.problems)),)
    return (Finding("settings", good=True, says="all of them mean something"),)


def _settings_in_force(found: Sequence[Finding]) -> tuple[SettingFinding, ...]:
    if not all(finding.good for finding in found):
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
        return Finding("release", good=True, says=f"vLLM {tree.version} is tested")
    overridden = _is_overridden()
    return Finding(
        "release",
        good=overridden,
        says=f"vLLM {tree.version or 'of an unknown version'} is not among those that are tested "
        f"({', '.join(TESTED)}){f', but {OVERRIDE} is set' if overridden else ''}",
    )


def _is_overridden() -> bool:
    try:
        return settings.current().allow_unsupported
    except SettingsError:
        return False


def _examine_loading(tree: Tree) -> Finding:
    if tree.state is TreeState.APPLIED and tree.applied is not None:
        return Finding("loading", good=True, says=f"in the tree, {tree.applied.version}")
    if tree.state is TreeState.PARTIAL:
        says = f"in the tree in part only, it lacks {', '.join(tree.lacking)}"
        return Finding("loading", good=False, says=says)
    if not entry_points(group=GROUP, name=NAME):
        return Finding("loading", good=False, says=f"no entry point {NAME} in {GROUP}")
    allowed = os.environ.get("VLLM_PLUGINS")
    if allowed is not None and NAME not in allowed.split(","):
        return Finding("loading", good=False, says=f"VLLM_PLUGINS={allowed} leaves out {NAME}")
    says = f"as a plugin, VLLM_PLUGINS {'is not set' if allowed is None else f'has {NAME}'}"
    return Finding("loading", good=True, says=says)


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
        return Finding("seams", good=False, says=f"missing: {', '.join(missing)}")
    return Finding("seams", good=True, says="all of them are there")


def _examine_bypasses(arguments: Sequence[str]) -> Iterator[Finding]:
    rust = os.environ.get("VLLM_USE_RUST_FRONTEND", "0") not in ("", "0")
    ways = [
        *(["VLLM_USE_RUST_FRONTEND is set"] if rust else []),
        *(["--grpc is given"] if "--grpc" in arguments else []),
    ]
    if ways:
        says = f"{' and '.join(ways)}: only the engine core would be guarded"
        yield Finding("front end", good=False, says=says)
    else:
        yield Finding("front end", good=True, says="vLLM's own, in Python")
    if any(item.partition("=")[0] == "--config" for item in arguments):
        says = "not read: settings of the guard in it are not among those below"
        yield Finding("--config", good=True, says=says)
