# SPDX-License-Identifier: Apache-2.0
"""`vllm` of the lab's shell is vLLM's own command, with the guard."""

from __future__ import annotations

import subprocess
from pathlib import Path

import httpx

from lab.paths import CHECKOUT
from lab.servers.server import Launch, Server, free_port, wait_until_healthy

VLLM = CHECKOUT / "lab/shell/bin/vllm"


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
            launch = Launch("shell", "0.32.0", Path("tiny-qwen2"))
            wait_until_healthy(Server(launch, url, tmp_path / "log", server))
            (model,) = httpx.get(f"{url}/v1/models").json()["data"]
            metrics = httpx.get(f"{url}/metrics").text
        finally:
            server.terminate()
            server.wait(60)

    assert ("tiny-qwen2", 512) == (model["id"], model["max_model_len"])
    assert 'policy="always"' in metrics
