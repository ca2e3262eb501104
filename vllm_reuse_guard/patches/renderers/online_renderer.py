# SPDX-License-Identifier: Apache-2.0
"""Decide about forwarded ids in the one place where every reader asks for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from ... import facts
from ...core.decision import Prompt, decide
from ...core.outcome import Reject, Render, Reuse
from ...core.transfer_params import FIELD
from ...effects import begin_front_end, note, refusal, take_ids
from ...emission import is_wanted, mark
from ...installer import Undo, wrap
from ...metrics import timing_decision
from ...raw_body import was_scanned


@dataclass(frozen=True)
class Rendering:
    """The rendering of one prompt that is under way: the OnlineRenderer and its messages."""

    renderer: Any
    messages: object


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


async def preprocess_chat(
    wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Render a chat, Harmony excepted; the messages are not always those of the request."""

    def messages(request: Any, messages: object, *_: Any, **__: Any) -> object:
        return messages

    with _now_rendering(instance, messages(*args, **kwargs)):
        return await wrapped(*args, **kwargs)


def make_request_with_harmony(
    wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Render a chat for a Harmony (gpt-oss) model."""

    def messages(request: Any, *_: Any, **__: Any) -> object:
        return request.messages

    with _now_rendering(instance, messages(*args, **kwargs)):
        return wrapped(*args, **kwargs)


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
            return reused
        case Render():
            return None
        case Reject():
            raise refusal(outcome)


@contextmanager
def _now_rendering(renderer: Any, messages: object) -> Iterator[None]:
    token = _rendering.set(Rendering(renderer, messages))
    try:
        yield
    finally:
        _rendering.reset(token)
