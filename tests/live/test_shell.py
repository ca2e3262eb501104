# SPDX-License-Identifier: Apache-2.0
"""`vllm` of the lab's shell is vLLM's own command, with the guard."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import httpx

from lab.paths import CHECKOUT
from lab.server import SECONDS_TO_START, free_port

VLLM = CHECKOUT / "lab/bin/vllm"


def test_other_commands_are_vllms() -> None:
    """
    What starts no server is done as anywhere.
    """
    said = subprocess.run(
        [VLLM, "serve", "--help=vllm-reuse-guard"], capture_output=True, text=True, check=True
    )

    assert "--emit-prompt-token-ids" in said.stdout


def test_server(tmp_path: Path) -> None:
    """
    A model of the lab is served by its name; flags of vLLM's and of the guard's are as ever.
    """
    url = f"http://127.0.0.1:{(port := free_port())}"
    flags = ["--port", str(port), "--prompt-token-ids-policy", "always", "--max-model-len", "512"]

    with (tmp_path / "log").open("w") as log:
        server = subprocess.Popen([VLLM, "serve", "tiny-qwen2", *flags], stdout=log, stderr=log)
        try:
            wait(url, server)
            (model,) = httpx.get(f"{url}/v1/models").json()["data"]
            metrics = httpx.get(f"{url}/metrics").text
        finally:
            server.terminate()
            server.wait(60)

    assert ("tiny-qwen2", 512) == (model["id"], model["max_model_len"])
    assert 'policy="always"' in metrics


def wait(url: str, server: subprocess.Popen[bytes]) -> None:
    """Wait until the server answers."""
    deadline = time.monotonic() + SECONDS_TO_START
    while time.monotonic() < deadline:
        assert server.poll() is None
        try:
            httpx.get(f"{url}/health").raise_for_status()
            return
        except httpx.HTTPError:
            time.sleep(1)
    raise AssertionError(f"no answer within {SECONDS_TO_START} s")
