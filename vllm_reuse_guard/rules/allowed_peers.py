# SPDX-License-Identifier: Apache-2.0
"""The allow-list for the hosts that transfer params name (the row ``forbidden_peer``)."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias
from urllib.parse import urlsplit

from .outcome import KV_TRANSFER_PARAMS, Reason, Reject

_Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network
_Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address

_HOSTS = ("remote_host", "remote_hosts")
_PORTS = ("remote_port", "remote_handshake_port", "remote_notify_port")
_URLS = ("remote_bootstrap_addr",)
"""The fields that name the hosts to dial, and the ports on that host."""

_NAME = re.compile(r"(?:\*\.)?[a-z0-9_](?:[a-z0-9_.-]*[a-z0-9_])?", re.ASCII)
_WITH_PORT = re.compile(
    r"\[(?P<bracketed>[^\]]+)\](?::(?P<port>\d+))?|(?P<host>[^:]+):(?P<only>\d+)"
)


@dataclass(frozen=True)
class Peer:
    """
    One entry of the allow-list.

    name: a host name in lower case, or a suffix behind ``*``. network: addresses, one or
    more. One of the two is None. port: the port that is allowed, or None for every port.
    """

    name: str | None
    network: _Network | None
    port: int | None

    def __str__(self) -> str:
        """Write the entry as ``parse`` reads it."""
        host = self.name if self.network is None else str(self.network)
        if self.port is None:
            return str(host)
        return f"[{host}]:{self.port}" if ":" in str(host) else f"{host}:{self.port}"

    def allows(self, host: str, ports: Collection[object]) -> bool:
        """Tell whether a host may be dialled at all of these ports; nothing is looked up."""
        if self.port is not None and not ports:
            return False
        return self._is(host) and (self.port is None or all(port == self.port for port in ports))

    def _is(self, host: str) -> bool:
        address = _address(host)
        if self.network is not None:
            return address is not None and address in self.network
        name = host.lower().rstrip(".")
        if self.name is None or address is not None or not _NAME.fullmatch(name):
            return False
        return name.endswith(self.name[1:]) if self.name.startswith("*.") else name == self.name


def parse(entry: str) -> Peer:
    """
    Read one entry: a host name, ``*.suffix``, an address or a CIDR range, with ``:port`` or not.

    An IPv6 address with a port stands in brackets. Raises ValueError for anything else.
    """
    text = entry.strip().lower()
    match = _WITH_PORT.fullmatch(text)
    host = (match["bracketed"] or match["host"]) if match else text
    digits = (match["port"] or match["only"]) if match else None
    port = None if digits is None else int(digits)
    if port is not None and not 1 <= port <= 65535:
        raise ValueError(f"invalid port in {entry!r} (1-65535)")
    try:
        return Peer(None, ipaddress.ip_network(host), port)
    except ValueError as error:
        looks_like_address = "/" in host or ":" in host or host.replace(".", "").isdigit()
        if looks_like_address or not _NAME.fullmatch(host):
            raise ValueError(
                f"invalid peer {entry!r}: expected a host name, *.suffix, address or CIDR range "
                f"({error})"
            ) from None
    return Peer(host.rstrip("."), None, port)


def judge_peers(
    params: object, allowed: Iterable[Peer], *, field: str = KV_TRANSFER_PARAMS
) -> Reject | None:
    """
    Return the rejection for transfer params that name a forbidden host, at any depth.

    params: transfer params, of any type. allowed: the allow-list. field: where they were.
    """
    peers = tuple(allowed)
    for path, host, ports in _dialled(params, field):
        if not (isinstance(host, str) and any(peer.allows(host, ports) for peer in peers)):
            return Reject(
                Reason.FORBIDDEN_PEER,
                f"invalid `{path}`: the host is not in --kv-transfer-allowed-peers of this server. "
                f"Nothing was sent to it.",
                path,
            )
    return None


def _dialled(params: object, field: str) -> Iterator[tuple[str, object, list[object]]]:
    # Not recursive: the caller decides how deep it nests.
    left: list[tuple[object, str]] = [(params, field)]
    while left:
        value, path = left.pop()
        if isinstance(value, (list, tuple)):
            left += [(item, path) for item in value if isinstance(item, (dict, list, tuple))]
        elif isinstance(value, dict):
            ports = [value[name] for name in _PORTS if value.get(name) is not None]
            for key, item in value.items():
                inner = f"{path}.{key}"
                if key in _HOSTS and item is not None:
                    for host in item if isinstance(item, list) else [item]:
                        yield inner, host, ports
                elif key in _URLS and item is not None:
                    yield inner, *_split(item)
                else:
                    left.append((item, inner))


def _split(address: object) -> tuple[object, list[object]]:
    if not isinstance(address, str):
        return None, []
    try:
        parts = urlsplit(address if "//" in address else f"//{address}")
        return parts.hostname, [parts.port]
    except ValueError:
        return None, []


def _address(host: str) -> _Address | None:
    try:
        address = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address
