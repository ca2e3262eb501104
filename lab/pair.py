# SPDX-License-Identifier: Apache-2.0
"""A prefill and a decode instance, joined by NIXL, and the part of a router between them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from .server import NIXL, Launch, Progress, Server, silent, starting, wait_until_healthy


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
            kv_transfer_params={"do_remote_decode": True, "do_remote_prefill": False},
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
    with starting(prefill) as first, starting(decode) as second:
        wait_until_healthy(first, progress)
        wait_until_healthy(second, progress)
        yield Pair(first, second)
