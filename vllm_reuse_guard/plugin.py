# SPDX-License-Identifier: Apache-2.0
"""
The entry point that vLLM loads in every process, before it builds a route or an engine.

Nothing but the standard library is imported at the top. vLLM logs and skips a plugin whose
import fails and serves on without it; what the loaded function raises does stop the process.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .installer import Patch

# A child of vLLM's own logger, so that the lines go where the operator sends vLLM's.
logger = logging.getLogger("vllm.reuse_guard")

_registered = False


def register() -> None:
    """
    Guard this process, once, however often vLLM calls it.

    Raises SystemExit with one line if the guard cannot do its work: a setting is bad, vLLM
    is not there, unknown, or lacks a seam. Nothing is patched then.
    """
    global _registered
    if _registered:
        return
    from .errors import GuardError

    try:
        _activate()
    except GuardError as error:
        raise SystemExit(str(error)) from error
    _registered = True


def _activate() -> None:
    import wrapt

    from . import settings
    from .patches import PATCHES

    settings.current()
    version = _vllm_version()
    awaited = {patch: set(patch.needed_with - sys.modules.keys()) for patch in PATCHES}
    _guard(version, [patch for patch in PATCHES if not awaited[patch]])
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
    # wrapt forgets a hook that raises: the next import of the module would succeed, unguarded.
    try:
        _guard(version, [patch])
    except BaseException as error:
        print(error, file=sys.stderr, flush=True)
        os._exit(1)


def _fits(version: str, missing_seams: Sequence[str]) -> bool:
    from . import settings
    from .errors import OVERRIDE, MisfitError
    from .releases import TESTED, is_tested

    faults = [f"{seam} is missing" for seam in missing_seams]
    if not is_tested(version):
        faults.append(f"this release is not among those it is tested on ({', '.join(TESTED)})")
    if not faults:
        return True
    misfit = MisfitError(version, tuple(faults))
    if not settings.current().allow_unsupported:
        raise misfit
    state = "NOT active" if missing_seams else "active on an untested release"
    logger.warning("vllm-reuse-guard is %s (%s is set): %s", state, OVERRIDE, misfit)
    return not missing_seams


def _vllm_version() -> str:
    from .errors import NoVllmError

    try:
        from vllm import __version__
    except ImportError as error:
        raise NoVllmError(str(error)) from error
    return str(__version__)
