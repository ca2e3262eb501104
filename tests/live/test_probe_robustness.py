# SPDX-License-Identifier: Apache-2.0
"""
Whatever a server says, the probe ends with a verdict or with one line, never with a traceback.

The servers here are no vLLM and stand for none: they are what a URL can lead to by mistake.
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
    """Says what its server is told to say."""

    def do_GET(self) -> None:
        """Endpoints that are posted to are there, but not by GET."""
        posted_to = self.path in (CHAT, RENDER, "/detokenize", "/v1/responses")
        self._say(405 if posted_to else self._said.get(self.path, (404, "")))

    def do_POST(self) -> None:
        """A body with transfer params can have an answer of its own."""
        body = self.rfile.read(int(self.headers["content-length"]))
        own = b"kv_transfer_params" in body and "ids" in self._said
        self._say(self._said.get("ids" if own else self.path, (404, "")))

    @property
    def _said(self) -> dict[str, Any]:
        found: dict[str, Any] = vars(self.server)["said"]
        return found

    def _say(self, answer: Any) -> None:
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
        """Say nothing on the screen."""


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
    A server that says these things, by path; ``ids`` is what it says to requests with any.

    An answer is a body (JSON unless a string), a status, or a status or media type with a body.
    """
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    usual = {"/v1/models": MODELS, "/version": {"version": "0"}, RENDER: {"token_ids": [1, 2]}}
    vars(server)["said"] = {**usual, CHAT: {"choices": [], "prompt_token_ids": [1]}, **answers}
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
    An answer that is none of the API is a case that fails.
    """
    with serving(ids=answer) as url:
        ended = probe(url, *CASE, "--format", "json")

    assert 1 == ended.returncode, ended.stderr
    assert "Traceback" not in ended.stderr
    (server,) = json.loads(ended.stdout)["servers"]
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
    A server that cannot be found out about is one line, or is tried all the same.
    """
    with serving(**answers) as url:
        ended = probe(url, *CASE)

    assert ended.returncode in (1, 2)
    assert "Traceback" not in ended.stderr
    if ended.returncode == 2:
        assert ended.stderr.strip().splitlines()[-1].startswith("error: ")


@pytest.mark.parametrize("form", ["table", "markdown", "html", "junit"])
def test_names_that_steer_a_terminal(form: str) -> None:
    """
    What a server calls itself is text in every report.
    """
    answers = {
        "/version": {"version": f"[/nope]{ESCAPE}| <b>\n# h"},
        "/v1/models": {"data": [{"id": f"m{ESCAPE}|<i>", "max_model_len": 99}]},
        "/metrics": f'reuse_guard_info{{version="{ESCAPE}<u>"}} 1.0\n',
    }
    with serving(**answers) as url:
        # Two of them, so that the names are headings too.
        ended = probe(url, url, *CASE, "--format", form)

    assert 1 == ended.returncode, ended.stderr
    assert "Traceback" not in ended.stderr
    assert "\x1b" not in ended.stdout
    assert "\n# h" not in ended.stdout
    if form in ("markdown", "html"):
        assert not [tag for tag in ("<b>", "<i>", "<u>") if tag in ended.stdout]


@pytest.mark.parametrize(
    "url", ["http://[::1", "http://xn--/", "http://\x01/", f"http://{'a' * 300}", "ftp://host", "/"]
)
def test_urls(url: str) -> None:
    """
    What is no URL of a server is one line.
    """
    ended = probe(url, *CASE)

    assert 2 == ended.returncode
    assert "Traceback" not in ended.stderr
    assert ended.stderr.startswith("error: ")


def test_password_is_in_no_report() -> None:
    """
    A URL can hold a password; what is written can be shown to others.
    """
    with serving() as url:
        ended = probe(url.replace("://", "://user:secret@"), *CASE, "--format", "markdown")

    assert 1 == ended.returncode
    assert "secret" not in ended.stdout + ended.stderr


def test_key_that_is_no_ascii() -> None:
    """
    A header that cannot be sent is one line.
    """
    with serving() as url:
        ended = probe(url, *CASE, "--api-key", "schlüssel€")

    assert 2 == ended.returncode
    assert "Traceback" not in ended.stderr
