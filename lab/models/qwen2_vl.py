# SPDX-License-Identifier: Apache-2.0
"""The tiny Qwen2-VL: a random vision language model."""

from __future__ import annotations

import json
from pathlib import Path

from .qwen2 import CHATML, CONTENT, SPREAD, qwen2_settings, save_qwen2_tokenizer
from .tokenizer import find_id, train_tokenizer
from .weights import random_model

VISION_START, VISION_END = "<|vision_start|>", "<|vision_end|>"
IMAGE_PAD, VIDEO_PAD = "<|image_pad|>", "<|video_pad|>"

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
"""CONTENT for a template that takes images and videos."""

PATCH, MERGE = 14, 2
"""As in the published Qwen2-VL: 28 by 28 pixels are one token."""

PREPROCESSING = {
    "processor_class": "Qwen2VLProcessor",
    "patch_size": PATCH,
    "merge_size": MERGE,
    # The limits of the number of pixels: 4 and 64 tokens. vLLM encodes an image of the largest
    # size at its start.
    "size": {"shortest_edge": 56 * 56, "longest_edge": 224 * 224},
    # Also the defaults of the classes, but vLLM 0.32.0 and later read only this file.
    "do_rescale": True,
    "do_normalize": True,
    "image_mean": [0.48145466, 0.4578275, 0.40821073],
    "image_std": [0.26862954, 0.26130258, 0.27577711],
}


def write_tiny_qwen2_vl(directory: Path) -> None:
    """Write a random Qwen2-VL whose answer depends on the pixels of an image."""
    from transformers import Qwen2VLConfig

    tokenizer = train_tokenizer(VISION_START, VISION_END, IMAGE_PAD, VIDEO_PAD)
    text = qwen2_settings(tokenizer)
    # The coordinates of half a head that rotate with time, height and width.
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
    """Write the settings with which images and videos are cut into patches."""
    # By hand: the processors themselves need torchvision.
    image = {**PREPROCESSING, "image_processor_type": "Qwen2VLImageProcessor"}
    video = {**PREPROCESSING, "video_processor_type": "Qwen2VLVideoProcessor"}
    (directory / "preprocessor_config.json").write_text(json.dumps(image, indent=2))
    (directory / "video_preprocessor_config.json").write_text(json.dumps(video, indent=2))
