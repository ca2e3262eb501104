# SPDX-License-Identifier: Apache-2.0
"""Split the end of a prompt for a detokenizer: the rows "Prompt text in answers"."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from os.path import commonprefix

TAIL = 8
"""
How many ids are enough: what a decoder makes of a new one depends on those just before it, for
a space, the rest of a character or the beginning of a word. vLLM's own detokenizer in Python,
for tokenizers that are not fast, looks back 5. Each of them is decoded with every prompt.
"""

_BROKEN = "\N{REPLACEMENT CHARACTER}"
_MOST_OF_A_CHARACTER = 3
"""A character has up to 4 bytes: of a cut one there are up to 3 ids, shown as 3 broken ones."""
_SIZES = (*range(TAIL, TAIL + 1 + _MOST_OF_A_CHARACTER), 8 * TAIL, 64 * TAIL)
"""What is tried for a tail: one of the first begins where a character begins, if ids are bytes."""


@dataclass(frozen=True)
class DetokenizerTail:
    """
    What a stream of decoded ids is primed with.

    before: the last ids of the prompt, ending where a character ends. cut: the ids after them,
    the last of which ends inside of a character; the stream takes them as if they were new.
    text: what it is then going to give out of the prompt with its first piece.
    """

    before: list[int]
    cut: list[int]
    text: str

    def strip(self, piece: str) -> str:
        """Return the first piece of an answer without the text of the prompt."""
        # Bytes that turn out to be no character can change those before them.
        return piece[len(commonprefix([self.text, piece])) :]  # noqa: RUF071 - of strings


def split_tail(ids: list[int], decode: Callable[[list[int]], str]) -> DetokenizerTail:
    """
    Say what to prime a stream with, so that it decodes as if it knew the whole prompt.

    ids: of the prompt. decode: of the tokenizer, told about special tokens as the stream is.

    A stream that is primed with an incomplete character has no text to compare with, and gives
    out all of it with the first character that is complete: that must never be the prompt.
    """
    tail, text = _tail(ids, decode)
    before, known, dropped = tail, text, 0
    while known.endswith(_BROKEN):
        # Id by id through a character, then in strides: a client can send nothing but broken text.
        dropped = dropped + 1 if dropped < _MOST_OF_A_CHARACTER else 2 * dropped
        before = tail[: max(0, len(tail) - dropped)]
        known = decode(before if dropped <= _MOST_OF_A_CHARACTER else before[-TAIL:])
    if dropped > _MOST_OF_A_CHARACTER:
        # Broken text of the prompt's own: nothing completes it.
        return DetokenizerTail(before[-TAIL:], [], "")
    cut = tail[len(before) :]
    return DetokenizerTail(
        before, cut, _whole_part(text[len(known) :]) if text.startswith(known) else ""
    )


def _tail(ids: list[int], decode: Callable[[list[int]], str]) -> tuple[list[int], str]:
    # A tail that begins inside of a character can spoil all the bytes that follow. One without
    # text looks like the beginning, where some tokenizers drop a space.
    for size in _SIZES:
        tail = ids[-size:]
        text = decode(tail)
        if len(tail) == len(ids) or (text and not text.startswith(_BROKEN)):
            break
    return tail, text


def _whole_part(text: str) -> str:
    whole = text.rstrip(_BROKEN)
    return text[: max(len(whole), len(text) - _MOST_OF_A_CHARACTER)]
