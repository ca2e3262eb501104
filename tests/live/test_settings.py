# SPDX-License-Identifier: Apache-2.0
"""A flag reaches every process that it must reach."""

from __future__ import annotations

from dataclasses import replace

import httpx

from lab.models.build import Model
from lab.servers import launches
from lab.servers.server import MODEL_NAME, Server, running
from tests.live.releases import MOSTLY_ON_NEWEST
from vllm_reuse_guard.rules.outcome import PARAMETER
from vllm_reuse_guard.tools.conformance import Profile

REQUESTS = 24
REJECT = ("--prompt-token-ids-without-connector", "reject")
BODY = {
    "model": MODEL_NAME,
    "messages": [{"role": "user", "content": "Name a colour."}],
    "max_tokens": 2,
    "kv_transfer_params": {"prompt_token_ids": [5, 6, 7]},
}


def statuses(server: Server, path: str) -> set[tuple[int, str | None]]:
    """Send requests on connections of their own; return what came of them."""
    found = set()
    for _ in range(REQUESTS):
        answer = httpx.post(f"{server.url}{path}", json=BODY, timeout=60)
        error = answer.json().get("error") or {}
        found.add((answer.status_code, error.get("param")))
    return found


@MOSTLY_ON_NEWEST
def test_every_api_server_process(release: str) -> None:
    """
    Of several processes that share a port, none falls back to the default.
    """
    launch = launches.launch(Profile.NO_CONNECTOR, release, Model.TINY_QWEN2)
    arguments = (*launch.arguments, *REJECT, "--api-server-count", "2")
    with running(replace(launch, arguments=arguments)) as server:
        assert {(400, PARAMETER)} == statuses(server, "/v1/chat/completions")
        assert 2 == server.log_text().count("is active in the API server")


def test_render_server() -> None:
    """
    A render server of the newest release takes the same flags.
    """
    launch = launches.render_launch(Profile.NO_CONNECTOR, "0.33.0", Model.TINY_QWEN2)
    with running(replace(launch, arguments=(*launch.arguments, *REJECT))) as server:
        assert {(400, PARAMETER)} == statuses(server, "/v1/chat/completions/render")


def test_first_request_that_is_ignored_is_logged() -> None:
    """
    An operator hears once, at the usual level, that a server has no connector.
    """
    launch = launches.launch(Profile.NO_CONNECTOR, "0.32.0", Model.TINY_QWEN2)
    with running(launch) as server:
        assert {(200, None)} == statuses(server, "/v1/chat/completions")
        (line,) = [
            line for line in server.log_text().splitlines() if "Later requests of this kind" in line
        ]
        assert "--kv-transfer-config" in line
        assert "--enable-prompt-token-ids" in line
