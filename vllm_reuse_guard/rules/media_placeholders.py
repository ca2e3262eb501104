# SPDX-License-Identifier: Apache-2.0
"""Find the token IDs that stand for media in a prompt, by the names in a model's files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

_MEDIA = frozenset({"image", "img", "video", "audio", "speech", "vision", "media", "multimodal"})
_KINDS = frozenset({"id", "ids", "index"})


def ids_by_name(config: Mapping[str, Any]) -> frozenset[int]:
    """
    Return the ids that a model's configuration names as tokens of media, at any depth.

    config: as in config.json, such as ``{"image_token_id": 151655, "text_config": {...}}``.
    """
    found: set[int] = set()
    left: list[Mapping[Any, Any]] = [config]
    while left:
        for name, value in left.pop().items():
            if isinstance(value, Mapping):
                left.append(value)
            elif _is_id_of_media(name):
                found.update(_ids(value))
    return frozenset(found)


def tokens_by_name(attributes: Mapping[str, Any]) -> tuple[str, ...]:
    """
    Return the tokens of media, as text, that a processor keeps under names of its own.

    attributes: such as ``{"image_token": "<|image_pad|>"}``.
    """
    return tuple(
        value
        for name, value in attributes.items()
        if isinstance(value, str) and name.split("_")[-1] == "token" and _names_media(name)
    )


def _is_id_of_media(name: object) -> bool:
    return isinstance(name, str) and name.split("_")[-1] in _KINDS and _names_media(name)


def _names_media(name: str) -> bool:
    return not _MEDIA.isdisjoint(name.split("_"))


def _ids(value: object) -> Iterable[int]:
    values = value if isinstance(value, (list, tuple)) else [value]
    return [item for item in values if type(item) is int]
