# SPDX-License-Identifier: Apache-2.0
"""Facts about the running vLLM, read off its own objects for the rules to decide on."""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from typing import Any
from weakref import WeakKeyDictionary

from .. import settings
from ..installer import Elsewhere
from ..rules.content import MEDIA_KEYS, TEXT_TYPES
from ..rules.decision import ServerFacts
from ..rules.media_placeholders import ids_by_name, tokens_by_name
from ..rules.token_ids import Vocabulary
from ..rules.transfer_params import Connector, TransferFacts

PARSER_MAP = Elsewhere(
    "MM_PARSER_MAP",
    # From 0.33, in 0.32, up to 0.31.
    ("renderers.chat_utils.chat_message", "renderers.chat_utils", "entrypoints.chat_utils"),
)
"""vLLM's own map of the parsers of content parts."""

_CONNECTORS = {
    "NixlConnector": Connector.NIXL_PULL,
    "NixlPullConnector": Connector.NIXL_PULL,
    "NixlPushConnector": Connector.NIXL_PUSH,
}

_server_facts: WeakKeyDictionary[Any, ServerFacts] = WeakKeyDictionary()


def server_facts(online_renderer: Any) -> ServerFacts:
    """
    Return the facts about the server of an ``OnlineRenderer``; computed once for each renderer.

    To find the last ID of the tokenizer takes some milliseconds at 150k tokens.
    """
    facts = _server_facts.get(online_renderer)
    if facts is None:
        facts = _server_facts[online_renderer] = _describe(online_renderer)
    return facts


def transfer_facts(config: Any) -> TransferFacts:
    """Return the facts that the rules about transfer params need; config: a ``VllmConfig``."""
    return TransferFacts(connectors(config), settings.current().kv_transfer_allowed_peers)


def emits_ids() -> bool:
    """Tell whether this instance emits the IDs of prefill requests."""
    return settings.current().emit_prompt_token_ids


@cache
def media_keys() -> frozenset[str]:
    """Return the keys that make a content part media, those of the running vLLM included."""
    return MEDIA_KEYS | (frozenset(PARSER_MAP.find() or ()) - TEXT_TYPES)


def connectors(config: Any) -> frozenset[Connector]:
    """Return what the guard knows of the KV connectors of a ``VllmConfig``, those in others too."""
    transfer = config.kv_transfer_config
    if transfer is None or transfer.kv_connector is None:
        return frozenset()
    extra = transfer.kv_connector_extra_config
    nested = extra.get("connectors") or []
    return frozenset(
        _connector(one.get("kv_connector"), one.get("kv_connector_extra_config") or {})
        for one in [
            {"kv_connector": transfer.kv_connector, "kv_connector_extra_config": extra},
            *nested,
        ]
    )


def _connector(name: str | None, extra: dict[str, Any]) -> Connector:
    known = _CONNECTORS.get(name or "", Connector.OTHER)
    if known is Connector.NIXL_PULL and extra.get("bidirectional_kv_xfer"):
        return Connector.NIXL_BOTH_WAYS
    return known


def _describe(online_renderer: Any) -> ServerFacts:
    renderer = online_renderer.renderer
    model = online_renderer.model_config
    # A generating engine wants room for one token of the answer.
    room_for_answer = 1 if model.runner_type == "generate" else 0
    chosen = settings.current()
    return ServerFacts(
        policy=chosen.policy,
        without_connector=chosen.prompt_token_ids_without_connector,
        has_connector=renderer.config.kv_transfer_config is not None,
        vocabulary=Vocabulary(model.get_vocab_size(), _highest_known(renderer.tokenizer)),
        max_prompt_len=model.max_model_len - room_for_answer,
        media_keys=media_keys(),
        placeholders=_placeholders(renderer, model),
    )


def _placeholders(renderer: Any, model: Any) -> frozenset[int]:
    if not model.is_multimodal_model:
        return frozenset()
    processor = vars(renderer.get_mm_processor().info.get_hf_processor())
    vocabulary = renderer.tokenizer.get_vocab() if renderer.tokenizer else {}
    named = (vocabulary.get(token) for token in tokens_by_name(processor))
    return (
        ids_by_name(model.hf_config.to_dict())
        | ids_by_name(processor)
        | {id_ for id_ in named if id_ is not None}
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
