# SPDX-License-Identifier: Apache-2.0
"""What the guard counts is on vLLM's own /metrics, whoever of several processes counted it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from lab.models.build import Model
from lab.servers import launches
from lab.servers.server import CONTEXT, MODEL_NAME, Server, running
from tests.live.releases import EARLIEST, FULL_MATRIX, NEWEST
from vllm_reuse_guard import __version__
from vllm_reuse_guard.patches import needed_by
from vllm_reuse_guard.rules.outcome import KV_TRANSFER_PARAMS
from vllm_reuse_guard.tools.conformance import Profile

DOCS = Path(__file__).parents[2] / "docs" / "monitoring"
ROUNDS = 6
CHAT = "/v1/chat/completions"
HELLO = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 2}
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
BODIES = (
    (CHAT, {**HELLO, KV_TRANSFER_PARAMS: {"prompt_token_ids": [5, 6, 7]}}, 200),
    (CHAT, {**HELLO, KV_TRANSFER_PARAMS: {"prompt_token_ids": [True]}}, 400),
    (CHAT, {**HELLO, "echo": True, KV_TRANSFER_PARAMS: {"prompt_token_ids": [5]}}, 200),
    (
        "/v1/completions",
        {"prompt": "Hi", "max_tokens": 2, KV_TRANSFER_PARAMS: {"prompt_token_ids": [5]}},
        200,
    ),
    (
        f"{CHAT}/batch",
        {**HELLO, "messages": [HELLO["messages"]], KV_TRANSFER_PARAMS: {"prompt_token_ids": [5]}},
        400,
    ),
    (
        "/invocations",
        {"prompt": "Hi", "max_tokens": 2, KV_TRANSFER_PARAMS: {"prompt_token_ids": [5]}},
        200,
    ),
    (f"{CHAT}%0A", {**HELLO, KV_TRANSFER_PARAMS: {"prompt_token_ids": [5, 6, 7]}}, 200),
    ("/tokenize", {**HELLO, KV_TRANSFER_PARAMS: {"prompt_token_ids": [5, 6]}}, 200),
    (CHAT, {**HELLO, KV_TRANSFER_PARAMS: {"do_remote_prefill": True}}, 400),
    (CHAT, HELLO, 200),
)
"""Every outcome, by several endpoints, and one request that has nothing to do with ids."""

UNDECODABLE = {
    "token_ids": [5] * (CONTEXT - 5),
    "sampling_params": {"min_tokens": 10, "skip_clone": True},
}


@pytest.fixture(
    scope="module",
    params=[
        (EARLIEST, 1),
        pytest.param((NEWEST, 1), marks=FULL_MATRIX),
        (NEWEST, 2),
    ],
    ids=lambda param: f"{param[0]}-{param[1]}",
)
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A server with one API server process or two, after a few rounds of requests."""
    release, processes = request.param
    launch = launches.launch(Profile.CONNECTOR, release, Model.TINY_QWEN2)
    several = ("--api-server-count", str(processes)) if processes > 1 else ()
    with running(replace(launch, arguments=(*launch.arguments, *several))) as server:
        for _ in range(ROUNDS):
            for path, body, status in BODIES:
                assert status == send(server, path, body)
            send(server, "/inference/v1/generate", UNDECODABLE)
        yield server


def send(server: Server, path: str, body: dict[str, object]) -> int:
    """Send one body on a connection of its own, so that any process may get it."""
    answer = httpx.post(f"{server.url}{path}", json={"model": MODEL_NAME, **body}, timeout=60)
    return answer.status_code


