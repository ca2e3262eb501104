# SPDX-License-Identifier: Apache-2.0
"""
The ``vllm`` of ``make shell``: vLLM's own command, made to run on two cores without a GPU.

    vllm serve smollm2 --emit-prompt-token-ids --port 8100

The flags are vLLM's. The model is a folder, or a name of ``lab.models.build``, by which it is then
served. LAB_RELEASE chooses the release of vLLM; variables of vLLM, the guard and UCX are kept.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from ..demo.__main__ import RUNNABLE
from ..models.build import Model, build
from ..paths import MODELS
from ..servers import launches
from ..servers.server import Launch, vllm

PORT = 8000
"""Where vLLM listens unless it is told otherwise."""
_SERVERS = (("serve",), ("launch", "render"))
_KEPT = ("VLLM_", "UCX_")


def main() -> None:
    """Become the process of vLLM."""
    release, arguments = os.environ.get("LAB_RELEASE", RUNNABLE[-1]), sys.argv[1:]
    launch = read(release, arguments)
    serves = launch.command(launch.port or PORT)
    command = serves if launch.subcommand else [*vllm(release), *arguments]
    kept = {name: text for name, text in os.environ.items() if name.startswith(_KEPT)}
    os.execve(command[0], command, {**launch.variables(), **kept})  # noqa: S606


def read(release: str, arguments: Sequence[str]) -> Launch:
    """
    Say how to start the server that a command line asks for.

    arguments: what follows ``vllm``. The launch is without a subcommand if no model is named;
    vLLM then does with the arguments what it does anywhere.
    """
    subcommand = next((words for words in _SERVERS if (*arguments,)[: len(words)] == words), ())
    name, *rest = arguments[len(subcommand) :] or ("",)
    if not subcommand or name.startswith("-") or not name:
        return Launch("shell", release, MODELS, subcommand=())
    told, others = _parser(name).parse_known_args(rest)
    return Launch(
        "shell",
        release,
        build(name, MODELS) if name in [*Model] else Path(name),
        (*launches.arguments(release), *others),
        subcommand=subcommand,
        host=told.host,
        port=told.port,
        served_as=told.served_model_name,
        kv_cache=1024,
    )


def _parser(name: str) -> argparse.ArgumentParser:
    # vLLM warns of a flag that is given twice.
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=PORT)
    parser.add_argument("--served-model-name", default=name)
    return parser


if __name__ == "__main__":
    main()
