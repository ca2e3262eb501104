# SPDX-License-Identifier: Apache-2.0
"""Look for the seams of patches in the files of a vLLM, without importing any of it."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path

from .installer import Elsewhere, Patch, file_of


def missing(patch: Patch, vllm: Path) -> Iterator[str]:
    """
    Yield the name of each seam of a patch that the files of a vLLM do not define.

    vllm: the folder of the package. The names are those that ``installer.misfits`` gives.
    """
    path = patch.path_in(vllm)
    names = _defined(file_of(path, vllm))
    yield from (f"vllm.{path}.{seam}" for seam in patch.seams if seam not in names)
    yield from (str(other) for other in patch.also if not _is_anywhere(other, vllm))


def _is_anywhere(other: Elsewhere, vllm: Path) -> bool:
    return any(other.name in _defined(file_of(module, vllm)) for module in other.modules)


def _defined(file: Path) -> frozenset[str]:
    return _defined_by(file.read_bytes()) if file.is_file() else frozenset()


@lru_cache(maxsize=64)
def _defined_by(source: bytes) -> frozenset[str]:
    return frozenset(_names(ast.parse(source).body))


def _names(body: Iterable[ast.stmt]) -> Iterator[str]:
    for node in body:
        match node:
            case ast.ClassDef(name=name, body=members):
                yield name
                yield from (f"{name}.{member}" for member in _names(members))
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
            case ast.Assign(targets=targets):
                yield from (target.id for target in targets if isinstance(target, ast.Name))
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield name
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                yield from (alias.asname or alias.name for alias in names)
            case ast.If(body=then, orelse=otherwise) | ast.Try(body=then, orelse=otherwise):
                yield from _names([*then, *otherwise])
