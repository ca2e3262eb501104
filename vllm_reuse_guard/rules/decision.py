# SPDX-License-Identifier: Apache-2.0
"""What becomes of forwarded prompt token ids: the rows of SPEC section 1, top to bottom."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass
from enum import Enum
from typing import Any

from .content import is_text_only
from .outcome import PARAMETER, PROMPT_TOKEN_IDS, Outcome, Reason, Reject, Render, Reuse
from .token_ids import Vocabulary, judge


class WithoutConnector(str, Enum):
    """What becomes of ids on a server that has no connector and is not told to use them."""

    IGNORE = "ignore"
    """They are left aside: routers that always forward ids keep working."""
    REJECT = "reject"
    """They are refused: the operator hears of a server that was started without its connector."""


class Policy(str, Enum):
    """When forwarded ids may be used at all."""

    CONNECTOR = "connector"
    """Where a KV connector runs: the ids then come from the operator's own prefill."""
    ALWAYS = "always"
    """On every server: for a router in front of aggregated instances."""
    OFF = "off"
    """Never; every prompt is rendered."""


@dataclass(frozen=True)
class Prompt:
    """
    What a chat request says about its prompt.

    ids: the value forwarded in the transfer params, or None.
    echo: whether the answer is to repeat the last message, for which it must be rendered.
    messages: the conversation, as in ``content.is_text_only``.
    scanned: whether the raw body was read and held text only.
    """

    ids: object
    echo: bool
    messages: object
    scanned: bool


@dataclass(frozen=True)
class ServerFacts:
    """
    What a decision needs to know of the server.

    max_prompt_len: the most prompt tokens that its model's context takes.
    media_keys: the keys that make a content part media, as its parser knows them.
    placeholders: the ids that stand for media in a prompt; none for a model of text alone.
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
    Say what becomes of the ids forwarded with one chat request.

    Returns Reuse(ids) to use them as they are, Render(reason) to render the messages
    instead, or Reject(reason, message, parameter) to answer 400. Never raises.
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
    # Asked of no placeholders at all it would still look at every id.
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
    """Say what becomes of ids forwarded with a batch: one list cannot serve many chats."""
    if ids is None:
        return Render(Reason.NOT_FORWARDED)
    return Reject(
        Reason.BATCH,
        f"invalid `{PARAMETER}`: one list of token IDs cannot be the prompt of several "
        f"conversations. Omit the field in a batch, or send each conversation to "
        f"/v1/chat/completions with its own IDs.",
    )


def forwarded(transfer_params: object) -> object:
    """Return the ids that transfer params carry, or None; the params may be of any type."""
    return transfer_params.get(PROMPT_TOKEN_IDS) if isinstance(transfer_params, dict) else None


def without_ids(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of a request body that forwards ids, less the ids."""
    transfer_params = {k: v for k, v in body["kv_transfer_params"].items() if k != PROMPT_TOKEN_IDS}
    return {**body, "kv_transfer_params": transfer_params}
