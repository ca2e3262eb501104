# SPDX-License-Identifier: Apache-2.0
"""Hands over to pyproject.toml, for tools that still want this file."""

from setuptools import setup

setup()
