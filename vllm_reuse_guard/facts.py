# SPDX-License-Identifier: Apache-2.0
"""Facts about the running vLLM, read off its own objects for the rules to decide on."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from types import ModuleType
from typing import Any
from weakref import WeakKeyDictionary

from . import settings
from .core.content import MEDIA_KEYS, TEXT_TYPES
from .core.decision import Instance
from .core.token_ids import Vocabulary

# Where the map of content part parsers is: from 0.33, in 0.32, up to 0.31.
_PARSER_MAP = "MM_PARSER_MAP"
_PARSER_MODULES = (
    "vllm.renderers.chat_utils.chat_message",
    "vllm.renderers.chat_utils",
    "vllm.entrypoints.chat_utils",
)

_instances: WeakKeyDictionary[Any, Instance] = WeakKeyDictionary()


def instance(online_renderer: Any) -> Instance:
    """
    Describe the server that an ``OnlineRenderer`` belongs to; worked out once for each.

    The vocabulary takes a walk through the tokenizer, some milliseconds at 150k tokens.
    """
    known = _instances.get(online_renderer)
    if known is None:
        known = _instances[online_renderer] = _describe(online_renderer)
    return known


@cache
def media_keys() -> frozenset[str]:
    """Return the keys that make a content part media, those of the running vLLM included."""
    return MEDIA_KEYS | (frozenset(_parser_map()) - TEXT_TYPES)


def parser_map_is_there(_module: ModuleType) -> Iterable[str]:
    """Check, for ``Patch.applies``, that the map of content part parsers can be found."""
    if not _parser_map():
        yield f"{_PARSER_MODULES[-1]}.{_PARSER_MAP}"


def _describe(online_renderer: Any) -> Instance:
    renderer = online_renderer.renderer
    model = online_renderer.model_config
    # A generating engine wants room for one token of the answer.
    room_for_answer = 1 if model.runner_type == "generate" else 0
    return Instance(
        policy=settings.current().prompt_token_ids_policy,
        has_connector=renderer.config.kv_transfer_config is not None,
        vocabulary=Vocabulary(model.get_vocab_size(), _highest_known(renderer.tokenizer)),
        longest=model.max_model_len - room_for_answer,
        media_keys=media_keys(),
    )


def _highest_known(tokenizer: Any) -> int | None:
    # Not tokenizer.max_token_id: up to 0.31 that is one too high for most tokenizers, and
    # the id past the table that it lets through kills the engine.
    if tokenizer is None:
        return None
    highest: int = max(tokenizer.get_vocab().values())
    # Some tokenizers have special tokens that count in vocab_size but not in the vocabulary.
    with suppress(NotImplementedError):
        highest = max(highest, tokenizer.vocab_size - 1)
    return highest


def _parser_map() -> Iterable[str]:
    for name in _PARSER_MODULES:
        with suppress(ModuleNotFoundError):
            if parsers := getattr(importlib.import_module(name), _PARSER_MAP, None):
                return list(parsers)
    return ()
