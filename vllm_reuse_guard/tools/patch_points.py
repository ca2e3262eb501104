# SPDX-License-Identifier: Apache-2.0
"""Look for the patch points in the files of a vLLM, without importing any of it."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from ..installer import Elsewhere, Patch, file_of


def missing(patch: Patch, vllm: Path) -> Iterator[str]:
    """
    Yield the name of each patch point of a patch that the files of a vLLM do not define.

    vllm: the folder of the package. The names are those that ``installer.misfits`` gives.
    """
    yield from (name for name, parts in _definitions_of(patch, vllm) if not parts)


def sources(patch: Patch, vllm: Path) -> Iterator[tuple[str, str]]:
    """
    Yield the full name of each patch point of a patch and the source of its definition.

    vllm: the folder of the package. The source is that of its syntax tree, in which comments and
    the way it is laid out do not count; empty if nothing defines the patch point.
    """
    for name, parts in _definitions_of(patch, vllm):
        yield name, "\n".join(map(ast.unparse, parts))


def _definitions_of(patch: Patch, vllm: Path) -> Iterator[tuple[str, Sequence[ast.stmt]]]:
    path = patch.path_in(vllm)
    found = _defined(file_of(path, vllm))
    yield from ((f"vllm.{path}.{name}", found.get(name, ())) for name in patch.patch_points)
    yield from ((str(other), _defined_anywhere(other, vllm)) for other in patch.also)


def _defined_anywhere(other: Elsewhere, vllm: Path) -> Sequence[ast.stmt]:
    found = (_defined(file_of(module, vllm)).get(other.name, ()) for module in other.modules)
    return next(filter(None, found), ())


def _defined(file: Path) -> Mapping[str, Sequence[ast.stmt]]:
    return _defined_by(file.read_bytes()) if file.is_file() else {}


@lru_cache(maxsize=64)
def _defined_by(source: bytes) -> Mapping[str, Sequence[ast.stmt]]:
    # What is defined twice, in the two branches of an `if`, say, is both of them.
    found: defaultdict[str, list[ast.stmt]] = defaultdict(list)
    for name, node in _definitions(ast.parse(source).body):
        found[name].append(node)
    return dict(found)


def _definitions(body: Iterable[ast.stmt]) -> Iterator[tuple[str, ast.stmt]]:
    for node in body:
        match node:
            case ast.ClassDef(name=name, body=members):
                yield name, node
                yield from ((f"{name}.{member}", part) for member, part in _definitions(members))
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name, node
            case ast.If(body=then, orelse=otherwise) | ast.Try(body=then, orelse=otherwise):
                yield from _definitions([*then, *otherwise])
            case _:
                yield from _bindings(node)


def _bindings(node: ast.stmt) -> Iterator[tuple[str, ast.stmt]]:
    match node:
        case ast.Assign(targets=targets):
            yield from ((target.id, node) for target in targets if isinstance(target, ast.Name))
        case ast.AnnAssign(target=ast.Name(id=name)):
            yield name, node
        case ast.Import(names=names):
            yield from ((alias.asname or alias.name, ast.Import([alias])) for alias in names)
        case ast.ImportFrom(module=module, names=names, level=level):
            for alias in names:
                yield alias.asname or alias.name, ast.ImportFrom(module, [alias], level)
