# SPDX-License-Identifier: Apache-2.0
"""Do not check forwarded IDs a second time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...installer import PatchPoints
from ...server.marks import ReusedPrompt


def apply(points: PatchPoints) -> None:
    """Wrap the last check before vLLM makes the engine's request."""
    points.wrap("InputProcessor._validate_model_input", validate_model_input)


def validate_model_input(
    wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    """
    Check the prompt of a request; of reused IDs only the length.

    vLLM checks nothing of a prompt of token IDs but its length and the vocabulary, which the
    rules have checked. Raises VLLMValidationError, as vLLM does.
    """

    def validate(prompt_input: Mapping[str, Any], prompt_type: str) -> None:
        if isinstance(prompt_input, ReusedPrompt):
            instance._validate_prompt_len(len(prompt_input["prompt_token_ids"]), prompt_type)
        else:
            wrapped(prompt_input, prompt_type)

    validate(*args, **kwargs)
