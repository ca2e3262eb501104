# SPDX-License-Identifier: Apache-2.0
"""Every conformance case up to the engine's door, on each release: no engine, no HTTP."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from vllm.entrypoints.openai.chat_completion.protocol import (
    BatchChatCompletionRequest,
    ChatCompletionRequest,
)
from vllm.exceptions import VLLMValidationError

from lab.models import Model
from lab.server import CONTEXT
from tests.contract.conftest import make_renderer
from vllm_reuse_guard.conformance import Case, Profile, cases
from vllm_reuse_guard.conformance.runner import Answer, Runner
from vllm_reuse_guard.conformance.values import Subject
from vllm_reuse_guard.core.outcome import KEY

JSON = "application/json"
POLICIES = {
    Profile.POLICY_OFF: "off",
    Profile.POLICY_ALWAYS: "always",
    Profile.NARROW_EMBEDDING: "always",
}
RENDERED = [
    *[
        (profile, Model.TINY_QWEN2)
        for profile in Profile
        if profile is not Profile.NARROW_EMBEDDING
    ],
    (Profile.NARROW_EMBEDDING, Model.TINY_QWEN2_NARROW),
    (Profile.CONNECTOR, Model.TINY_GPT_OSS),
]


class InProcess(Runner):
    """Runs cases on an OnlineRenderer; its answers hold what the engine would be given."""

    def __init__(self, renderer: Any) -> None:
        tokenizer = renderer.renderer.tokenizer
        rows = renderer.model_config.get_vocab_size()
        subject = Subject(
            forwarded=tokenizer.encode("What is for dinner, and is there enough of it?"),
            embedding_rows=rows,
            last_known=max(rows - 1, *tokenizer.get_vocab().values()),
            longest=CONTEXT - 1,
        )
        super().__init__(httpx.Client(), "model", subject)
        self._renderer = renderer

    def ask(self, endpoint: str, body: dict[str, Any]) -> Answer:
        """Validate and render one body, as the endpoint does."""
        raw = json.loads(json.dumps(body))
        try:
            if endpoint.endswith("/batch"):
                return asyncio.run(self._ask_batch(raw))
            return asyncio.run(self._ask_chat(ChatCompletionRequest.model_validate(raw)))
        except VLLMValidationError as error:
            return Answer(400, JSON, error=str(error), param=error.parameter)
        except Exception as error:
            # Upstream's own refusal: of no interest but for being the same without ids.
            return Answer(500, JSON, error=f"{type(error).__name__}: {error}")

    async def _ask_batch(self, raw: dict[str, Any]) -> Answer:
        batch = BatchChatCompletionRequest.model_validate(raw)
        chats = [batch.to_chat_completion_request(chat) for chat in batch.messages]
        answers = [await self._ask_chat(chat) for chat in chats]
        return Answer(200, JSON, output=[id_ for answer in answers for id_ in answer.prompt or []])

    async def _ask_chat(self, request: ChatCompletionRequest) -> Answer:
        try:
            rendered = await self._renderer.render_chat(request)
        finally:
            assert KEY not in (request.kv_transfer_params or {})
        if not isinstance(rendered, tuple):
            return Answer(rendered.error.code, JSON, error=rendered.error.message)
        _, (engine_input,) = rendered
        ids = engine_input["prompt_token_ids"]
        return Answer(
            200, JSON, prompt=ids, output=ids[:1], text=str(engine_input.get("cache_salt"))
        )


@pytest.mark.parametrize(
    ("case", "model"),
    [
        pytest.param(case, model, id=f"{model.value}-{case.id}")
        for profile, model in RENDERED
        for case in cases().values()
        if case.server is profile
    ],
)
@pytest.mark.usefixtures("guarded")
def test_case(case: Case, model: Model, policy: Callable[[str], None]) -> None:
    """
    What reaches the engine is what the case says, and never the key.
    """
    policy(POLICIES.get(case.server, "connector"))
    connector = case.server in (Profile.CONNECTOR, Profile.POLICY_OFF)

    verdict = InProcess(make_renderer(model, connector=connector)).run(case, stream=False)

    assert verdict.objection is None
