# SPDX-License-Identifier: Apache-2.0
"""Checks for prompt token ids that are forwarded to a vLLM decode instance."""

__version__ = "0.1.0"
