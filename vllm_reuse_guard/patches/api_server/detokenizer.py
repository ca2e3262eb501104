# SPDX-License-Identifier: Apache-2.0
"""Prime the detokenizer with the end of a prompt instead of all of it; keep it out of answers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from ...installer import PatchPoints
from ...rules.detokenizer_tail import DetokenizerTail, split_tail


class Stripped:
    """A stream whose first piece is without the text of the prompt; then it is not needed."""

    def __init__(self, detokenizer: Any, priming: DetokenizerTail) -> None:
        self._detokenizer = detokenizer
        self._stream = detokenizer.stream
        self._priming = priming

    def step(self, tokenizer: Any, id_: int) -> str | None:
        """Return what a new id adds to the text; None while a character is not complete."""
        piece: str | None = self._stream.step(tokenizer, id_)
        if piece is None:
            return None
        self._detokenizer.stream = self._stream
        return self._priming.strip(piece)


def apply(points: PatchPoints) -> None:
    """Wrap the constructor of a request's detokenizer."""
    points.wrap("FastIncrementalDetokenizer.__init__", init)


def init(
    wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    """
    Make a detokenizer that knows the last ids of the prompt.

    Upstream's decodes the whole prompt with the first token of the answer, and gives its text
    out if it ends inside of a character.
    """

    def make(tokenizer: Any, request: Any) -> None:
        ids = request.prompt_token_ids
        if not ids:
            wrapped(tokenizer, request)
            return
        skip = request.sampling_params.skip_special_tokens
        priming = split_tail(ids, partial(tokenizer._tokenizer.decode, skip_special_tokens=skip))
        wrapped(tokenizer, msgspec.structs.replace(request, prompt_token_ids=priming.before))
        for id_ in priming.cut:
            instance.stream.step(tokenizer._tokenizer, id_)
        if priming.text:
            instance.stream = Stripped(instance, priming)

    make(*args, **kwargs)
