# SPDX-License-Identifier: Apache-2.0
"""Take forwarded prompt token IDs out of a request, and record what happened to them."""

from __future__ import annotations

from functools import cache

from ..log import logger
from ..rules.decision import forwarded
from ..rules.outcome import PROMPT_TOKEN_IDS, Outcome, Reason, Render, Reuse
from . import metrics


def take_ids(transfer_params: object) -> object:
    """
    Remove the forwarded IDs from transfer params of any type, and return them, or None.

    The key goes even if its value is null: it would travel to the engine and the connector.
    """
    ids = forwarded(transfer_params)
    if isinstance(transfer_params, dict):
        transfer_params.pop(PROMPT_TOKEN_IDS, None)
    return ids


def ignore_ids(reason: Reason, *transfer_params: object) -> None:
    """Remove the forwarded IDs of a request from each of its transfer params without use."""
    taken = [take_ids(params) for params in transfer_params]
    if any(ids is not None for ids in taken):
        record(Render(reason))


def record(outcome: Outcome) -> None:
    """
    Count the outcome for the IDs of a request and log it at debug level; never logs the IDs.

    A server without a connector logs its first ignored IDs at info level: its operator may have
    forgotten ``--kv-transfer-config``.
    """
    metrics.count_decision(outcome)
    match outcome:
        case Reuse(ids):
            logger.debug("kv_transfer_params['prompt_token_ids'] reused: %d IDs", len(ids))
        case Render(reason):
            logger.debug(
                "kv_transfer_params['prompt_token_ids'] ignored (%s): vLLM renders the request",
                reason.value,
            )
            if reason is Reason.NO_CONNECTOR:
                _log_no_connector()


@cache
def _log_no_connector() -> None:
    logger.info(
        "A request forwards prompt token IDs, but this server has no KV connector: the IDs are "
        "ignored. Start the server with --kv-transfer-config or, behind a router that you trust, "
        "with --enable-prompt-token-ids. Later requests of this kind are logged at debug level."
    )
