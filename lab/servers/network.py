# SPDX-License-Identifier: Apache-2.0
"""
Several hosts on this machine: network namespaces, each with an address, on one bridge.

Needs root and iproute2. Names are random, and everything is removed at the end.
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

    address: its IPv4 address, which this machine reaches too. namespace: its name.
    link: the bridge's end of its cable.
    """

    address: str
    namespace: str
    link: str

    @property
    def prefix(self) -> tuple[str, ...]:
        """The beginning of a command that runs on this host."""
        return ("ip", "netns", "exec", self.namespace)

    def slow_down(self, rate: str) -> None:
        """Limit its sending rate, for instance to ``1mbit``."""
        shaped = ("tbf", "rate", rate, "burst", "16kb", "latency", "400ms")
        _run(*self.prefix, "tc", "qdisc", "replace", "dev", _NIC, "root", *shaped)

    def speed_up(self) -> None:
        """Remove the limit on its sending rate."""
        _run(*self.prefix, "tc", "qdisc", "del", "dev", _NIC, "root")

    @contextmanager
    def unplugged(self) -> Iterator[None]:
        """Unplug its cable, and plug it in again at the end."""
        _run("ip", "link", "set", self.link, "down")
        try:
            yield
        finally:
            _run("ip", "link", "set", self.link, "up")


_NIC = "eth0"


def can_be_made() -> bool:
    """Tell whether this process may create hosts."""
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
    """Create hosts that reach each other and this machine, and remove them at the end."""
    name = f"rg{secrets.token_hex(3)}"
    net = f"10.{100 + secrets.randbelow(100)}.{secrets.randbelow(256)}"
    with ExitStack() as stack:
        _run("ip", "link", "add", name, "type", "bridge")
        stack.callback(_run, "ip", "link", "del", name)
        _run("ip", "addr", "add", f"{net}.254/24", "dev", name)
        _run("ip", "link", "set", name, "up")
        created = []
        for number in range(1, count + 1):
            host = Host(f"{net}.{number}", f"{name}-{number}", f"{name}p{number}")
            _run("ip", "netns", "add", host.namespace)
            stack.callback(_run, "ip", "netns", "del", host.namespace)
            _connect(host, name)
            created.append(host)
        yield tuple(created)


def _connect(host: Host, bridge: str) -> None:
    inside = ("peer", "name", _NIC, "netns", host.namespace)
    _run("ip", "link", "add", host.link, "type", "veth", *inside)
    _run("ip", "link", "set", host.link, "master", bridge, "up")
    _run(*host.prefix, "ip", "addr", "add", f"{host.address}/24", "dev", _NIC)
    for device in ("lo", _NIC):
        _run(*host.prefix, "ip", "link", "set", device, "up")


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)
