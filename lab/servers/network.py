# SPDX-License-Identifier: Apache-2.0
"""
Several hosts on this machine: network namespaces with addresses of their own, on one bridge.

Needs root and iproute2. Everything is named after this process and is gone at the end.
"""

from __future__ import annotations

import os
import secrets
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass


@dataclass(frozen=True)
class Host:
    """
    One namespace.

    address: its IPv4 address, which this machine reaches as well. namespace: its name.
    link: the end of its cable at the bridge, outside of the namespace.
    """

    address: str
    namespace: str
    link: str

    @property
    def prefix(self) -> tuple[str, ...]:
        """What a command begins with to run on this host."""
        return ("ip", "netns", "exec", self.namespace)

    def slow_down(self, rate: str) -> None:
        """Let it send at this rate only, such as ``1mbit``, from now on."""
        shaped = ("tbf", "rate", rate, "burst", "16kb", "latency", "400ms")
        _run(*self.prefix, "tc", "qdisc", "replace", "dev", _NIC, "root", *shaped)

    def speed_up(self) -> None:
        """Let it send as fast as it can again."""
        _run(*self.prefix, "tc", "qdisc", "del", "dev", _NIC, "root")

    @contextmanager
    def unplugged(self) -> Iterator[None]:
        """Pull its cable; plug it in again at the end."""
        _run("ip", "link", "set", self.link, "down")
        try:
            yield
        finally:
            _run("ip", "link", "set", self.link, "up")


_NIC = "eth0"


def can_be_made() -> bool:
    """Tell whether this process may make hosts."""
    if os.geteuid() != 0:
        return False
    name = f"rg-try-{os.getpid()}"
    try:
        _run("ip", "netns", "add", name)
    except (OSError, subprocess.CalledProcessError):
        return False
    _run("ip", "netns", "del", name)
    return True


@contextmanager
def hosts(count: int) -> Iterator[tuple[Host, ...]]:
    """Make so many hosts, which reach one another and this machine; take them away at the end."""
    name = f"rg{secrets.token_hex(3)}"
    net = f"10.{100 + secrets.randbelow(100)}.{secrets.randbelow(256)}"
    with ExitStack() as stack:
        _run("ip", "link", "add", name, "type", "bridge")
        stack.callback(_run, "ip", "link", "del", name)
        _run("ip", "addr", "add", f"{net}.254/24", "dev", name)
        _run("ip", "link", "set", name, "up")
        made = []
        for number in range(1, count + 1):
            host = Host(f"{net}.{number}", f"{name}-{number}", f"{name}p{number}")
            _run("ip", "netns", "add", host.namespace)
            stack.callback(_run, "ip", "netns", "del", host.namespace)
            _connect(host, name)
            made.append(host)
        yield tuple(made)


def _connect(host: Host, bridge: str) -> None:
    inside = ("peer", "name", _NIC, "netns", host.namespace)
    _run("ip", "link", "add", host.link, "type", "veth", *inside)
    _run("ip", "link", "set", host.link, "master", bridge, "up")
    _run(*host.prefix, "ip", "addr", "add", f"{host.address}/24", "dev", _NIC)
    for device in ("lo", _NIC):
        _run(*host.prefix, "ip", "link", "set", device, "up")


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)
