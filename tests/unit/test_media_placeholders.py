# SPDX-License-Identifier: Apache-2.0
"""Which ids stand for media is read from what a model says of itself."""

from __future__ import annotations

from typing import Any

import pytest

from vllm_reuse_guard.rules.media_placeholders import ids_by_name, tokens_by_name


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        # As Qwen2-VL, LLaVA, Gemma 3, Ultravox, Llama 4 and Phi-4 name theirs.
        ({"image_token_id": 5, "vision_start_token_id": 3, "eos_token_id": 1}, {3, 5}),
        ({"image_token_index": 32000, "text_config": {"bos_token_id": 1}}, {32000}),
        ({"image_token_index": 7, "vision_config": {"image_size": 8, "num_channels": 3}}, {7}),
        ({"audio_token_index": 9, "text_config": {"audio_token_id": 8}}, {8, 9}),
        ({"image_token_ids": [1, 2]}, {1, 2}),
        ({"image_token_id": None, "video_token_id": True, "image_id": "x"}, set()),
        ({"id2label": {0: "LABEL_0"}, "image_token_id": 5}, {5}),
        ({"vocab_size": 5, "image_seq_length": 4, "pad_token_id": 0}, set()),
    ],
    ids=repr,
)
def test_ids_by_name(config: dict[str, Any], expected: set[int]) -> None:
    """
    Tokens of media at any depth, and no others.
    """
    assert expected == ids_by_name(config)


def test_tokens_by_name() -> None:
    """
    Processors keep theirs as text.
    """
    attributes = {"image_token": "<image>", "video_token": "<video>", "chat_template": "{{ x }}"}

    assert ("<image>", "<video>") == tokens_by_name({**attributes, "audio_token": 5})
