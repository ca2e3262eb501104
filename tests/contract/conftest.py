# SPDX-License-Identifier: Apache-2.0
"""Real vLLM modules in this process, no engine; run once per release."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec

import pytest

# First, as it chooses the platform that vLLM's modules are then imported for.
import lab.servers.in_process  # noqa: F401 # isort: skip

import vllm

from vllm_reuse_guard import installer, settings
from vllm_reuse_guard.patches import PATCHES, needed_by
from vllm_reuse_guard.tools.conformance import Profile

IN_TREE = find_spec("vllm.reuse_guard") is not None
"""Whether the guard is in the tree of this vLLM: its modules patch themselves (tests.in_tree)."""

for patch in PATCHES:
    importlib.import_module(patch.target)


@contextmanager
def patches_applied() -> Iterator[None]:
    """Apply the patches of the release, and undo them; in a tree they are always applied."""
    if IN_TREE:
        yield
        return
    undo = installer.install(needed_by(vllm.__version__))
    yield
    undo()


@pytest.fixture
def guarded() -> Iterator[None]:
    """The patches of the release are applied for the test."""
    with patches_applied():
        yield


@pytest.fixture
def settings_of(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Profile], None]]:
    """Sets the settings of a profile for the test."""

    def choose(profile: Profile) -> None:
        for name, value in profile.settings.items():
            monkeypatch.setenv(name, value)
        settings.current.cache_clear()

    settings.current.cache_clear()
    yield choose
    settings.current.cache_clear()
