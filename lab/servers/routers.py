# SPDX-License-Identifier: Apache-2.0
"""Real routers from PyPI in front of a prefill and a decode instance."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from urllib.parse import urlsplit

import httpx

from ..paths import LOGS
from .server import MODEL_NAME, ServerError, free_port

_SECONDS_TO_START = 180
_SECONDS_TO_STOP = 10


class Router(str, Enum):
    """Routers that pass the transfer params of prefill to decode, for NixlConnector."""

    VLLM_ROUTER = "vllm-router"
    XPYD = "xpyd-proxy"


@dataclass(frozen=True)
class Route:
    """The URLs of two instances, and the folder of their model."""

    prefill: str
    decode: str
    model: Path


@contextmanager
def routing(
    router: Router, route: Route, *, host: str = "127.0.0.1", prefix: tuple[str, ...] = ()
) -> Iterator[str]:
    """
    Start a router, wait until it answers for its instances, and stop it at the end.

    host: the address to listen on. prefix: the command that runs the router. Yields the URL.
    Raises ServerError if the router does not answer in time.
    """
    port = free_port()
    url = f"http://{host}:{port}"
    log = LOGS / f"{router.value}-{port}.log"
    command = [*prefix, *_COMMANDS[router](route, host, port)]
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            env={**os.environ, "HF_HUB_OFFLINE": "1"},
            cwd=LOGS,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        _wait(url, process, router, log)
        yield url
    finally:
        process.terminate()
        try:
            process.wait(_SECONDS_TO_STOP)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _vllm_router(route: Route, host: str, port: int) -> list[str]:
    return [
        sys.executable, "-m", "vllm_router.launch_router", "--vllm-pd-disaggregation",
        "--prefill", route.prefill, "--decode", route.decode, "--kv-connector", "nixl",
        "--host", host, "--port", str(port),
    ]  # fmt: skip


def _xpyd(route: Route, host: str, port: int) -> list[str]:
    config = LOGS / f"xpyd-{port}.json"
    # JSON is YAML too.
    config.write_text(
        json.dumps(
            {
                "model": MODEL_NAME,
                "tokenizer_path": str(route.model),
                "prefill": [urlsplit(route.prefill).netloc],
                "decode": [urlsplit(route.decode).netloc],
                "host": host,
                "port": port,
                "disaggregated_mode": "nixl",
            }
        )
    )
    main = "import sys; from xpyd.proxy import main; sys.exit(main())"
    return [sys.executable, "-c", main, "proxy", "--config", str(config)]


_COMMANDS: dict[Router, Callable[[Route, str, int], list[str]]] = {
    Router.VLLM_ROUTER: _vllm_router,
    Router.XPYD: _xpyd,
}


def _wait(url: str, process: subprocess.Popen[bytes], router: Router, log: Path) -> None:
    body = {"model": MODEL_NAME, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2}
    deadline = time.monotonic() + _SECONDS_TO_START
    while time.monotonic() < deadline and process.poll() is None:
        try:
            answer = httpx.post(f"{url}/v1/chat/completions", json=body, timeout=30)
            if answer.is_success:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.5)
    raise ServerError(
        router.value, "does not route requests", log.read_text(errors="replace")[-2000:]
    )
