# SPDX-License-Identifier: Apache-2.0
"""The values in a case that depend on the server, repeat, or cannot be written in JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Any

from .profiles import ALLOWED_PEER, UNLISTED_ADDRESS, UNLISTED_NAME

REF, CONCAT, MERGE, WITHOUT = "$ref", "$concat", "$merge", "$without"

_NESTING = 400
_DIGITS = 400


@dataclass(frozen=True)
class ModelInfo:
    """
    What the cases need to know about the model of a server.

    forwarded: the token IDs that a prefill instance would forward, for a conversation that no
    case sends. max_prompt_len: the number of prompt tokens that the context takes.
    embedding_rows: the number of rows of the embedding table. last_known: the last token ID of
    model and tokenizer together. placeholder: the token ID that stands for an image. The last
    three are None if they are unknown or do not exist.
    """

    forwarded: list[int]
    max_prompt_len: int
    embedding_rows: int | None = None
    last_known: int | None = None
    placeholder: int | None = None

    @property
    def has_narrow_embedding(self) -> bool:
        """Whether the tokenizer knows IDs for which the model has no embedding row."""
        rows, last = self.embedding_rows, self.last_known
        return rows is not None and last is not None and last >= rows


def resolve(value: Any, model_info: ModelInfo) -> Any:
    """
    Return a JSON value with its operators replaced, at any depth.

    ``{"$ref": name}`` is the value of that name in ``references``.
    ``{"$concat": [list, ...]}`` is one list. ``{"$merge": [object, ...]}`` is one object, in
    which later objects override keys of earlier ones. ``{"$without": [object, key, ...]}`` is the
    object without these keys. Raises KeyError for an unknown name, and for a key to remove that
    the object does not have.
    """
    if isinstance(value, list):
        return [resolve(item, model_info) for item in value]
    if not isinstance(value, dict):
        return value
    if REF in value:
        return references(model_info)[value[REF]]
    if CONCAT in value:
        return [item for part in resolve(value[CONCAT], model_info) for item in part]
    if MERGE in value:
        return {k: v for part in resolve(value[MERGE], model_info) for k, v in part.items()}
    if WITHOUT in value:
        whole, *keys = resolve(value[WITHOUT], model_info)
        for key in keys:
            del whole[key]
        return whole
    return {key: resolve(item, model_info) for key, item in value.items()}


def reference_names(value: Any) -> set[str]:
    """Return the names that ``$ref`` uses anywhere in a JSON value."""
    if isinstance(value, list):
        return {name for item in value for name in reference_names(item)}
    if not isinstance(value, dict):
        return set()
    if REF in value:
        return {value[REF]}
    return {name for item in value.values() for name in reference_names(item)}


def references(model_info: ModelInfo) -> Mapping[str, Any]:
    """Return each value that a case can refer to, by name. None: unknown for this server."""
    rows, last = model_info.embedding_rows, model_info.last_known
    return {
        "forwarded": model_info.forwarded,
        "longest_prompt": list(islice(cycle(model_info.forwarded), model_info.max_prompt_len)),
        "last_embedded": None if rows is None else rows - 1,
        "first_without_row": rows,
        "last_known": last,
        "first_past": None if last is None else last + 1,
        "placeholder": model_info.placeholder,
        "nan": float("nan"),
        "infinity": float("inf"),
        "huge": 10**_DIGITS,
        "hugely_negative": -(10**_DIGITS),
        "nested": _nested(),
        "surrogate": "\ud800",
        "pull": _pull(),
        "allowed_peer": ALLOWED_PEER,
        "unlisted_name": UNLISTED_NAME,
        "unlisted_address": UNLISTED_ADDRESS,
    }


def _nested() -> list[Any]:
    nested: list[Any] = []
    for _ in range(_NESTING):
        nested = [nested]
    return nested


def _pull() -> dict[str, Any]:
    # Each key that NixlConnector needs, each with a valid value.
    return {
        "do_remote_prefill": True,
        "do_remote_decode": False,
        "remote_block_ids": [[0, 1, 2]],
        "remote_engine_id": "engine",
        "remote_request_id": "request",
        "remote_host": "127.0.0.1",
        "remote_port": 5600,
        "tp_size": 1,
    }
