# SPDX-License-Identifier: Apache-2.0
"""``python -m vllm_reuse_guard`` is the command, where its script is not on the path."""

from .cli import main

if __name__ == "__main__":
    main()
