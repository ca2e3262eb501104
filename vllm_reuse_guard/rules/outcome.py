# SPDX-License-Identifier: Apache-2.0
"""The three outcomes for forwarded prompt token IDs: reuse, render, reject."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

KV_TRANSFER_PARAMS = "kv_transfer_params"
"""The field of a request that holds its transfer params."""

PROMPT_TOKEN_IDS = "prompt_token_ids"
"""The key of the transfer params that holds the forwarded IDs."""

PARAMETER = f"{KV_TRANSFER_PARAMS}.{PROMPT_TOKEN_IDS}"
"""The value of ``error.param`` when the IDs are refused."""


class Reason(str, Enum):
    """The word of a row of the specification, in code, logs, metrics and cases."""

    NOT_FORWARDED = "not_forwarded"
    DISABLED = "disabled"
    ECHO = "echo"
    NON_TEXT_CONTENT = "non_text_content"
    NO_CONNECTOR = "no_connector"
    MALFORMED = "malformed"
    OUT_OF_VOCABULARY = "out_of_vocabulary"
    NO_EMBEDDING = "no_embedding"
    TOO_LONG = "too_long"
    BATCH = "batch"
    NOT_A_CHAT = "not_a_chat"
    HARMONY_RESPONSE = "harmony_response"
    MEDIA_PLACEHOLDER = "media_placeholder"
    REUSED = "reused"

    MALFORMED_PARAMS = "malformed_params"
    MISSING_FIELD = "missing_field"
    CONTRADICTORY = "contradictory"
    FORBIDDEN_PEER = "forbidden_peer"


OF_PARAMS = (
    Reason.MALFORMED_PARAMS,
    Reason.MISSING_FIELD,
    Reason.CONTRADICTORY,
    Reason.FORBIDDEN_PEER,
)
"""The reasons to reject transfer params, whatever the outcome for their IDs."""


@dataclass(frozen=True)
class Reuse:
    """Use ``ids`` as the prompt: the very list of the request, not a copy."""

    ids: list[int]
    reason: Reason = Reason.REUSED


@dataclass(frozen=True)
class Render:
    """Ignore the IDs; vLLM applies the chat template and tokenizes."""

    reason: Reason


@dataclass(frozen=True)
class Reject:
    """Answer with HTTP 400; ``parameter``: the field at fault, for ``error.param``."""

    reason: Reason
    message: str
    parameter: str = PARAMETER


Outcome: TypeAlias = Reuse | Render | Reject
