# SPDX-License-Identifier: Apache-2.0
"""
The settings of the guard, read once in each process from the environment.

A flag of ``vllm serve`` sets its variable, which every process that vLLM starts inherits.
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
"""The settings that are also flags of ``vllm serve``, by their names in Settings."""


# Two names for one choice: the flag of one also overrides the variable of the other.
_RIVALS = {"prompt_token_ids_policy", "enable_prompt_token_ids"}
_chosen: set[str] = set()


class Settings(BaseSettings):
    """The settings; the variable of a field is PREFIX and its name in capitals."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, frozen=True)

    prompt_token_ids_policy: Policy = Field(
        default=Policy.CONNECTOR,
        description="When this server reuses forwarded prompt token IDs: if it has a KV connector, "
        "always, or never (off).",
    )
    enable_prompt_token_ids: bool = Field(
        default=False,
        description="Same as --prompt-token-ids-policy always: for servers without a KV connector "
        "behind a router that you trust.",
    )
    prompt_token_ids_without_connector: WithoutConnector = Field(
        default=WithoutConnector.IGNORE,
        description="How a server without a KV connector handles forwarded IDs: ignore them and "
        "render the messages, or reject the request with HTTP 400.",
    )
    kv_transfer_allowed_peers: Annotated[tuple[Peer, ...] | None, NoDecode] = Field(
        default=None,
        description="The hosts that transfer params may name: host names, *.suffix, addresses or "
        "CIDR ranges, each with an optional :port, separated by spaces or commas. Default: any.",
    )
    emit_prompt_token_ids: bool = Field(
        default=False,
        description="On a prefill instance: add the prompt's token IDs to the transfer params of "
        "the response. Routers that copy those to decode then bring reuse.",
    )
    allow_unsupported: bool = Field(
        default=False,
        description="Start on an untested vLLM release, or on one that lacks a patch point. If a "
        "patch point is missing, the server runs UNGUARDED.",
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
            raise ValueError(f"contradicts --prompt-token-ids-policy {policy.value}")
        return self

    @property
    def policy(self) -> Policy:
        """The policy in force, whichever of its two settings was set."""
        return Policy.ALWAYS if self.enable_prompt_token_ids else self.prompt_token_ids_policy


@cache
def current() -> Settings:
    """
    Return the settings of this process.

    Raises SettingsError, which names each invalid variable and its valid values.
    """
    if unknown := _unknown_variables():
        valid = ", ".join(sorted(map(variable, Settings.model_fields)))
        raise SettingsError(
            tuple(f"unknown setting {name}; valid settings: {valid}" for name in unknown)
        )
    try:
        return Settings()
    except ValidationError as error:
        raise SettingsError(tuple(map(_explain, error.errors()))) from None


def choose(field: str, value: str) -> None:
    """
    Set a setting for this process and its children, as a flag does: it overrides its variable.

    Raises SettingsError if the value is invalid or contradicts another flag.
    """
    _chosen.add(field)
    os.environ[variable(field)] = value
    for rival in _RIVALS - _chosen if field in _RIVALS else ():
        os.environ.pop(variable(rival), None)
    current.cache_clear()
    current()


def source(field: str) -> str:
    """Return the source of a setting's value: its flag, its variable, or "default"."""
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
    # pydantic-settings also accepts lower case; nobody else would find such a variable.
    ours = (name for name in sorted(os.environ) if name.upper().startswith(PREFIX))
    return [name for name in ours if name not in known]


def _explain(problem: ErrorDetails) -> str:
    # An error about several settings names none of them.
    field = str((problem["loc"] or ("enable_prompt_token_ids",))[0])
    value = os.environ.get(variable(field))
    setting = f"{flag(field)} {value}" if field in _chosen else f"{variable(field)}={value}"
    return f"invalid {setting}: {problem['msg'].removeprefix('Value error, ')}"
