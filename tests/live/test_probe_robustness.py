# SPDX-License-Identifier: Apache-2.0
"""
For any answer of a server, the probe ends with a verdict or one line, never with a traceback.

The servers here are not vLLM: a wrong URL can lead to such a server.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest

MODELS = {"data": [{"id": "model", "max_model_len": 1024}]}
RENDER = "/v1/chat/completions/render"
CHAT = "/v1/chat/completions"
DEEP = "[" * 100_000
CASE = ("--connector", "--case", "chat.forwarded-ids-are-used")
ESCAPE = "\x1b]0;title\x07"


class Handler(BaseHTTPRequestHandler):
    """Sends the answers that its server has."""

    def do_GET(self) -> None:
        """Answer a GET. Endpoints for POST answer 405."""
        posted_to = self.path in (CHAT, RENDER, "/detokenize", "/v1/responses")
        self._send(405 if posted_to else self._answers.get(self.path, (404, "")))

    def do_POST(self) -> None:
        """Answer a POST. A body with transfer params can have another answer."""
        body = self.rfile.read(int(self.headers["content-length"]))
        own = b"kv_transfer_params" in body and "ids" in self._answers
        self._send(self._answers.get("ids" if own else self.path, (404, "")))

    @property
    def _answers(self) -> dict[str, Any]:
        answers: dict[str, Any] = vars(self.server)["answers"]
        return answers

    def _send(self, answer: Any) -> None:
        status, media, body = parts(answer)
        self.send_response(status)
        self.send_header("Content-Type", media)
        if body == "endless":
            self.end_headers()
            self._drip()
            return
        content = (body if isinstance(body, str) else json.dumps(body)).encode()
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _drip(self) -> None:
        with suppress(OSError):
            while True:
                self.wfile.write(b" ")
                time.sleep(0.05)

    def log_message(self, *_: Any) -> None:
        """Log nothing."""


def parts(answer: Any) -> tuple[int, str, Any]:
    """Return the status, media type and body of an answer."""
    if isinstance(answer, int) and answer > 100:
        return answer, "text/plain", ""
    if not isinstance(answer, tuple):
        return 200, "application/json", answer
    first, body = answer
    if isinstance(first, int):
        return first, "application/json", body
    return 200, first, body


@contextmanager
def serving(**answers: Any) -> Iterator[str]:
    """
    A server with these answers, by path; ``ids`` is the answer to a body with transfer params.

    An answer is a body (JSON unless a string), a status, or a status or media type with a body.
    """
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    usual = {"/v1/models": MODELS, "/version": {"version": "0"}, RENDER: {"token_ids": [1, 2]}}
    vars(server)["answers"] = {**usual, CHAT: {"choices": [], "prompt_token_ids": [1]}, **answers}
    server.daemon_threads = True
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def probe(url: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command."""
    command = [sys.executable, "-m", "vllm_reuse_guard", "probe", url, "--timeout", "2", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize(
    "answer",
    [
        (429, {"error": "rate limited"}),
        (400, [1]),
        (400, None),
        {},
        [],
        None,
        5,
        DEEP,
        ("text/event-stream", "data: {bad"),
        ("text/event-stream", "data: 5\n\n"),
        ("text/event-stream", "data: {}\n\n"),
        ("text/plain; charset=base64", "abc"),
        "endless",
    ],
    ids=lambda answer: str(answer)[:30],
)
def test_answers_to_cases(answer: Any) -> None:
    """
    A case fails if the answer is not in the format of the API.
    """
    with serving(ids=answer) as url:
        process = probe(url, *CASE, "--format", "json")

    assert 1 == process.returncode, process.stderr
    assert "Traceback" not in process.stderr
    (server,) = json.loads(process.stdout)["servers"]
    assert "fails" in {result["verdict"] for result in server["results"]}


@pytest.mark.parametrize(
    "answers",
    [
        {"/v1/models": {"data": [{"id": "m", "max_model_len": -5}]}},
        {"/v1/models": '{"data": [{"id": "m", "max_model_len": 1e999}]}'},
        {"/v1/models": DEEP},
        {"/version": DEEP},
        {RENDER: [1], CHAT: []},
        {RENDER: None, CHAT: None},
        {RENDER: {"token_ids": 5}},
        {"/metrics": ("text/plain; charset=hex", "00")},
        {"/metrics": "endless"},
        {"/v1/models": ("text/html", "<html>")},
        {"/v1/models": (301, "")},
    ],
    ids=lambda answers: str(answers)[:40],
)
def test_answers_to_discovery(answers: dict[str, Any]) -> None:
    """
    A server that the probe cannot identify is one line, or is probed nevertheless.
    """
    with serving(**answers) as url:
        process = probe(url, *CASE)

    assert process.returncode in (1, 2)
    assert "Traceback" not in process.stderr
    if process.returncode == 2:
        assert process.stderr.strip().splitlines()[-1].startswith("error: ")


@pytest.mark.parametrize("form", ["table", "markdown", "html", "junit"])
def test_names_that_steer_a_terminal(form: str) -> None:
    """
    The names that a server sends are plain text in each report.
    """
    answers = {
        "/version": {"version": f"[/nope]{ESCAPE}| <b>\n# h"},
        "/v1/models": {"data": [{"id": f"m{ESCAPE}|<i>", "max_model_len": 99}]},
        "/metrics": f'reuse_guard_info{{version="{ESCAPE}<u>"}} 1.0\n',
    }
    with serving(**answers) as url:
        # Two of them, so that the names are headings too.
        process = probe(url, url, *CASE, "--format", form)

    assert 1 == process.returncode, process.stderr
    assert "Traceback" not in process.stderr
    assert "\x1b" not in process.stdout
    assert "\n# h" not in process.stdout
    if form in ("markdown", "html"):
        assert not [tag for tag in ("<b>", "<i>", "<u>") if tag in process.stdout]


@pytest.mark.parametrize(
    "url", ["http://[::1", "http://xn--/", "http://\x01/", f"http://{'a' * 300}", "ftp://host", "/"]
)
def test_urls(url: str) -> None:
    """
    A URL of no server is one line.
    """
    process = probe(url, *CASE)

    assert 2 == process.returncode
    assert "Traceback" not in process.stderr
    assert process.stderr.startswith("error: ")


def test_password_is_in_no_report() -> None:
    """
    A report does not contain the password of a URL, so that it can be shared.
    """
    with serving() as url:
        process = probe(url.replace("://", "://user:secret@"), *CASE, "--format", "markdown")

    assert 1 == process.returncode
    assert "secret" not in process.stdout + process.stderr


def test_key_that_is_not_ascii() -> None:
    """
    A key that cannot be sent as a header is one line.
    """
    with serving() as url:
        process = probe(url, *CASE, "--api-key", "schlüssel€")

    assert 2 == process.returncode
    assert "Traceback" not in process.stderr
