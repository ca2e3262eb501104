# SPDX-License-Identifier: Apache-2.0
"""The servers that the conformance cases speak about, as launches for this machine."""

from __future__ import annotations

import json
from types import MappingProxyType

import httpx
from transformers import AutoTokenizer

from vllm_reuse_guard.conformance import Profile
from vllm_reuse_guard.conformance.runner import Runner
from vllm_reuse_guard.conformance.values import Subject

from .models import Model, build
from .paths import MODELS
from .server import CONTEXT, MODEL_NAME, NIXL, Launch, Server

_ALWAYS = MappingProxyType({"VLLM_REUSE_GUARD_PROMPT_TOKEN_IDS_POLICY": "always"})
_OFF = MappingProxyType({"VLLM_REUSE_GUARD_PROMPT_TOKEN_IDS_POLICY": "off"})
_ENVIRONMENTS = {
    Profile.POLICY_ALWAYS: _ALWAYS,
    Profile.NARROW_EMBEDDING: _ALWAYS,
    Profile.POLICY_OFF: _OFF,
}
_WITH_CONNECTOR = {Profile.CONNECTOR, Profile.POLICY_OFF}

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
        arguments=("--max-model-len", str(CONTEXT), *(NIXL if profile in _WITH_CONNECTOR else ())),
        environment=_ENVIRONMENTS.get(profile, MappingProxyType({})),
        guarded=guarded,
    )


def runner(server: Server, client: httpx.Client) -> Runner:
    """Return a runner of cases for a lab server. client: its base URL is the server's."""
    return Runner(client, MODEL_NAME, describe(server))


def describe(server: Server) -> Subject:
    """Say what the model of a server is like, from the files it was started with."""
    folder = server.launch.model
    rows: int = json.loads((folder / "config.json").read_text())["vocab_size"]
    known = max(AutoTokenizer.from_pretrained(folder).get_vocab().values())
    answer = server.chat(messages=_OTHER_CONVERSATION, max_tokens=1, return_token_ids=True)
    return Subject(
        forwarded=answer.raise_for_status().json()["prompt_token_ids"],
        embedding_rows=rows,
        last_known=max(known, rows - 1),
        longest=CONTEXT - 1,
    )
