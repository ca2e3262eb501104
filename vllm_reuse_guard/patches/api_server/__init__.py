# SPDX-License-Identifier: Apache-2.0
"""Patches of the API server process."""
