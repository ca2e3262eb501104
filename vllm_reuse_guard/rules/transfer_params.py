# SPDX-License-Identifier: Apache-2.0
"""Judge transfer params: the rows "Transfer params" of docs/reference/specification.md."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any

import msgspec

from .allowed_peers import Peer, judge_peers
from .outcome import KV_TRANSFER_PARAMS, PROMPT_TOKEN_IDS, Reason, Reject

DO_REMOTE_PREFILL = "do_remote_prefill"
"""True on a request to decode: the KV blocks of the prompt are on another instance."""

DO_REMOTE_DECODE = "do_remote_decode"
"""True on a request to prefill: its KV blocks are for another instance."""

_BlockId = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
_Blocks = Annotated[list[_BlockId], msgspec.Meta(min_length=1)]
_Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
# A worker makes a list as long as a number of ranks, until the machine has no memory left.
_MOST_RANKS = 1024
_Ranks = Annotated[int, msgspec.Meta(ge=1, le=_MOST_RANKS)]
_Size = Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]
_Port = Annotated[int, msgspec.Meta(ge=1, le=65535)]
_Text = Annotated[str, msgspec.Meta(min_length=1)]


@dataclass(frozen=True)
class _Kind:
    """A type that a field may have, and its name for people; null is as good as no field."""

    type: Any
    name: str

    def fits(self, value: object) -> bool:
        """Tell whether a value of any type is of this one; never raises."""
        try:
            msgspec.convert(value, self.type)
        except msgspec.ValidationError:
            return False
        return True


_FLAG = _Kind(bool | None, "true or false")
_NAME = _Kind(_Text | None, "a non-empty string")
_SIZE = _Kind(_Size | None, "an integer of 1 or more")
# Null is not as good as no field here: the connector computes with it.
_RANKS = _Kind(_Ranks, f"an integer from 1 to {_MOST_RANKS}, or absent")
_COUNT = _Kind(_Count | None, "an integer of 0 or more")
_PORT = _Kind(_Port | None, "an integer from 1 to 65535")
_TIME = _Kind(float | None, "a number")
# An empty group kills the worker that reads the blocks.
_GROUPS = _Kind(
    list[_Blocks] | None, "a list of non-empty lists of block IDs, one for each cache group"
)
_BLOCKS = _Kind(list[_BlockId] | None, "a list of block IDs")
_OWN = _Kind(None, "absent: the connector sets it")

_KINDS: Mapping[str, tuple[_Kind, ...]] = {
    DO_REMOTE_PREFILL: (_FLAG,),
    DO_REMOTE_DECODE: (_FLAG,),
    "remote_engine_id": (_NAME,),
    "remote_request_id": (_NAME,),
    "remote_host": (_NAME,),
    "remote_port": (_PORT,),
    "remote_block_ids": (_GROUPS,),
    "remote_num_tokens": (_COUNT,),
    "remote_block_size": (_SIZE,),
    "remote_blocks_expiry_time": (_TIME,),
    "remote_registration_generation": (_COUNT,),
    "tp_size": (_RANKS,),
    "pp_size": (_RANKS,),
    "dcp_size": (_RANKS,),
    "_remote_blocks_processed": (_OWN,),
    "_p_side_truncated": (_OWN,),
}
"""
What NixlConnector reads, and in which types; the other connectors use the same names so.

