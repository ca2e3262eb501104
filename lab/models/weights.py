# SPDX-License-Identifier: Apache-2.0
"""Random weights, the same at each build."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel

SEED = 20240229


def random_model(config: PreTrainedConfig) -> PreTrainedModel:
    """Return a float32 model with random weights, the same every time."""
    import torch
    from transformers import AutoModelForCausalLM, AutoModelForImageTextToText

    sees = hasattr(config, "vision_config")
    kind = AutoModelForImageTextToText if sees else AutoModelForCausalLM
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        return kind.from_config(config, dtype=torch.float32)
