# SPDX-License-Identifier: Apache-2.0
"""Each way to pass an image to vLLM, as the messages of a chat or as another body."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from PIL import Image

COLOURS = ("red", "blue")
SIDE = 56
HIDDEN = 128
"""The width of the tiny model's embeddings. A square of SIDE pixels is 4 of them."""

TEXT = {"type": "text", "text": "What is in the picture?"}


@dataclass(frozen=True)
class Way:
    """
    One way to pass an image.

    body: returns the body of the request for a colour. path: the endpoint.
    seen: whether vLLM uses the image; it drops some, with IDs and without.
    first: returns the body to send before, for a way that refers to an earlier image.
    """

    body: Callable[[str], dict[str, Any]]
    path: str = "/v1/chat/completions"
    seen: bool = True
    first: Callable[[str], dict[str, Any]] | None = None


def data_url(colour: str, kind: str = "image/png") -> str:
    """Return a square of one colour as a data URL."""
    return f"data:{kind};base64,{_png(colour)}"


def _png(colour: str) -> str:
    buffer = io.BytesIO()
    Image.new("RGB", (SIDE, SIDE), colour).save(buffer, "PNG")
    return base64.b64encode(buffer.getvalue()).decode()


def _tensor(colour: str, *shape: int) -> str:
    generator = torch.Generator().manual_seed(COLOURS.index(colour))
    return _packed(torch.randn(*shape, generator=generator))


def _packed(tensor: torch.Tensor) -> str:
    buffer = io.BytesIO()
    torch.save(tensor, buffer)
    return base64.b64encode(buffer.getvalue()).decode()


def _embeds(colour: str) -> dict[str, str]:
    grid = torch.tensor([1, SIDE // 14, SIDE // 14])
    return {"image_embeds": _tensor(colour, 4, HIDDEN), "image_grid_thw": _packed(grid)}


def chat(*parts: Any) -> dict[str, Any]:
    """Return the body of a chat with one message: these parts and a question."""
    return {"messages": [{"role": "user", "content": [*parts, TEXT]}]}


def _part(make: Callable[[str], dict[str, Any]], **fields: Any) -> Way:
    return Way(lambda colour: chat(make(colour)), **fields)


def _url(colour: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": data_url(colour)}}


def _cached(colour: str) -> dict[str, Any]:
    return chat({**_url(colour), "uuid": f"seen-{colour}"})


def _reference(key: str, value: Any = None, kind: str | None = None) -> Way:
    part_type = {} if kind is None else {"type": kind}
    return _part(lambda colour: {**part_type, key: value, "uuid": f"seen-{colour}"}, first=_cached)


def _from_role(role: str, **fields: Any) -> Way:
    def body(colour: str) -> dict[str, Any]:
        message = {"role": role, "content": [_url(colour), TEXT], **fields}
        calls = [{"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}]
        call = {"role": "assistant", "content": None, "tool_calls": calls}
        before = [call] if role == "tool" else []
        return {"messages": [*before, message, {"role": "user", "content": "Which colour?"}]}

    return Way(body)


def _responses(colour: str) -> dict[str, Any]:
    image = {"type": "input_image", "image_url": data_url(colour), "detail": "auto"}
    text = {"type": "input_text", "text": "What is in the picture?"}
    return {"input": [{"role": "user", "content": [image, text]}], "store": False}


def _anthropic(colour: str) -> dict[str, Any]:
    source = {"type": "base64", "media_type": "image/png", "data": _png(colour)}
    return chat({"type": "image", "source": source})


WAYS = {
    "image-url": _part(_url),
    "image-url-uuid": _part(lambda colour: {**_url(colour), "uuid": f"new-{colour}"}),
    "image-url-no-type": _part(lambda colour: {"image_url": {"url": data_url(colour)}}),
    "image-url-string": _part(lambda colour: {"image_url": data_url(colour)}),
    "text-with-image-url": _part(
        lambda colour: {**TEXT, "image_url": {"url": data_url(colour)}}, seen=False
    ),
    "text-with-image-url-uuid": _part(
        lambda colour: {**TEXT, "image_url": {"url": data_url(colour)}, "uuid": f"text-{colour}"}
    ),
    "uuid-image-url-null": _reference("image_url", kind="image_url"),
    "uuid-image-url-null-no-type": _reference("image_url"),
    "uuid-text-image-url-null": _reference("image_url", kind="text"),
    "uuid-image-pil-null": _reference("image_pil"),
    "image-pil": _part(lambda colour: {"type": "image_pil", "image_pil": data_url(colour)}),
    "image-embeds": _part(lambda colour: {"type": "image_embeds", "image_embeds": _embeds(colour)}),
    "text-with-image-embeds": _part(
        lambda colour: {**TEXT, "image_embeds": _embeds(colour)}, seen=False
    ),
    "input-image": _part(
        lambda colour: {"type": "input_image", "image_url": data_url(colour), "detail": "auto"}
    ),
    "prompt-embeds": _part(
        lambda colour: {"type": "prompt_embeds", "data": _tensor(colour, 4, HIDDEN)}
    ),
    "video-url": _part(
        lambda colour: {
            "type": "video_url",
            "video_url": {"url": data_url(colour, "video/jpeg")},
        }
    ),
    "of-system": _from_role("system"),
    "of-assistant": _from_role("assistant"),
    "of-tool": _from_role("tool", tool_call_id="c1"),
    "responses": Way(_responses, path="/v1/responses"),
    "anthropic": Way(_anthropic, path="/v1/messages"),
    "cohere": Way(lambda colour: chat(_url(colour)), path="/cohere/v2/chat"),
}
