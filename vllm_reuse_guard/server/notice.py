# SPDX-License-Identifier: Apache-2.0
"""The rejection notice: which refused requests the KV connector is told about."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from ..rules import transfer_params
from ..rules.outcome import KV_TRANSFER_PARAMS
from . import facts
from .forwarded_ids import take_ids
from .marks import is_notified


def can_notify(params: object, config: Any) -> bool:
    """Tell whether the connector of a server can be told of a refusal; config: ``VllmConfig``."""
    return transfer_params.can_notify(params, facts.transfer_facts(config))


async def notify_refused_body(raw_request: Any) -> None:
    """
    Send the notice for an HTTP request that was refused before a serving class got it.

    Nothing is sent without transfer params, without a connector, or where vLLM sends the notice.
    """
    client = getattr(raw_request.app.state, "engine_client", None)
    if client is None or is_notified(raw_request):
        return
    if not facts.transfer_facts(client.vllm_config).connectors:
        return
    # What the route has read of the body; to read it here could mean to wait for the client.
    body = vars(raw_request).get("_json")
    params = body.get(KV_TRANSFER_PARAMS) if isinstance(body, dict) else None
    if isinstance(params, dict):
        notice = dict(params)
        take_ids(notice)
        await client.notify_kv_transfer_request_rejected(f"refused-{uuid4().hex}", notice)
