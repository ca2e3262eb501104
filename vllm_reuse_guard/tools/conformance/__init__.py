# SPDX-License-Identifier: Apache-2.0
"""
The behaviour as data: the list of cases that the tests run and the docs print.

A case is a request and the outcome that it must have. Each JSON file is a list of cases, one a
line. ``Case`` describes the fields. ``values`` describes the operators such as ``$ref``,
``profiles`` the servers and ``endpoints`` the endpoints that a case names.
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
from .profiles import Profile
from .values import ModelInfo, resolve

__all__ = ["Attempt", "Case", "Expectation", "Expected", "Profile", "attempts", "cases"]


class Expected(str, Enum):
    """The outcome that a request must have."""

    REUSE = "reuse"
    """Status 200, and the forwarded IDs are the prompt."""
    RENDER = "render"
    """The answer, or the error, is the same as for the request without IDs."""
    REJECT = "reject"
    """Status 400 with a JSON body, before any stream opens."""


class Expectation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """
    The outcome of a case.

    outcome: see Expected. param: ``error.param`` of a rejection. says: a part of its
    ``error.message``.
    """

    outcome: Expected
    param: str | None = None
    says: str | None = None


class Case(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """
    One request and its outcome.

    id: unique, never changes. rule: the word of a row in docs/reference/specification.md.
    description: a clause in the present tense. body: what the case adds to the plain body of each
    endpoint. server: the kind of server that the case is about. at: the endpoints that get the
    body. control: the ID of a case that must hold first; without it this case proves nothing.
    safe: false if the request can hang or crash a server without the guard.
    """

    id: str
    rule: Reason
    description: str
    body: dict[str, Any]
    expect: Expectation
    server: Profile = Profile.CONNECTOR
    at: Group = Group.CHAT_COMPLETIONS
    control: str | None = None
    safe: bool = True


@dataclass(frozen=True)
class Attempt:
    """One case at one endpoint, streamed or not."""

    case: Case
    endpoint: Endpoint
    stream: bool

    @property
    def id(self) -> str:
        """A unique name, which can be part of the name of a test."""
        return f"{self.case.id}@{self.endpoint.path}{'-stream' if self.stream else ''}"

    def body(self, model_info: ModelInfo) -> dict[str, Any]:
        """Return the body to send, without the name of the model."""
        stream = {"stream": self.stream} if self.endpoint.streams else {}
        template = {**self.endpoint.plain_body, **stream, **self.case.body}
        body: dict[str, Any] = resolve(template, model_info)
        return body


def attempts(case: Case, *, harmony: bool) -> list[Attempt]:
    """Return each attempt at a case. harmony: whether the server's model is a Harmony model."""
    return [
        Attempt(case, endpoint, stream)
        for endpoint in case.at.endpoints(harmony=harmony)
        for stream in ((False, True) if endpoint.streams else (False,))
    ]


@cache
def cases() -> dict[str, Case]:
    """
    Return each case by its ID, in the order of the files.

    Raises msgspec.ValidationError for a file that does not hold cases, ValueError for two cases
    with the same ID.
    """
    by_id: dict[str, Case] = {}
    for file in sorted(files(__package__).iterdir(), key=lambda file: file.name):
        if file.name.endswith(".json"):
            for case in msgspec.json.decode(file.read_bytes(), type=list[Case]):
                if case.id in by_id:
                    raise ValueError(f"duplicate case ID: {case.id}")
                by_id[case.id] = case
    return by_id
