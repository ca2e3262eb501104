# SPDX-License-Identifier: Apache-2.0
"""The values in a case that depend on the server, or that JSON cannot write."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
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
    embedding_rows: rows of the embedding table. last_known: the last id of model and
    tokenizer together. longest: the most prompt tokens that the context takes.
    placeholder: the id that stands for an image, None for a model of text alone.
    """

    forwarded: list[int]
    embedding_rows: int
    last_known: int
    longest: int
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


def references(subject: Subject) -> Mapping[str, Any]:
    """Return every value that a case can refer to, by name."""
    nested: list[Any] = []
    for _ in range(_NESTING):
        nested = [nested]
    return {
        "forwarded": subject.forwarded,
        "longest": [index % subject.embedding_rows for index in range(subject.longest)],
        "last_embedded": subject.embedding_rows - 1,
        "first_without_row": subject.embedding_rows,
        "last_known": subject.last_known,
        "first_past": subject.last_known + 1,
        "nan": float("nan"),
        "infinity": float("inf"),
        "huge": 10**_DIGITS,
        "hugely_negative": -(10**_DIGITS),
        "nested": nested,
        "surrogate": "\ud800",
        "placeholder": subject.placeholder,
    }
