# SPDX-License-Identifier: Apache-2.0
"""
The registry: every patch, in the order in which they are applied.

``doctor``, the docs and CI read this tuple. A patch stands at the path of the upstream
module that it patches, below this folder; it collects facts and acts, the rules are in
``core``.
"""

from __future__ import annotations

from ..facts import parser_map_is_there
from ..installer import Patch, both, defines

PATCHES = (
    Patch(
        module="renderers.online_renderer",
        applies=both(
            defines(
                "_reused_prompt_token_ids",
                "OnlineRenderer.preprocess_chat",
                "OnlineRenderer._make_request_with_harmony",
            ),
            parser_map_is_there,
        ),
        why="Every reader of forwarded ids calls one function, which passes ids that hang or "
        "kill the engine, drop images, or fail after a stream has opened.",
        upstream="No check up to 0.31. From 0.32 type and vocabulary are checked; a missing "
        "connector, a missing embedding row and the length of the context are not.",
        unchanged="A request without forwarded ids is rendered as before.",
        remove_when="Upstream decides by every row of SPEC 1 before a stream opens.",
    ),
    Patch(
        module="entrypoints.openai.chat_completion.protocol",
        applies=defines(
            "ChatCompletionRequest.__pydantic_core_schema__",
            "BatchChatCompletionRequest.to_chat_completion_request",
        ),
        why="Validation drops the media keys of some content parts and turns some content into "
        "one-shot iterators, so that only the raw body tells whether all of it is text.",
        upstream="From 0.32 a validator of its own does the same; it counts fewer things as "
        "media. From 0.32 a batch with ids is refused.",
        unchanged="What is valid and what is not; the errors of validation.",
        remove_when="Upstream's own validator treats every case of SPEC 2 alike.",
        because_of="renderers.online_renderer",
    ),
    Patch(
        module="entrypoints.generate.base.serving",
        applies=defines("GenerateBaseServing._with_kv_transfer_rejection_cleanup"),
        why="A request that fails before it is rendered, say for its model, sends its ids to "
        "the engine core and the connector with the notice of its refusal.",
        upstream="The same in every release.",
        unchanged="When a notice is sent, and everything else in it.",
        remove_when="Upstream's notice names the remote blocks and nothing else.",
    ),
)
