# SPDX-License-Identifier: Apache-2.0
"""
The registry: every patch, in the order in which they are applied.

It is the one place that names upstream modules and patch points; ``doctor``, the docs and CI
read it. A patch is a module below this folder, by process and topic. It collects facts and acts;
the rules are in ``rules``.
"""

from __future__ import annotations

from ..installer import Patch
from ..releases import is_at_least
from ..server.facts import PARSER_MAP

PATCHES = (
    Patch(
        name="api_server.flags",
        module="engine.arg_utils",
        patch_points=("EngineArgs.add_cli_args",),
        why="Operators set the guard by flags, in a configuration file, or by variables.",
        upstream="No such flags.",
        unchanged="Every other flag.",
        remove_when="Upstream has flags for these settings.",
        tests=("tests/contract/behaviour/test_flags.py::test_policy",),
    ),
    Patch(
        name="api_server.render",
        module="renderers.online_renderer",
        patch_points=(
            "_reused_prompt_token_ids",
            "OnlineRenderer.__init__",
            "OnlineRenderer.preprocess_chat",
            "OnlineRenderer._make_request_with_harmony",
        ),
        also=(PARSER_MAP,),
        why="One function returns the forwarded IDs to every reader. It accepts IDs that hang or "
        "crash the engine, drop images, or fail after a stream has opened.",
        upstream="No check up to 0.31. From 0.32 vLLM checks type and vocabulary, but not the KV "
        "connector, the embedding table and the context length.",
        unchanged="Requests without forwarded IDs.",
        remove_when="Upstream decides by every row of the specification before a stream opens.",
        tests=("tests/contract/behaviour/test_conformance.py::test_case",),
    ),
    Patch(
        name="api_server.request_models.chat_completion",
        module="entrypoints.openai.chat_completion.protocol",
        patch_points=(
            "ChatCompletionRequest",
            "BatchChatCompletionRequest",
            "BatchChatCompletionRequest.to_chat_completion_request",
        ),
        why="Validation drops the media keys of some content parts and turns some content into "
        "one-shot iterators: only the raw body tells whether a conversation is text.",
        upstream="From 0.32 vLLM has such a validator, which knows fewer kinds of media, and "
        "rejects a batch with forwarded IDs.",
        unchanged="Which bodies are valid; the validation errors.",
        remove_when="Upstream's validator recognizes the same media.",
        tests=(
            "tests/contract/behaviour/test_requests.py::test_validation_leaves_the_callers_body_alone",
            "tests/contract/behaviour/test_conformance.py::test_case",
        ),
        only_with="renderers.online_renderer",
    ),
    Patch(
        name="api_server.request_models.responses",
        module="entrypoints.openai.responses.protocol",
        patch_points=("ResponsesRequest", "ResponsesRequest.to_sampling_params"),
        why="vLLM drops media in the input beside forwarded IDs. For Harmony models it passes the "
        "IDs to the engine and the KV connector.",
        upstream="The same in every release.",
        unchanged="Which bodies are valid; every other engine parameter.",
        remove_when="Upstream scans the input like the messages of a chat, and removes the IDs for "
        "Harmony too.",
        tests=("tests/contract/behaviour/test_conformance.py::test_case",),
        only_with="renderers.online_renderer",
    ),
    Patch(
        name="api_server.request_models.completion",
        module="entrypoints.openai.completion.protocol",
        patch_points=("CompletionRequest.to_sampling_params",),
        why="IDs beside a completion, which brings its own prompt, reach the engine and the KV "
        "connector.",
        upstream="The same in every release.",
        unchanged="Every other engine parameter.",
        remove_when="Upstream removes the key from the transfer params of a completion.",
        tests=("tests/contract/behaviour/test_conformance.py::test_case",),
        only_with="renderers.online_renderer",
    ),
    Patch(
        name="api_server.generate_route",
        module="entrypoints.scale_out.token_in_token_out.serving",
        patch_points=("ServingTokens.serve_tokens",),
        why="IDs beside a prompt of token IDs reach the engine and the KV connector, through the "
        "transfer params or through sampling_params.extra_args.",
        upstream="Through extra_args in every release, through the transfer params from 0.29.",
        unchanged="Everything else in the request.",
        remove_when="Upstream removes the key from both.",
        tests=(
            "tests/live/conformance/test_cases.py::test_case"
            "[0.32.0-tiny-qwen2-connector-"
            "params.port-among-engine-parameters-is-refused@/inference/v1/generate]",
        ),
    ),
    Patch(
        name="api_server.error_answers",
        module="entrypoints.scale_out.render.serving",
        patch_points=("ServingRender.render_chat_request",),
        why="/cohere/v2/chat/render answers every exception, a rejection included, with 500.",
        upstream="A 400 from 0.32.",
        unchanged="The other routes that render chats, whose 400 stays the same.",
        remove_when="The guard drops vLLM 0.31.",
        tests=(
            "tests/live/conformance/test_cases.py::test_case"
            "[0.31.0-tiny-qwen2-connector-"
            "chat.an-empty-list-is-refused@/cohere/v2/chat/render]",
        ),
        upstream_since="0.32.0",
    ),
    Patch(
        name="api_server.request_models.tokenize",
        module="entrypoints.serve.tokenize.protocol",
        patch_points=("TokenizeChatRequest",),
        optional=("TokenizeChatRequest.to_chat_completion_request",),
        why="The transfer params are an extra field here, and no validator looks for media beside "
        "the IDs.",
        upstream="The same in every release. From 0.33 Harmony models lose the field.",
        unchanged="Which bodies are valid; the validation errors.",
        remove_when="Upstream scans these messages like those of a chat completion.",
        tests=(
            "tests/contract/behaviour/test_requests.py::test_text_that_only_the_body_shows_to_tokenize",
            "tests/live/conformance/test_cases.py::test_case"
            "[0.33.0-tiny-gpt-oss-render-connector-"
            "chat.forwarded-ids-are-used@/tokenize]",
        ),
        only_with="renderers.online_renderer",
    ),
    Patch(
        name="api_server.error_answers",
        module="entrypoints.anthropic.serving",
        patch_points=("AnthropicServingMessages.create_messages",),
        why="/v1/messages answers every exception, a rejection included, with 500.",
        upstream="A 400 from 0.28.",
        unchanged="The response to every other error.",
        remove_when="The guard drops vLLM 0.27.",
        tests=(
            "tests/live/conformance/test_cases.py::test_case"
            "[0.27.0-tiny-qwen2-connector-"
            "chat.an-empty-list-is-refused@/v1/messages]",
        ),
        upstream_since="0.28.0",
    ),
    Patch(
        name="api_server.error_answers",
        module="entrypoints.cohere.serving",
        patch_points=("CohereServingChatV2.create_chat_v2",),
        why="/cohere/v2/chat answers every exception, a rejection included, with 500.",
        upstream="A 400 from 0.32.",
        unchanged="The response to every other error.",
        remove_when="The guard drops vLLM 0.31.",
        tests=(
            "tests/live/conformance/test_cases.py::test_case"
            "[0.31.0-tiny-qwen2-connector-"
            "chat.an-empty-list-is-refused@/cohere/v2/chat]",
        ),
        upstream_since="0.32.0",
    ),
    Patch(
        name="api_server.transfer_params",
        module="entrypoints.generate.base.serving",
        patch_points=("GenerateBaseServing._with_kv_transfer_rejection_cleanup",),
        why="Transfer params with a missing or wrongly typed field crash or hang the engine. The "
        "rejection notice of a request that fails before rendering carries its IDs.",
        upstream="No check in any release.",
        unchanged="When vLLM sends a notice, and its content without the IDs.",
        remove_when="Upstream checks transfer params per connector, and its notice carries no IDs.",
        tests=(
            "tests/contract/behaviour/test_requests.py::test_notice_of_an_early_refusal_carries_no_ids",
            "tests/live/conformance/test_cases.py::test_case"
            "[0.32.0-tiny-qwen2-connector-"
            "params.pull-without-any-field-is-refused@/v1/chat/completions]",
        ),
    ),
    Patch(
        name="api_server.batch_route",
        module="entrypoints.openai.chat_completion.batch_serving",
        patch_points=("OpenAIServingChatBatch.create_batch_chat_completion",),
        why="vLLM serves batches outside its rejection cleanup: prefill keeps the blocks of a "
        "refused batch until their lease ends, and nothing checks its transfer params.",
        upstream="The same in every release.",
        unchanged="Batches without transfer params.",
        remove_when="Upstream serves batches inside its cleanup.",
        tests=("tests/live/pairs/test_pair.py::test_every_refusal_frees_the_blocks_of_prefill",),
    ),
    Patch(
        name="api_server.refused_body",
        module="entrypoints.serve.exception_handling.register",
        patch_points=("validation_exception_handler", "vllm_error_handler", "exception_handler"),
        why="vLLM rejects an invalid body without a rejection notice: prefill keeps its blocks "
        "until their lease ends.",
        upstream="The same in every release.",
        unchanged="The response.",
        remove_when="Upstream sends the notice for every rejected request.",
        tests=("tests/live/pairs/test_pair.py::test_every_refusal_frees_the_blocks_of_prefill",),
        earlier="entrypoints.openai.api_server",
    ),
    Patch(
        name="api_server.metrics",
        module="entrypoints.serve.instrumentator.metrics",
        patch_points=("attach_router",),
        why="The code that decides does not know the endpoint of a request, which is a label of "
        "the guard's metrics.",
        upstream="No metrics for forwarded IDs in any release.",
        unchanged="Every other metric.",
        remove_when="Upstream counts the outcomes of forwarded IDs.",
        tests=("tests/live/test_metrics.py::test_decisions_are_counted",),
    ),
    Patch(
        name="api_server.rejection_notice",
        module="v1.engine.async_llm",
        patch_points=("AsyncLLM.notify_kv_transfer_request_rejected",),
        why="The notice of a refused request crashes the engine core if its transfer params name "
        "no remote blocks.",
        upstream="The same in every release.",
        unchanged="The notice for params that name remote blocks.",
        remove_when="The connectors accept a notice for a request that names no blocks.",
        tests=("tests/live/test_transfer_params.py::test_refused_anyway",),
    ),
    Patch(
        name="api_server.emit_ids",
        module="v1.engine.async_llm",
        patch_points=("AsyncLLM.generate",),
        why="No connector and no router in the field forwards the IDs of prefill to decode.",
        upstream="The same in every release.",
        unchanged="Every answer, unless --emit-prompt-token-ids is set and the request is for "
        "prefill.",
        remove_when="The connectors put the IDs into the transfer params that they return.",
        tests=("tests/live/pairs/test_emit.py::test_chat",),
    ),
    Patch(
        name="api_server.input_check",
        module="v1.engine.input_processor",
        patch_points=(
            "InputProcessor._validate_model_input",
            "InputProcessor._validate_prompt_len",
        ),
        why="vLLM checks every reused ID again before the engine gets them, and serves no other "
        "request meanwhile.",
        upstream="Up to 0.31 this is the only check. From 0.32 vLLM checks them twice.",
        unchanged="The check of every other prompt, and the check of the length.",
        remove_when="Upstream checks forwarded IDs once.",
        tests=(
            "tests/contract/behaviour/test_requests.py::test_ids_that_are_used_are_looked_at_once",
        ),
        only_with="renderers.online_renderer",
    ),
    Patch(
        name="api_server.detokenizer",
        module="v1.engine.detokenizer",
        patch_points=("FastIncrementalDetokenizer.__init__",),
        why="The first token waits until the whole prompt is detokenized. If the prompt ends "
        "inside a character, the answer begins with the text of the prompt.",
        upstream="The same in every release.",
        unchanged="All output text of prompts that end on a character boundary.",
        remove_when="Upstream gives its decode stream only the end of the prompt.",
        tests=(
            "tests/contract/behaviour/test_detokenizer.py::test_prompt_that_ends_inside_of_a_character",
            "tests/live/conformance/test_prompt_text.py::test_forwarded_ids",
        ),
    ),
    Patch(
        name="engine_core.requests",
        module="v1.engine.core",
        patch_points=(
            "MsgpackDecoder",
            "EngineCoreRequest",
            "EngineCoreRequestType",
            "EngineCore.preprocess_add_request",
            "EngineCoreProc._handle_request_preproc_error",
            "EngineCoreProc.process_input_sockets",
            "EngineCoreProc.process_output_sockets",
        ),
        why="A frame that the engine core cannot decode ends its input thread: every later request "
        "hangs while /health returns 200. The Rust front end and gRPC check no transfer params.",
        upstream="The same in every release.",
        unchanged="Every valid request.",
        remove_when="Upstream decodes inside its error handling, and checks transfer params in the "
        "engine core.",
        tests=(
            "tests/contract/behaviour/test_engine_core.py::test_undecodable_request_says_whose_it_is",
            "tests/contract/behaviour/test_engine_core.py::test_bad_params_are_refused",
            "tests/contract/behaviour/test_engine_core.py::test_thread_that_dies_ends_the_engine",
        ),
    ),
    Patch(
        name="engine_core.nixl_handshake",
        module="distributed.kv_transfer.kv_connector.v1.nixl.base_scheduler",
        patch_points=("NixlBaseConnectorScheduler._nixl_handshake_listener",),
        why="A handshake that NIXL cannot read, or one for an unknown rank, ends the listener "
        "thread: no instance can pull from this one any more, and /health returns 200.",
        upstream="The same in every release.",
        unchanged="Every other handshake.",
        remove_when="Upstream survives an invalid handshake.",
        tests=("tests/live/test_engine_core.py::test_handshakes_go_on_after_a_bad_one",),
    ),
    Patch(
        name="worker.nixl_pull",
        module="distributed.kv_transfer.kv_connector.v1.nixl.pull_worker",
        patch_points=("NixlPullConnectorWorker._read_blocks_for_req",),
        why="Transfer params with too few blocks for the prompt, or more cache groups than the "
        "model has, fail an assertion in the worker and end the engine.",
        upstream="The same in every release.",
        unchanged="Every pull whose blocks fit.",
        remove_when="Upstream fails only the request whose pull cannot start.",
        tests=("tests/live/pairs/test_pair.py::test_pull_that_does_not_fit_fails_alone",),
    ),
)


def needed_by(version: str) -> tuple[Patch, ...]:
    """Return the patches that a vLLM version needs."""
    return tuple(
        patch
        for patch in PATCHES
        if patch.upstream_since is None or not is_at_least(version, patch.upstream_since)
    )
