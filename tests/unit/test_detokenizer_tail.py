# SPDX-License-Identifier: Apache-2.0
"""What a stream of decoded ids is primed with; with real tokenizers: tests/contract."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from vllm_reuse_guard.rules.detokenizer_tail import TAIL, split_tail

BROKEN = "\N{REPLACEMENT CHARACTER}"
TEXT = st.text(max_size=3 * TAIL)


def decode(ids: list[int]) -> str:
    """Ids that are bytes, as a byte-level tokenizer decodes them."""
    return bytes(ids).decode(errors="replace")


@given(TEXT)
def test_prompt_that_ends_whole(text: str) -> None:
    """
    Text ends where a character ends: its last ids are enough, and nothing is to be stripped.
    """
    ids = list(text.encode())
    priming = split_tail(ids, decode)

    if not text.endswith(BROKEN):
        assert ids[len(ids) - len(priming.before) :] == priming.before
        assert len(priming.before) <= max(len(ids), TAIL)
        assert ([], "") == (priming.cut, priming.text)


@given(TEXT, st.sampled_from("é日👍"), st.integers(1, 3))
def test_prompt_that_ends_inside_of_a_character(text: str, last: str, kept: int) -> None:
    """
    What is there of the character is taken as new, and nothing before it.
    """
    whole = list(last.encode())
    cut = whole[: min(kept, len(whole) - 1)]
    ids = [*text.encode(), *cut]

    priming = split_tail(ids, decode)

    if not text.endswith(BROKEN):
        assert cut == priming.cut
        assert "" == priming.text
        assert not decode(priming.before).endswith(BROKEN)


def test_end_without_text_is_not_the_beginning() -> None:
    """
    Behind nothing but special tokens some tokenizers drop a space, as they do at the beginning.
    """
    ids = [*b"word", *([0] * 3 * TAIL)]

    priming = split_tail(ids, lambda ids: decode([id_ for id_ in ids if id_]))

    assert "word" == decode([id_ for id_ in priming.before if id_])


@given(st.lists(st.integers(0, 255), max_size=3 * TAIL))
def test_whatever_the_ids(ids: list[int]) -> None:
    """
    The stream never begins with a text that ends broken, which it would give out.
    """
    priming = split_tail(ids, decode)

    assert not decode(priming.before).endswith(BROKEN)
    assert len(priming.cut) <= 3


def test_text_of_a_token_that_is_cut_is_stripped() -> None:
    """
    A token can hold whole characters besides the one that it ends inside of.
    """
    pieces = {1: b"secret ", 2: b"a\xf0\x9f", 3: b"\x91\x8d"}

    def of_pieces(ids: list[int]) -> str:
        return b"".join(pieces[id_] for id_ in ids).decode(errors="replace")

    priming = split_tail([1, 2], of_pieces)

    assert ([1], [2], "a") == (priming.before, priming.cut, priming.text)
    assert "👍" == priming.strip("a👍")


def test_prompt_of_broken_text_takes_few_looks() -> None:
    """
    Nobody can make a server decode a long prompt again and again by what it ends with.
    """
    looks: list[int] = []

    def counted(ids: list[int]) -> str:
        looks.append(len(ids))
        return decode(ids)

    for ids in ([0x80] * 90_000, [65, *[0x80] * 90_000], list((BROKEN * 30_000).encode())):
        looks.clear()
        priming = split_tail(ids, counted)

        assert not decode(priming.before).endswith(BROKEN)
        assert [] == priming.cut
        assert sum(looks) < 9_000
