# SPDX-License-Identifier: Apache-2.0
"""
Four changes to the processes of a lab server; Python runs this first in each of them.

NIXL's Python package tells its progress thread to poll without a pause, which takes a whole
core for each server. On two cores a prefill and a decode instance then hardly run: requests
wait for tens of seconds and leases end. The pause is a setting of NIXL's own.

A process that waits for another one polls for a second, without a pause. With three processes to
a server, those that wait take both cores from those that work. A pause costs half a millisecond.

The engine core says which transfer params it is given, so that a test can look for what must
not be among them.

A patch that LAB_WITHOUT_PATCH names is not in the registry, to see which tests fail for that.
"""

from __future__ import annotations

import json
import os
import sys
import time
from functools import partial
from types import ModuleType
from typing import Any

import wrapt

_MICROSECONDS = 1000
_PAUSE = 0.0005


def _with_pause(api: ModuleType) -> None:
    config = api.nixlBind.nixlAgentConfig

    class Paused(config):  # type: ignore[misc,valid-type]
        def __setattr__(self, name: str, value: Any) -> None:
            super().__setattr__(name, _MICROSECONDS if name == "pthrDelay" else value)

    api.nixlBind.nixlAgentConfig = Paused


def _with_rest(shm_broadcast: ModuleType) -> None:
    shm_broadcast.sched_yield = partial(time.sleep, _PAUSE)  # type: ignore[attr-defined]


def _with_report(core: ModuleType) -> None:
    def report(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        params = args[0].sampling_params
        given = ((params and params.extra_args) or {}).get("kv_transfer_params")
        if isinstance(given, dict):
            print("engine is given", json.dumps(sorted(given)), file=sys.stderr, flush=True)
        return wrapped(*args, **kwargs)

    wrapt.wrap_function_wrapper(core.EngineCore, "preprocess_add_request", report)


def _without_patch(registry: ModuleType) -> None:
    out = os.environ.get("LAB_WITHOUT_PATCH")
    registry.PATCHES = tuple(patch for patch in registry.PATCHES if patch.name != out)


for _package in ("nixl_cu12", "nixl_cu13"):
    wrapt.register_post_import_hook(_with_pause, f"{_package}._api")
wrapt.register_post_import_hook(_with_rest, "vllm.distributed.device_communicators.shm_broadcast")
wrapt.register_post_import_hook(_with_report, "vllm.v1.engine.core")
wrapt.register_post_import_hook(_without_patch, "vllm_reuse_guard.patches")
