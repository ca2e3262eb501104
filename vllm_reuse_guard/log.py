# SPDX-License-Identifier: Apache-2.0
"""The logger of the guard."""

from __future__ import annotations

import logging

# A child of vLLM's own logger, so that the lines go where the operator sends vLLM's.
logger = logging.getLogger("vllm.reuse_guard")
