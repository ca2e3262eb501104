# SPDX-License-Identifier: Apache-2.0
"""Say in the log and on ``/metrics`` that a process is guarded, and by which settings."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .. import __version__, installer
from .. import settings as guard_settings
from ..log import logger
from . import metrics


def begin_front_end(config: Any) -> None:
    """Report an API server as guarded, in its log and on ``/metrics``; config: ``VllmConfig``."""
    labels = _labels(config)
    metrics.start_front_end(labels, installer.active())
    with _best_effort():
        metrics.show_engine_core(config)
    _log_active("API server", labels)
    if guard_settings.current().emit_prompt_token_ids:
        logger.info(
            "Prefill responses include prompt_token_ids in kv_transfer_params "
            "(--emit-prompt-token-ids)"
        )


def begin_engine_core(config: Any) -> None:
    """Report an engine core as guarded in its log, and start its counters."""
    with _best_effort():
        metrics.start_engine_core(config)
    _log_active("engine core", _labels(config))


@contextmanager
def _best_effort() -> Iterator[None]:
    # A folder that cannot be written is no reason not to serve.
    try:
        yield
    except OSError as error:
        logger.warning("Engine-core counters are unavailable on /metrics: %s", error)


def _labels(config: Any) -> dict[str, str]:
    settings = guard_settings.current()
    transfer = config.kv_transfer_config
    peers = settings.kv_transfer_allowed_peers
    return {
        "version": __version__,
        "policy": settings.policy.value,
        "without_connector": settings.prompt_token_ids_without_connector.value,
        "kv_connector": "none" if transfer is None else transfer.kv_connector,
        "allowed_peers": "any" if peers is None else str(len(peers)),
        "emits_ids": "yes" if settings.emit_prompt_token_ids else "no",
    }


def _log_active(process: str, labels: dict[str, str]) -> None:
    logger.info(
        "vllm-reuse-guard %s is active in the %s (prompt_token_ids_policy=%s, KV connector: %s, "
        "allowed peers: %s)",
        labels["version"],
        process,
        labels["policy"],
        labels["kv_connector"],
        labels["allowed_peers"],
    )
