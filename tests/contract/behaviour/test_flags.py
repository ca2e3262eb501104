# SPDX-License-Identifier: Apache-2.0
"""The settings are flags of vLLM's own command line, on each release."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.utils.argparse_utils import FlexibleArgumentParser

from vllm_reuse_guard import settings
from vllm_reuse_guard.rules.allowed_peers import parse
from vllm_reuse_guard.rules.decision import Policy, WithoutConnector

pytestmark = pytest.mark.usefixtures("guarded", "own_settings")


def parsed(*flags: str) -> Any:
    """Parse a command line as ``vllm serve`` does."""
    parser = FlexibleArgumentParser()
    parser.add_argument("--config")
    return AsyncEngineArgs.add_cli_args(parser).parse_args(list(flags))


@pytest.mark.parametrize("policy", Policy)
def test_policy(policy: Policy) -> None:
    """
    Each policy, with dashes and with underscores as vLLM allows.
    """
    parsed("--prompt-token-ids-policy", policy.value)
    assert policy is settings.current().policy

    parsed("--prompt_token_ids_policy", policy.value)
    assert policy is settings.current().policy


def test_other_flags() -> None:
    """
    The short form, the refusal, and a list.
    """
    parsed(
        "--enable-prompt-token-ids",
        *("--prompt-token-ids-without-connector", "reject"),
        *("--kv-transfer-allowed-peers", "10.0.0.0/8", "*.svc:5600"),
    )

    chosen = settings.current()
    assert Policy.ALWAYS is chosen.policy
    assert WithoutConnector.REJECT is chosen.prompt_token_ids_without_connector
    assert (parse("10.0.0.0/8"), parse("*.svc:5600")) == chosen.kv_transfer_allowed_peers


def test_no_flag_chooses_nothing() -> None:
    """
    Without flags the variables count, and no variable is written.
    """
    before = dict(os.environ)

    parsed()

    assert before == os.environ


def test_flag_is_above_its_variable() -> None:
    """
    The processes that vLLM starts inherit what the flag says.
    """
    os.environ[settings.variable("prompt_token_ids_policy")] = "off"

    parsed("--prompt-token-ids-policy", "always")

    assert "always" == os.environ[settings.variable("prompt_token_ids_policy")]
    assert Policy.ALWAYS is settings.current().policy


def test_configuration_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    vLLM's YAML file can have them.
    """
    file = tmp_path / "config.yaml"
    file.write_text(
        "model: some/model\n"
        "enable-prompt-token-ids: true\n"
        "prompt-token-ids-without-connector: reject\n"
        "kv-transfer-allowed-peers:\n  - 10.0.0.0/8\n  - host:1\n"
    )
    monkeypatch.setattr(sys, "argv", ["vllm", "serve", "--config", str(file)])

    parser = FlexibleArgumentParser()
    parser.add_argument("serve", nargs="?")
    parser.add_argument("--config")
    AsyncEngineArgs.add_cli_args(parser).parse_args(["serve", "--config", str(file)])

    chosen = settings.current()
    assert Policy.ALWAYS is chosen.policy
    assert WithoutConnector.REJECT is chosen.prompt_token_ids_without_connector
    assert (parse("10.0.0.0/8"), parse("host:1")) == chosen.kv_transfer_allowed_peers


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--prompt-token-ids-policy", "perhaps"], "'connector', 'always', 'off'"),
        (["--prompt-token-ids-without-connector", "maybe"], "'ignore', 'reject'"),
        (
            ["--kv-transfer-allowed-peers", "http://x"],
            "invalid peer 'http://x': expected a host name",
        ),
        (["--prompt-token-ids-policy", "off", "--enable-prompt-token-ids"], "contradicts"),
    ],
)
def test_bad_value_ends_the_start(
    flags: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """
    The message names the flag's allowed values or the entry at fault.
    """
    with pytest.raises(SystemExit) as stop:
        parsed(*flags)

    assert 2 == stop.value.code
    assert says in capsys.readouterr().err


def test_help_has_a_group_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    """
    Every flag is explained under the guard's name.
    """
    parser = AsyncEngineArgs.add_cli_args(FlexibleArgumentParser())

    text = parser.format_help()

    assert "vllm-reuse-guard" in text
    for field in settings.FLAGS:
        assert settings.flag(field) in text
