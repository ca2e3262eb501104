# SPDX-License-Identifier: Apache-2.0
"""Decide about forwarded ids in the one place where every reader asks for them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from ... import facts
from ...core.decision import Prompt, decide
from ...core.outcome import Reject, Render, Reuse
from ...core.transfer_params import FIELD
from ...effects import DecidedAbout, begin_front_end, note, refusal, take_ids
from ...emission import is_wanted, mark
from ...installer import Undo, wrap
from ...metrics import timing_decision
from ...raw_body import was_scanned


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
            DecidedAbout(prompt) if prompt["prompt_token_ids"] is self.used else prompt
            for prompt in prompts
        ]


# Up to 0.31 the reader is given the request and nothing else, in 0.32 and later not always the
# messages. Both are the same for it everywhere when they come from its callers.
_rendering: ContextVar[Rendering] = ContextVar("vllm_reuse_guard_rendering")


def apply(module: ModuleType) -> Undo:
    """Replace the reader, and tell it for whom it reads; return what undoes that."""
    renderer = module.OnlineRenderer
    with ExitStack() as undo:
        undo.callback(wrap(renderer, "__init__", init))
        undo.callback(wrap(renderer, "preprocess_chat", preprocess_chat))
        undo.callback(wrap(renderer, "_make_request_with_harmony", make_request_with_harmony))
        undo.callback(wrap(module, "_reused_prompt_token_ids", read_ids))
        return undo.pop_all().close


def init(
    wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    """
    Make the renderer of a server, and say that the server is guarded.

    What a decision needs to know is worked out now: a fault stops the start, not a request.
    """
    wrapped(*args, **kwargs)
    facts.instance(instance)
    begin_front_end(instance.renderer.config)


def preprocess_chat(
    wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Awaitable[Any]:
    """Render a chat, Harmony excepted; the messages are not always those of the request."""

    def render(request: Any, messages: object, *_: Any, **__: Any) -> Awaitable[Any]:
        work: Awaitable[Any] = wrapped(*args, **kwargs)
        if getattr(request, FIELD, None) is None:
            return work
        return _decided(Rendering(instance, messages), work)

    return render(*args, **kwargs)


def make_request_with_harmony(
    wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Render a chat for a Harmony (gpt-oss) model."""

    def render(request: Any, *_: Any, **__: Any) -> Any:
        if getattr(request, FIELD, None) is None:
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
    params = getattr(request, FIELD, None)
    if params is None:
        return None
    ids = take_ids(params)
    if is_wanted(params) and was_scanned(request, ids):
        mark(request)
    if ids is None:
        return None
    rendering = _rendering.get()
    prompt = Prompt(
        ids=ids,
        echo=bool(getattr(request, "echo", False)),
        messages=rendering.messages,
        scanned=was_scanned(request, ids),
    )
    with timing_decision():
        outcome = decide(prompt, facts.instance(rendering.renderer))
    note(outcome)
    match outcome:
        case Reuse(reused):
            rendering.used = reused
            return reused
        case Render():
            return None
        case Reject():
            raise refusal(outcome)


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
