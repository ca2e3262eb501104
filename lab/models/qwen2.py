# SPDX-License-Identifier: Apache-2.0
"""The tiny Qwen2 and its variants: a random language model that answers in milliseconds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from .tokenizer import END_OF_TEXT, TURN_END, VOCABULARY, find_id, train_tokenizer
from .weights import random_model

if TYPE_CHECKING:
    from tokenizers import Tokenizer

MAX_LENGTH = 131072
"""The context length of a tiny Qwen2."""

SPREAD = 0.2
"""
The standard deviation of the random weights of a tiny Qwen2.

With the usual tenth of it, or with tied embeddings, each answer is one word repeated.
"""

THINKING = ("<think>", "</think>")
"""The tokens that a reasoning parser needs."""

UNEMBEDDED = tuple(f"<|unembedded_{number}|>" for number in range(8))
"""The tokens without an embedding row, in the variant with a narrow embedding."""

# No loop over the content: vLLM then gives a template strings, not lists of parts.
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


CONTENT = "{{- message.content }}"
"""The part of CHATML that takes strings. A variant replaces it."""

LIST_CONTENT = r"""{%- for part in message.content %}
            {{- part.text }}
        {%- endfor %}"""
"""CONTENT for a template that takes lists of parts: the loop makes vLLM give it lists."""


def write_tiny_qwen2(directory: Path) -> None:
    """Write a random Qwen2 with one embedding row for each token ID."""
    write_qwen2(directory, train_tokenizer(*THINKING))


def write_tiny_qwen2_list_content(directory: Path) -> None:
    """Write the same Qwen2 with a chat template that takes content as a list of parts."""
    template = CHATML.replace(CONTENT, LIST_CONTENT)
    write_qwen2(directory, train_tokenizer(*THINKING), template=template)


def write_tiny_qwen2_narrow(directory: Path) -> None:
    """Write a random Qwen2 whose tokenizer knows 8 token IDs without an embedding row."""
    tokenizer = train_tokenizer()
    tokenizer.add_special_tokens(list(UNEMBEDDED))
    write_qwen2(directory, tokenizer)


def write_tiny_qwen2_long(directory: Path) -> None:
    """Write a random Qwen2, small enough for two cores to fill its long context."""
    small = {"hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
    long = {"num_key_value_heads": 1, "max_position_embeddings": MAX_LENGTH}
    write_qwen2(directory, train_tokenizer(), **small, **long)


def write_qwen2(
    directory: Path, tokenizer: Tokenizer, *, template: str = CHATML, **other: Any
) -> None:
    """Write a random Qwen2 with VOCABULARY rows, and its tokenizer. other: settings to override."""
    from transformers import Qwen2Config

    settings = {**qwen2_settings(tokenizer), **other}
    config = Qwen2Config(**settings, tie_word_embeddings=False)
    random_model(config).save_pretrained(directory)
    save_qwen2_tokenizer(tokenizer, template, directory)


def qwen2_settings(tokenizer: Tokenizer) -> dict[str, Any]:
    """Return the settings of a tiny language model. Do not tie its embeddings: see SPREAD."""
    return {
        "vocab_size": VOCABULARY,
        "hidden_size": 128,
        "intermediate_size": 256,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "max_position_embeddings": MAX_LENGTH,
        "initializer_range": SPREAD,
        "bos_token_id": None,
        "eos_token_id": find_id(tokenizer, TURN_END),
        "pad_token_id": find_id(tokenizer, END_OF_TEXT),
    }


def save_qwen2_tokenizer(tokenizer: Tokenizer, template: str, directory: Path) -> None:
    """Write the tokenizer of a tiny Qwen2, with its chat template."""
    from transformers import PreTrainedTokenizerFast

    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=TURN_END,
        pad_token=END_OF_TEXT,
        chat_template=template.strip(),
        model_max_length=MAX_LENGTH,
        clean_up_tokenization_spaces=False,
    ).save_pretrained(directory)
