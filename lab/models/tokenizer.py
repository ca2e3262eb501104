# SPDX-License-Identifier: Apache-2.0
"""Train and inspect the byte-level BPE tokenizers of the tiny models."""

from __future__ import annotations

import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from .recipe import ModelBuildError

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from tokenizers.pre_tokenizers import PreTokenizer

VOCABULARY = 4096
"""
Token IDs of a tiny Qwen2. A multiple of 64, to which vLLM rounds an embedding table up: the
first ID past the bound has no row in vLLM either.
"""

END_OF_TEXT, TURN_START, TURN_END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"

CORPUS = (
    "argparse.py",
    "ast.py",
    "asyncio/base_events.py",
    "collections/__init__.py",
    "dataclasses.py",
    "datetime.py",
    "decimal.py",
    "difflib.py",
    "email/message.py",
    "enum.py",
    "functools.py",
    "http/client.py",
    "inspect.py",
    "json/decoder.py",
    "logging/__init__.py",
    "pathlib.py",
    "pickle.py",
    "random.py",
    "socket.py",
    "statistics.py",
    "subprocess.py",
    "tarfile.py",
    "textwrap.py",
    "threading.py",
    "typing.py",
    "unittest/mock.py",
    "urllib/parse.py",
    "zipfile.py",
)
"""The files of the standard library to train on; their order is part of the recipe."""


def train_tokenizer(*more: str) -> Tokenizer:
    """
    Return a byte-level BPE tokenizer of exactly VOCABULARY token IDs.

    more: special tokens beyond those of a text conversation. Raises ModelBuildError if the corpus
    is too small.
    """
    from tokenizers import Tokenizer, decoders, models, normalizers, trainers
    from tokenizers.pre_tokenizers import ByteLevel
    from transformers.models.qwen2.tokenization_qwen2 import PRETOKENIZE_REGEX

    tokenizer = Tokenizer(models.BPE())
    # AutoTokenizer gives these two to any tokenizer of a Qwen2, whatever its file contains. With
    # others here, readers of the file would disagree on token IDs.
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = byte_level(PRETOKENIZE_REGEX)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[END_OF_TEXT, TURN_START, TURN_END, *more],
        initial_alphabet=sorted(ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(read_corpus(), trainer)
    if tokenizer.get_vocab_size() != VOCABULARY:
        raise ModelBuildError(
            f"the corpus gave {tokenizer.get_vocab_size()} tokens, not {VOCABULARY}: extend CORPUS"
        )
    return tokenizer


def read_corpus() -> Iterator[str]:
    """Yield the text of each corpus file, in order."""
    library = Path(sysconfig.get_path("stdlib"))
    for name in CORPUS:
        yield (library / name).read_text(encoding="utf-8")


def find_id(tokenizer: Tokenizer, token: str) -> int:
    """Return the ID of a token. Raises ModelBuildError for an unknown token."""
    token_id = tokenizer.token_to_id(token)
    if token_id is None:
        raise ModelBuildError(f"the tokenizer does not know {token}")
    return token_id


def byte_level(pattern: str) -> PreTokenizer:
    """Return a pre-tokenizer that splits text into the words of a pattern, then into bytes."""
    from tokenizers import Regex, pre_tokenizers

    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
