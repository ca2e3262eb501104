# SPDX-License-Identifier: Apache-2.0
"""Decide about forwarded ids in the one place where every reader asks for them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from ...installer import PatchPoints
from ...rules.decision import Prompt, decide
from ...rules.outcome import KV_TRANSFER_PARAMS, Reject, Render, Reuse
from ...server import facts
from ...server.emit_ids import is_wanted
from ...server.forwarded_ids import record, take_ids
from ...server.marks import ReusedPrompt, is_scanned_text, mark_text_chat
from ...server.metrics import timing_decision
from ...server.refusal import validation_error
from ...server.startup import begin_front_end


@dataclass
class Rendering:
    """
    The rendering of one prompt that is under way.

    renderer: the OnlineRenderer. used: the forwarded ids that are the prompt, once that is decided.
    """

    renderer: Any
    messages: object
    used: list[int] | None = None

    def marked(self, rendered: Any) -> Any:
        """Return what was rendered, messages and prompts; the prompt of used ids is marked."""
        if self.used is None:
            return rendered
        messages, prompts = rendered
        return messages, [
            ReusedPrompt(prompt) if prompt["prompt_token_ids"] is self.used else prompt
            for prompt in prompts
        ]


# Up to 0.31 the reader is given the request and nothing else, in 0.32 and later not always the
# messages. Both are the same for it everywhere when they come from its callers.
_rendering: ContextVar[Rendering] = ContextVar("vllm_reuse_guard_rendering")


def apply(points: PatchPoints) -> None:
    """Replace the reader of the IDs, and wrap its callers, which know what it reads for."""
    points.wrap("OnlineRenderer.__init__", init)
    points.wrap("OnlineRenderer.preprocess_chat", preprocess_chat)
    points.wrap("OnlineRenderer._make_request_with_harmony", make_request_with_harmony)
    points.wrap("_reused_prompt_token_ids", read_ids)


def init(
    wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    """
    Make the renderer of a server, and say that the server is guarded.

    What a decision needs to know is worked out now: a fault stops the start, not a request.
    """
    wrapped(*args, **kwargs)
    facts.server_facts(instance)
    begin_front_end(instance.renderer.config)


def preprocess_chat(
    wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Awaitable[Any]:
    """Render a chat, Harmony excepted; the messages are not always those of the request."""

    def render(request: Any, messages: object, *_: Any, **__: Any) -> Awaitable[Any]:
        work: Awaitable[Any] = wrapped(*args, **kwargs)
        if getattr(request, KV_TRANSFER_PARAMS, None) is None:
            return work
        return _decided(Rendering(instance, messages), work)

    return render(*args, **kwargs)


def make_request_with_harmony(
    wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Render a chat for a Harmony (gpt-oss) model."""

    def render(request: Any, *_: Any, **__: Any) -> Any:
        if getattr(request, KV_TRANSFER_PARAMS, None) is None:
            return wrapped(*args, **kwargs)
        rendering = Rendering(instance, request.messages)
        with _now(rendering):
            return rendering.marked(wrapped(*args, **kwargs))

    return render(*args, **kwargs)


def read_ids(
    wrapped: Callable[..., Any], instance: None, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> list[int] | None:
    """
    Return the ids to use as the prompt, or None to have the messages rendered.

    Upstream's own reader is not asked: it passes ids that the engine dies of. The key is
    taken out of the transfer params whatever the outcome, so that the ids reach neither the
    engine's sampling metadata nor the connector. A chat of text on its way through prefill is
    marked, if the answer is to have its ids.

    Raises VLLMValidationError, vLLM's 400, when the ids are refused.
    """
    request = args[0]
    params = getattr(request, KV_TRANSFER_PARAMS, None)
    if params is None:
        return None
    ids = take_ids(params)
    if is_wanted(params) and is_scanned_text(request, ids):
        mark_text_chat(request)
    if ids is None:
        return None
    rendering = _rendering.get()
    prompt = Prompt(
        ids=ids,
        echo=bool(getattr(request, "echo", False)),
        messages=rendering.messages,
        scanned=is_scanned_text(request, ids),
    )
    with timing_decision():
        outcome = decide(prompt, facts.server_facts(rendering.renderer))
    record(outcome)
    match outcome:
        case Reuse(reused):
            rendering.used = reused
            return reused
        case Render():
            return None
        case Reject():
            raise validation_error(outcome)


async def _decided(rendering: Rendering, work: Awaitable[Any]) -> Any:
    with _now(rendering):
        return rendering.marked(await work)


@contextmanager
def _now(rendering: Rendering) -> Iterator[None]:
    token = _rendering.set(rendering)
    try:
        yield
    finally:
        _rendering.reset(token)
