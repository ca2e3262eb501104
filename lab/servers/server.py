# SPDX-License-Identifier: Apache-2.0
"""Start and stop real vLLM servers on this machine: no GPU, two cores, several releases."""

from __future__ import annotations

import ctypes
import json
import os
import re
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import httpx

from ..env.environment import WITHOUT_CPU_BUILD
from ..paths import LOGS, RELEASES, SITE

MODEL_NAME = "model"
CONTEXT = 1024
"""The context of every lab server, in tokens: a prompt that fills it is quick to run."""

# The lease is long, so that blocks which are free early were freed for another reason.
NIXL = (
    "--kv-transfer-config",
    json.dumps(
        {
            "kv_connector": "NixlConnector",
            "kv_role": "kv_both",
            "kv_buffer_device": "cpu",
            "kv_connector_extra_config": {"kv_lease_duration": 600},
        }
    ),
)

_ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_ENABLE_COHERE_API": "1",
    # Without it the first request for logprobs compiles for a minute.
    "TORCHDYNAMO_DISABLE": "1",
    # Two servers on two cores are ten times slower when each pins threads to both.
    "OMP_NUM_THREADS": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "UCX_TLS": "tcp,self",
}  # fmt: skip
# Below those that the system gives to outgoing connections, one of which could have the port
# by the time that a server asks for it.
_PORTS = range(20_000, 32_000)
# Half a minute alone, minutes beside others.
_SECONDS_TO_START = 420
_SECONDS_TO_STOP = 20
_PR_SET_PDEATHSIG = 1

Progress = Callable[[str], object]


def silent(_line: str) -> None:
    """Report no progress."""


class ServerError(Exception):
    """A server ended or never answered. ``log`` is the end of what it printed."""

    def __init__(self, name: str, why: str, log: str) -> None:
        super().__init__(f"{name} {why}")
        self.log = log


@dataclass(frozen=True)
class Launch:
    """
    How to start one server.

    release: a vLLM release that the lab has unpacked. model: a model's folder.
    arguments: what follows ``vllm serve MODEL`` beyond what every lab server gets.
    guarded: whether the plugin is loaded; without it the server is plain vLLM.
    port: where it listens; a free port if None.
    subcommand: of ``vllm``; ``launch render`` starts a server without an engine.
    host: where it listens. prefix: what its command runs under.
    tree: a vLLM to take for the release, where it is not the one that the lab has unpacked.
    served_as: the name of the model for clients.
    kv_cache: MiB for KV blocks. A token of the tiny models takes 2 KiB, one of SmolLM2 45; to touch
        a whole GiB at each start takes a virtual machine up to a minute.
    """

    name: str
    release: str
    model: Path
    arguments: tuple[str, ...] = ()
    environment: MappingProxyType[str, str] = field(default_factory=lambda: MappingProxyType({}))
    guarded: bool = True
    port: int | None = None
    subcommand: tuple[str, ...] = ("serve",)
    tree: Path | None = None
    host: str = "127.0.0.1"
    prefix: tuple[str, ...] = ()
    served_as: str = MODEL_NAME
    kv_cache: int = 256

    def command(self, port: int) -> list[str]:
        """Return the command line."""
        return [
            *self.prefix, *vllm(self.release), *self.subcommand, str(self.model),
            "--served-model-name", self.served_as, "--host", self.host, "--port", str(port),
            "--dtype", "float32", "--enforce-eager",
            "--kv-cache-memory-bytes", str(self.kv_cache * 2**20), *self.arguments,
        ]  # fmt: skip

    def variables(self) -> dict[str, str]:
        """Return the environment of the process."""
        # What this process was told is not for its servers: none would be guarded.
        inherited = {name: value for name, value in os.environ.items() if name != "VLLM_PLUGINS"}
        guard = {} if self.guarded else {"VLLM_PLUGINS": ""}
        side_channel = {"VLLM_NIXL_SIDE_CHANNEL_PORT": str(free_port())}
        vllm = self.tree or RELEASES / self.release
        path = {"PYTHONPATH": os.pathsep.join([str(SITE), str(vllm)])}
        return {**inherited, **_ENVIRONMENT, **side_channel, **guard, **path, **self.environment}


