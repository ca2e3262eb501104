# SPDX-License-Identifier: Apache-2.0
"""Requests that no client can send: made in process, or refused before they are rendered."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest
from vllm.entrypoints.generate.base.serving import GenerateBaseServing
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.entrypoints.serve.tokenize.protocol import TokenizeChatRequest
from vllm.exceptions import VLLMValidationError

from lab.models.build import Model
from lab.servers.in_process import engine_request, make_renderer
from lab.servers.server import CONTEXT

pytestmark = pytest.mark.usefixtures("guarded")

TEXT = {"type": "text", "text": "Hello"}
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
IDS = [5, 6, 7]
MODELS = pytest.mark.parametrize("model", [Model.TINY_QWEN2, Model.TINY_GPT_OSS])


def conversation(*parts: Any) -> list[dict[str, Any]]:
    """A conversation whose assistant answers in parts, which pydantic may make an iterator."""
    return [
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": list(parts)},
        {"role": "user", "content": "And?"},
    ]


def rendered(model: Model, request: ChatCompletionRequest) -> list[int]:
    """Return the ids that the engine would be given."""
    _, (engine_input,) = asyncio.run(make_renderer(model, connector=True).render_chat(request))
    ids: list[int] = engine_input["prompt_token_ids"]
    return ids


@MODELS
def test_ids_set_in_process_beside_media_are_not_used(model: Model) -> None:
    """
    Ids set on a request that exists already: its iterator may hold an image, so it is rendered.
    """
    request = ChatCompletionRequest(messages=conversation(TEXT, IMAGE))
    request.kv_transfer_params = {"prompt_token_ids": IDS}

    try:
        assert IDS != rendered(model, request)
    except Exception as error:
        # A text model has no use for the image; that it was seen is what matters.
        assert "image" in str(error).lower() or "multimodal" in str(error).lower()
    assert {} == request.kv_transfer_params


@MODELS
def test_ids_set_in_process_beside_text_are_used(model: Model) -> None:
    """
    Strings cannot hold an image.
    """
    request = ChatCompletionRequest(messages=[{"role": "user", "content": "Hello"}])
    request.kv_transfer_params = {"prompt_token_ids": IDS}

    assert rendered(model, request) is IDS


@MODELS
def test_ids_replaced_in_process_are_not_those_of_the_body(model: Model) -> None:
    """
    What was found in a body counts for the ids of that body alone.
    """
    request = ChatCompletionRequest(
        messages=conversation(TEXT), kv_transfer_params={"prompt_token_ids": IDS}
    )
    one_shot = not isinstance(request.messages[1]["content"], list)
    other = list(IDS)
    request.kv_transfer_params = {"prompt_token_ids": other}

    assert one_shot == (rendered(model, request) is not other)


@MODELS
def test_field_of_the_same_name_proves_nothing(model: Model) -> None:
    """
    A client cannot claim that its body was read.
    """
    request = ChatCompletionRequest(
        messages=conversation(TEXT, IMAGE), _reuse_guard_scanned_ids=IDS
    )
    request.kv_transfer_params = {"prompt_token_ids": list(IDS)}

    try:
        assert IDS != rendered(model, request)
    except Exception as error:
        assert "image" in str(error).lower() or "multimodal" in str(error).lower()


def test_reading_leaves_iterators_alone() -> None:
    """
    After the reuse of its ids, a request still has all its content.
    """
    request = ChatCompletionRequest(
        messages=conversation(TEXT), kv_transfer_params={"prompt_token_ids": IDS}
    )

    assert rendered(Model.TINY_QWEN2, request) is IDS
    content: Iterable[Any] = request.messages[1]["content"]
    assert ["Hello"] == [part["text"] for part in content]


def test_text_that_only_the_body_shows_to_tokenize() -> None:
    """
    Parts that are strings become an iterator, which nobody may look into; the body showed them.
    """
    body = {
        "messages": [{"role": "user", "content": ["Hello"]}],
        "kv_transfer_params": {"prompt_token_ids": IDS},
    }
    request = TokenizeChatRequest.model_validate(body)
    as_the_endpoint_does = {
        "default_template": None,
        "default_template_content_format": "auto",
        "default_template_kwargs": None,
        "tool_dicts": None,
        "skip_mm_cache": True,
    }
    renderer = make_renderer(Model.TINY_QWEN2, connector=True)

    _, (prompt,) = asyncio.run(
        renderer.preprocess_chat(request, request.messages, **as_the_endpoint_does)
    )

    assert IDS == prompt["prompt_token_ids"]


def test_validation_leaves_the_callers_body_alone() -> None:
    """
    Ids beside media go from the request, not from the dict that the caller holds.
    """
    body = {
        "messages": [{"role": "user", "content": [TEXT, IMAGE]}],
        "kv_transfer_params": {"prompt_token_ids": IDS, "remote_port": 1},
    }

    request = ChatCompletionRequest.model_validate(body)

    assert {"remote_port": 1} == request.kv_transfer_params
    assert IDS == body["kv_transfer_params"]["prompt_token_ids"]


def test_nothing_is_added_to_a_dumped_request() -> None:
    """
    What the guard notes on a request does not show when the request is written out.
    """
    request = ChatCompletionRequest(
        messages=[{"role": "user", "content": "x"}], kv_transfer_params={"prompt_token_ids": IDS}
    )

    assert "scanned" not in request.model_dump_json() + repr(request)


def test_notice_of_an_early_refusal_carries_no_ids() -> None:
    """
    A request that fails before it is rendered is told to the connector without its ids.
    """
    notices: list[Any] = []

    async def notify(request_id: str, params: dict[str, Any], **_: Any) -> None:
        notices.append(dict(params))

    async def fail() -> None:
        raise LookupError("no such model")

    serving = SimpleNamespace(
        has_kv_connector=True,
        engine_client=SimpleNamespace(
            notify_kv_transfer_request_rejected=notify,
            vllm_config=SimpleNamespace(kv_transfer_config=None),
        ),
        _get_data_parallel_rank=lambda _: None,
    )
    params = {"do_remote_prefill": True, "remote_port": 1, "prompt_token_ids": [True]}
    request = SimpleNamespace(request_id="r", kv_transfer_params=params)
    # The real method; the engine client is where the engine would begin.
    cleanup = GenerateBaseServing._with_kv_transfer_rejection_cleanup.__get__(serving)

    with pytest.raises(LookupError):
        asyncio.run(cleanup(fail(), request, None))

    assert [{"do_remote_prefill": True, "remote_port": 1}] == notices


def made(
    *prompts: tuple[ChatCompletionRequest, Any], model: Model = Model.TINY_QWEN2
) -> list[list[int]]:
    """
    Return the ids in the requests that the engine would get, made one after the other.

    prompts: a request and what is done with its ids in between.
    """
    renderer = make_renderer(model, connector=True)

    def make(request: ChatCompletionRequest, between: Any) -> list[int]:
        # A stream is served by another task than the one that renders.
        _, (engine_input,) = asyncio.run(renderer.render_chat(request))
        between(engine_input["prompt_token_ids"])
        params = request.to_sampling_params(8, {})
        ids: list[int] = engine_request(renderer, engine_input, params).prompt_token_ids
        return ids

    return [make(*prompt) for prompt in prompts]


def forwarding(ids: list[int] | None) -> ChatCompletionRequest:
    """A chat of text with forwarded ids, or with none."""
    request = ChatCompletionRequest(messages=[{"role": "user", "content": "Hello"}])
    request.kv_transfer_params = {"prompt_token_ids": ids}
    return request


def spoil(ids: list[int]) -> None:
    """Put an id into a prompt that no vocabulary has."""
    ids[-1] = 10**9


@MODELS
def test_ids_that_are_used_are_looked_at_once(model: Model) -> None:
    """
    A list that is spoiled after the decision goes through: nobody looks at all of it once more.
    """
    assert [[5, 6, 10**9]] == made((forwarding([5, 6, 7]), spoil), model=model)


@pytest.mark.parametrize("between", [spoil, lambda ids: ids.extend([5] * CONTEXT)])
def test_prompts_that_are_rendered_are_checked(between: Any) -> None:
    """
    The ids of a chat that is rendered are checked as ever, after one whose ids were used too.
    """
    ids = [5, 6, 7]
    with pytest.raises(VLLMValidationError, match=r"out of vocabulary|maximum model length"):
        made((forwarding(ids), id), (forwarding(None), between))


def test_ids_that_are_used_must_fit() -> None:
    """
    The length is checked where upstream checks it, too.
    """
    with pytest.raises(VLLMValidationError, match="maximum model length"):
        made((forwarding([5, 6, 7]), lambda ids: ids.extend([5] * CONTEXT)))
