# SPDX-License-Identifier: Apache-2.0
"""The image, the Kubernetes example and the changelog are of this version and the newest vLLM."""

from __future__ import annotations

import re
from pathlib import Path

from vllm_reuse_guard import __version__
from vllm_reuse_guard.releases import TESTED
from vllm_reuse_guard.settings import Settings, flag

CHECKOUT = Path(__file__).parents[2]
DEPLOY = CHECKOUT / "deploy"
PAGE = (CHECKOUT / "docs/deploy.md").read_text()


def test_image_is_of_the_newest_tested_release() -> None:
    """
    What is built without an argument is what was tested last.
    """
    (tag,) = re.findall(r"^ARG VLLM_TAG=(.+)$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)

    assert f"v{TESTED[-1]}" == tag


def test_image_is_built_from_what_is_there() -> None:
    """
    Each file that is let through to the build is in the checkout.
    """
    ignored = (DEPLOY / "Dockerfile.dockerignore").read_text()
    names = re.findall(r"^!(.+)$", ignored, re.MULTILINE)

    assert names
    assert not [name for name in names if not (CHECKOUT / name).exists()]


def test_example_runs_the_image_of_this_version() -> None:
    """
    The tag says which guard and which vLLM; the page builds that very image.
    """
    kustomization = (DEPLOY / "kubernetes/kustomization.yaml").read_text()
    tag = f"{__version__}-v{TESTED[-1]}"

    assert f"newTag: {tag}" in kustomization
    assert f":{tag}" in PAGE


def test_example_uses_flags_of_the_guard() -> None:
    """
    What is not vLLM's or the router's own is a flag that the guard has.
    """
    flags = {flag(field) for field in Settings.model_fields}
    used = {
        name
        for file in ("prefill", "decode")
        for name in re.findall(r"--[a-z][a-z-]+", (DEPLOY / f"kubernetes/{file}.yaml").read_text())
    }

    assert {"--kv-transfer-allowed-peers", "--emit-prompt-token-ids"} == used & flags
    assert {"--port", "--kv-transfer-config"} == used - flags


def test_example_does_not_start_as_it_stands() -> None:
    """
    Whoever forgets to set the peers gets no server that may dial anybody.
    """
    settings = (DEPLOY / "kubernetes/settings.env").read_text()

    assert re.search(r"^ALLOWED_PEERS=<[a-z-]+>$", settings, re.MULTILINE)


def test_router_is_the_one_that_is_tested() -> None:
    """
    The image of the router is of the version that the lab installs.
    """
    kustomization = (DEPLOY / "kubernetes/kustomization.yaml").read_text()
    (pinned,) = re.findall(
        r"^vllm-router==(.+)$", (CHECKOUT / "requirements/lab-cpu.txt").read_text(), re.MULTILINE
    )

    assert f"newTag: v{pinned}" in kustomization


def test_changelog_has_the_version() -> None:
    """
    The version of the package has a section, below the one of what is not released.
    """
    sections = re.findall(r"^## \[(.+?)\]", (CHECKOUT / "CHANGELOG.md").read_text(), re.MULTILINE)

    assert ["Unreleased", __version__] == sections[:2]
