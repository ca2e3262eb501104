# SPDX-License-Identifier: Apache-2.0
"""Add the settings as flags to every command that accepts vLLM's engine arguments."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from enum import Enum
from typing import Any

from ... import settings
from ...errors import SettingsError
from ...installer import PatchPoints

# A flag that is not set leaves no attribute, and its help shows no default.
_SILENT = {"default": argparse.SUPPRESS}


def apply(points: PatchPoints) -> None:
    """Wrap the function that adds the engine's arguments to a parser."""
    points.wrap("EngineArgs.add_cli_args", add_cli_args)


def add_cli_args(
    wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Add the flags in their own group; a configuration file can set them too."""
    parser = wrapped(*args, **kwargs)
    add_flags(parser)
    return parser


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags to a parser, which sets a setting when it reads its flag."""
    group = parser.add_argument_group(
        title="vllm-reuse-guard",
        description="Checks of forwarded prompt token IDs and KV transfer params.",
    )
    for field in settings.FLAGS:
        group.add_argument(settings.flag(field), action=Choose, **_options(field))


class Choose(argparse.Action):
    """Sets a setting when its flag is read; an invalid value ends the parsing."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,  # noqa: ARG002 - argparse passes it by this name
    ) -> None:
        """Set the setting from the values of its flag: no value, one, or a list."""
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
