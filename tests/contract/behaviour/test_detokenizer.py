# SPDX-License-Identifier: Apache-2.0
"""vLLM's own detokenizer, primed with the end of a prompt: the same text, none of the prompt's."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import pytest
from tokenizers import (
    AddedToken,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    trainers,
)
from transformers import AutoTokenizer, PreTrainedTokenizerFast
from vllm.sampling_params import SamplingParams
from vllm.v1.engine import detokenizer as module

from lab.models.build import Model, build
from lab.paths import MODELS
from tests.contract.conftest import IN_TREE
from vllm_reuse_guard.installer import install
from vllm_reuse_guard.patches import PATCHES
from vllm_reuse_guard.rules.detokenizer_tail import TAIL

PROMPTS = 90
NEW = 24
BROKEN = "\N{REPLACEMENT CHARACTER}"
SPECIAL = ["<s>", "</s>", "<|start|>", "<|end|>"]
TEXTS = (
    "The quick brown fox jumps over the lazy dog. ",
    "def decode(ids: list[int]) -> str:\n    return ''.join(map(chr, ids))\n\n",
    "Größe, naïve café, œuvre, façade; Ελληνικά и русский. ",
    "日本語のテキスト、中文文本、한국어 문장。",
    "👩‍👩‍👧‍👦🏳️‍🌈🧑🏽‍💻👍🏿 ",
    "नमस्ते दुनिया ไทย العربية ",
    " \t \n\n  {\"key\": [1, 2.5, null]} ",
    "don't can't we'll it's . , ! ? ##ing ##ed ",
)  # fmt: skip


def byte_level() -> Tokenizer:
    """Bytes as letters, as GPT-2 and most models since."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    return trained(tokenizer, trainers.BpeTrainer, vocab_size=500, initial_alphabet=alphabet)


def byte_fallback() -> Tokenizer:
    """Letters, and bytes for those that it has not: Llama 2, Mistral, Gemma."""
    vocabulary = [*SPECIAL, "<unk>", *(f"<0x{byte:02X}>" for byte in range(256))]
    vocabulary += ["▁", *map(chr, range(33, 127))]
    tokenizer = Tokenizer(
        models.BPE(
            vocab={token: id_ for id_, token in enumerate(vocabulary)},
            merges=[],
            unk_token="<unk>",
            byte_fallback=True,
            fuse_unk=True,
        )
    )
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    return special(tokenizer)


def sentencepiece() -> Tokenizer:
    """Pieces of sentences: T5 and XLM."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    return trained(tokenizer, trainers.UnigramTrainer, vocab_size=400, unk_token="<unk>")


def wordpiece() -> Tokenizer:
    """Words and their ends: BERT."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.decoder = decoders.WordPiece()
    return trained(tokenizer, trainers.WordPieceTrainer, vocab_size=500)


def trained(tokenizer: Tokenizer, trainer: Callable[..., Any], **options: Any) -> Tokenizer:
    """Train a tokenizer on the texts."""
    tokens = ["<unk>", *SPECIAL]
    tokenizer.train_from_iterator(
        TEXTS, trainer(special_tokens=tokens, show_progress=False, **options)
    )
    return special(tokenizer)


def special(tokenizer: Tokenizer) -> Tokenizer:
    """Give it its special tokens."""
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in SPECIAL])
    return tokenizer


def of_model(model: Model) -> Callable[[], Tokenizer]:
    """The tokenizer of a model of the lab."""
    return lambda: AutoTokenizer.from_pretrained(build(model, MODELS))._tokenizer


KINDS: dict[str, Callable[[], Tokenizer]] = {
    "byte-level": byte_level,
    "byte-fallback": byte_fallback,
    "sentencepiece": sentencepiece,
    "wordpiece": wordpiece,
    "harmony": of_model(Model.TINY_GPT_OSS),
    "smollm2": of_model(Model.SMOLLM2),
}


@cache
def tokenizer_of(kind: str) -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast(tokenizer_object=KINDS[kind]())


@contextmanager
def primed() -> Iterator[None]:
    """The patch is in."""
    undo = install(patch for patch in PATCHES if patch.target == module.__name__)
    try:
        yield
    finally:
        undo()


def pieces(kind: str, prompt: list[int], new: list[int], *, skip: bool) -> list[str]:
    """Return what vLLM makes of each new id after a prompt."""
    request = module.EngineCoreRequest(
        request_id="request",
        prompt_token_ids=prompt,
        mm_features=None,
        sampling_params=SamplingParams(skip_special_tokens=skip),
        pooling_params=None,
        arrival_time=0.0,
        lora_request=None,
        cache_salt=None,
        data_parallel_rank=None,
    )
    stream = module.FastIncrementalDetokenizer(tokenizer_of(kind), request)
    found = []
    for id_ in new:
        stream.update([id_], stop_terminated=False)
        found.append(stream.get_next_output_text(finished=False, delta=True))
    return found


