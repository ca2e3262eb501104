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
class Subject:
    """
    What a server's model is like.

    forwarded: ids that its prefill would forward, of a conversation that no case holds.
    longest: the most prompt tokens that the context takes.
    embedding_rows: rows of the embedding table. last_known: the last id of model and
    tokenizer together. placeholder: the id that stands for an image. Each of these is None
    where it is not known or not there.
    """

    forwarded: list[int]
    longest: int
    embedding_rows: int | None = None
    last_known: int | None = None
    placeholder: int | None = None


def resolve(value: Any, subject: Subject) -> Any:
    """
    Replace ``{"$ref": name}`` and ``{"$concat": [lists]}`` anywhere in a JSON value.

    Raises KeyError for a name that is not in ``references``.
    """
    if isinstance(value, list):
        return [resolve(item, subject) for item in value]
    if not isinstance(value, dict):
        return value
    if REF in value:
        return references(subject)[value[REF]]
    if CONCAT in value:
        return [item for part in resolve(value[CONCAT], subject) for item in part]
    return {key: resolve(item, subject) for key, item in value.items()}


def referred(value: Any) -> set[str]:
    """Return the names that are referred to anywhere in a JSON value."""
    if isinstance(value, list):
        return {name for item in value for name in referred(item)}
    if not isinstance(value, dict):
        return set()
    if REF in value:
        return {value[REF]}
    return {name for item in value.values() for name in referred(item)}


def references(subject: Subject) -> Mapping[str, Any]:
    """Return every value that a case can refer to, by name; None for one that is not known."""
    nested: list[Any] = []
    for _ in range(_NESTING):
        nested = [nested]
    rows, last = subject.embedding_rows, subject.last_known
    return {
        "forwarded": subject.forwarded,
        "longest": list(islice(cycle(subject.forwarded), subject.longest)),
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
        "placeholder": subject.placeholder,
    }
