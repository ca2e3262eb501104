# SPDX-License-Identifier: Apache-2.0
"""How patches are checked, put in and taken out: all of them or none."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial, reduce
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol, TypeAlias, cast

import wrapt
from pydantic import BaseModel
from pydantic_core import core_schema

Undo: TypeAlias = Callable[[], object]

_SCHEMA_HOOK = "__get_pydantic_core_schema__"


class PatchModule(Protocol):
    """What a module under ``patches/`` offers; importing one changes nothing."""

    def apply(self, module: ModuleType) -> Undo:
        """Patch the upstream module; return the call that restores it exactly."""


@dataclass(frozen=True)
class Elsewhere:
    """
    A name that one of several modules defines, whichever the release has.

    modules: their paths below ``vllm``, the latest first.
    """

    name: str
    modules: tuple[str, ...]

    def find(self) -> Any:
        """Return what the name stands for, importing what it takes; None if nobody defines it."""
        for module in self.modules:
            with suppress(ModuleNotFoundError):
                found = getattr(importlib.import_module(f"vllm.{module}"), self.name, None)
                if found is not None:
                    return found
        return None

    def __str__(self) -> str:
        """Name it as in the latest release."""
        return f"vllm.{self.modules[0]}.{self.name}"


@dataclass(frozen=True)
class Patch:
    """
    One patched upstream module, and the paperwork that goes with it.

    module: its path below ``vllm``; the patch stands at the same path below ``patches``.
    seams: the names that the upstream module itself must define, such as "reader" or
        "Class.method". What is only inherited does not count: its patch would act elsewhere too.
    why: what goes wrong without it. upstream: what vLLM does about it, and since when.
    unchanged: what stays as it is. remove_when: when this patch has done its service.
    tests: those that fail without it, as pytest names them: "file::function" or, where one of
        its cases is meant, "file::function[case]". ``lab.without_patch`` looks that they do.
    only_with: a module without which this one is of no use: engine processes import some
        front-end modules for their types alone.
    earlier: where the same names were in earlier releases, if not in ``module``.
    upstream_since: the first release that does without this patch, if there is one.
    also: what other modules must define.
    """

    module: str
    seams: tuple[str, ...]
    why: str
    upstream: str
    unchanged: str
    remove_when: str
    tests: tuple[str, ...]
    only_with: str | None = None
    earlier: str | None = None
    upstream_since: str | None = None
    also: tuple[Elsewhere, ...] = ()

    @property
    def needed_with(self) -> frozenset[str]:
        """The full names of the upstream modules that call for the patch once all are imported."""
        return frozenset({self.target} | ({f"vllm.{self.only_with}"} if self.only_with else set()))

    @property
    def target(self) -> str:
        """The full name of the upstream module, the earlier one where there is no other."""
        return f"vllm.{self.path_in(folder_of_vllm())}"

    def path_in(self, vllm: Path) -> str:
        """Return the path of the upstream module below the folder of a vLLM, whichever it has."""
        moved = self.earlier is not None and not file_of(self.module, vllm).exists()
        return str(self.earlier if moved else self.module)

    def load(self) -> PatchModule:
        """Import our side of the patch."""
        path = f"{__package__}.patches.{self.module}"
        return cast(PatchModule, importlib.import_module(path))


def file_of(module: str, vllm: Path) -> Path:
    """Return the file of a module, given by its path below ``vllm``, in the folder of a vLLM."""
    # Finding it by import would import the packages that it is in.
    path = vllm.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def folder_of_vllm() -> Path:
    """Return the folder of the vLLM that is imported."""
    return Path(sys.modules["vllm"].__path__[0])


def misfits(patches: Iterable[Patch]) -> tuple[str, ...]:
    """Name every seam that the imported upstream modules of these patches lack."""
    return tuple(seam for patch in patches for seam in _missing(patch, sys.modules[patch.target]))


def _missing(patch: Patch, module: ModuleType) -> Iterable[str]:
    for name in patch.seams:
        *path, last = name.split(".")
        owner = reduce(lambda part, step: getattr(part, step, None), path, cast(Any, module))
        if last not in vars(owner if owner is not None else object):
            yield f"{module.__name__}.{name}"
    for elsewhere in patch.also:
        if elsewhere.find() is None:
            yield str(elsewhere)


def install(patches: Iterable[Patch]) -> Undo:
    """
    Apply patches whose upstream modules are imported and fit: every one or, on an error, none.

    Returns the call that takes them all out again, last one first.
    """
    with ExitStack() as undo:
        for patch in patches:
            undo.callback(patch.load().apply(sys.modules[patch.target]))
        return undo.pop_all().close


def wrap(owner: Any, name: str, wrapper: Callable[..., Any]) -> Undo:
    """
    Put a wrapt wrapper around what a class or module itself defines.

    wrapper: called with (wrapped, instance, args, kwargs), as everywhere in wrapt.
    Returns the call that puts the very object back that was there.
    """
    raw = vars(owner)[name]
    wrapt.wrap_function_wrapper(owner, name, wrapper)
    return partial(setattr, owner, name, raw)


def replace(owner: Any, name: str, value: Any) -> Undo:
    """Put another object in the place of what a class or module itself defines or imports."""
    raw = vars(owner)[name]
    setattr(owner, name, value)
    return partial(setattr, owner, name, raw)


def wrap_validation(model: type[BaseModel], validator: Callable[..., Any]) -> Undo:
    """
    Run a validator around the validation of a pydantic model that exists already.

    validator: called with the input and the function that validates it.
    Returns the call that makes the model what it was, object by object.
    """
    raw = dict(vars(model))

    def schema(cls: type[BaseModel], source: Any, handler: Any) -> core_schema.CoreSchema:
        inner = {**handler.resolve_ref_schema(handler(source))}
        # The wrapped schema goes by the name of the model, or OpenAPI would not know it by that.
        name = inner.pop("ref", None)
        # Where a body can be one of several models, an error names the outermost validator.
        with suppress(KeyError):
            validator.__name__ = inner["function"]["function"].__name__
        return core_schema.no_info_wrap_validator_function(validator, inner, ref=name)

    with ExitStack() as undo:
        undo.callback(_restore, model, raw)
        setattr(model, _SCHEMA_HOOK, classmethod(schema))
        model.model_rebuild(force=True)
        return undo.pop_all().close


def _restore(model: type[BaseModel], raw: dict[str, Any]) -> None:
    # A rebuild replaces more than the schema: the signature, and descriptors of old fields.
    now = dict(vars(model))
    for name in now.keys() - raw.keys():
        delattr(model, name)
    for name, value in raw.items():
        if now.get(name, raw) is not value:
            setattr(model, name, value)