def samples(server: Server) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Return every sample of the guard by its name and labels; each must be there once."""
    text = httpx.get(f"{server.url}/metrics", timeout=60).text
    found: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name.startswith("reuse_guard_") and not sample.name.endswith("_created"):
                key = (sample.name, frozenset(sample.labels.items()))
                assert key not in found
                found[key] = sample.value
    return found


def value(server: Server, name: str, **labels: str) -> float:
    """Return one sample, 0.0 if it is not there."""
    return samples(server).get((name, frozenset(labels.items())), 0.0)


@pytest.mark.parametrize(
    ("outcome", "reason", "endpoint"),
    [
        ("reject", "batch", f"{CHAT}/batch"),
        ("render", "not_a_chat", "/invocations"),
        ("reject", "malformed", CHAT),
        ("render", "echo", CHAT),
        ("render", "not_a_chat", "/v1/completions"),
        ("reuse", "reused", "/tokenize"),
    ],
)
def test_decisions_are_counted(server: Server, outcome: str, reason: str, endpoint: str) -> None:
    """
    By outcome, reason and endpoint; all processes together.
    """
    labels = {"outcome": outcome, "reason": reason, "endpoint": endpoint}

    assert ROUNDS == value(server, "reuse_guard_decisions_total", **labels)


def test_every_way_to_write_a_path_is_one_endpoint(server: Server) -> None:
    """
    The endpoint is the route, not what a client has written: there are only so many.
    """
    labels = {"outcome": "reuse", "reason": "reused", "endpoint": CHAT}

    assert 2 * ROUNDS == value(server, "reuse_guard_decisions_total", **labels)


def test_nothing_else_is_counted_as_a_decision(server: Server) -> None:
    """
    A request without ids is in none of the counters.
    """
    counts = [n for (name, _), n in samples(server).items() if name.endswith("decisions_total")]

    assert 8 * ROUNDS == sum(counts)


def test_reused_ids_and_the_time_of_decisions(server: Server) -> None:
    """
    The histograms hold what was reused, and one time for each decision about a chat.
    """
    assert 3 * ROUNDS == value(server, "reuse_guard_reused_prompt_tokens_count")
    assert 8 * ROUNDS == value(server, "reuse_guard_reused_prompt_tokens_sum")
    assert 5 * ROUNDS == value(server, "reuse_guard_decision_seconds_count")
    assert 0 < value(server, "reuse_guard_decision_seconds_sum") < 1


def test_refused_transfer_params(server: Server) -> None:
    """
    What the front end refuses is counted there, and not again by the engine core.
    """
    name = "reuse_guard_refused_transfer_params_total"

    assert ROUNDS == value(server, name, reason="missing_field", endpoint=CHAT)
    name = "reuse_guard_engine_core_refused_transfer_params_total"
    assert 0 == value(server, name, reason="missing_field")
    assert (name, frozenset({("reason", "missing_field")})) in samples(server)


def test_dropped_frames(server: Server) -> None:
    """
    What the engine core could not decode is counted in its own process, and shown.
    """
    assert ROUNDS == value(server, "reuse_guard_engine_core_dropped_frames_total")


def test_info(server: Server) -> None:
    """
    One sample says which guard it is and how it is set, and one each which patches are active.
    """
    assert 1.0 == value(
        server,
        "reuse_guard_info",
        version=__version__,
        policy="connector",
        without_connector="ignore",
        kv_connector="NixlConnector",
        allowed_peers="any",
        emits_ids="no",
    )
    patches = {dict(labels)["patch"] for name, labels in samples(server) if "patch_info" in name}
    assert patches <= {patch.module for patch in needed_by(server.launch.release)}
    assert "renderers.online_renderer" in patches


def test_dashboard_and_alerts_ask_for_what_is_there(server: Server) -> None:
    """
    Each metric of the guard that the dashboard or an alert names is on /metrics.
    """
    dashboard = (DOCS / "grafana-dashboard.json").read_text()
    rules = (DOCS / "alert-rules.yaml").read_text()
    json.loads(dashboard)
    yaml.safe_load(rules)
    there = {name for name, _ in samples(server)}

    asked = {word for text in (dashboard, rules) for word in re.findall(r"\breuse_guard_\w+", text)}

    assert asked
    assert asked <= there
