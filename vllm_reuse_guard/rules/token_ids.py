# SPDX-License-Identifier: Apache-2.0
"""Judge token IDs: type, range and number, without a Python loop over the IDs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any

import msgspec

from .outcome import PARAMETER, Outcome, Reason, Reject, Render, Reuse

_WHAT_TO_DO = (
    "Send the IDs exactly as the prefill instance returned them, "
    "or omit the field: vLLM then renders the messages."
)
_JSON_NAMES = {
    bool: "a boolean",
    float: "a float",
    str: "a string",
    list: "a list",
    dict: "an object",
    type(None): "null",
}
_INT64_MAX = 2**63 - 1


@dataclass(frozen=True)
class Vocabulary:
    """
    Which token ids a model and its tokenizer know.

    embedding_rows: rows of the model's embedding table (``vocab_size``); the engine can
        only compute with ids below it.
    highest_known: the largest id of the tokenizer, or None without a tokenizer. It lies
        below the table's end for padded tables, above it for some placeholder tokens.
    """

    embedding_rows: int
    highest_known: int | None

    @property
    def last(self) -> int:
        """The last id of the vocabulary: the first one past it is refused."""
        return max(self.embedding_rows - 1, self.highest_known or 0)


def judge(ids: object, *, vocabulary: Vocabulary, max_prompt_len: int) -> Outcome:
    """
    Decide about forwarded IDs by their values: the rows ``malformed`` to ``reused``.

    ids: the value that a caller sent, of any type. Only exact ints are token IDs: True, 1.0 and
        the members of an IntEnum equal ints but are not.
    max_prompt_len: the maximum prompt length, in tokens.

    Returns Reuse with the very list, Render if an ID has no embedding row, or Reject.
    A message names one item and never prints the list. Never raises, changes nothing.
    """
    if type(ids) is not list:
        return _malformed(f"got {_name(type(ids))}")
    if not ids:
        return _malformed("got an empty list")
    types = list(map(type, ids))
    if types.count(int) != len(types):
        position = next(n for n, kind in enumerate(types) if kind is not int)
        return _malformed(f"got {_name(types[position])} at index {position}")
    if not _within(ids, vocabulary.embedding_rows - 1):
        return _judge_outside_table(ids, vocabulary)
    if len(ids) > max_prompt_len:
        return Reject(Reason.TOO_LONG, _too_long(len(ids), max_prompt_len))
    return Reuse(ids)


def _judge_outside_table(ids: list[int], vocabulary: Vocabulary) -> Reject | Render:
    lowest, highest = min(ids), max(ids)
    if lowest < 0:
        return _malformed(f"got {_show(lowest)} at index {ids.index(lowest)}")
    if highest > vocabulary.last:
        return Reject(
            Reason.OUT_OF_VOCABULARY,
            # The first words are vLLM's own, which clients match on.
            f"{_named(highest)} is out of vocabulary: the last ID of this model is "
            f"{vocabulary.last}. Check that prefill and decode run the same model. "
            f"{_WHAT_TO_DO}",
        )
    return Render(Reason.NO_EMBEDDING)


def _within(ids: Sequence[int], last: int) -> bool:
    # A typed msgspec conversion checks every item in C, in half the time of min() and max().
    try:
        msgspec.convert(ids, _ids_up_to(last))
    except msgspec.ValidationError:
        return False
    return True


@lru_cache(maxsize=8)
def _ids_up_to(last: int) -> Any:
    return list[Annotated[int, msgspec.Meta(ge=0, le=last)]]


def _malformed(fault: str) -> Reject:
    return Reject(
        Reason.MALFORMED,
        f"invalid `{PARAMETER}`: must be a non-empty list of non-negative integers, {fault}. "
        f"{_WHAT_TO_DO}",
    )


def _too_long(count: int, max_prompt_len: int) -> str:
    return (
        f"invalid `{PARAMETER}`: got {count} token IDs, but the context of this model takes a "
        f"prompt of at most {max_prompt_len}. Shorten the conversation: vLLM does not apply "
        f"`truncate_prompt_tokens` to forwarded IDs."
    )


def _name(kind: type) -> str:
    return _JSON_NAMES.get(kind, f"a Python {kind.__name__}")


def _named(item: int) -> str:
    return f"Token id {item}" if item <= _INT64_MAX else "A token ID beyond 64 bits"


def _show(item: int) -> str:
    # JSON integers have no bound; thousands of digits do not belong in an answer.
    return str(item) if abs(item) <= _INT64_MAX else "an integer beyond 64 bits"
