# SPDX-License-Identifier: Apache-2.0
"""What the package index has, asked by pip as it is configured. Needs only the standard library."""

from __future__ import annotations

import re
import subprocess
import sys

from .environment import reason

_SECONDS = 60
# Of any Python, as vLLM drops old ones before the guard does. One retry: pip says why it retries,
# and not why it fails.
_OPTIONS = ("--ignore-requires-python", "--retries", "1", "--timeout", "10")


class NoAnswerError(Exception):
    """The package index says nothing about a distribution; the message says why in one line."""


def versions(name: str) -> list[str]:
    """
    Return the versions of a distribution that the package index has, the newest first.

    Those before a release (0.34.0rc1) are not among them. Raises NoAnswerError if there are none,
    or if the index cannot be reached.
    """
    command = [sys.executable, "-m", "pip", "index", "versions", *_OPTIONS, name]
    try:
        ended = subprocess.run(
            command, capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise NoAnswerError(f"pip did not answer within {_SECONDS} s") from None
    listed = re.search(r"^Available versions: (.+)$", ended.stdout, re.MULTILINE)
    if listed is None:
        raise NoAnswerError(reason(ended.stderr))
    return listed[1].split(", ")
