# SPDX-License-Identifier: Apache-2.0
"""
Checks of forwarded ids by their number: the guard's against those of vLLM 0.32, in one process.

Upstream checks ids twice, where they arrive and once more where the engine's request is made;
both are called here as upstream calls them.
"""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

from vllm.renderers import online_renderer

from vllm_reuse_guard.rules.decision import Prompt, decide
from vllm_reuse_guard.rules.outcome import PROMPT_TOKEN_IDS
from vllm_reuse_guard.server import facts

from .measure import medians

SIZES = (1_000, 8_000, 30_000, 60_000, 125_000)
ROUNDS = 41
MESSAGES = [{"role": "user", "content": "Hello"}]


def measure(renderer: Any) -> dict[int, dict[str, float]]:
    """Return median seconds by number of ids; renderer: an OnlineRenderer of plain 0.32."""
    instance = facts.server_facts(renderer)
    rows = instance.vocabulary.embedding_rows
    found = {}
    for size in SIZES:
        ids = [(index * 7919) % rows for index in range(size)]

        def ours(ids: list[int] = ids) -> object:
            prompt = Prompt(ids=ids, echo=False, messages=MESSAGES, scanned=True)
            return decide(prompt, instance)

        def upstream(ids: list[int] = ids) -> object:
            request = SimpleNamespace(kv_transfer_params={PROMPT_TOKEN_IDS: ids}, echo=False)
            read = online_renderer._reused_prompt_token_ids
            used = read(request, renderer.renderer, MESSAGES)
            renderer.renderer.validate_token_ids(used)
            return used

        body = json.dumps({"kv_transfer_params": {PROMPT_TOKEN_IDS: ids}}).encode()
        subjects = {
            "guard": ours,
            "upstream": upstream,
            "parse": lambda body=body: json.loads(body),
        }
        found[size] = medians(subjects, rounds=ROUNDS)
    return found
