# SPDX-License-Identifier: Apache-2.0
"""Refuse transfer params that the engine or its KV connector cannot handle."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..rules.outcome import KV_TRANSFER_PARAMS, Reason
from ..rules.transfer_params import judge_transfer_params
from . import facts, metrics
from .refusal import validation_error


def check_params(
    params: object,
    config: Any,
    *,
    field: str = KV_TRANSFER_PARAMS,
    count: Callable[[Reason], None] = metrics.count_refused_params,
) -> None:
    """
    Refuse invalid transfer params.

    params: the value in a request, of any type. config: the server's ``VllmConfig``.
    field: where the params are, for ``error.param``. count: counts the refusal by its reason.
    Raises VLLMValidationError, vLLM's 400, which names the field.
    """
    if params is None:
        return
    outcome = judge_transfer_params(params, facts.transfer_facts(config), field=field)
    if outcome is not None:
        count(outcome.reason)
        raise validation_error(outcome)


def check_request(request: Any, config: Any) -> None:
    """
    Refuse a request for invalid transfer params in any field that can hold them.

    Raises VLLMValidationError, as ``check_params`` does.
    """
    check_params(getattr(request, KV_TRANSFER_PARAMS, None), config)
    # vllm_xargs holds engine parameters of the client's choice. In a batch it is an extra field
    # of any type.
    xargs = getattr(request, "vllm_xargs", None)
    if isinstance(xargs, dict):
        check_params(
            xargs.get(KV_TRANSFER_PARAMS), config, field=f"vllm_xargs.{KV_TRANSFER_PARAMS}"
        )
