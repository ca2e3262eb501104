# SPDX-License-Identifier: Apache-2.0
"""Patches of the worker processes."""
