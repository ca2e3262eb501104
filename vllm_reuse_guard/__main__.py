# SPDX-License-Identifier: Apache-2.0
"""The command, also as ``python -m vllm_reuse_guard`` if its script is not on the path."""

from __future__ import annotations

import sys

from .errors import PackageError


def main() -> None:
    """Run the command. Exit status 2, with one line, if a package is missing."""
    try:
        from .tools.cli import main as run
    except ImportError as error:
        print(f"error: {PackageError(str(error))}", file=sys.stderr)
        raise SystemExit(2) from None
    run()


if __name__ == "__main__":
    main()
