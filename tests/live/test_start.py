# SPDX-License-Identifier: Apache-2.0
"""A server that cannot be guarded does not start, and says why in one line."""

from __future__ import annotations

import os
from pathlib import Path
from types import MappingProxyType

import pytest

from lab.models.build import Model
from lab.paths import RELEASES
from lab.servers import launches
from lab.servers.server import Launch, starting
from vllm_reuse_guard.tools.conformance import Profile

RELEASE = pytest.mark.parametrize("release", ["0.27.0", "0.32.0"])
SECONDS = 120
# Run by Python before anything else: takes the patch point out of vLLM once that is imported.
NO_SEAM = """
import wrapt
def spoil(module):
    del module._reused_prompt_token_ids
wrapt.register_post_import_hook(spoil, "vllm.renderers.online_renderer")
"""


def launch(release: str, **environment: str) -> Launch:
    """A small server with something in its environment."""
    usual = launches.launch(Profile.NO_CONNECTOR, release, Model.TINY_QWEN2)
    return Launch(
        name="refused",
        release=release,
        model=usual.model,
        arguments=usual.arguments,
        environment=MappingProxyType(environment),
    )


def ended(launch: Launch) -> tuple[int, str]:
    """Start a server that is to end by itself; return its exit status and its last line."""
    with starting(launch) as server:
        status = server.process.wait(SECONDS)
        return status, server.log_text().strip().splitlines()[-1]


@RELEASE
def test_missing_patch_point(release: str, tmp_path: Path) -> None:
    """
    The patch point is named, and the variable that overrides.
    """
    (tmp_path / "sitecustomize.py").write_text(NO_SEAM)
    path = os.pathsep.join([str(tmp_path), str(RELEASES / release)])

    status, line = ended(launch(release, PYTHONPATH=path))

    assert status == 1
    assert "vllm.renderers.online_renderer._reused_prompt_token_ids is missing" in line
    assert "VLLM_REUSE_GUARD_ALLOW_UNSUPPORTED=1" in line


@RELEASE
def test_bad_setting(release: str) -> None:
    """
    The variable, its value and the allowed values are named.
    """
    status, line = ended(launch(release, VLLM_REUSE_GUARD_PROMPT_TOKEN_IDS_POLICY="perhaps"))

    assert status == 1
    assert "VLLM_REUSE_GUARD_PROMPT_TOKEN_IDS_POLICY=perhaps" in line
    assert "'connector', 'always' or 'off'" in line
