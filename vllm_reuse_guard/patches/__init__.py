# SPDX-License-Identifier: Apache-2.0
"""
The registry: every patch, in the order in which they are applied.

``doctor``, the docs and CI read this tuple. A patch stands at the path of the upstream
module that it patches, below this folder; it collects facts and acts, the rules are in
``core``.
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
        why="An operator chooses settings as flags, in a configuration file or as variables.",
        upstream="No such settings.",
        unchanged="Every other flag.",
        remove_when="Upstream has flags of its own for what the settings say.",
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
        why="Every reader of forwarded ids calls one function, which passes ids that hang or "
        "kill the engine, drop images, or fail after a stream has opened.",
        upstream="No check up to 0.31. From 0.32 type and vocabulary are checked; a missing "
        "connector, a missing embedding row and the length of the context are not.",
        unchanged="A request without forwarded ids is rendered as before.",
        remove_when="Upstream decides by the whole table of decisions before a stream opens.",
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
        "one-shot iterators, so that only the raw body tells whether all of it is text.",
        upstream="From 0.32 a validator of its own does the same; it counts fewer things as "
        "media. From 0.32 a batch with ids is refused.",
        unchanged="What is valid and what is not; the errors of validation.",
        remove_when="Upstream's own validator takes for media whatever this one does.",
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
        why="Media in the input is dropped beside forwarded ids; for a Harmony model, which "
        "does not read the ids, they go to the engine and the connector.",
        upstream="The same in every release.",
        unchanged="What is valid and what is not; every other engine parameter.",
        remove_when="Upstream scans the input as it does the messages of a chat, and takes the "
        "ids out for Harmony too.",
        tests=("tests/contract/behaviour/test_conformance.py::test_case",),
        only_with="renderers.online_renderer",
    ),
    Patch(
        name="api_server.request_models.completion",
        module="entrypoints.openai.completion.protocol",
        patch_points=("CompletionRequest.to_sampling_params",),
        why="Ids beside a completion, which has a prompt of its own, go to the engine and the "
        "connector.",
        upstream="The same in every release.",
        unchanged="Every other engine parameter.",
        remove_when="Upstream takes the key out of a completion's transfer params.",
        tests=("tests/contract/behaviour/test_conformance.py::test_case",),
        only_with="renderers.online_renderer",
    ),
    Patch(
        name="api_server.generate_route",
        module="entrypoints.scale_out.token_in_token_out.serving",
        patch_points=("ServingTokens.serve_tokens",),
        why="Ids beside a prompt that is token ids already go to the engine and the connector, "
        "by the transfer params or by sampling_params.extra_args.",
        upstream="By the latter in every release, by the former from 0.29.",
        unchanged="Everything else in the request.",
        remove_when="Upstream takes the key out of both.",
        tests=(
            "tests/live/test_conformance.py::test_case"
            "[0.32.0-tiny-qwen2-connector-"
            "params.port-among-engine-parameters-is-refused@/inference/v1/generate]",
        ),
    ),
    Patch(
        name="api_server.error_answers",
        module="entrypoints.scale_out.render.serving",
        patch_points=("ServingRender.render_chat_request",),
        why="/cohere/v2/chat/render answers 500 to what is raised, a refusal included.",
        upstream="A 400 from 0.32.",
        unchanged="The other routes that render chats: their 400 is the same as if raised.",
        remove_when="0.31 is no longer supported.",
        tests=(
            "tests/live/test_conformance.py::test_case"
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
        why="Transfer params reach the reader as an extra field, and no validator looks for "
        "media beside the ids.",
        upstream="The same in every release; for Harmony models the field is lost from 0.33.",
        unchanged="What is valid and what is not; the errors of validation.",
        remove_when="Upstream scans these messages as it does those of a chat completion.",
        tests=(
            "tests/contract/behaviour/test_requests.py::test_text_that_only_the_body_shows_to_tokenize",
            "tests/live/test_conformance.py::test_case"
            "[0.33.0-tiny-gpt-oss-render-connector-"
            "chat.forwarded-ids-are-used@/tokenize]",
        ),
        only_with="renderers.online_renderer",
    ),
    Patch(
        name="api_server.error_answers",
        module="entrypoints.anthropic.serving",
        patch_points=("AnthropicServingMessages.create_messages",),
        why="/v1/messages answers 500 to what is raised, a refusal included.",
        upstream="A 400 from 0.28.",
        unchanged="The answer to every other error.",
        remove_when="0.27 is no longer supported.",
        tests=(
            "tests/live/test_conformance.py::test_case"
            "[0.27.0-tiny-qwen2-connector-"
            "chat.an-empty-list-is-refused@/v1/messages]",
        ),
        upstream_since="0.28.0",
    ),
    Patch(
        name="api_server.error_answers",
        module="entrypoints.cohere.serving",
        patch_points=("CohereServingChatV2.create_chat_v2",),
        why="/cohere/v2/chat answers 500 to what is raised, a refusal included.",
        upstream="A 400 from 0.32.",
        unchanged="The answer to every other error.",
        remove_when="0.31 is no longer supported.",
        tests=(
            "tests/live/test_conformance.py::test_case"
            "[0.31.0-tiny-qwen2-connector-"
            "chat.an-empty-list-is-refused@/cohere/v2/chat]",
        ),
        upstream_since="0.32.0",
    ),
    Patch(
        name="api_server.transfer_params",
        module="entrypoints.generate.base.serving",
        patch_points=("GenerateBaseServing._with_kv_transfer_rejection_cleanup",),
        why="Transfer params that lack a field or have one of a wrong type kill or hang the "
        "engine. The notice of a request that fails before it is rendered carries its ids.",
        upstream="No check in any release.",
        unchanged="When a notice is sent, and everything in it but the ids.",
        remove_when="Upstream checks transfer params per connector, and its notice names the "
        "remote blocks and nothing else.",
        tests=(
            "tests/contract/behaviour/test_requests.py::test_notice_of_an_early_refusal_carries_no_ids",
            "tests/live/test_conformance.py::test_case"
            "[0.32.0-tiny-qwen2-connector-"
            "params.pull-without-any-field-is-refused@/v1/chat/completions]",
        ),
    ),
    Patch(
        name="api_server.batch_route",
        module="entrypoints.openai.chat_completion.batch_serving",
        patch_points=("OpenAIServingChatBatch.create_batch_chat_completion",),
        why="A batch is served outside of the cleanup: prefill keeps the blocks of a refused one "
        "until their lease ends, and nobody looks at its transfer params.",
        upstream="The same in every release.",
        unchanged="A batch without transfer params.",
        remove_when="Upstream serves batches inside its cleanup.",
        tests=("tests/live/test_pair.py::test_every_refusal_frees_the_blocks_of_prefill",),
    ),
    Patch(
        name="api_server.refused_body",
        module="entrypoints.serve.exception_handling.register",
        patch_points=("validation_exception_handler", "vllm_error_handler", "exception_handler"),
        why="A body that is not valid, beside valid transfer params, is refused without a word "
        "to the connector: prefill keeps its blocks until their lease ends.",
        upstream="The same in every release.",
        unchanged="The answer.",
        remove_when="Upstream tells the connector of every refused request.",
        tests=("tests/live/test_pair.py::test_every_refusal_frees_the_blocks_of_prefill",),
        earlier="entrypoints.openai.api_server",
    ),
    Patch(
        name="api_server.metrics",
        module="entrypoints.serve.instrumentator.metrics",
        patch_points=("attach_router",),
        why="What decides about ids is not told by which endpoint a request came, and an operator "
        "wants to know what his metrics are about.",
        upstream="No metrics about forwarded ids in any release.",
        unchanged="Every other metric.",
        remove_when="Upstream counts what becomes of forwarded ids.",
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
        tests=("tests/live/test_emit.py::test_chat",),
    ),
    Patch(
        name="api_server.input_check",
        module="v1.engine.input_processor",
        patch_points=(
            "InputProcessor._validate_model_input",
            "InputProcessor._validate_prompt_len",
        ),
        why="Ids that were decided about are all looked at once more before the engine gets them, "
        "while no other request is served.",
        upstream="Once up to 0.31, beside no other check; twice from 0.32.",
        unchanged="The check of every other prompt, and of the length.",
        remove_when="Upstream checks forwarded ids once.",
        tests=(
            "tests/contract/behaviour/test_requests.py::test_ids_that_are_used_are_looked_at_once",
        ),
        only_with="renderers.online_renderer",
    ),
    Patch(
        name="api_server.detokenizer",
        module="v1.engine.detokenizer",
        patch_points=("FastIncrementalDetokenizer.__init__",),
        why="The first token of an answer waits until the whole prompt is decoded once more. If "
        "the prompt ends inside of a character, its text is given out as part of the answer.",
        upstream="The same in every release.",
        unchanged="Every piece of text, for prompts that end where a character ends.",
        remove_when="Upstream primes its decode stream with the end of the prompt.",
        tests=(
            "tests/contract/behaviour/test_detokenizer.py::test_prompt_that_ends_inside_of_a_character",
            "tests/live/test_prompt_text.py::test_forwarded_ids",
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
        why="A frame that cannot be decoded ends the thread that takes requests in: every later "
        "request hangs while /health says 200. Front ends that are not vLLM's own in Python "
        "check no transfer params.",
        upstream="The same in every release.",
        unchanged="Every request that can be decoded and served.",
        remove_when="Upstream decodes inside the handling of errors, and checks transfer params "
        "in the engine core.",
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
        why="A handshake that cannot be read, or for a rank that is not here, ends the thread "
        "that answers them: nobody can pull from this instance any more, and /health says 200.",
        upstream="The same in every release.",
        unchanged="The answer to every other handshake.",
        remove_when="Upstream answers or drops a bad handshake and goes on.",
        tests=("tests/live/test_engine_core.py::test_handshakes_go_on_after_a_bad_one",),
    ),
    Patch(
        name="worker.nixl_pull",
        module="distributed.kv_transfer.kv_connector.v1.nixl.pull_worker",
        patch_points=("NixlPullConnectorWorker._read_blocks_for_req",),
        why="Transfer params with too few blocks for the prompt, or more groups than the model "
        "has, fail an assertion of the worker, which takes the engine with it.",
        upstream="The same in every release.",
        unchanged="Every pull that fits.",
        remove_when="Upstream fails the request whose pull cannot begin.",
        tests=("tests/live/test_pair.py::test_pull_that_does_not_fit_fails_alone",),
    ),
)


def needed_by(version: str) -> tuple[Patch, ...]:
    """Return the patches that a vLLM of this version needs: all but those it does without."""
    return tuple(
        patch
        for patch in PATCHES
        if patch.upstream_since is None or not is_at_least(version, patch.upstream_since)
    )
