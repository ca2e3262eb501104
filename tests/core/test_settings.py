# SPDX-License-Identifier: Apache-2.0
"""Settings come from the environment, and a bad one stops the start."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from vllm_reuse_guard import settings
from vllm_reuse_guard.core.decision import Policy
from vllm_reuse_guard.errors import SettingsError

POLICY = "VLLM_REUSE_GUARD_PROMPT_TOKEN_IDS_POLICY"


@pytest.fixture(autouse=True)
def read_anew() -> Iterator[None]:
    settings.current.cache_clear()
    yield
    settings.current.cache_clear()


def test_defaults_are_safe() -> None:
    """
    Without any variable ids are used where a connector runs, and nowhere else.
    """
    assert Policy.CONNECTOR is settings.current().prompt_token_ids_policy
    assert not settings.current().allow_unsupported


@pytest.mark.parametrize("policy", Policy)
def test_variable_sets_the_policy(monkeypatch: pytest.MonkeyPatch, policy: Policy) -> None:
    """
    Each value of the policy can be set by its word.
    """
    monkeypatch.setenv(POLICY, policy.value)

    assert policy is settings.current().prompt_token_ids_policy


def test_bad_value_names_the_allowed_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The error names the variable, its value and what it may be.
    """
    monkeypatch.setenv(POLICY, "sometimes")

    with pytest.raises(SettingsError, match=f"{POLICY}=sometimes.*connector.*always.*off"):
        settings.current()


def test_unknown_variable_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A typing error in a name does not quietly leave the default in force.
    """
    monkeypatch.setenv("VLLM_REUSE_GUARD_POLICY", "off")

    with pytest.raises(SettingsError, match="VLLM_REUSE_GUARD_POLICY is no setting"):
        settings.current()
