# SPDX-License-Identifier: Apache-2.0
"""
The behaviour as data: one list of cases that the tests run and the docs print.

A case is what a client sends and what must come of it. The files hold one case a line;
``Case`` says what its fields mean, ``values`` which values are worked out for a server.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import cache
from importlib.resources import files
from typing import Any

import msgspec

from ...rules.outcome import Reason
from .endpoints import Endpoint, Group
from .values import ModelInfo, resolve


class Profile(str, Enum):
    """The kind of server that a case speaks about."""

    CONNECTOR = "connector"
    """A server with a KV connector and the default settings."""
    NO_CONNECTOR = "no_connector"
    """A server without a KV connector and the default settings."""
    POLICY_OFF = "policy_off"
    """A server with a KV connector that is told never to use forwarded ids."""
    POLICY_ALWAYS = "policy_always"
    """A server without a KV connector that is told to use forwarded ids all the same."""
    REJECT = "reject"
    """A server without a KV connector that is told to refuse ids."""
    PEERS = "peers"
    """A server with a KV connector that may dial hosts of 10.0.0.0/8 only."""
    MEDIA = "media"
    """A server with a KV connector and the default settings, whose model takes images."""
    NARROW_EMBEDDING = "narrow_embedding"
    """POLICY_ALWAYS with a model whose tokenizer knows ids that have no embedding row."""


class Expected(str, Enum):
    """What must come of a request."""

    REUSE = "reuse"
    """HTTP 200; the ids of the prompt are the forwarded ones."""
    RENDER = "render"
    """The answer, or the error, is the one that the same request gets without ids."""
    REJECT = "reject"
    """HTTP 400 as JSON, before any stream opens."""


class Expectation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """
    outcome: see Expected.
    param, says: for a rejection ``error.param`` and a part of ``error.message``.
    """

    outcome: Expected
    param: str | None = None
    says: str | None = None


class Case(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """
    id: unique, never changes. rule: the row of the decision. description: present tense.
    body: what it adds to the plain question that each endpoint is asked.
    server: the kind of server it speaks about. at: the endpoints that the body is sent to.
    control: the id of a case that must hold first, else this one proves nothing.
    safe: false if an unguarded server can hang or die of the request.
    """

    id: str
    rule: Reason
    description: str
    body: dict[str, Any]
    expect: Expectation
    server: Profile = Profile.CONNECTOR
    at: Group = Group.CHAT
    control: str | None = None
    safe: bool = True


@dataclass(frozen=True)
class Attempt:
    """One case at one endpoint, as a stream or not."""

    case: Case
    endpoint: Endpoint
    stream: bool

    @property
    def id(self) -> str:
        """What tells this attempt from every other, in a form that a test's name can hold."""
        return f"{self.case.id}@{self.endpoint.path}{'-stream' if self.stream else ''}"

    def body(self, model_info: ModelInfo) -> dict[str, Any]:
        """Return what is sent, but for the model's name; model_info: what the model is like."""
        stream = {"stream": self.stream} if self.endpoint.streams else {}
        body: dict[str, Any] = resolve(
            {**self.endpoint.asks, **stream, **self.case.body}, model_info
        )
        return body


def attempts(case: Case, *, harmony: bool) -> list[Attempt]:
    """Return every way to try a case on a server whose model is a Harmony one, or is not."""
    return [
        Attempt(case, endpoint, stream)
        for endpoint in case.at.endpoints(harmony=harmony)
        for stream in ((False, True) if endpoint.streams else (False,))
    ]


@cache
def cases() -> dict[str, Case]:
    """
    Return every case by its id, in the order of the files.

    Raises msgspec.ValidationError if a file does not hold cases.
    """
    found: dict[str, Case] = {}
    for file in sorted(files(__package__).iterdir(), key=lambda file: file.name):
        if file.name.endswith(".json"):
            for case in msgspec.json.decode(file.read_bytes(), type=list[Case]):
                if case.id in found:
                    raise ValueError(f"two cases have the id {case.id}")
                found[case.id] = case
    return found
