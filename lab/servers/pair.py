# SPDX-License-Identifier: Apache-2.0
"""A prefill and a decode instance, joined by NIXL, and the part of a router between them."""

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
"""The transfer params that make prefill keep the KV blocks of the prompt for decode."""
EMIT = "--emit-prompt-token-ids"
"""What prefill is started with to hand over the ids as well."""
REUSED = "reuse_guard_reused_prompt_tokens_count"
"""The metric of decode that counts the prompts whose ids were used."""


@dataclass(frozen=True)
class Handover:
    """
    What prefill hands over to decode.

    transfer_params: where the KV blocks of the prompt are. ids: the prompt's token ids.
    """

    transfer_params: dict[str, Any]
    ids: list[int]

    def with_ids(self, ids: Any) -> dict[str, Any]:
        """Return the transfer params for decode with these ids, or whatever is given."""
        return {**self.transfer_params, "prompt_token_ids": ids}


@dataclass(frozen=True)
class Pair:
    """Two running instances of the same model."""

    prefill: Server
    decode: Server

    def run_prefill(self, **body: Any) -> Handover:
        """Compute the prompt of a chat on prefill, which keeps its KV blocks for decode."""
        answer = self.prefill.chat(
            **{**body, "max_tokens": 1, "return_token_ids": True},
            kv_transfer_params=TO_PREFILL,
        )
        told = answer.raise_for_status().json()
        return Handover(told["kv_transfer_params"], told["prompt_token_ids"])


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
