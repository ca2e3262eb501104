# SPDX-License-Identifier: Apache-2.0
"""The patches are applied once for each file: to rebuild vLLM's models takes 0.7 s."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import vllm

from tests.contract.conftest import IN_TREE
from vllm_reuse_guard import installer
from vllm_reuse_guard.patches import needed_by


@pytest.fixture(scope="module")
def guarded() -> Iterator[None]:
    """The patches of the release are in while the tests of a file run; in a tree always."""
    if IN_TREE:
        yield
        return
    undo = installer.install(needed_by(vllm.__version__))
    yield
    undo()
