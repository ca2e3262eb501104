# SPDX-License-Identifier: Apache-2.0
"""The patches go in once for all tests of a file: to rebuild vLLM's models takes most of a second."""

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
