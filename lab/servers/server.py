# SPDX-License-Identifier: Apache-2.0
"""Start and stop real vLLM servers of several releases, on a CPU with two cores."""

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
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from ..env.environment import WITHOUT_CPU_BUILD
from ..paths import LOGS, RELEASES, SITE, VLLM_CACHES

MODEL_NAME = "model"
CONTEXT = 1024
"""The context length of every lab server: small, so that a prompt that fills it is quick to run."""

# A long lease: blocks that are free earlier were freed for another reason.
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
# Below the ports of outgoing connections, one of which could take the port before the server
# does.
_PORTS = range(20_000, 32_000)
# A server starts in half a minute alone, and in minutes beside others.
_SECONDS_TO_START = 420
_SECONDS_TO_STOP = 20
_PR_SET_PDEATHSIG = 1

Progress = Callable[[str], object]


def silent(_line: str) -> None:
    """Report no progress."""


class ServerError(Exception):
    """A server ended, or never answered. ``log``: the end of its log."""

    def __init__(self, name: str, why: str, log: str) -> None:
        super().__init__(f"{name} {why}")
        self.log = log


@dataclass(frozen=True)
class Launch:
    """
    How to start one server.

    release: a vLLM release that the lab has unpacked. model: the folder of the model.
    arguments: the arguments of ``vllm serve MODEL`` beyond those of every lab server.
    guarded: whether vLLM loads the plugin. port: None for a free port.
    subcommand: of ``vllm``; ``launch render`` starts a server without an engine.
    host: the address to listen on. prefix: the command that runs ``vllm``, such as ``ip netns``.
    tree: a vLLM tree to run instead of the one that the lab has unpacked for the release.
    served_as: the name of the model for clients.
    kv_cache: MiB for KV blocks. A token takes 2 KiB with the tiny models and 45 KiB with SmolLM2.
        To touch a whole GiB at each start takes a virtual machine up to a minute.
    """

    name: str
    release: str
    model: Path
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
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
        # VLLM_PLUGINS of this process would keep its servers from loading the plugin.
        inherited = {name: value for name, value in os.environ.items() if name != "VLLM_PLUGINS"}
        guard = {} if self.guarded else {"VLLM_PLUGINS": ""}
        own = {
            "VLLM_NIXL_SIDE_CHANNEL_PORT": str(free_port()),
            "VLLM_CACHE_ROOT": str(VLLM_CACHES / self.release),
        }
        vllm = self.tree or RELEASES / self.release
        path = {"PYTHONPATH": os.pathsep.join([str(SITE), str(vllm)])}
        return {**inherited, **_ENVIRONMENT, **own, **guard, **path, **self.environment}


@dataclass(frozen=True)
class Server:
    """A running server: its URL, and its log file."""

    launch: Launch
    url: str
    log: Path
    process: subprocess.Popen[bytes]

    def log_text(self) -> str:
        """Return the log so far."""
        return self.log.read_text(errors="replace")

    def engine_was_given(self) -> list[list[str]]:
        """Return the keys of the transfer params of each request that reached the engine."""
        # Two processes can write to one line.
        lists = re.findall(r"engine is given (\[.*?\])", self.log_text())
        return [json.loads(keys) for keys in lists]

    def metric(self, name: str) -> float:
        """Return the sum of all samples of one metric on ``/metrics``, 0.0 without any."""
        text = httpx.get(f"{self.url}/metrics", timeout=30).text
        samples = (line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
        return sum(float(value) for key, value in samples if key.partition("{")[0] == name)

    def blocks_in_use(self) -> float:
        """Return the share of KV blocks in use, after a small request that updates the metric."""
        tick = [{"role": "user", "content": "tick"}]
        self.chat(messages=tick, max_tokens=1).raise_for_status()
        return self.metric("vllm:kv_cache_usage_perc")

    def chat(self, **body: Any) -> httpx.Response:
        """Send one chat request; the model is filled in."""
        return httpx.post(
            f"{self.url}/v1/chat/completions", json={"model": MODEL_NAME, **body}, timeout=120
        )


def vllm(release: str) -> list[str]:
    """Return the command ``vllm``. PYTHONPATH decides which release it runs."""
    cpu_build = release not in WITHOUT_CPU_BUILD
    return [sys.executable, "-m", "vllm.entrypoints.cli.main" if cpu_build else "vllm_without_gpu"]


@contextmanager
def running(launch: Launch, progress: Progress = silent) -> Iterator[Server]:
    """
    Start a server, wait until it answers, and stop it with its children at the end.

    Raises ServerError, with the end of the log, if the server ends or does not answer in time.
    """
    with starting(launch) as server:
        wait_until_healthy(server, progress)
        yield server


@contextmanager
def starting(launch: Launch) -> Iterator[Server]:
    """
    Start a server without waiting for it, and stop it with its children at the end.

    Raises ServerError if the port of the launch is not free.
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
            preexec_fn=end_with_parent,
        )
    in_order = False
    try:
        yield Server(launch, f"http://{launch.host}:{port}", log, process)
        in_order = True
    finally:
        _stop(process, _SECONDS_TO_STOP if in_order else 0)


def wait_until_healthy(server: Server, progress: Progress = silent) -> None:
    """Wait for ``/health``, and report progress every few seconds."""
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
    # Before the start: afterwards another server on the port would answer in its place.
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            why = f"cannot listen on port {port}: {os.strerror(error.errno or 0)}"
            raise ServerError(name, why, "") from None
    return port


def end_with_parent() -> None:
    """Let this process get SIGTERM when the thread that started it ends: for ``preexec_fn``."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _stop(process: subprocess.Popen[bytes], patience: float) -> None:
    # First the server alone, as an operator does it; then the rest of its session. A server that
    # is still starting can take 20 seconds to react to the first signal.
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(patience)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _tail(server: Server, lines: int = 25) -> str:
    return "\n".join(server.log_text().splitlines()[-lines:])
