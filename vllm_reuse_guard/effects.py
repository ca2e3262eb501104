# SPDX-License-Identifier: Apache-2.0
"""What an outcome does: takes the ids away, says why in the log, is raised as vLLM's own 400."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from . import __version__, facts, metrics, plugin, settings
from .core.decision import forwarded
from .core.outcome import KEY, Outcome, Reason, Reject, Render, Reuse
from .core.peers import judge_peers
from .core.transfer_params import FIELD, judge_params, names_remote_blocks

logger = plugin.logger


class DecidedAbout(dict[str, Any]):
    """A prompt of forwarded ids that are used, on its way from the renderer to the engine."""


def begin_front_end(config: Any) -> None:
    """Say that an API server is guarded, in its log and on ``/metrics``."""
    labels = _labels(config)
    metrics.start_front_end(labels, plugin.active())
    with _as_far_as_possible():
        metrics.show_engine_core(config)
    _say_active("API server", labels)
    if settings.current().emit_prompt_token_ids:
        logger.info("The ids of its prompt are in each answer for decode (--emit-prompt-token-ids)")


def begin_engine_core(config: Any) -> None:
    """Say in its log that an engine core is guarded, and begin to count."""
    with _as_far_as_possible():
        metrics.start_engine_core(config)
    _say_active("engine core", _labels(config))


@contextmanager
def _as_far_as_possible() -> Iterator[None]:
    # A folder that cannot be written is no reason not to serve.
    try:
        yield
    except OSError as error:
        logger.warning("What the engine core counts is not on /metrics: %s", error)


def _labels(config: Any) -> dict[str, str]:
    chosen = settings.current()
    transfer = config.kv_transfer_config
    peers = chosen.kv_transfer_allowed_peers
    return {
        "version": __version__,
        "policy": chosen.policy.value,
        "without_connector": chosen.prompt_token_ids_without_connector.value,
        "kv_connector": "none" if transfer is None else transfer.kv_connector,
        "allowed_peers": "any" if peers is None else str(len(peers)),
        "emits_ids": "yes" if chosen.emit_prompt_token_ids else "no",
    }


def _say_active(where: str, labels: dict[str, str]) -> None:
    logger.info(
        "vllm-reuse-guard %s is active in the %s (prompt_token_ids_policy=%s, KV connector: %s, "
        "allowed peers: %s)",
        labels["version"],
        where,
        labels["policy"],
        labels["kv_connector"],
        labels["allowed_peers"],
    )


def take_ids(transfer_params: object) -> object:
    """
    Take the forwarded ids out of transfer params, which may be of any type; return them or None.

    The key is gone afterwards, null or not: it would travel to the engine and the connector.
    """
    ids = forwarded(transfer_params)
    if isinstance(transfer_params, dict):
        transfer_params.pop(KEY, None)
    return ids


def leave_aside(reason: Reason, *transfer_params: object) -> None:
    """Take the forwarded ids of a request, wherever there are any, away without using them."""
    taken = [take_ids(params) for params in transfer_params]
    if any(ids is not None for ids in taken):
        note(Render(reason))


def note(outcome: Outcome) -> None:
    """
    Count what becomes of the ids of a request and say so in the log; never says which ids.

    A server without a connector says so aloud once: it may have been started wrongly.
    """
    metrics.count_decision(outcome)
    match outcome:
        case Reuse(ids):
            logger.debug(
                "kv_transfer_params['prompt_token_ids'] is used (reused): %d ids", len(ids)
            )
        case Render(reason):
            logger.debug(
                "kv_transfer_params['prompt_token_ids'] is not used (%s): the prompt comes from "
                "the rest of the request",
                reason.value,
            )
            if reason is Reason.NO_CONNECTOR:
                _say_no_connector()


@cache
def _say_no_connector() -> None:
    logger.info(
        "A request forwards prompt token ids, but this server has no KV connector, so that they "
        "are not used. Start it with --kv-transfer-config, or, behind a router that you trust, "
        "with --enable-prompt-token-ids. This is said once; later requests are logged at debug."
    )


def check_params(
    params: object,
    config: Any,
    *,
    field: str = FIELD,
    count: Callable[[Reason], None] = metrics.count_refused_params,
) -> None:
    """
    Refuse transfer params that the engine or its connector could not live with.

    params: their value in a request, whatever it is. config: the ``VllmConfig`` of the server.
    field: where they were. count: who counts it. Raises VLLMValidationError, vLLM's 400, which
    names the field.
    """
    if params is None:
        return
    outcome = judge_params(params, connectors=facts.connectors(config), field=field)
    peers = settings.current().kv_transfer_allowed_peers
    if outcome is None and peers is not None:
        outcome = judge_peers(params, peers, field=field)
    if outcome is not None:
        count(outcome.reason)
        raise refusal(outcome)


def check_request(request: Any, config: Any) -> None:
    """
    Refuse a request for its transfer params, wherever it has them.

    Raises VLLMValidationError, as ``check_params`` does.
    """
    check_params(getattr(request, FIELD, None), config)
    # Engine parameters of the client's own, in which transfer params are not foreseen. Those of
    # a batch are an extra field of any type.
    xargs = getattr(request, "vllm_xargs", None)
    if isinstance(xargs, dict):
        check_params(xargs.get(FIELD), config, field=f"vllm_xargs.{FIELD}")


def can_be_told(params: object, config: Any) -> bool:
    """
    Tell whether the connector may be told that a request with these params was refused.

    It looks for the blocks that the params name, at the host that they name.
    """
    peers = settings.current().kv_transfer_allowed_peers
    return names_remote_blocks(params, connectors=facts.connectors(config)) and (
        peers is None or judge_peers(params, peers) is None
    )


def refusal(outcome: Reject) -> Exception:
    """
    Return vLLM's own error for a 400; it is no ValueError, which some endpoints catch.

    A request that names a stranger is worth a warning: somebody tries whom this server dials.
    """
    from vllm.exceptions import VLLMValidationError

    level = logging.WARNING if outcome.reason is Reason.FORBIDDEN_PEER else logging.DEBUG
    logger.log(level, "A request is refused (%s): %s", outcome.reason.value, outcome.parameter)
    error: Exception = VLLMValidationError(outcome.message, parameter=outcome.parameter)
    return error


async def answer_refusals(
    wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """
    Return a refusal as a serving class returns its own errors; a wrapt wrapper for its methods.

    Some routes answer 500 for whatever is raised, but translate what is returned into their
    API's shape: /v1/messages up to 0.27, /cohere/v2/chat up to 0.31.
    """
    from vllm.exceptions import VLLMValidationError

    try:
        return await wrapped(*args, **kwargs)
    except VLLMValidationError as error:
        return instance.create_error_response(error)


def will_tell(raw_request: Any) -> None:
    """Note on a request that upstream tells the connector of it if it is refused from here on."""
    if raw_request is not None:
        raw_request.state.reuse_guard_told = True


def was_told(raw_request: Any) -> bool:
    """Tell whether upstream has told the connector of a request, or does not have to."""
    return bool(getattr(raw_request.state, "reuse_guard_told", False))
