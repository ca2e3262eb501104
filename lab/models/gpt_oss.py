# SPDX-License-Identifier: Apache-2.0
"""The tiny gpt-oss: a random Harmony model with the tokenizer of the real one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from .tokenizer import END_OF_TEXT, byte_level, find_id
from .weights import random_model

if TYPE_CHECKING:
    from openai_harmony import HarmonyEncoding
    from tokenizers import Tokenizer
    from transformers import PreTrainedModel

HARMONY_TEXT = 199998
"""Token IDs below this one are text in Harmony's vocabulary; the others are special."""

HARMONY_KNOWN = 200019
"""The number of token IDs of the published gpt-oss tokenizer; Harmony reserves more."""

HARMONY_ROWS = 201088
"""Rows of the published gpt-oss embedding table."""

HARMONY_OPENING = ("assistant", "<|channel|>", "final", "<|message|>")
"""The first tokens of every answer. The prompt ends with the first of them."""

START_OF_TEXT = "<|startoftext|>"
HARMONY_EOS = ("<|return|>", END_OF_TEXT, "<|call|>")

O200K_WORDS = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*"
    r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+"
    r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"\p{N}{1,3}",
    r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
    r"\s*[\r\n]+",
    r"\s+(?!\S)",
    r"\s+",
)
"""How o200k, the base of Harmony's vocabulary, splits text; tiktoken has the same patterns."""

# vLLM renders gpt-oss with Harmony and never reads this template. It serves direct users of the
# tokenizer.
HARMONY_TEMPLATE = r"""
{%- for message in messages %}
    {{- '<|start|>' + message.role + '<|message|>' + message.content + '<|end|>' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start|>assistant' }}
{%- endif %}
"""


def write_tiny_gpt_oss(directory: Path) -> None:
    """
    Write a random gpt-oss whose answers are Harmony messages.

    Each answer opens the final channel, as a real one does. Random text follows, which ends at
    the ``max_tokens`` of the request.
    """
    from transformers import GenerationConfig, GptOssConfig, PreTrainedTokenizerFast

    tokenizer = harmony_tokenizer()
    eos = [find_id(tokenizer, token) for token in HARMONY_EOS]
    pad = find_id(tokenizer, END_OF_TEXT)
    config = GptOssConfig(
        vocab_size=HARMONY_ROWS,
        hidden_size=64,
        intermediate_size=64,
        head_dim=64,  # vLLM refuses smaller heads.
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        num_local_experts=4,
        num_experts_per_tok=2,
        initializer_range=0.2,
        eos_token_id=eos[0],
        pad_token_id=pad,
    )
    model = random_model(config)
    teach_opening(model, [find_id(tokenizer, token) for token in HARMONY_OPENING])
    model.generation_config = GenerationConfig(
        bos_token_id=find_id(tokenizer, START_OF_TEXT),
        eos_token_id=eos,
        pad_token_id=pad,
        do_sample=True,
    )
    model.save_pretrained(directory)
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=START_OF_TEXT,
        eos_token=HARMONY_EOS[0],
        pad_token=END_OF_TEXT,
        chat_template=HARMONY_TEMPLATE.strip(),
        model_max_length=config.max_position_embeddings,
        clean_up_tokenization_spaces=False,
    ).save_pretrained(directory)


def teach_opening(model: PreTrainedModel, opening: Sequence[int]) -> None:
    """
    Make each token of ``opening`` follow the one before it, and nowhere else.

    The model generates no other special token, which would end the message or break its format.
    """
    import torch

    steps = list(pairwise(opening))
    # One coordinate for each step, which nothing else reads or writes.
    lane = slice(model.config.hidden_size - len(steps), None)
    with torch.no_grad():
        rows, heads = model.model.embed_tokens.weight, model.lm_head.weight
        rows[:, lane] = heads[:, lane] = 0
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight[lane] = 0
            layer.self_attn.o_proj.bias[lane] = 0
            layer.mlp.experts.down_proj[..., lane] = 0
            layer.mlp.experts.down_proj_bias[..., lane] = 0
        heads[HARMONY_TEXT:] = 0
        heads[opening] = 0
        for coordinate, (before, after) in enumerate(steps, start=lane.start):
            # Far above the 0.2 of the other weights, so that it outweighs them.
            rows[before, coordinate] = heads[after, coordinate] = 32


def harmony_tokenizer() -> Tokenizer:
    """Return the tokenizer of gpt-oss, from the package oss-harmony."""
    import openai_harmony
    from tokenizers import Tokenizer, decoders, models

    encoding = openai_harmony.load_harmony_encoding(
        openai_harmony.HarmonyEncodingName.HARMONY_GPT_OSS
    )
    texts = [token_bytes(encoding, number) for number in range(HARMONY_TEXT)]
    spell = byte_speller()
    tokenizer = Tokenizer(
        models.BPE(
            vocab={spell(text): number for number, text in enumerate(texts)},
            merges=[(spell(left), spell(right)) for left, right in derive_merges(texts)],
            # Harmony does not merge inside a word that is a token.
            ignore_merges=True,
        )
    )
    tokenizer.pre_tokenizer = byte_level("|".join(O200K_WORDS))
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(
        [encoding.decode([number]) for number in range(HARMONY_TEXT, HARMONY_KNOWN)]
    )
    return tokenizer


def token_bytes(encoding: HarmonyEncoding, number: int) -> bytes:
    """Return the bytes of a token, which need not be valid UTF-8."""
    text = encoding.decode([number], errors="surrogateescape")
    return text.encode("utf-8", errors="surrogateescape")


def byte_speller() -> Callable[[bytes], str]:
    """Return a function that spells bytes as a byte-level vocabulary does: each as a letter."""
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    letters = bytes_to_unicode()
    return lambda text: "".join(letters[byte] for byte in text)


def derive_merges(texts: Sequence[bytes]) -> Iterator[tuple[bytes, bytes]]:
    """
    Yield each pair of tokens that merges into another token, in order of rank.

    texts: the bytes of the tokens by rank. A vocabulary in this order has no list of merges,
    because they follow from it.
    """
    rank = {text: number for number, text in enumerate(texts)}
    for text in texts:
        cuts = [(text[:cut], text[cut:]) for cut in range(1, len(text))]
        pairs = [pair for pair in cuts if pair[0] in rank and pair[1] in rank]
        yield from sorted(pairs, key=lambda pair: (rank[pair[0]], rank[pair[1]]))