@dataclass(frozen=True)
class Server:
    """A running server: where it answers, and where its log is."""

    launch: Launch
    url: str
    log: Path
    process: subprocess.Popen[bytes]

    def log_text(self) -> str:
        """Return all that the server has printed so far."""
        return self.log.read_text(errors="replace")

    def engine_was_given(self) -> list[list[str]]:
        """Return the keys of the transfer params of every request that reached its engine."""
        # Two processes can write to one line.
        found = re.findall(r"engine is given (\[.*?\])", self.log_text())
        return [json.loads(keys) for keys in found]

    def metric(self, name: str) -> float:
        """Return the sum of all samples of one metric on ``/metrics``, 0.0 without any."""
        text = httpx.get(f"{self.url}/metrics", timeout=30).text
        samples = (line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
        return sum(float(value) for key, value in samples if key.partition("{")[0] == name)

    def blocks_in_use(self) -> float:
        """Return the share of KV blocks in use; a small request makes the engine report it."""
        tick = [{"role": "user", "content": "tick"}]
        self.chat(messages=tick, max_tokens=1).raise_for_status()
        return self.metric("vllm:kv_cache_usage_perc")

    def chat(self, **body: Any) -> httpx.Response:
        """Send one chat request; the model is filled in."""
        return httpx.post(
            f"{self.url}/v1/chat/completions", json={"model": MODEL_NAME, **body}, timeout=120
        )


def vllm(release: str) -> list[str]:
    """Return the command of vLLM; which release's it is decides PYTHONPATH."""
    cpu_build = release not in WITHOUT_CPU_BUILD
    return [sys.executable, "-m", "vllm.entrypoints.cli.main" if cpu_build else "vllm_without_gpu"]


@contextmanager
def running(launch: Launch, progress: Progress = silent) -> Iterator[Server]:
    """
    Start a server, wait until it answers, and stop it and its children at the end.

    Raises ServerError with the end of its log if it ends or does not answer in time.
    """
    with starting(launch) as server:
        wait_until_healthy(server, progress)
        yield server


@contextmanager
def starting(launch: Launch) -> Iterator[Server]:
    """
    Start a server without waiting for it; stop it and its children at the end.

    Raises ServerError if its launch names a port that is not free.
    """
    port = free_port() if launch.port is None else _free(launch.port, launch.name)
    LOGS.mkdir(parents=True, exist_ok=True)
    log = LOGS / f"{launch.name}-{launch.release}-{port}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            launch.command(port),
            env=launch.variables(),
            cwd=LOGS,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=_die_with_parent,
        )
    in_order = False
    try:
        yield Server(launch, f"http://{launch.host}:{port}", log, process)
        in_order = True
    finally:
        _stop(process, _SECONDS_TO_STOP if in_order else 0)


def wait_until_healthy(server: Server, progress: Progress = silent) -> None:
    """Wait for ``/health``, saying every few seconds how long it has been."""
    name, begin = server.launch.name, time.monotonic()
    while (seconds := time.monotonic() - begin) < _SECONDS_TO_START:
        if server.process.poll() is not None:
            raise ServerError(name, "ended while it was starting", _tail(server))
        try:
            if httpx.get(f"{server.url}/health", timeout=5).status_code == 200:
                progress(f"{name}: up after {seconds:.0f} s")
                return
        except httpx.TransportError:
            progress(f"{name}: starting vLLM {server.launch.release}, {seconds:.0f} s so far")
        time.sleep(1)
    raise ServerError(name, f"did not answer within {_SECONDS_TO_START} s", _tail(server))


def free_port() -> int:
    """Return a port of the loopback interface that nothing listens on now."""
    while True:
        port = secrets.choice(_PORTS)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def _free(port: int, name: str) -> int:
    # Asked before the start: later another server on the port would answer in its place.
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            why = f"cannot listen on port {port}: {os.strerror(error.errno or 0)}"
            raise ServerError(name, why, "") from None
    return port


def _stop(process: subprocess.Popen[bytes], patience: float) -> None:
    # First the server alone, as an operator would; then whatever is left of its session. One
    # that is still starting can take 20 seconds to heed the first signal.
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(patience)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _tail(server: Server, lines: int = 25) -> str:
    return "\n".join(server.log_text().splitlines()[-lines:])
