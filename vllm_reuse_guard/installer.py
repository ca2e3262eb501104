# SPDX-License-Identifier: Apache-2.0
"""Check patches, apply all of them or none, and undo them."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol, TypeAlias, cast

import wrapt
from pydantic import BaseModel
from pydantic_core import core_schema

Undo: TypeAlias = Callable[[], object]

_SCHEMA_HOOK = "__get_pydantic_core_schema__"


class PatchModule(Protocol):
    """The interface of a module under ``patches/``; importing one changes nothing."""

    def apply(self, points: PatchPoints) -> None:
        """Change the patch points of the upstream module."""


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
    One patch of one upstream module, with its paperwork.

    name: the path of our module below ``patches``, such as "api_server.render".
    module: the path of the upstream module below ``vllm``.
    patch_points: the names that the upstream module itself must define, such as "reader" or
        "Class.method". Inherited names do not count: a patch there would act elsewhere too.
    why: what goes wrong without the patch. upstream: what vLLM does about it, since which release.
    unchanged: what the patch leaves alone. remove_when: the condition to drop the patch.
    tests: the tests that fail without the patch, as pytest names them: "file::function" or
        "file::function[case]". ``make test-without-patches`` checks that they fail.
    only_with: a module without which the patch has no effect: engine processes import some
        front-end modules for their types only.
    earlier: the path of the upstream module in earlier releases, if it moved.
    upstream_since: the first release that does not need the patch.
    optional: the patch points that only some releases define.
    also: names that other upstream modules must define.
    """

    name: str
    module: str
    patch_points: tuple[str, ...]
    why: str
    upstream: str
    unchanged: str
    remove_when: str
    tests: tuple[str, ...]
    only_with: str | None = None
    earlier: str | None = None
    upstream_since: str | None = None
    optional: tuple[str, ...] = ()
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
        """Import our module of the patch."""
        path = f"{__package__}.patches.{self.name}"
        return cast(PatchModule, importlib.import_module(path))


def file_of(module: str, vllm: Path) -> Path:
    """Return the file of a module, given by its path below ``vllm``, in the folder of a vLLM."""
    # Finding it by import would import the packages that it is in.
    path = vllm.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def folder_of_vllm() -> Path:
    """Return the folder of the vLLM that is imported."""
    return Path(sys.modules["vllm"].__path__[0])


@dataclass(frozen=True)
class PatchPoints:
    """
    The patch points of one upstream module, as a patch gets them.

    Each method changes one patch point by its name in the registry, and records on ``undo`` how
    to restore the very object that was there. Each raises KeyError for a name that the registry
    entry does not list or that this release does not define.
    """

    module: ModuleType
    names: frozenset[str]
    undo: ExitStack

    def __contains__(self, name: str) -> bool:
        """Tell whether a patch point is in the registry entry, and defined by this release."""
        return name in self.names and _is_defined(self.module, name)

    def __getitem__(self, name: str) -> Any:
        """Return what a patch point holds now."""
        owner, last = self._locate(name)
        return vars(owner)[last]

    def wrap(self, name: str, wrapper: Callable[..., Any]) -> None:
        """Put a wrapt wrapper, called with (wrapped, instance, args, kwargs), around a function."""
        wrapt.wrap_function_wrapper(*self._locate_to_change(name), wrapper)

    def replace(self, name: str, value: Any) -> None:
        """Put another object in the place of a module's or a class's own."""
        setattr(*self._locate_to_change(name), value)

    def wrap_validation(self, name: str, validator: Callable[..., Any]) -> None:
        """
        Run a validator around the validation of a pydantic model.

        validator: called with the input and the function that validates it.
        """
        model = self[name]
        raw = dict(vars(model))

        def schema(cls: type[BaseModel], source: Any, handler: Any) -> core_schema.CoreSchema:
            inner = {**handler.resolve_ref_schema(handler(source))}
            # The wrapped schema keeps the name of the model, by which OpenAPI knows it.
            ref = inner.pop("ref", None)
            # Where a body can be one of several models, an error names the outermost validator.
            with suppress(KeyError):
                validator.__name__ = inner["function"]["function"].__name__
            return core_schema.no_info_wrap_validator_function(validator, inner, ref=ref)

        self.undo.callback(_restore, model, raw)
        setattr(model, _SCHEMA_HOOK, classmethod(schema))
        model.model_rebuild(force=True)

    def _locate(self, name: str) -> tuple[Any, str]:
        if name not in self:
            raise KeyError(f"{name} is not a patch point of {self.module.__name__}")
        return _owner(self.module, name), name.rpartition(".")[2]

    def _locate_to_change(self, name: str) -> tuple[Any, str]:
        owner, last = self._locate(name)
        self.undo.callback(setattr, owner, last, vars(owner)[last])
        return owner, last


def misfits(patches: Iterable[Patch]) -> tuple[str, ...]:
    """Return the full name of each patch point that the imported upstream modules lack."""
    return tuple(name for patch in patches for name in _missing(patch, sys.modules[patch.target]))


def _missing(patch: Patch, module: ModuleType) -> Iterable[str]:
    for name in patch.patch_points:
        if not _is_defined(module, name):
            yield f"{module.__name__}.{name}"
    for elsewhere in patch.also:
        if elsewhere.find() is None:
            yield str(elsewhere)


def _is_defined(module: ModuleType, name: str) -> bool:
    owner = _owner(module, name)
    return owner is not None and name.rpartition(".")[2] in vars(owner)


def _owner(module: ModuleType, name: str) -> Any:
    path = name.split(".")[:-1]
    return reduce(lambda part, step: getattr(part, step, None), path, cast(Any, module))


_active: dict[Patch, None] = {}


def active() -> list[str]:
    """Return the upstream modules of the patches that are active in this process."""
    return list(dict.fromkeys(patch.module for patch in _active))


def install(patches: Iterable[Patch]) -> Undo:
    """
    Apply patches whose upstream modules are imported and fit: all of them or, on an error, none.

    Returns the call that undoes them, last one first.
    """
    with ExitStack() as undo:
        for patch in patches:
            names = frozenset({*patch.patch_points, *patch.optional})
            patch.load().apply(PatchPoints(sys.modules[patch.target], names, undo))
            _active[patch] = None
            undo.callback(_active.pop, patch)
        return undo.pop_all().close


def _restore(model: type[BaseModel], raw: dict[str, Any]) -> None:
    # A rebuild replaces more than the schema: the signature, and descriptors of old fields.
    now = dict(vars(model))
    for name in now.keys() - raw.keys():
        delattr(model, name)
    for name, value in raw.items():
        if now.get(name, raw) is not value:
            setattr(model, name, value)
