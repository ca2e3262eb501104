# SPDX-License-Identifier: Apache-2.0
"""
The entry point that vLLM loads in every process, before it builds a route or an engine.

This module imports only the standard library at its top. vLLM logs and skips a plugin whose
import fails, and serves unguarded. An exception from the loaded function stops the process.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING

from .log import logger

if TYPE_CHECKING:
    from .installer import Patch

GROUP, NAME = "vllm.general_plugins", "reuse_guard"
"""The entry point by which vLLM finds this module; VLLM_PLUGINS selects plugins by name."""

_IN_TREE = "vllm.reuse_guard"

_registered = False


def register() -> None:
    """
    Guard this process on the first call; later calls return at once.

    Does nothing if this vLLM contains the in-tree form, which guards every process itself.
    Raises SystemExit with one line, and patches nothing, for an invalid setting, a missing
    package, a missing or untested vLLM, or a missing patch point.
    """
    global _registered
    if _registered:
        return
    with _ending_with_one_line():
        version = _vllm_version()
        if find_spec(_IN_TREE) is None:
            _activate(version)
        else:
            _stand_aside()
    _registered = True


def _stand_aside() -> None:
    from .errors import IncompleteTreeError

    # The copy decides whether it is complete; it can be another version of the guard.
    try:
        import_module(f"{_IN_TREE}.in_tree").require_complete()
    except (ImportError, AttributeError) as error:
        raise IncompleteTreeError(str(error)) from error
    except Exception as error:
        # The copy has error classes of its own.
        raise SystemExit(str(error)) from error
    logger.debug("vllm-reuse-guard plugin inactive: this vLLM contains the in-tree form")


def guard_module(name: str, require_complete: Callable[[], object]) -> None:
    """
    Patch one imported upstream module, for the in-tree form.

    name: the module, such as "vllm.engine.arg_utils". Raises SystemExit as ``register`` does,
    and if the in-tree form is incomplete.
    """
    with _ending_with_one_line():
        require_complete()
        from . import settings
        from .patches import needed_by

        settings.current()
        version = _vllm_version()
        _guard(version, [patch for patch in needed_by(version) if patch.target == name])


@contextmanager
def _ending_with_one_line() -> Iterator[None]:
    from .errors import GuardError, PackageError

    try:
        yield
    except GuardError as error:
        raise SystemExit(str(error)) from error
    except ImportError as error:
        raise SystemExit(str(PackageError(str(error)))) from error


def _activate(version: str) -> None:
    import wrapt

    from . import settings
    from .patches import needed_by

    settings.current()
    awaited = {patch: set(patch.needed_with - sys.modules.keys()) for patch in needed_by(version)}
    _guard(version, [patch for patch in awaited if not awaited[patch]])
    for patch, modules in awaited.items():
        for name in tuple(modules):
            wrapt.register_post_import_hook(partial(_guard_late, version, patch, modules), name)


def _guard(version: str, patches: Sequence[Patch]) -> None:
    from .installer import install, misfits

    if _fits(version, misfits(patches)):
        install(patches)
        for patch in patches:
            logger.debug("vllm-reuse-guard: patched %s", patch.target)


def _guard_late(version: str, patch: Patch, awaited: set[str], module: ModuleType) -> None:
    awaited.discard(module.__name__)
    if awaited:
        return
    # wrapt drops a hook that raises: the next import of the module would succeed unguarded.
    try:
        _guard(version, [patch])
    except BaseException as error:
        print(error, file=sys.stderr, flush=True)
        os._exit(1)


def _fits(version: str, missing_points: Sequence[str]) -> bool:
    from . import settings
    from .errors import OVERRIDE, MisfitError
    from .releases import TESTED, is_tested

    faults = [f"{name} is missing" for name in missing_points]
    if not is_tested(version):
        faults.append(f"the guard is not tested on this release (tested: {', '.join(TESTED)})")
    if not faults:
        return True
    misfit = MisfitError(version, tuple(faults))
    if not settings.current().allow_unsupported:
        raise misfit
    state = "NOT active" if missing_points else "active on an untested release"
    logger.warning("vllm-reuse-guard is %s (%s is set): %s", state, OVERRIDE, misfit)
    return not missing_points


def _vllm_version() -> str:
    from .errors import NoVllmError

    try:
        from vllm import __version__
    except ImportError as error:
        raise NoVllmError(str(error)) from error
    return str(__version__)
