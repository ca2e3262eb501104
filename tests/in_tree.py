# SPDX-License-Identifier: Apache-2.0
"""
A plugin for pytest, ``-p tests.in_tree``: the guard that is tested is the one in vLLM's tree.

Whatever a test imports as ``vllm_reuse_guard`` is ``vllm.reuse_guard`` then; what is not copied
into trees (the cases, the tools) comes from the checkout.
"""

from __future__ import annotations

import importlib
import os
import pkgutil
import sys
from pathlib import Path

os.environ["VLLM_PLUGINS"] = ""

# The tests choose the platform, which importing the guard must not need.
guard = importlib.import_module("vllm.reuse_guard")
for found in list(pkgutil.walk_packages(guard.__path__, f"{guard.__name__}.")):
    importlib.import_module(found.name)
for name, module in list(sys.modules.items()):
    if name == guard.__name__ or name.startswith(f"{guard.__name__}."):
        sys.modules[name.replace(guard.__name__, "vllm_reuse_guard", 1)] = module
guard.__path__.append(str(Path(__file__).parents[1] / "vllm_reuse_guard"))
