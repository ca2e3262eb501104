# SPDX-License-Identifier: Apache-2.0
"""The probe as an operator runs it, on servers with the guard and without it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from xml.etree import ElementTree

import httpx
import pytest

from lab.models.build import Model
from lab.servers import launches
from lab.servers.server import Server, free_port, running
from vllm_reuse_guard.tools.conformance import Profile, cases

SECONDS = 60
"""The time limit for a probe of the tiny model."""


def probe(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command to its end."""
    command = [sys.executable, "-m", "vllm_reuse_guard", "probe", *arguments]
    environment = {name: value for name, value in os.environ.items() if name != "VLLM_API_KEY"}
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, timeout=600
    )


def verdicts(output: str) -> list[tuple[str, str, str, str]]:
    """Return the case, endpoint, stream and verdict of each result in the JSON."""
    (server,) = json.loads(output)["servers"]
    return [
        (result["case"], result["endpoint"], result["stream"], result["verdict"])
        for result in server["results"]
    ]


@pytest.fixture(scope="module")
def guarded() -> Iterator[Server]:
    # With allowed peers it has the profile CONNECTOR too.
    with running(launches.launch(Profile.PEERS, "0.32.0", Model.TINY_QWEN2)) as server:
        yield server


@pytest.fixture(scope="module")
def plain() -> Iterator[Server]:
    launch = launches.launch(Profile.CONNECTOR, "0.27.0", Model.TINY_QWEN2, guarded=False)
    with running(launch) as server:
        yield server


def state(server: Server) -> dict[str, float]:
    """Return the running and waiting requests, and the blocks in use: a probe leaves none."""
    names = ("vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc")
    return {name: server.metric(name) for name in names}


def test_guarded_server_holds_all_cases_twice(guarded: Server) -> None:
    """
    All cases hold, twice alike and in time, and the server is as before.
    """
    before = state(guarded)
    runs = []
    for _ in range(2):
        begin = time.monotonic()
        process = probe(guarded.url, "--format", "json")
        assert time.monotonic() - begin < SECONDS
        assert 0 == process.returncode, process.stderr
        runs.append(verdicts(process.stdout))

    assert runs[0] == runs[1]
    assert {"holds", "not sent", "not applicable"} == {verdict for *_, verdict in runs[0]}
    assert before == state(guarded) == dict.fromkeys(before, 0.0)
    assert guarded.process.poll() is None


def test_guarded_server_holds_the_unsafe_cases_too(guarded: Server) -> None:
    """
    With --unsafe, each case about this kind of server is sent, and holds.
    """
    process = probe(guarded.url, "--unsafe", "--format", "json")

    assert 0 == process.returncode, process.stdout
    assert {"holds", "not applicable"} == {verdict for *_, verdict in verdicts(process.stdout)}
    assert "--unsafe sends requests that can hang or crash" in process.stderr
    sent = {case for case, endpoint, *_ in verdicts(process.stdout) if endpoint}
    profiles = (Profile.CONNECTOR, Profile.PEERS)
    expected = {case.id for case in cases().values() if case.server in profiles}
    assert {case for case in expected - sent if not case.startswith("harmony.")} == set()


def test_plain_server_fails_and_lives(plain: Server) -> None:
    """
    Without --unsafe, a plain 0.27.0 fails many cases, twice alike, and still serves.
    """
    before = state(plain)

    first, second = (probe(plain.url, "--format", "json") for _ in range(2))

    assert 1 == first.returncode == second.returncode
    assert verdicts(first.stdout) == verdicts(second.stdout)
    assert before == state(plain)
    assert 200 == plain.chat(messages=[{"role": "user", "content": "Hello"}]).status_code
    failed = {case for case, *_, verdict in verdicts(first.stdout) if verdict == "fails"}
    assert {"chat.a-string-is-refused", "content.image-url-renders"} <= failed
    assert all(cases()[case].safe for case, endpoint, *_ in verdicts(first.stdout) if endpoint)


def test_side_by_side(guarded: Server, plain: Server) -> None:
    """
    Two servers are two columns, and a case that fails at one of them is exit status 1.
    """
    process = probe(plain.url, guarded.url, "--case", "chat.echo-renders")

    assert 1 == process.returncode
    line = next(
        text for text in process.stdout.splitlines() if text.startswith("chat.echo-renders")
    )
    assert "fails (2 of 2)" in line
    assert "holds (2 of 2)" in line
    assert "0.27.0, no guard" in process.stdout
    assert "\x1b" not in process.stdout


