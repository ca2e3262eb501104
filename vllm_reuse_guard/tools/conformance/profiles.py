# SPDX-License-Identifier: Apache-2.0
"""
The kinds of server that the cases are about: the one place that describes each.

The lab starts a server of a profile from its settings, connector and model. The probe recognizes
the profiles of a server that somebody else started from what the server shows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from ...rules.decision import Policy, WithoutConnector

ALLOWED_PEERS = "10.0.0.0/8"
"""The allowed peers of a test server with the profile PEERS."""

ALLOWED_PEER = "10.1.2.3"
"""A host in ALLOWED_PEERS. Another server may have other peers: the probe asks first."""

UNLISTED_NAME = "localhost"
"""A host name that is not in ALLOWED_PEERS. On another server it may be: the probe asks first."""

UNLISTED_ADDRESS = "192.0.2.1"
"""
An address that is in no list of allowed peers.

It belongs to TEST-NET-1 (RFC 5737), which is reserved for documentation: no host has it.
"""


class ModelKind(str, Enum):
    """What a profile needs of the model."""

    TEXT = "text"
    IMAGES = "images"
    """It takes images."""
    NARROW_EMBEDDING = "narrow_embedding"
    """Its tokenizer knows token IDs for which it has no embedding row."""


@dataclass(frozen=True)
class Observed:
    """
    What a client can see of a server.

    policy, without_connector: settings of the guard, by their values; the defaults without a
    guard. connector: whether the server has a KV connector. allowed_peers: whether the guard has
    a list of them. takes_images, narrow_embedding: see ModelKind.
    """

    policy: str = Policy.CONNECTOR.value
    without_connector: str = WithoutConnector.IGNORE.value
    connector: bool = False
    allowed_peers: bool = False
    takes_images: bool = False
    narrow_embedding: bool = False

    @property
    def off(self) -> bool:
        """Whether the server never reuses IDs."""
        return self.policy == Policy.OFF.value

    @property
    def always(self) -> bool:
        """Whether the server reuses IDs without a KV connector too."""
        return self.policy == Policy.ALWAYS.value

    @property
    def disaggregated(self) -> bool:
        """Whether the server reuses IDs because it has a KV connector."""
        return self.connector and not self.off

    @property
    def opted_in(self) -> bool:
        """Whether the server reuses IDs although it has no KV connector."""
        return self.always and not self.connector

    @property
    def aggregated(self) -> bool:
        """Whether the server has no KV connector, and the default policy."""
        return not (self.connector or self.off or self.always)

    @property
    def rejects(self) -> bool:
        """Whether the guard rejects IDs that it does not reuse for want of a KV connector."""
        return self.without_connector == WithoutConnector.REJECT.value


class Profile(str, Enum):
    """The kind of server that a case is about. Cases name it by its value."""

    CONNECTOR = "connector"
    """A server with a KV connector and the default settings."""
    NO_CONNECTOR = "no_connector"
    """A server without a KV connector and with the default settings."""
    POLICY_OFF = "policy_off"
    """A server with a KV connector and the policy off."""
    POLICY_ALWAYS = "policy_always"
    """A server without a KV connector and with the policy always."""
    REJECT = "reject"
    """A server without a KV connector that rejects forwarded IDs."""
    PEERS = "peers"
    """A server with a KV connector and a list of allowed peers."""
    MEDIA = "media"
    """A server with a KV connector and the default settings, whose model takes images."""
    NARROW_EMBEDDING = "narrow_embedding"
    """POLICY_ALWAYS with a model whose tokenizer knows IDs without an embedding row."""

    @property
    def settings(self) -> Mapping[str, str]:
        """The environment variables that give a server the settings of the profile."""
        return _SETUPS[self].settings

    @property
    def has_connector(self) -> bool:
        """Whether a server of the profile has a KV connector."""
        return _SETUPS[self].has_connector

    @property
    def model_kind(self) -> ModelKind:
        """The model that a server of the profile needs."""
        return _SETUPS[self].model_kind

    def matches(self, server: Observed) -> bool:
        """Tell whether the cases of the profile are about a server."""
        return _SETUPS[self].matches(server)


@dataclass(frozen=True)
class _Setup:
    has_connector: bool
    matches: Callable[[Observed], bool]
    settings: Mapping[str, str] = field(default_factory=dict)
    model_kind: ModelKind = ModelKind.TEXT


_ALWAYS = {"VLLM_REUSE_GUARD_PROMPT_TOKEN_IDS_POLICY": Policy.ALWAYS.value}
_OFF = {"VLLM_REUSE_GUARD_PROMPT_TOKEN_IDS_POLICY": Policy.OFF.value}
_REJECT = {"VLLM_REUSE_GUARD_PROMPT_TOKEN_IDS_WITHOUT_CONNECTOR": WithoutConnector.REJECT.value}
_PEERS = {"VLLM_REUSE_GUARD_KV_TRANSFER_ALLOWED_PEERS": ALLOWED_PEERS}

_SETUPS = {
    Profile.CONNECTOR: _Setup(
        has_connector=True,
        # The cases are about reuse: a server that opts in reuses IDs for another reason.
        matches=lambda server: server.disaggregated or server.opted_in,
    ),
    Profile.NO_CONNECTOR: _Setup(
        has_connector=False,
        matches=lambda server: server.aggregated and not server.rejects,
    ),
    Profile.POLICY_OFF: _Setup(
        has_connector=True,
        settings=_OFF,
        matches=lambda server: server.off,
    ),
    Profile.POLICY_ALWAYS: _Setup(
        has_connector=False,
        settings=_ALWAYS,
        matches=lambda server: server.opted_in,
    ),
    Profile.REJECT: _Setup(
        has_connector=False,
        settings=_REJECT,
        matches=lambda server: server.aggregated and server.rejects,
    ),
    Profile.PEERS: _Setup(
        has_connector=True,
        settings=_PEERS,
        matches=lambda server: server.disaggregated and server.allowed_peers,
    ),
    Profile.MEDIA: _Setup(
        has_connector=True,
        model_kind=ModelKind.IMAGES,
        matches=lambda server: server.disaggregated and server.takes_images,
    ),
    Profile.NARROW_EMBEDDING: _Setup(
        has_connector=False,
        settings=_ALWAYS,
        model_kind=ModelKind.NARROW_EMBEDDING,
        matches=lambda server: server.opted_in and server.narrow_embedding,
    ),
}
