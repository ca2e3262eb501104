# SPDX-License-Identifier: Apache-2.0
"""Decide about forwarded prompt token IDs: the rows of docs/reference/specification.md."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass
from enum import Enum
from typing import Any

from .content import is_text_only
from .outcome import PARAMETER, PROMPT_TOKEN_IDS, Outcome, Reason, Reject, Render, Reuse
from .token_ids import Vocabulary, judge


class WithoutConnector(str, Enum):
    """The handling of IDs on a server without a KV connector (the row ``no_connector``)."""

    IGNORE = "ignore"
    """Render: routers that always forward IDs keep working."""
    REJECT = "reject"
    """Reject: the operator learns that a server was started without its connector."""


class Policy(str, Enum):
    """When a server reuses forwarded IDs."""

    CONNECTOR = "connector"
    """With a KV connector: the IDs then come from the operator's own prefill instance."""
    ALWAYS = "always"
    """Always: for a router in front of aggregated servers."""
    OFF = "off"
    """Never: vLLM renders every prompt."""


@dataclass(frozen=True)
class Prompt:
    """
    The parts of a chat request that decide about its prompt.

    ids: the forwarded IDs, of any type; None without any.
    echo: whether the answer repeats the last message, which vLLM must render for that.
    messages: the conversation, as in ``content.is_text_only``.
    scanned: whether the scan of the raw body found text only.
    """

    ids: object
    echo: bool
    messages: object
    scanned: bool


@dataclass(frozen=True)
class ServerFacts:
    """
    The facts about a server that decide about forwarded IDs.

    max_prompt_len: the maximum prompt length, in tokens.
    media_keys: the keys that make a content part media.
    placeholders: the token IDs that stand for media in a prompt; empty for a text-only model.
    """

    policy: Policy
    without_connector: WithoutConnector
    has_connector: bool
    vocabulary: Vocabulary
    max_prompt_len: int
    media_keys: Set[str]
    placeholders: Set[int]


def decide(prompt: Prompt, server: ServerFacts) -> Outcome:
    """
    Decide about the IDs forwarded with one chat request: the first row that applies.

    Returns Reuse(ids) to use the IDs as they are, Render(reason) to render the messages, or
    Reject(reason, message, parameter) to answer with HTTP 400. Never raises.
    """
    if prompt.ids is None:
        return Render(Reason.NOT_FORWARDED)
    if server.policy is Policy.OFF:
        return Render(Reason.DISABLED)
    if prompt.echo:
        return Render(Reason.ECHO)
    if not is_text_only(
        prompt.messages,
        media_keys=server.media_keys,
        iterators_are_text=prompt.scanned,
    ):
        return Render(Reason.NON_TEXT_CONTENT)
    if not server.has_connector and server.policy is not Policy.ALWAYS:
        return _decide_without_connector(server.without_connector)
    outcome = judge(prompt.ids, vocabulary=server.vocabulary, max_prompt_len=server.max_prompt_len)
    # An empty set would still be compared with every ID.
    if not isinstance(outcome, Reuse) or not server.placeholders:
        return outcome
    if server.placeholders.isdisjoint(outcome.ids):
        return outcome
    return Render(Reason.MEDIA_PLACEHOLDER)


def _decide_without_connector(setting: WithoutConnector) -> Reject | Render:
    if setting is WithoutConnector.IGNORE:
        return Render(Reason.NO_CONNECTOR)
    return Reject(
        Reason.NO_CONNECTOR,
        f"invalid `{PARAMETER}`: this server has no KV connector and does not reuse token IDs. "
        f"Start it with --kv-transfer-config or, behind a router that you trust, with "
        f"--enable-prompt-token-ids; or omit the field.",
    )


def decide_batch(ids: object) -> Reject | Render:
    """Decide about IDs forwarded with a batch: one list cannot serve several conversations."""
    if ids is None:
        return Render(Reason.NOT_FORWARDED)
    return Reject(
        Reason.BATCH,
        f"invalid `{PARAMETER}`: one list of token IDs cannot be the prompt of several "
        f"conversations. Omit the field in a batch, or send each conversation to "
        f"/v1/chat/completions with its own IDs.",
    )


def forwarded(transfer_params: object) -> object:
    """Return the forwarded IDs in transfer params of any type, or None."""
    return transfer_params.get(PROMPT_TOKEN_IDS) if isinstance(transfer_params, dict) else None


def without_ids(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of a request body without its forwarded IDs."""
    transfer_params = {k: v for k, v in body["kv_transfer_params"].items() if k != PROMPT_TOKEN_IDS}
    return {**body, "kv_transfer_params": transfer_params}
