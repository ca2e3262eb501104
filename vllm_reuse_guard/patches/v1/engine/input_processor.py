# SPDX-License-Identifier: Apache-2.0
"""Forwarded ids that were decided about are not looked through for a second time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from ....effects import DecidedAbout
from ....installer import Undo, wrap


def apply(module: ModuleType) -> Undo:
    """Wrap the last check before a request is made for the engine; return what undoes that."""
    return wrap(module.InputProcessor, "_validate_model_input", validate_model_input)


def validate_model_input(
    wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    """
    Check the prompt of a request; of ids that are being reused the length only.

    Of a prompt of token ids upstream checks nothing but its length and the vocabulary. Raises
    VLLMValidationError, as upstream does.
    """

    def validate(prompt_input: Mapping[str, Any], prompt_type: str) -> None:
        if isinstance(prompt_input, DecidedAbout):
            instance._validate_prompt_len(len(prompt_input["prompt_token_ids"]), prompt_type)
        else:
            wrapped(prompt_input, prompt_type)

    validate(*args, **kwargs)
