# SPDX-License-Identifier: Apache-2.0
"""
vLLM's command line for a CUDA build on a machine without a GPU; it is all that 0.33.0 has.

The front end runs once it is told that the platform is the CPU. There are no CPU kernels in
such a build, so that there is no engine: ``launch render`` is what it can do.
"""

from __future__ import annotations

import vllm.platforms
from vllm.platforms.cpu import CpuPlatform

vllm.platforms.current_platform = CpuPlatform()

from vllm.entrypoints.cli.main import main  # noqa: E402

if __name__ == "__main__":
    main()
