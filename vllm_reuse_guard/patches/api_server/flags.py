# SPDX-License-Identifier: Apache-2.0
"""Make the settings flags of every command that takes vLLM's engine arguments."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from enum import Enum
from typing import Any

from ... import settings
from ...errors import SettingsError
from ...installer import PatchPoints

# A flag that is not given leaves nothing behind, and its help does not call that its default.
_SILENT = {"default": argparse.SUPPRESS}


def apply(points: PatchPoints) -> None:
    """Wrap the function that adds the engine's arguments to a parser."""
    points.wrap("EngineArgs.add_cli_args", add_cli_args)


def add_cli_args(
    wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Add the flags, in a group of their own; a configuration file can have them too."""
    parser = wrapped(*args, **kwargs)
    add_flags(parser)
    return parser


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags to a parser; reading one sets its setting."""
    group = parser.add_argument_group(
        title="vllm-reuse-guard",
        description="Who may send prompt token ids and KV transfer params, and which.",
    )
    for field in settings.FLAGS:
        group.add_argument(settings.flag(field), action=Choose, **_options(field))


class Choose(argparse.Action):
    """Sets a setting when its flag is read; a value that means nothing ends the parsing."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,  # noqa: ARG002 - argparse passes it by this name
    ) -> None:
        """Take the values of one flag: none, one or a list of them."""
        value = " ".join(values) if isinstance(values, list) and values else values or "true"
        setattr(namespace, self.dest, value)
        try:
            settings.choose(self.dest, value)
        except SettingsError as error:
            parser.error(str(error))


def _options(field: str) -> dict[str, Any]:
    info = settings.Settings.model_fields[field]
    if info.annotation is bool:
        return {"help": info.description, "nargs": 0, **_SILENT}
    if isinstance(info.default, Enum):
        values = [member.value for member in type(info.default)]
        return {"help": f"{info.description} (default: {values[0]})", "choices": values, **_SILENT}
    return {"help": info.description, "nargs": "+", "metavar": "PEER", **_SILENT}
