# SPDX-License-Identifier: Apache-2.0
"""
The settings of the guard, read once per process from the environment.

A flag of ``vllm serve`` writes its variable: every process that vLLM starts inherits that.
"""

from __future__ import annotations

import os
from functools import cache
from typing import Annotated, Any

from pydantic import Field, ValidationError, field_validator, model_validator
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from .errors import SettingsError
from .rules.allowed_peers import Peer, parse
from .rules.decision import Policy, WithoutConnector

PREFIX = "VLLM_REUSE_GUARD_"

FLAGS = (
    "prompt_token_ids_policy",
    "enable_prompt_token_ids",
    "prompt_token_ids_without_connector",
    "kv_transfer_allowed_peers",
    "emit_prompt_token_ids",
)
"""The settings that are flags of ``vllm serve`` too, by their names in Settings."""


# Two ways to say the same: a flag of one is above the variable of the other as well.
_RIVALS = {"prompt_token_ids_policy", "enable_prompt_token_ids"}
_chosen: set[str] = set()


class Settings(BaseSettings):
    """What an operator can choose; each field is read from PREFIX and its name in capitals."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, frozen=True)

    prompt_token_ids_policy: Policy = Field(
        default=Policy.CONNECTOR,
        description="When forwarded prompt token ids may be used: where a KV connector runs, "
        "always, or never (off).",
    )
    enable_prompt_token_ids: bool = Field(
        default=False,
        description="Short for --prompt-token-ids-policy always: for servers without a KV "
        "connector behind a router that is trusted.",
    )
    prompt_token_ids_without_connector: WithoutConnector = Field(
        default=WithoutConnector.IGNORE,
        description="What becomes of forwarded ids on a server without a KV connector: they are "
        "left aside and the messages are rendered, or the request is refused.",
    )
    kv_transfer_allowed_peers: Annotated[tuple[Peer, ...] | None, NoDecode] = Field(
        default=None,
        description="The hosts that transfer params may name: host names, *.suffix, addresses or "
        "CIDR ranges, each with :port or not, separated by spaces or commas. Any host if unset.",
    )
    emit_prompt_token_ids: bool = Field(
        default=False,
        description="On prefill: put the prompt's token ids into the transfer params of the "
        "answer, for routers that hand them to decode as they are.",
    )
    allow_unsupported: bool = Field(
        default=False,
        description="Start on an untested vLLM release, or on one that lacks a patch point. If a patch "
        "point is missing, the server runs UNGUARDED.",
    )

    @field_validator("kv_transfer_allowed_peers", mode="before")
    @classmethod
    def _split_peers(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        return tuple(map(parse, value.replace(",", " ").split()))

    @model_validator(mode="after")
    def _agree(self) -> Settings:
        named = "prompt_token_ids_policy" in self.model_fields_set
        policy = self.prompt_token_ids_policy
        if self.enable_prompt_token_ids and named and policy is not Policy.ALWAYS:
            raise ValueError(f"contradicts the policy, which is {policy.value}")
        return self

    @property
    def policy(self) -> Policy:
        """When forwarded ids may be used, by whichever setting that was said."""
        return Policy.ALWAYS if self.enable_prompt_token_ids else self.prompt_token_ids_policy


@cache
def current() -> Settings:
    """
    Return the settings of this process.

    Raises SettingsError, which names each bad variable and what it may hold.
    """
    if unknown := _unknown_variables():
        known = ", ".join(sorted(map(variable, Settings.model_fields)))
        raise SettingsError(tuple(f"{name} is no setting (known: {known})" for name in unknown))
    try:
        return Settings()
    except ValidationError as error:
        raise SettingsError(tuple(map(_explain, error.errors()))) from None


def choose(field: str, value: str) -> None:
    """
    Set a setting for this process and those that it starts, as a flag does: above its variable.

    Raises SettingsError if the value means nothing or contradicts another flag.
    """
    _chosen.add(field)
    os.environ[variable(field)] = value
    for rival in _RIVALS - _chosen if field in _RIVALS else ():
        os.environ.pop(variable(rival), None)
    current.cache_clear()
    current()


def source(field: str) -> str:
    """Return where the value of a setting comes from: its flag, its variable or nowhere."""
    if field in _chosen:
        return flag(field)
    return variable(field) if variable(field) in os.environ else "default"


def variable(field: str) -> str:
    """Return the environment variable of a setting."""
    return PREFIX + field.upper()


def flag(field: str) -> str:
    """Return the flag of a setting."""
    return "--" + field.replace("_", "-")


def _unknown_variables() -> list[str]:
    known = set(map(variable, Settings.model_fields))
    # pydantic-settings takes small letters as well; nobody else would find such a variable.
    ours = (name for name in sorted(os.environ) if name.upper().startswith(PREFIX))
    return [name for name in ours if name not in known]


def _explain(problem: ErrorDetails) -> str:
    # A fault of several settings together has no place of its own.
    field = str((problem["loc"] or ("enable_prompt_token_ids",))[0])
    value = os.environ.get(variable(field))
    said = f"{flag(field)} {value}" if field in _chosen else f"{variable(field)}={value}"
    return f"{said}: {problem['msg'].removeprefix('Value error, ')}"
