# SPDX-License-Identifier: Apache-2.0
"""
Lets NIXL's progress thread sleep; Python runs this first in every process of a lab server.

NIXL's Python package tells that thread to poll without a pause, which takes a whole core for
each server. On two cores a prefill and a decode instance then hardly run: requests wait for
tens of seconds and leases end. The pause is a setting of NIXL's own; nothing else is changed.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import wrapt

_MICROSECONDS = 1000


def _with_pause(api: ModuleType) -> None:
    config = api.nixlBind.nixlAgentConfig

    class Paused(config):  # type: ignore[misc,valid-type]
        def __setattr__(self, name: str, value: Any) -> None:
            super().__setattr__(name, _MICROSECONDS if name == "pthrDelay" else value)

    api.nixlBind.nixlAgentConfig = Paused


for _package in ("nixl_cu12", "nixl_cu13"):
    wrapt.register_post_import_hook(_with_pause, f"{_package}._api")
