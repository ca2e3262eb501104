# SPDX-License-Identifier: Apache-2.0
"""Where the lab keeps things: environments in the checkout, large downloads outside of it."""

from __future__ import annotations

import os
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent

LAB = Path(os.environ.get("REUSE_GUARD_LAB", CHECKOUT / ".lab"))
"""Environments and unpacked vLLM releases, made anew for every checkout."""

CACHE = Path(
    os.environ.get(
        "REUSE_GUARD_CACHE",
        Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "vllm-reuse-guard",
    )
)
"""Downloaded wheels and converted models, shared by all checkouts."""

WHEELS = CACHE / "wheels"
MODELS = CACHE / "models"
RELEASES = LAB / "releases"
LOGS = LAB / "logs"
VLLM_CACHES = LAB / "vllm-caches"
"""A cache of vLLM for each release: in a shared one each release overwrites what it inspected."""

SITE = CHECKOUT / "lab" / "servers" / "site"
"""What Python runs first in the processes of a lab server."""
