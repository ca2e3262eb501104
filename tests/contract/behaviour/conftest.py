# SPDX-License-Identifier: Apache-2.0
"""The patches are applied once for each file: to rebuild vLLM's models takes 0.7 s."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.contract.conftest import patches_applied


@pytest.fixture(scope="module")
def guarded() -> Iterator[None]:
    """The patches of the release are applied while the tests of a file run."""
    with patches_applied():
        yield
