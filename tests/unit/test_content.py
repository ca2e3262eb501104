# SPDX-License-Identifier: Apache-2.0
"""What counts as text, and that one-shot iterators are left alone."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_reuse_guard.rules.content import MEDIA_KEYS, MESSAGE_TYPES, TEXT_TYPES, is_text_only

SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
JSON = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "text", "content", "role", *MEDIA_KEYS]), inner, max_size=3
        )
    ),
)


def text_only(content: Any, *, iterators_are_text: bool = False, **fields: Any) -> bool:
    message = {"role": "user", "content": content, **fields}
    return is_text_only([message], media_keys=MEDIA_KEYS, iterators_are_text=iterators_are_text)


@pytest.mark.parametrize("kind", sorted(TEXT_TYPES))
def test_text_types_are_text(kind: str) -> None:
    """
    A part of a text type is text, in a list or alone.
    """
    assert text_only([{"type": kind, "text": "x"}, "a plain string"])


@pytest.mark.parametrize("content", [None, "", "text", []], ids=repr)
def test_no_parts_are_text(content: Any) -> None:
    """
    A string, nothing, and no parts at all are text.
    """
    assert text_only(content)


@pytest.mark.parametrize("key", sorted(MEDIA_KEYS))
@pytest.mark.parametrize("kind", [{"type": "text"}, {}, {"uuid": "u"}], ids=repr)
def test_media_key_is_media_whatever_the_type(key: str, kind: dict[str, str]) -> None:
    """
    A part with a media key is media, also when the value is null.
    """
    assert not text_only([{**kind, "text": "x", key: None}])


@pytest.mark.parametrize(
    "part",
    [{"text": "x"}, {"type": "hologram"}, {"type": 7}, {"type": None}, {"type": ["text"]}, 7, None],
    ids=repr,
)
def test_unknown_parts_are_not_text(part: Any) -> None:
    """
    What is not known to be text is not text.
    """
    assert not text_only([part])


@pytest.mark.parametrize("field", ["reasoning", "reasoning_content"])
def test_reasoning_can_be_media(field: str) -> None:
    """
    Reasoning is text as a string, not as prompt embeds.
    """
    assert text_only("x", **{field: "thought"})
    assert not text_only("x", **{field: {"type": "prompt_embeds", "data": "AAAA"}})


@pytest.mark.parametrize("role", ["system", "developer", "user", "assistant", "tool"])
def test_messages_of_every_role_count(role: str) -> None:
    """
    One image anywhere makes the conversation more than text.
    """
    messages = [
        {"role": role, "content": [{"type": "image_url", "image_url": {"url": "x"}}]},
        {"role": "user", "content": "Hello"},
    ]

    assert not is_text_only(messages, media_keys=MEDIA_KEYS, iterators_are_text=True)


@pytest.mark.parametrize("kind", sorted(MESSAGE_TYPES))
def test_items_that_vllm_makes_text_of_are_text(kind: str) -> None:
    """
    The items of a response's input have types of their own; those of text are text.
    """
    assert text_only("x", type=kind, output="x")


@pytest.mark.parametrize("kind", ["computer_call_output", "input_image", "item_reference", None, 7])
def test_other_items_are_not_text(kind: Any) -> None:
    """
    An item that vLLM makes no text of is not text, whatever it holds.
    """
    assert not text_only("x", type=kind)


def test_media_beside_the_content_of_a_message_counts() -> None:
    """
    A media key of a message itself is media, as in an item that is an image and no more.
    """
    assert not text_only("x", image_url="x")


@pytest.mark.parametrize(
    "message",
    [
        {"id": "msg_1"},
        {"role": "assistant", "content": None, "audio": {"id": "x"}},
        {"type": "reasoning", "summary": [{"type": "input_image", "image_url": "x"}]},
    ],
    ids=repr,
)
def test_what_stands_for_something_else_is_not_text(message: dict[str, Any]) -> None:
    """
    A reference, an answer that was spoken, a summary with an image.
    """
    assert not is_text_only([message], media_keys=MEDIA_KEYS, iterators_are_text=True)


def test_output_of_a_tool_can_be_media() -> None:
    """
    The output of a tool in a response's input is text or parts, like content.
    """
    output = [{"type": "input_image", "image_url": "x"}]

    assert text_only(None, type="function_call_output", output=[{"type": "input_text"}])
    assert not text_only(None, type="function_call_output", output=output)


def test_input_that_is_a_string_is_text() -> None:
    """
    The input of a response can be a string.
    """
    assert is_text_only("Hello", media_keys=MEDIA_KEYS, iterators_are_text=False)


@pytest.mark.parametrize("trusted", [True, False])
def test_iterator_is_never_consumed(trusted: bool) -> None:
    """
    A one-shot iterator is what the caller says it is, and still has all its items.
    """
    parts = iter([{"type": "text", "text": "x"}])

    assert trusted is text_only(parts, iterators_are_text=trusted)
    assert [{"type": "text", "text": "x"}] == list(parts)


@given(messages=JSON, trusted=st.booleans())
def test_anything_has_an_answer(messages: Any, trusted: bool) -> None:
    """
    No JSON value makes the scan raise or change it.
    """
    before = repr(messages)

    assert is_text_only(messages, media_keys=MEDIA_KEYS, iterators_are_text=trusted) in (
        True,
        False,
    )
    assert before == repr(messages)
