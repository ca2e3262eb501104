# SPDX-License-Identifier: Apache-2.0
"""The entry point where there is nothing to guard."""

from __future__ import annotations

import sys

import pytest

from vllm_reuse_guard import plugin


def test_no_vllm_is_said_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Without any vLLM the guard says what to do, and is not registered.
    """
    monkeypatch.setitem(sys.modules, "vllm", None)

    with pytest.raises(SystemExit, match="finds no vLLM to guard") as stop:
        plugin.register()

    assert "\n" not in str(stop.value)
    assert not plugin._registered
