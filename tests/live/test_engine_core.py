# SPDX-License-Identifier: Apache-2.0
"""A thread of the engine core that dies takes the server down openly: /health does not lie."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import httpx
import msgspec
import pytest
import zmq

from lab.models.build import Model
from lab.paths import RELEASES
from lab.servers import launches
from lab.servers.server import MODEL_NAME, Server, free_port, running
from tests.live.releases import MOSTLY_ON_NEWEST
from vllm_reuse_guard.tools.conformance import Profile

SECONDS = 60
DEADLY = "deadly"
# Run by Python before anything else: the frame that aborts one request cannot be read.
SPOILED = f"""
import wrapt
def spoil(module):
    def decode(wrapped, instance, args, kwargs):
        if b"{DEADLY}" in b"".join(bytes(getattr(f, "buffer", f)) for f in args[0]):
            if "EngineCoreRequest" not in str(getattr(instance.decoder, "type", "")):
                raise RuntimeError("spoiled")
        return wrapped(*args, **kwargs)
    wrapt.wrap_function_wrapper(module.MsgpackDecoder, "decode", decode)
wrapt.register_post_import_hook(spoil, "vllm.v1.serial_utils")
"""
CHAT = {"model": MODEL_NAME, "messages": [{"role": "user", "content": "Hello"}]}


def abort(server: Server) -> None:
    """Begin a long answer under a name of our own, and go away."""
    body = {**CHAT, "stream": True, "max_tokens": 900, "ignore_eos": True}
    with httpx.stream(
        "POST",
        f"{server.url}/v1/chat/completions",
        json=body,
        headers={"X-Request-Id": DEADLY},
        timeout=30,
    ) as answer:
        assert answer.status_code == 200
        next(answer.iter_lines())


@MOSTLY_ON_NEWEST
def test_health_fails_when_the_input_thread_has_died(release: str, tmp_path: Path) -> None:
    """
    Instead of 200 for a server on which every request hangs.
    """
    (tmp_path / "sitecustomize.py").write_text(SPOILED)
    path = os.pathsep.join([str(tmp_path), str(RELEASES / release)])
    launch = launches.launch(Profile.NO_CONNECTOR, release, Model.TINY_QWEN2)
    environment = MappingProxyType({"PYTHONPATH": path})
    with running(replace(launch, name="spoiled", environment=environment)) as server:
        assert httpx.get(f"{server.url}/health", timeout=10).status_code == 200

        abort(server)

        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline:
            try:
                if httpx.get(f"{server.url}/health", timeout=10).status_code != 200:
                    break
            except httpx.TransportError:
                break
            time.sleep(0.5)
        else:
            pytest.fail("the server says that it is healthy")
        assert "A thread of the engine core has died" in server.log_text()


@MOSTLY_ON_NEWEST
def test_handshakes_go_on_after_a_bad_one(release: str) -> None:
    """
    Nothing that somebody sends to the port of the handshakes keeps others from their blocks.
    """
    port = free_port()
    launch = launches.launch(Profile.CONNECTOR, release, Model.TINY_QWEN2)
    environment = MappingProxyType({"VLLM_NIXL_SIDE_CHANNEL_PORT": str(port)})
    with running(replace(launch, environment=environment)) as server:
        good = handshake(port, msgspec.msgpack.encode((b"get_meta_msg", 0, 0)))

        for bad in (b"", b"\xc1", msgspec.msgpack.encode((b"get_meta_msg", 7, 0))):
            assert handshake(port, bad) is None

        assert good
        assert good == handshake(port, msgspec.msgpack.encode((b"get_meta_msg", 0, 0)))
        assert "listening for others" in server.log_text()


def handshake(port: int, message: bytes) -> bytes | None:
    """Send a message as a decode instance does; return the metadata, None without an answer."""
    with zmq.Context() as context, context.socket(zmq.REQ) as dealer:
        dealer.setsockopt(zmq.LINGER, 0)
        dealer.connect(f"tcp://127.0.0.1:{port}")
        dealer.send(message)
        if not dealer.poll(3000):
            return None
        metadata, *_ = dealer.recv_multipart()
        return metadata
