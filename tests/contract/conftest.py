# SPDX-License-Identifier: Apache-2.0
"""Real vLLM modules in this process, no engine; run once per release."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterator
from functools import cache
from importlib.util import find_spec
from typing import Any

import pytest

# The tests put the patches in and take them out themselves.
os.environ["VLLM_PLUGINS"] = ""
os.environ["HF_HUB_OFFLINE"] = "1"

import vllm.platforms
from vllm.platforms.cpu import CpuPlatform

# The one release without a CPU build is a CUDA wheel: its front end runs once it is told.
vllm.platforms.current_platform = CpuPlatform()

from vllm.config import KVTransferConfig  # noqa: E402
from vllm.engine.arg_utils import EngineArgs  # noqa: E402
from vllm.renderers import online_renderer, renderer_from_config  # noqa: E402
from vllm.v1.engine.input_processor import InputProcessor  # noqa: E402

from lab import launches  # noqa: E402
from lab.models import Model, build  # noqa: E402
from lab.paths import MODELS  # noqa: E402
from lab.server import CONTEXT  # noqa: E402
from vllm_reuse_guard import installer, settings  # noqa: E402
from vllm_reuse_guard.conformance import Profile  # noqa: E402
from vllm_reuse_guard.patches import PATCHES, needed_by  # noqa: E402

IN_TREE = find_spec("vllm.reuse_guard") is not None
"""Whether the guard is in the tree of this vLLM: its modules patch themselves (tests.in_tree)."""

# How patches go in and come out, and the tools, which are not in a tree.
collect_ignore = ["test_install.py", "test_in_tree.py", "test_doctor.py"] if IN_TREE else []

for patch in PATCHES:
    importlib.import_module(patch.target)


@pytest.fixture
def guarded() -> Iterator[None]:
    """The patches of the release are in for the test; in a tree they are always in."""
    if IN_TREE:
        yield
        return
    undo = installer.install(needed_by(vllm.__version__))
    yield
    undo()


@pytest.fixture
def settings_of(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Profile], None]]:
    """Sets the settings of a profile for the test."""

    def choose(profile: Profile) -> None:
        for name, value in launches.environment(profile).items():
            monkeypatch.setenv(name, value)
        settings.current.cache_clear()

    settings.current.cache_clear()
    yield choose
    settings.current.cache_clear()


def make_renderer(model: Model, *, connector: bool) -> Any:
    """Return a real OnlineRenderer of this release, made as the API server makes it."""
    config, renderer = _configured(model, connector)
    return online_renderer.OnlineRenderer(
        model_config=config.model_config,
        renderer=renderer,
        request_logger=None,
        chat_template=None,
        chat_template_content_format="auto",
    )


def engine_request(renderer: Any, engine_input: Any, params: Any) -> Any:
    """Return the EngineCoreRequest that the front end sends for a prompt and its parameters."""
    processor = _processor(renderer.renderer)
    return processor.process_inputs("request", engine_input, params, ("generate",))


@cache
def _processor(renderer: Any) -> Any:
    return InputProcessor(renderer.config, renderer)


@cache
def _configured(model: Model, connector: bool) -> tuple[Any, Any]:
    nixl = KVTransferConfig(kv_connector="NixlConnector", kv_role="kv_both")
    arguments = EngineArgs(
        model=str(build(model, MODELS)),
        dtype="float32",
        max_model_len=CONTEXT,
        enforce_eager=True,
        kv_transfer_config=nixl if connector else None,
    )
    config = arguments.create_engine_config()
    return config, renderer_from_config(config)
