# SPDX-License-Identifier: Apache-2.0
"""Tell text from other content; unknown content is not text (``non_text_content``)."""

from __future__ import annotations

from collections.abc import Iterator, Set

TEXT_TYPES = frozenset(
    {"text", "input_text", "output_text", "refusal", "thinking", "tool_reference"}
)
"""The values of a part's ``type`` that mean text: those whose parser in vLLM's own map of parsers
returns nothing but text, in every release."""

MEDIA_KEYS = frozenset(
    {
        "image_url",
        "image_pil",
        "image_embeds",
        "audio_url",
        "input_audio",
        "audio_embeds",
        "video_url",
        "prompt_embeds",
        "input_image",
    }
)
"""Keys that make a part media whatever its ``type`` says: vLLM reads a part that has a
``uuid`` by these keys and not by its ``type``."""

MESSAGE_TYPES = frozenset(
    {
        "message",
        "reasoning",
        "function_call",
        "function_call_output",
        "custom_tool_call",
        "custom_tool_call_output",
    }
)
"""The values of a message's own ``type`` that vLLM makes text of. Messages of /v1/responses
can have one, as the types of the ``openai`` package name them; those without have a role."""

_FIELDS = ("content", "reasoning", "reasoning_content", "output", "summary", "audio")


def is_text_only(messages: object, *, media_keys: Set[str], iterators_are_text: bool) -> bool:
    """
    Tell whether a conversation, of whatever roles, holds text and nothing else.

    messages: the messages of a chat or the input of a response, raw or validated: a string,
        or a list of dicts.
    media_keys: see MEDIA_KEYS; the running vLLM may know more.
    iterators_are_text: what to think of content that is a one-shot iterator (pydantic makes
        one of a list of parts). It is never consumed; say True where the raw body was read.

    Never raises, changes nothing.
    """
    if isinstance(messages, str):
        return True
    return isinstance(messages, (list, tuple)) and all(
        _is_text_message(message, media_keys, iterators_are_text) for message in messages
    )


def _is_text_message(message: object, media_keys: Set[str], iterators_are_text: bool) -> bool:
    if not isinstance(message, dict) or not media_keys.isdisjoint(message):
        return False
    if "type" not in message and "role" not in message:
        return False
    kind = message.get("type", "message")
    if not (isinstance(kind, str) and kind in MESSAGE_TYPES):
        return False
    return all(_is_text(message.get(field), media_keys, iterators_are_text) for field in _FIELDS)


def _is_text(content: object, media_keys: Set[str], iterators_are_text: bool) -> bool:
    if content is None:
        return True
    if isinstance(content, (list, tuple)):
        return all(_is_text_part(part, media_keys) for part in content)
    if isinstance(content, Iterator):
        return iterators_are_text
    return _is_text_part(content, media_keys)


def _is_text_part(part: object, media_keys: Set[str]) -> bool:
    if isinstance(part, str):
        return True
    if not isinstance(part, dict) or not media_keys.isdisjoint(part):
        return False
    kind = part.get("type")
    return isinstance(kind, str) and kind in TEXT_TYPES