Read off the connector's metadata, scheduler and worker of each release, and off what they die of.
"""

_KINDS_OF_OTHERS: Mapping[str, tuple[_Kind, ...]] = {
    **_KINDS,
    # NixlConnector takes a flat list for groups, and the scheduler dies of it.
    "remote_block_ids": (_GROUPS, _BLOCKS),
}


_LONGEST_NAME = 64
_DEEPEST = 32
"""How deep lists and objects may be nested: the pickle to the workers fails at some hundreds."""

_UNSENDABLE = (
    "cannot be sent to the engine core: it holds an integer beyond 64 bits, text that is not "
    f"Unicode, or lists and objects nested more than {_DEEPEST} deep"
)


class Connector(Enum):
    """What a connector reads of the transfer params, as far as the guard knows it."""

    NIXL_PULL = (
        "remote_block_ids",
        "remote_engine_id",
        "remote_request_id",
        "remote_host",
        "remote_port",
    )
    """Decode reads the blocks from prefill."""
    NIXL_BOTH_WAYS = (*NIXL_PULL, "remote_num_tokens")
    """The same, and prefill reads those of earlier turns from decode."""
    NIXL_PUSH = (
        "remote_engine_id",
        "remote_request_id",
        "remote_host",
        "remote_port",
        "tp_size",
    )
    """Prefill writes the blocks to decode, which registers with it."""
    OTHER = ()
    """Not known: its fields have their types checked where they have a known name."""

    @property
    def needs(self) -> tuple[str, ...]:
        """The fields without which a request to decode cannot be served."""
        return tuple(self.value)


@dataclass(frozen=True)
class TransferFacts:
    """
    What the rules about transfer params need to know of a server.

    connectors: its KV connectors, each of which receives the params; empty without one.
    allowed_peers: the hosts that it may dial; None for every host.
    """

    connectors: frozenset[Connector]
    allowed_peers: tuple[Peer, ...] | None


def judge_transfer_params(
    params: object, facts: TransferFacts, *, field: str = KV_TRANSFER_PARAMS
) -> Reject | None:
    """
    Return the rejection for transfer params, form first, then peers; None if they are valid.

    params: the value in a request, of any type. field: where the params are, for ``error.param``.
    """
    fault = judge_params(params, connectors=facts.connectors, field=field)
    return fault or _judge_allowed_peers(params, facts, field)


def can_notify(params: object, facts: TransferFacts) -> bool:
    """
    Tell whether the connector can be told that a request with these params was refused.

    The connector looks for the blocks that the params name, at the host that they name: both
    must be valid, and nothing else may be in the params.
    """
    return names_remote_blocks(params, connectors=facts.connectors) and (
        _judge_allowed_peers(params, facts, KV_TRANSFER_PARAMS) is None
    )


def _judge_allowed_peers(params: object, facts: TransferFacts, field: str) -> Reject | None:
    if facts.allowed_peers is None:
        return None
    return judge_peers(params, facts.allowed_peers, field=field)


def judge_params(
    params: object, *, connectors: Set[Connector], field: str = KV_TRANSFER_PARAMS
) -> Reject | None:
    """
    Say what is wrong with transfer params, or None if nothing is.

    params: their value in a request, whatever it is; None for none.
    connectors: those of the server, all of which are given the params; empty without one.
    field: where the params were, for ``error.param``.

    Never raises, changes nothing.
    """
    if params is None:
        return None
    if not isinstance(params, dict):
        return _malformed(field, "must be an object")
    kinds = _KINDS if connectors - {Connector.OTHER} else _KINDS_OF_OTHERS
    for key, value in params.items():
        # The IDs have their own rules, and Render ignores them unread.
        if key != PROMPT_TOKEN_IDS and (fault := _fault(key, value, kinds)):
            return _malformed(_name(field, key), fault)
    if params.get(DO_REMOTE_PREFILL) is True:
        return _judge_pull(params, connectors, field)
    if params.get(DO_REMOTE_DECODE) is True and params.get("remote_block_ids"):
        return _judge_pull_of_prefill(params, connectors, field)
    return None


def asks_prefill(params: object) -> bool:
    """Tell whether transfer params, of any type, have this instance keep the blocks for decode."""
    return isinstance(params, dict) and params.get(DO_REMOTE_DECODE) is True


def names_remote_blocks(params: object, *, connectors: Set[Connector]) -> bool:
    """
    Tell whether the connector can be told that a request with these params was refused.

    A notice makes the connector look for the blocks: it must name them and nothing else.
    """
    return (
        isinstance(params, dict)
        and params.get(DO_REMOTE_PREFILL) is True
        and judge_params(params, connectors=connectors) is None
    )


def _judge_pull(params: Mapping[str, Any], connectors: Set[Connector], field: str) -> Reject | None:
    if connectors - {Connector.OTHER} and params.get(DO_REMOTE_DECODE):
        return Reject(
            Reason.CONTRADICTORY,
            f"invalid `{field}.{DO_REMOTE_DECODE}`: it and `{field}.{DO_REMOTE_PREFILL}` cannot "
            f"both be true. Send {DO_REMOTE_DECODE} to prefill and {DO_REMOTE_PREFILL} to decode.",
            f"{field}.{DO_REMOTE_DECODE}",
        )
    # A pull by decode needs no more where prefill can pull as well.
    asked = {Connector.NIXL_PULL if c is Connector.NIXL_BOTH_WAYS else c for c in connectors}
    return _judge_needs(params, {name for connector in asked for name in connector.needs}, field)


def _judge_pull_of_prefill(
    params: Mapping[str, Any], connectors: Set[Connector], field: str
) -> Reject | None:
    if not connectors - {Connector.OTHER}:
        return None
    if Connector.NIXL_BOTH_WAYS in connectors:
        return _judge_needs(params, set(Connector.NIXL_BOTH_WAYS.needs), field)
    # The scheduler waits for blocks that it has nobody read: for ever, with the prompt's own.
    return Reject(
        Reason.CONTRADICTORY,
        f"invalid `{field}.remote_block_ids`: with {DO_REMOTE_DECODE} this server reads no remote "
        f"blocks. Omit the field, or configure the connector with `bidirectional_kv_xfer`.",
        f"{field}.remote_block_ids",
    )


def _judge_needs(params: Mapping[str, Any], needed: Set[str], field: str) -> Reject | None:
    for name in _KINDS:
        if name in needed and not params.get(name):
            return Reject(
                Reason.MISSING_FIELD,
                f"invalid `{field}`: `{field}.{name}` is missing. Send the transfer params exactly "
                f"as the other instance returned them.",
                f"{field}.{name}",
            )
    return None


def _fault(key: object, value: object, known: Mapping[str, tuple[_Kind, ...]]) -> str | None:
    kinds = known.get(key) if isinstance(key, str) else None
    if kinds and not any(kind.fits(value) for kind in kinds):
        return f"must be {' or '.join(kind.name for kind in kinds)}"
    try:
        msgspec.msgpack.encode((key, value))
    except (OverflowError, RecursionError, TypeError, UnicodeEncodeError, ValueError):
        return _UNSENDABLE
    # A known type bounds the depth; thousands of block ids need not be walked through for it.
    return _UNSENDABLE if kinds is None and _is_deep(value) else None


def _is_deep(value: object) -> bool:
    level = [value]
    for _ in range(_DEEPEST):
        level = [inner for outer in level for inner in _containers(outer)]
        if not level:
            return False
    return True


def _containers(value: object) -> list[object]:
    items: Any = ()
    if isinstance(value, dict):
        items = value.values()
    elif isinstance(value, (list, tuple)):
        items = value
    return [item for item in items if isinstance(item, (dict, list, tuple))]


def _name(field: str, key: object) -> str:
    # A key that is no Unicode cannot stand in an answer either.
    text = str(key)
    return f"{field}.{text[:_LONGEST_NAME]}" if text.isprintable() else field


def _malformed(field: str, fault: str) -> Reject:
    return Reject(
        Reason.MALFORMED_PARAMS,
        f"invalid `{field}`: {fault}. Send the transfer params exactly as the prefill instance "
        f"returned them.",
        field,
    )
