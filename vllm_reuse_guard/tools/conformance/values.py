# SPDX-License-Identifier: Apache-2.0
"""The values in a case that depend on the server, or that JSON cannot write."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Any

REF = "$ref"
CONCAT = "$concat"

_NESTING = 400
_DIGITS = 400


@dataclass(frozen=True)
class ModelInfo:
    """
    What a server's model is like.

    forwarded: ids that its prefill would forward, of a conversation that no case holds.
    max_prompt_len: the most prompt tokens that the context takes.
    embedding_rows: rows of the embedding table. last_known: the last id of model and
    tokenizer together. placeholder: the id that stands for an image. Each of these is None
    where it is not known or not there.
    """

    forwarded: list[int]
    max_prompt_len: int
    embedding_rows: int | None = None
    last_known: int | None = None
    placeholder: int | None = None


def resolve(value: Any, model_info: ModelInfo) -> Any:
    """
    Replace ``{"$ref": name}`` and ``{"$concat": [lists]}`` anywhere in a JSON value.

    Raises KeyError for a name that is not in ``references``.
    """
    if isinstance(value, list):
        return [resolve(item, model_info) for item in value]
    if not isinstance(value, dict):
        return value
    if REF in value:
        return references(model_info)[value[REF]]
    if CONCAT in value:
        return [item for part in resolve(value[CONCAT], model_info) for item in part]
    return {key: resolve(item, model_info) for key, item in value.items()}


def referred(value: Any) -> set[str]:
    """Return the names that are referred to anywhere in a JSON value."""
    if isinstance(value, list):
        return {name for item in value for name in referred(item)}
    if not isinstance(value, dict):
        return set()
    if REF in value:
        return {value[REF]}
    return {name for item in value.values() for name in referred(item)}


def references(model_info: ModelInfo) -> Mapping[str, Any]:
    """Return every value that a case can refer to, by name; None for one that is not known."""
    nested: list[Any] = []
    for _ in range(_NESTING):
        nested = [nested]
    rows, last = model_info.embedding_rows, model_info.last_known
    return {
        "forwarded": model_info.forwarded,
        "longest": list(islice(cycle(model_info.forwarded), model_info.max_prompt_len)),
        "last_embedded": None if rows is None else rows - 1,
        "first_without_row": rows,
        "last_known": last,
        "first_past": None if last is None else last + 1,
        "nan": float("nan"),
        "infinity": float("inf"),
        "huge": 10**_DIGITS,
        "hugely_negative": -(10**_DIGITS),
        "nested": nested,
        "surrogate": "\ud800",
        "placeholder": model_info.placeholder,
    }
