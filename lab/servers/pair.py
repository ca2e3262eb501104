# SPDX-License-Identifier: Apache-2.0
"""A prefill and a decode instance with NIXL, and what a router does between them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from .server import (
    NIXL,
    Launch,
    Progress,
    Server,
    silent,
    starting,
    wait_until_healthy,
)

TO_PREFILL = {"do_remote_decode": True, "do_remote_prefill": False}
"""The transfer params with which prefill keeps the KV blocks of the prompt for decode."""
EMIT = "--emit-prompt-token-ids"
"""The flag with which prefill returns the prompt token IDs too."""
REUSED = "reuse_guard_reused_prompt_tokens_count"
"""The metric of decode that counts the prompts with reused IDs."""


@dataclass(frozen=True)
class Handover:
    """
    The answer of prefill that a router passes to decode.

    transfer_params: where the KV blocks of the prompt are. ids: the token IDs of the prompt.
    """

    transfer_params: dict[str, Any]
    ids: list[int]

    def with_ids(self, ids: Any) -> dict[str, Any]:
        """Return the transfer params for decode, with any value as ``prompt_token_ids``."""
        return {**self.transfer_params, "prompt_token_ids": ids}


@dataclass(frozen=True)
class Pair:
    """Two running instances with the same model."""

    prefill: Server
    decode: Server

    def run_prefill(self, **body: Any) -> Handover:
        """Run the prompt of a chat on prefill, which keeps its KV blocks for decode."""
        answer = self.prefill.chat(
            **{**body, "max_tokens": 1, "return_token_ids": True},
            kv_transfer_params=TO_PREFILL,
        )
        reply = answer.raise_for_status().json()
        return Handover(reply["kv_transfer_params"], reply["prompt_token_ids"])


@contextmanager
def running_pair(launch: Launch, progress: Progress = silent) -> Iterator[Pair]:
    """
    Start two servers like this one, each with NIXL, at the same time; stop both at the end.

    Raises ServerError if either does not come up.
    """
    prefill, decode = (
        replace(launch, name=f"{role}-{launch.name}", arguments=(*launch.arguments, *NIXL))
        for role in ("prefill", "decode")
    )
    with starting_pair(prefill, decode) as pair:
        for server in (pair.prefill, pair.decode):
            wait_until_healthy(server, progress)
        yield pair


@contextmanager
def starting_pair(prefill: Launch, decode: Launch) -> Iterator[Pair]:
    """Start two servers at the same time without waiting for them; stop both at the end."""
    with starting(prefill) as first, starting(decode) as second:
        yield Pair(first, second)
