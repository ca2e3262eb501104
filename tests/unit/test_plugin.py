# SPDX-License-Identifier: Apache-2.0
"""The entry point where there is nothing to guard."""

from __future__ import annotations

import subprocess
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


@pytest.mark.parametrize("name", ["wrapt", "pydantic_settings", "typer"])
def test_missing_package_of_a_command(name: str) -> None:
    """
    The command says which package is missing and what to do, in one line.
    """
    code = (
        f"import sys; sys.modules[{name!r}] = None;"
        "from vllm_reuse_guard.__main__ import main; main()"
    )

    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )

    assert 2 == ended.returncode
    assert "" == ended.stdout
    (line,) = ended.stderr.splitlines()
    assert name in line
    assert "pip" in line