def test_formats(guarded: Server) -> None:
    """
    Standard output is the whole report in each format.
    """
    one = (guarded.url, "--case", "chat.echo-renders", "--format")

    junit, markdown, page = (probe(*one, form).stdout for form in ("junit", "markdown", "html"))

    assert 2 == len(ElementTree.fromstring(junit).findall("testsuite/testcase"))  # noqa: S314
    assert "| `chat.echo-renders` | the answer without IDs |" in markdown
    assert page.startswith("<!DOCTYPE html>")
    assert page.rstrip().endswith("</html>")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--case", "no-such-case"], "unknown case 'no-such-case'"),
        (["--case", "chat.echo-render"], "did you mean chat.echo-renders"),
        (["--model", "no-such-model"], "has no model 'no-such-model'"),
        (["--case", "harmony.response-renders"], "no case applies"),
        (["--format", "pdf"], "pdf"),
    ],
)
def test_probe_that_cannot_run(guarded: Server, arguments: list[str], says: str) -> None:
    """
    The exit status is 2, with the reason and without a traceback.
    """
    process = probe(guarded.url, *arguments)

    assert 2 == process.returncode
    assert says in process.stderr
    assert "Traceback" not in process.stderr


@pytest.mark.parametrize("url", [f"http://127.0.0.1:{free_port()}", "no-url", "http://[", ""])
def test_server_that_is_not_there(url: str) -> None:
    """
    A server that cannot be reached is one line.
    """
    process = probe(url, "--timeout", "5")

    assert 2 == process.returncode
    (line,) = process.stderr.strip().splitlines()
    assert line.startswith("error: ")


def test_url_that_clients_use(guarded: Server) -> None:
    """
    The scheme is optional, and a path that clients add is an error that names it.
    """
    case = ("--case", "chat.echo-renders")

    assert 0 == probe(guarded.url.removeprefix("http://"), *case).returncode
    assert "remove the path" in probe(f"{guarded.url}/v1", *case).stderr


def test_api_key() -> None:
    """
    A server that requires a key is an error that names the option, and is probed with it.
    """
    launch = launches.launch(Profile.NO_CONNECTOR, "0.32.0", Model.TINY_QWEN2)
    arguments = (*launch.arguments, "--api-key", "secret")
    case = ("--case", "chat.ids-without-connector-are-ignored")
    with running(replace(launch, arguments=arguments)) as server:
        without = probe(server.url, *case)
        with_key = probe(server.url, *case, "--api-key", "secret")

    assert 2 == without.returncode
    assert "--api-key" in without.stderr
    assert 0 == with_key.returncode, with_key.stdout
    assert "secret" not in with_key.stdout + with_key.stderr


def test_interrupt(guarded: Server) -> None:
    """
    Ctrl-C ends the probe without a traceback, and the server still serves.
    """
    command = [sys.executable, "-m", "vllm_reuse_guard", "probe", guarded.url]
    log = guarded.log_text()
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        while guarded.log_text() == log:
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)

    assert process.returncode not in (0, 1)
    assert "Traceback" not in errors
    assert 200 == guarded.chat(messages=[{"role": "user", "content": "Hello"}]).status_code


def test_server_that_dies_of_unsafe_cases(plain: Server) -> None:
    """
    The probe reports after which request the server stopped serving, and ends soon.

    The last test of this server.
    """
    begin = time.monotonic()
    process = probe(plain.url, "--unsafe", "--timeout", "5", "--format", "json")

    assert 1 == process.returncode
    assert time.monotonic() - begin < SECONDS
    (server,) = json.loads(process.stdout)["servers"]
    unsent = [r for r in server["results"] if "stopped serving after" in r["happened"]]
    assert unsent
    assert {"not sent"} == {result["verdict"] for result in unsent}
    with pytest.raises(httpx.ReadTimeout):
        plain_question(plain)


def plain_question(server: Server) -> None:
    """Send a plain chat."""
    body = {"model": "model", "messages": [{"role": "user", "content": "Hello"}]}
    httpx.post(f"{server.url}/v1/chat/completions", json=body, timeout=5)
