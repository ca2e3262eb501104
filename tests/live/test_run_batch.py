# SPDX-License-Identifier: Apache-2.0
"""``vllm run-batch``: each chat line is decided on alone, and a bad one spoils no other."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lab.models.build import Model
from lab.servers import launches
from lab.servers.server import CONTEXT
from vllm_reuse_guard.rules.outcome import PARAMETER
from vllm_reuse_guard.tools.conformance import Profile

SECONDS = 240
CHAT = {
    "model": "model",
    "messages": [{"role": "user", "content": "Name a colour."}],
    "max_tokens": 6,
    "temperature": 0,
    "return_token_ids": True,
}
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
IDS = [5, 6, 7, 8]
LINES = {
    "plain": {},
    "reused": {"kv_transfer_params": {"prompt_token_ids": IDS}},
    "refused": {"kv_transfer_params": {"prompt_token_ids": [True]}},
    "image": {
        "messages": [{"role": "user", "content": [IMAGE]}],
        "kv_transfer_params": {"prompt_token_ids": IDS},
    },
    "last": {},
}


@pytest.fixture(scope="module", params=["0.27.0", "0.30.0", "0.31.0", "0.32.0"])
def answers(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    """Run one file with every line through a release; return the answers by name."""
    folder = tmp_path_factory.mktemp("batch")
    asked, answered = folder / "in.jsonl", folder / "out.jsonl"
    asked.write_text("".join(f"{json.dumps(_line(name))}\n" for name in LINES))
    _run(request.param, asked, answered)
    found = map(json.loads, answered.read_text().splitlines())
    return {answer["custom_id"]: answer for answer in found}


def error(answer: dict[str, Any]) -> dict[str, Any]:
    """Return the error of a line that has one."""
    found: dict[str, Any] = answer["error"]
    return found.get("error", found)


def _line(name: str) -> dict[str, Any]:
    url = "/v1/chat/completions"
    return {"custom_id": name, "method": "POST", "url": url, "body": {**CHAT, **LINES[name]}}


def _run(release: str, asked: Path, answered: Path) -> None:
    launch = launches.launch(Profile.POLICY_ALWAYS, release, Model.TINY_QWEN2)
    command = [
        *(sys.executable, "-m", "vllm.entrypoints.cli.main", "run-batch"),
        *("-i", str(asked), "-o", str(answered), "--model", str(launch.model)),
        *("--served-model-name", "model", "--max-model-len", str(CONTEXT)),
        *("--dtype", "float32", "--enforce-eager"),
        # By default vLLM wants most of the memory, which other servers share.
        *("--kv-cache-memory-bytes", str(launch.kv_cache * 2**20)),
    ]
    ended = subprocess.run(
        command,
        env=launch.variables(),
        cwd=asked.parent,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-2000:]


def test_every_line_is_answered(answers: dict[str, Any]) -> None:
    """
    The refused line and the one with an image fail alone.
    """
    assert {"plain": 200, "reused": 200, "refused": 400, "image": 400, "last": 200} == {
        name: answer["response"]["status_code"] for name, answer in answers.items()
    }


def test_ids_are_used(answers: dict[str, Any]) -> None:
    """
    Good ids are the prompt.
    """
    assert IDS == answers["reused"]["response"]["body"]["prompt_token_ids"]
    assert IDS != answers["plain"]["response"]["body"]["prompt_token_ids"]


def test_refusal_names_the_field(answers: dict[str, Any]) -> None:
    """
    The error is the one of the endpoint.
    """
    assert PARAMETER == error(answers["refused"])["param"]


def test_image_is_not_dropped(answers: dict[str, Any]) -> None:
    """
    A text model says that it has no use for the image; the ids are not used.
    """
    assert "multimodal" in error(answers["image"])["message"]
