# SPDX-License-Identifier: Apache-2.0
"""Start a server of each profile that the conformance cases are about."""

from __future__ import annotations

import json

import httpx
from transformers import AutoTokenizer

from vllm_reuse_guard.releases import TESTED
from vllm_reuse_guard.tools.conformance.profiles import ModelKind, Profile
from vllm_reuse_guard.tools.conformance.runner import Runner
from vllm_reuse_guard.tools.conformance.values import ModelInfo

from ..models.build import Model, build
from ..paths import MODELS
from .server import CONTEXT, MODEL_NAME, NIXL, Launch, Server

_MODELS = {
    ModelKind.TEXT: Model.TINY_QWEN2,
    ModelKind.IMAGES: Model.TINY_QWEN2_VL,
    ModelKind.NARROW_EMBEDDING: Model.TINY_QWEN2_NARROW,
}

_OTHER_CONVERSATION = [
    {"role": "system", "content": "You are a ship's cook."},
    {"role": "user", "content": "What is for dinner, and is there enough of it for everybody?"},
]


def model_for(profile: Profile) -> Model:
    """Return the smallest model that a server of the profile can have."""
    return _MODELS[profile.model_kind]


def launch(profile: Profile, release: str, model: Model, *, guarded: bool = True) -> Launch:
    """Return how to start a server of a profile. Builds the model unless it is built."""
    return Launch(
        name=f"{profile.value}-{model.value}" + ("" if guarded else "-plain"),
        release=release,
        model=build(model, MODELS),
        arguments=(*arguments(release), *(NIXL if profile.has_connector else ())),
        environment=profile.settings,
        guarded=guarded,
    )


def render_launch(profile: Profile, release: str, model: Model) -> Launch:
    """
    Return how to start a render server that treats IDs as a server of the profile does.

    A render server has no engine and no KV connector: it reuses IDs only with the policy always.
    """
    reuses_ids = profile is Profile.CONNECTOR
    return Launch(
        name=f"render-{profile.value}-{model.value}",
        release=release,
        model=build(model, MODELS),
        arguments=arguments(release),
        environment=(Profile.POLICY_ALWAYS if reuses_ids else profile).settings,
        subcommand=("launch", "render"),
    )


def arguments(release: str) -> tuple[str, ...]:
    """Return the arguments of every lab server of a release: the context, and all routes."""
    # Before 0.30 the generate and render routes need no flag.
    needs_flag = TESTED.index(release) >= TESTED.index("0.30.0")
    return ("--max-model-len", str(CONTEXT), *(("--enable-scale-out",) if needs_flag else ()))


def runner(server: Server, client: httpx.Client) -> Runner:
    """Return a runner for a lab server. client: its base URL is the server's."""
    return Runner(client, MODEL_NAME, describe(server))


def describe(server: Server) -> ModelInfo:
    """Return what cases need to know about the model of a server, from the model's files."""
    folder = server.launch.model
    config = json.loads((folder / "config.json").read_text())
    rows: int = config.get("text_config", config)["vocab_size"]
    known = max(AutoTokenizer.from_pretrained(folder).get_vocab().values())
    body = {"model": MODEL_NAME, "messages": _OTHER_CONVERSATION}
    answer = httpx.post(f"{server.url}/v1/chat/completions/render", json=body, timeout=60)
    return ModelInfo(
        forwarded=answer.raise_for_status().json()["token_ids"],
        embedding_rows=rows,
        last_known=max(known, rows - 1),
        max_prompt_len=CONTEXT - 1,
        placeholder=config.get("image_token_id"),
    )
