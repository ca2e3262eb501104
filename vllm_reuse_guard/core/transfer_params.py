# SPDX-License-Identifier: Apache-2.0
"""Can the engine and its connector live with these transfer params? (SPEC 4)"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any

import msgspec

from .outcome import KEY, Reason, Reject

FIELD = "kv_transfer_params"
"""The field of a request that holds the transfer params."""

PULL = "do_remote_prefill"
"""True on a request to decode: the KV blocks of the prompt are on another instance."""

PREFILL = "do_remote_decode"
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
_RANKS = _Kind(_Ranks, f"an integer from 1 to {_MOST_RANKS}, or left out")
_COUNT = _Kind(_Count | None, "an integer of 0 or more")
_PORT = _Kind(_Port | None, "an integer from 1 to 65535")
_TIME = _Kind(float | None, "a number")
# An empty group kills the worker that reads the blocks.
_GROUPS = _Kind(list[_Blocks] | None, "a list of block ids, not empty, for each cache group")
_BLOCKS = _Kind(list[_BlockId] | None, "a list of block ids")
_OWN = _Kind(None, "left out: the connector sets it itself")

_KINDS: Mapping[str, tuple[_Kind, ...]] = {
    PULL: (_FLAG,),
    PREFILL: (_FLAG,),
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
    "cannot be sent to the engine: it has an integer beyond 64 bits, text that is not Unicode, or "
    f"lists and objects more than {_DEEPEST} deep"
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


def judge_params(
    params: object, *, connectors: Set[Connector], field: str = FIELD
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
        # The ids have rules of their own, and may be left aside unread.
        if key != KEY and (fault := _fault(key, value, kinds)):
            return _malformed(_name(field, key), fault)
    if params.get(PULL) is True:
        return _judge_pull(params, connectors, field)
    if params.get(PREFILL) is True and params.get("remote_block_ids"):
        return _judge_pull_of_prefill(params, connectors, field)
    return None


def asks_prefill(params: object) -> bool:
    """Tell whether transfer params, of any type, have this instance keep the blocks for decode."""
    return isinstance(params, dict) and params.get(PREFILL) is True


def names_remote_blocks(params: object, *, connectors: Set[Connector]) -> bool:
    """
    Tell whether the connector can be told that a request with these params was refused.

    A notice makes the connector look for the blocks: it must name them and nothing else.
    """
    return (
        isinstance(params, dict)
        and params.get(PULL) is True
        and judge_params(params, connectors=connectors) is None
    )


def _judge_pull(params: Mapping[str, Any], connectors: Set[Connector], field: str) -> Reject | None:
    if connectors - {Connector.OTHER} and params.get(PREFILL):
        return Reject(
            Reason.CONTRADICTORY,
            f"`{field}.{PREFILL}` and `{field}.{PULL}` cannot both be true: a request goes to "
            f"prefill or to decode.",
            f"{field}.{PREFILL}",
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
        f"`{field}.remote_block_ids` is for a request to decode: with `{PREFILL}` this server "
        f"reads no blocks, as its connector is not configured with `bidirectional_kv_xfer`.",
        f"{field}.remote_block_ids",
    )


def _judge_needs(params: Mapping[str, Any], needed: Set[str], field: str) -> Reject | None:
    for name in _KINDS:
        if name in needed and not params.get(name):
            return Reject(
                Reason.MISSING_FIELD,
                f"`{field}.{name}` is missing: the transfer params must say where the KV blocks "
                f"are. Send all that the other instance returned.",
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
        f"`{field}` {fault}. Send the transfer params as the prefill instance returned them.",
        field,
    )
