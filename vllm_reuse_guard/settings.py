# SPDX-License-Identifier: Apache-2.0
"""The settings of the guard, read once per process from the environment."""

from __future__ import annotations

import os
from functools import cache

from pydantic import Field, ValidationError
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, SettingsConfigDict

from .core.decision import Policy
from .errors import SettingsError

PREFIX = "VLLM_REUSE_GUARD_"


class Settings(BaseSettings):
    """What an operator can choose; each field is read from PREFIX and its name in capitals."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, frozen=True)

    prompt_token_ids_policy: Policy = Field(
        default=Policy.CONNECTOR,
        description="When forwarded ids may be used: where a KV connector runs, always, or never.",
    )
    allow_unsupported: bool = Field(
        default=False,
        description="Start even if this vLLM is unknown to the guard or lacks one of its seams.",
    )


@cache
def current() -> Settings:
    """
    Return the settings of this process.

    Raises SettingsError, which names each bad variable and what it may hold.
    """
    if unknown := _unknown_variables():
        known = ", ".join(sorted(map(_variable, Settings.model_fields)))
        raise SettingsError(tuple(f"{name} is no setting (known: {known})" for name in unknown))
    try:
        return Settings()
    except ValidationError as error:
        raise SettingsError(tuple(map(_explain, error.errors()))) from None


def _unknown_variables() -> list[str]:
    known = set(map(_variable, Settings.model_fields))
    return [name for name in sorted(os.environ) if name.startswith(PREFIX) and name not in known]


def _variable(field: str) -> str:
    return PREFIX + field.upper()


def _explain(problem: ErrorDetails) -> str:
    (field,) = problem["loc"]
    return f"{_variable(str(field))}={problem['input']}: {problem['msg']}"
