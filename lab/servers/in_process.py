# SPDX-License-Identifier: Apache-2.0
"""
vLLM's front end in this process, without an engine, built as the API server builds it.

Importing this module selects the CPU platform, and keeps vLLM from loading plugins.
"""

from __future__ import annotations

import os
from functools import cache
from typing import Any

from ..paths import MODELS, VLLM_CACHES

# Tests apply and undo the patches themselves.
os.environ["VLLM_PLUGINS"] = ""
os.environ["HF_HUB_OFFLINE"] = "1"

import vllm.platforms
from vllm.platforms.cpu import CpuPlatform

# A release without a CPU build is a CUDA wheel, whose front end runs on this platform too.
vllm.platforms.current_platform = CpuPlatform()
os.environ["VLLM_CACHE_ROOT"] = str(VLLM_CACHES / vllm.__version__.partition("+")[0])

from vllm.config import KVTransferConfig  # noqa: E402
from vllm.engine.arg_utils import EngineArgs  # noqa: E402
from vllm.renderers import online_renderer, renderer_from_config  # noqa: E402
from vllm.v1.engine.input_processor import InputProcessor  # noqa: E402

from ..models.build import Model, build  # noqa: E402
from .server import CONTEXT  # noqa: E402


def make_renderer(model: Model, *, connector: bool, context: int = CONTEXT) -> Any:
    """Return a real OnlineRenderer of this release, built as the API server builds it."""
    config, renderer = _configure(model, connector, context)
    return online_renderer.OnlineRenderer(
        model_config=config.model_config,
        renderer=renderer,
        request_logger=None,
        chat_template=None,
        chat_template_content_format="auto",
    )


def engine_request(renderer: Any, engine_input: Any, params: Any) -> Any:
    """Return the EngineCoreRequest that the front end sends for a prompt and its parameters."""
    return _processor(renderer.renderer).process_inputs(
        "request", engine_input, params, ("generate",)
    )


@cache
def _processor(renderer: Any) -> Any:
    return InputProcessor(renderer.config, renderer)


@cache
def _configure(model: Model, connector: bool, context: int) -> tuple[Any, Any]:
    nixl = KVTransferConfig(kv_connector="NixlConnector", kv_role="kv_both")
    arguments = EngineArgs(
        model=str(build(model, MODELS)),
        dtype="float32",
        max_model_len=context,
        enforce_eager=True,
        kv_transfer_config=nixl if connector else None,
    )
    config = arguments.create_engine_config()
    return config, renderer_from_config(config)