@cache
def special_ids(kind: str) -> list[int]:
    """Return the ids of a tokenizer's special tokens, the first ones of a great many."""
    added = tokenizer_of(kind)._tokenizer.get_added_tokens_decoder()
    return [id_ for id_, token in sorted(added.items()) if token.special][:8]


def text_ids(kind: str, chance: random.Random, least: int) -> list[int]:
    """Return ids of varied text, at least so many, with special tokens between."""
    ids: list[int] = []
    while len(ids) < least:
        part = "".join(chance.choices(TEXTS, k=3))[chance.randrange(20) :]
        ids += tokenizer_of(kind).encode(part, add_special_tokens=False)
        ids += [chance.choice(special_ids(kind))] * chance.randrange(3)
    return ids


def prompts(kind: str) -> Iterator[tuple[list[int], list[int]]]:
    """Yield prompts of many lengths, text and mere ids, each with what is generated after it."""
    chance = random.Random(f"prompts of {kind}")  # noqa: S311 - the same ones each time
    known = len(tokenizer_of(kind))
    for number in range(PROMPTS):
        length = chance.choice([1, 2, 5, 17, TAIL - 1, TAIL, TAIL + 1, 3 * TAIL, 700])
        if number % 3:
            ids = text_ids(kind, chance, length + NEW)
            cut = max(1, chance.randint(length, len(ids) - NEW))
            prompt, new = ids[:cut], ids[cut : cut + NEW]
        else:
            prompt = chance.choices(range(known), k=length)
            new = chance.choices(range(known), k=NEW)
        if number % 5 == 0:
            prompt[-1] = chance.choice(special_ids(kind))
        yield prompt, new


def ends_whole(kind: str, prompt: list[int], *, skip: bool) -> bool:
    """Tell whether a prompt ends where a character ends."""
    text: str = tokenizer_of(kind)._tokenizer.decode(prompt, skip_special_tokens=skip)
    return not text.endswith(BROKEN)


@pytest.mark.skipif(IN_TREE, reason="upstream's own detokenizer is gone in a tree")
@pytest.mark.parametrize("skip", [True, False], ids=["skip", "keep"])
@pytest.mark.parametrize("kind", KINDS)
def test_same_text(kind: str, skip: bool) -> None:
    """
    Each piece of text is the one that upstream gives, if the prompt ends where a character ends.
    """
    tried = 0
    for prompt, new in prompts(kind):
        if not ends_whole(kind, prompt, skip=skip):
            continue
        plain = pieces(kind, prompt, new, skip=skip)
        with primed():
            assert plain == pieces(kind, prompt, new, skip=skip), (len(prompt), prompt[-TAIL:], new)
        tried += 1

    assert tried > PROMPTS / 3


@pytest.mark.parametrize("text", ["🧑🏽‍💻", "日本", "é"])
@pytest.mark.parametrize("kind", ["byte-level", "byte-fallback", "harmony", "smollm2"])
@pytest.mark.parametrize("times", [2, 80], ids=["short", "long"])
def test_prompt_that_ends_inside_of_a_character(kind: str, text: str, times: int) -> None:
    """
    What completes the character comes out, and nothing of the prompt before it.
    """
    tokenizer = tokenizer_of(kind)
    secret = tokenizer.encode("The password is swordfish. " * times, add_special_tokens=False)
    ids = tokenizer.encode(f"x{text} yes", add_special_tokens=False)
    tried = 0
    for cut in range(1, len(ids)):
        prompt, new = [*secret, *ids[:cut]], ids[cut:]
        if ends_whole(kind, prompt, skip=True):
            continue
        with primed():
            answer = "".join(pieces(kind, prompt, new, skip=True))
        assert answer.endswith(" yes")
        assert set(answer.removesuffix(" yes")) <= {*text, BROKEN}
        tried += 1

    assert tried or kind in ("harmony", "smollm2")


@pytest.mark.skipif(IN_TREE, reason="upstream's own detokenizer is gone in a tree")
def test_upstream_gives_the_prompt_out() -> None:
    """
    The test above can fail: without the patch the whole prompt is in the answer.
    """
    tokenizer = tokenizer_of("byte-level")
    prompt = tokenizer.encode("The password is swordfish. 👍🏿", add_special_tokens=False)[:-1]

    answer = "".join(pieces("byte-level", prompt, tokenizer.encode("x"), skip=True))

    assert "swordfish" in answer


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("skip", [True, False], ids=["skip", "keep"])
def test_no_text_of_a_prompt_of_mere_ids(kind: str, skip: bool) -> None:
    """
    Whatever the ids, an answer says no more than its own ids can, and the character that was cut.
    """
    for prompt, new in prompts(kind):
        if ends_whole(kind, prompt, skip=skip):
            continue
        with primed():
            answer = "".join(pieces(kind, prompt, new[:3], skip=skip))
        alone = tokenizer_of(kind)._tokenizer.decode(new[:3], skip_special_tokens=skip)
        # Bytes that are no character alone can be one, each, after those of the prompt.
        assert len(answer.replace(BROKEN, "")) <= len(alone) + 2, (answer, alone)
