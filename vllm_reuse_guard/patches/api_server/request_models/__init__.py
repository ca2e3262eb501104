# SPDX-License-Identifier: Apache-2.0
"""Patches of the request models, one upstream module each."""
