# SPDX-License-Identifier: Apache-2.0
"""Is all of this content text? Whatever is not known to be text is not."""

from __future__ import annotations

from collections.abc import Iterator, Set

TEXT_TYPES = frozenset(
    {"text", "input_text", "output_text", "refusal", "thinking", "tool_reference"}
)
"""The values of a part's ``type`` that mean text."""

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

_FIELDS = ("content", "reasoning", "reasoning_content")


def is_text_only(messages: object, *, media_keys: Set[str], iterators_are_text: bool) -> bool:
    """
    Tell whether the messages of a chat, of whatever role, hold text and nothing else.

    messages: the list of messages, each a dict, raw or validated.
    media_keys: see MEDIA_KEYS; the running vLLM may know more.
    iterators_are_text: what to think of content that is a one-shot iterator (pydantic makes
        one of a list of parts). It is never consumed; say True where the raw body was read.

    Never raises, changes nothing.
    """
    return isinstance(messages, (list, tuple)) and all(
        isinstance(message, dict)
        and all(_is_text(message.get(field), media_keys, iterators_are_text) for field in _FIELDS)
        for message in messages
    )


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
