# SPDX-License-Identifier: Apache-2.0
"""The vLLM releases that the guard is tested on."""

from __future__ import annotations

import re

TESTED = ("0.27.0", "0.28.0", "0.29.0", "0.30.0", "0.31.0", "0.32.0", "0.33.0")


def is_tested(version: str) -> bool:
    """
    Tell whether a vLLM version, such as "0.32.0+cpu", belongs to a tested release.

    A patch release (0.32.1) counts as its release. A development build (0.33.1.dev7) does not:
    it can contain any part of the next release.
    """
    parts = re.fullmatch(r"(\d+\.\d+)\.\d+(?:\.post\d+)?(?:\+.*)?", version)
    return parts is not None and f"{parts[1]}.0" in TESTED


def is_at_least(version: str, release: str) -> bool:
    """
    Tell whether a vLLM version is a release or later; False for a version of another form.

    A development build (0.31.1.dev7) counts as the release before it.
    """
    parts = re.match(r"(\d+)\.(\d+)\.", version)
    wanted = re.match(r"(\d+)\.(\d+)\.", release)
    if parts is None or wanted is None:
        return False
    return tuple(map(int, parts.groups())) >= tuple(map(int, wanted.groups()))
