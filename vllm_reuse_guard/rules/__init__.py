# SPDX-License-Identifier: Apache-2.0
"""The rules, as pure functions over plain values: no vllm, no torch, no I/O, no logging."""
