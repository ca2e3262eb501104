# SPDX-License-Identifier: Apache-2.0
"""The servers that the conformance cases speak about, as launches for this machine."""

from __future__ import annotations

import json
from types import MappingProxyType

import httpx
from transformers import AutoTokenizer

from vllm_reuse_guard.releases import TESTED
from vllm_reuse_guard.tools.conformance import Profile
from vllm_reuse_guard.tools.conformance.runner import Runner
from vllm_reuse_guard.tools.conformance.values import ModelInfo

from ..models.build import Model, build
from ..paths import MODELS
from .server import CONTEXT, MODEL_NAME, NIXL, Launch, Server

_ALWAYS = MappingProxyType({"VLLM_REUSE_GUARD_PROMPT_TOKEN_IDS_POLICY": "always"})
_OFF = MappingProxyType({"VLLM_REUSE_GUARD_PROMPT_TOKEN_IDS_POLICY": "off"})
_REJECT = MappingProxyType({"VLLM_REUSE_GUARD_PROMPT_TOKEN_IDS_WITHOUT_CONNECTOR": "reject"})
_PEERS = MappingProxyType({"VLLM_REUSE_GUARD_KV_TRANSFER_ALLOWED_PEERS": "10.0.0.0/8"})
_ENVIRONMENTS = {
    Profile.POLICY_ALWAYS: _ALWAYS,
    Profile.NARROW_EMBEDDING: _ALWAYS,
    Profile.POLICY_OFF: _OFF,
    Profile.REJECT: _REJECT,
    Profile.PEERS: _PEERS,
}

WITH_CONNECTOR = frozenset({Profile.CONNECTOR, Profile.POLICY_OFF, Profile.PEERS, Profile.MEDIA})
"""The profiles whose servers have a KV connector."""

_OTHER_CONVERSATION = [
    {"role": "system", "content": "You are a ship's cook."},
    {"role": "user", "content": "What is for dinner, and is there enough of it for everybody?"},
]


def launch(profile: Profile, release: str, model: Model, *, guarded: bool = True) -> Launch:
    """Say how to start the server of a profile; builds the model if it is not there yet."""
    return Launch(
        name=f"{profile.value}-{model.value}" + ("" if guarded else "-plain"),
        release=release,
        model=build(model, MODELS),
        arguments=(*arguments(release), *(NIXL if profile in WITH_CONNECTOR else ())),
        environment=environment(profile),
        guarded=guarded,
    )


def render_launch(profile: Profile, release: str, model: Model) -> Launch:
    """
    Say how to start a render server that treats ids as a server of the profile does.

    It has no engine and thus no connector: to use ids it must be told ``always``.
    """
    uses_ids = profile in (Profile.CONNECTOR, Profile.POLICY_ALWAYS)
    return Launch(
        name=f"render-{profile.value}-{model.value}",
        release=release,
        model=build(model, MODELS),
        arguments=arguments(release),
        environment=_ALWAYS if uses_ids else environment(profile),
        subcommand=("launch", "render"),
    )


def environment(profile: Profile) -> MappingProxyType[str, str]:
    """Return the settings of the guard that make a server one of the profile."""
    return _ENVIRONMENTS.get(profile, MappingProxyType({}))


def arguments(release: str) -> tuple[str, ...]:
    """Return what every lab server of a release is told: its context, and to have all routes."""
    # Before 0.30 the routes for token ids and for rendering need no asking.
    always_there = TESTED.index(release) < TESTED.index("0.30.0")
    return ("--max-model-len", str(CONTEXT), *(() if always_there else ("--enable-scale-out",)))


def runner(server: Server, client: httpx.Client) -> Runner:
    """Return a runner of cases for a lab server. client: its base URL is the server's."""
    return Runner(client, MODEL_NAME, describe(server))


def describe(server: Server) -> ModelInfo:
    """Say what the model of a server is like, from the files it was started with."""
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
