# SPDX-License-Identifier: Apache-2.0
"""The probe, as an operator runs it, on servers with the guard and without it."""

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
"""The time that a probe of the small model may take."""


def probe(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command to its end."""
    command = [sys.executable, "-m", "vllm_reuse_guard", "probe", *arguments]
    environment = {name: value for name, value in os.environ.items() if name != "VLLM_API_KEY"}
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, timeout=600
    )


def verdicts(output: str) -> list[tuple[str, str, str, str]]:
    """Return what the JSON says of each request: where, of which case, and its verdict."""
    (server,) = json.loads(output)["servers"]
    return [
        (result["case"], result["endpoint"], result["stream"], result["verdict"])
        for result in server["results"]
    ]


@pytest.fixture(scope="module")
def guarded() -> Iterator[Server]:
    with running(launches.launch(Profile.CONNECTOR, "0.32.0", Model.TINY_QWEN2)) as server:
        yield server


@pytest.fixture(scope="module")
def plain() -> Iterator[Server]:
    launch = launches.launch(Profile.CONNECTOR, "0.27.0", Model.TINY_QWEN2, guarded=False)
    with running(launch) as server:
        yield server


def state(server: Server) -> dict[str, float]:
    """Return what a probe must not leave behind: running and waiting requests, taken blocks."""
    names = ("vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc")
    return {name: server.metric(name) for name in names}


def test_guarded_server_holds_all_cases_twice(guarded: Server) -> None:
    """
    All hold, the same twice, in time, and the server is as it was.
    """
    before = state(guarded)
    found = []
    for _ in range(2):
        begin = time.monotonic()
        ended = probe(guarded.url, "--format", "json")
        assert time.monotonic() - begin < SECONDS
        assert 0 == ended.returncode, ended.stderr
        found.append(verdicts(ended.stdout))

    assert found[0] == found[1]
    assert {"holds", "not sent", "not applicable"} == {verdict for *_, verdict in found[0]}
    assert before == state(guarded) == dict.fromkeys(before, 0.0)
    assert guarded.process.poll() is None


def test_guarded_server_holds_the_unsafe_cases_too(guarded: Server) -> None:
    """
    With --unsafe every case that is about this kind of server is sent, and holds.
    """
    ended = probe(guarded.url, "--unsafe", "--format", "json")

    assert 0 == ended.returncode, ended.stdout
    assert {"holds", "not applicable"} == {verdict for *_, verdict in verdicts(ended.stdout)}
    assert "--unsafe sends requests that hang or kill" in ended.stderr
    tried = {case for case, endpoint, *_ in verdicts(ended.stdout) if endpoint}
    about = {case.id for case in cases().values() if case.server is Profile.CONNECTOR}
    assert {case for case in about - tried if not case.startswith("harmony.")} == set()


def test_plain_server_fails_and_lives(plain: Server) -> None:
    """
    Without --unsafe a plain 0.27.0 fails many cases, the same twice, and serves on.
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
    Two servers are two columns; one that does not hold makes it 1.
    """
    ended = probe(plain.url, guarded.url, "--case", "chat.echo-renders")

    assert 1 == ended.returncode
    line = next(text for text in ended.stdout.splitlines() if text.startswith("chat.echo-renders"))
    assert "fails (2 of 2)" in line
    assert "holds (2 of 2)" in line
    assert "0.27.0, no guard" in ended.stdout
    assert "\x1b" not in ended.stdout


def test_formats(guarded: Server) -> None:
    """
    Each format comes out whole on standard output.
    """
    one = (guarded.url, "--case", "chat.echo-renders", "--format")

    junit, markdown, page = (probe(*one, form).stdout for form in ("junit", "markdown", "html"))

    assert 2 == len(ElementTree.fromstring(junit).findall("testsuite/testcase"))  # noqa: S314
    assert "| `chat.echo-renders` | the answer without ids |" in markdown
    assert page.startswith("<!DOCTYPE html>")
    assert page.rstrip().endswith("</html>")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--case", "no-such-case"], "there is no case 'no-such-case'"),
        (["--case", "chat.echo-render"], "did you mean chat.echo-renders"),
        (["--model", "no-such-model"], "has no model 'no-such-model'"),
        (["--case", "harmony.response-renders"], "no case applies"),
        (["--format", "pdf"], "pdf"),
    ],
)
def test_what_cannot_be_tried(guarded: Server, arguments: list[str], says: str) -> None:
    """
    It ends with 2 and says why, without a traceback.
    """
    ended = probe(guarded.url, *arguments)

    assert 2 == ended.returncode
    assert says in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize("url", [f"http://127.0.0.1:{free_port()}", "no-url", "http://[", ""])
def test_nobody_answers(url: str) -> None:
    """
    A server that is not there is one line.
    """
    ended = probe(url, "--timeout", "5")

    assert 2 == ended.returncode
    (line,) = ended.stderr.strip().splitlines()
    assert line.startswith("error: ")


def test_url_that_clients_use(guarded: Server) -> None:
    """
    The scheme may be left out; a path that clients add is named as what is wrong.
    """
    case = ("--case", "chat.echo-renders")

    assert 0 == probe(guarded.url.removeprefix("http://"), *case).returncode
    assert "leave the path out" in probe(f"{guarded.url}/v1", *case).stderr


def test_api_key() -> None:
    """
    A server that wants a key says so, and is probed with it.
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
    Ctrl-C ends it without a traceback, and the server serves on.
    """
    command = [sys.executable, "-m", "vllm_reuse_guard", "probe", guarded.url]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        time.sleep(3)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)

    assert process.returncode not in (0, 1)
    assert "Traceback" not in errors
    assert 200 == guarded.chat(messages=[{"role": "user", "content": "Hello"}]).status_code


def test_server_that_dies_of_unsafe_cases(plain: Server) -> None:
    """
    The last test of this server: the probe says since when it serves nothing, and ends soon.
    """
    begin = time.monotonic()
    ended = probe(plain.url, "--unsafe", "--timeout", "5", "--format", "json")

    assert 1 == ended.returncode
    assert time.monotonic() - begin < SECONDS
    (server,) = json.loads(ended.stdout)["servers"]
    gone = [result for result in server["results"] if "serves nothing since" in result["happened"]]
    assert gone
    assert {"not sent"} == {result["verdict"] for result in gone}
    with pytest.raises(httpx.ReadTimeout):
        plain_question(plain)


def plain_question(server: Server) -> None:
    """Ask what every server answers."""
    body = {"model": "model", "messages": [{"role": "user", "content": "Hello"}]}
    httpx.post(f"{server.url}/v1/chat/completions", json=body, timeout=5)
