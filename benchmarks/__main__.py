# SPDX-License-Identifier: Apache-2.0
"""
Measure all of it on plain vLLM 0.32.0 and write the figures, as JSON, a page and plots.

    python -m benchmarks [checks] [chat] [first_token]    # all three by default; some minutes
"""

from __future__ import annotations

import importlib
import sys

from . import report


def main() -> int:
    """Measure what the command line names, all of it by default; return the exit status."""
    from lab.models.build import Model
    from lab.servers.in_process import make_renderer

    from . import chat, checks, first_token

    for name in sys.argv[1:] or ["checks", "chat", "first_token"]:
        print(f"measuring {name}", flush=True)
        if name == "first_token":
            report.save(name, first_token.measure())
            continue
        long = name == "checks"
        model = Model.TINY_QWEN2_LONG if long else Model.TINY_QWEN2
        context = first_token.CONTEXT if long else 8192
        for patch in importlib.import_module("vllm_reuse_guard.patches").PATCHES:
            importlib.import_module(patch.target)
        renderer = make_renderer(model, connector=True, context=context)
        report.save(name, (checks if long else chat).measure(renderer))
    report.write()
    return 0


if __name__ == "__main__":
    sys.exit(main())
