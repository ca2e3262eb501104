# SPDX-License-Identifier: Apache-2.0
"""Emit the prompt's token IDs in the answers of a prefill instance."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...installer import PatchPoints
from ...server.emit_ids import with_ids
from ...server.marks import is_text_chat


def apply(points: PatchPoints) -> None:
    """Wrap the function that runs a request."""
    points.wrap("AsyncLLM.generate", generate)


def generate(
    wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Run a request; add the prompt's IDs to the outputs of a marked one."""

    def is_marked(prompt: Any, sampling_params: Any, *_: Any, **__: Any) -> bool:
        return is_text_chat(sampling_params)

    outputs = wrapped(*args, **kwargs)
    return with_ids(outputs) if is_marked(*args, **kwargs) else outputs
