# SPDX-License-Identifier: Apache-2.0
"""
Probe real servers, plain and guarded, and write what comes of it into docs/probes.

The page of the command lists what was written there.

    python -m lab.pages.probes   # six servers, two at a time; some minutes
"""

from __future__ import annotations

import re
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from vllm_reuse_guard.tools.conformance import Profile

from ..models.build import Model
from ..paths import CHECKOUT
from ..servers.launches import launch, render_launch
from ..servers.server import Launch, starting, wait_until_healthy
from .written_part import WrittenPart

PAGES = CHECKOUT / "docs" / "probes"
"""Where the tables are."""

INDEX = CHECKOUT / "docs" / "commands" / "probe.md"
_PART = WrittenPart(
    INDEX, "<!-- The table is written by `make probes`. -->\n", "<!-- End of the table. -->\n"
)

_PORTS = {False: 8100, True: 8200}


@dataclass(frozen=True)
class ModelInfo:
    """What is probed: a release, with its engine or as a render server."""

    release: str
    engine: bool = True

    @property
    def name(self) -> str:
        """What its pages are called."""
        return self.release if self.engine else f"{self.release}-render"

    def launch(self, *, guarded: bool) -> Launch:
        """Say how to start it, at a port that is the same each time."""
        make = launch if self.engine else render_launch
        usual = make(Profile.CONNECTOR, self.release, Model.TINY_QWEN2)
        return replace(usual, guarded=guarded, port=_PORTS[guarded])

    def options(self, *, guarded: bool) -> list[str]:
        """Return what the command is told: a render server shows no connector."""
        return [] if self.engine or guarded else ["--connector"]


SUBJECTS = (ModelInfo("0.27.0"), ModelInfo("0.32.0"), ModelInfo("0.33.0", engine=False))


def write(model_info: ModelInfo, *, guarded: bool) -> None:
    """Probe the running server and write its page."""
    url = f"http://127.0.0.1:{_PORTS[guarded]}"
    told = ["probe", url, "--format", "markdown", *model_info.options(guarded=guarded)]
    command = [sys.executable, "-m", "vllm_reuse_guard", *told]
    ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if ended.returncode > 1:
        raise SystemExit(ended.returncode)
    kind = "with the guard" if guarded else "without the guard"
    server = "vLLM" if model_info.engine else "The render server of vLLM"
    _page(model_info, guarded).write_text(
        f"# {server} {model_info.release} {kind}\n\n"
        "Written by `make probes`, from this command on a real server "
        f"(it ended with {ended.returncode}):\n\n"
        f"```console\nvllm-reuse-guard {' '.join(told)}\n```\n\n{ended.stdout}"
    )


def write_index() -> None:
    """List the pages on the page of the command, with what each says in its line of counts."""
    lines = ["| server | without the guard | with it |", "| --- | --- | --- |"]
    for model_info in SUBJECTS:
        cells = (_link(_page(model_info, guarded)) for guarded in (False, True))
        lines.append(f"| {model_info.name} | {' | '.join(cells)} |")
    INDEX.write_text(_PART.page_with("\n".join([*lines, ""])))


def _link(page: Path) -> str:
    (counted,) = re.findall(r"(\d+ hold, \d+ fail)", page.read_text())
    return f"[{counted}](../probes/{page.name})"


def _page(model_info: ModelInfo, guarded: bool) -> Path:
    return PAGES / f"{model_info.name}-{'guarded' if guarded else 'plain'}.md"


def main() -> int:
    """Write all six pages."""
    PAGES.mkdir(parents=True, exist_ok=True)
    for model_info in SUBJECTS:
        with ExitStack() as stack:
            pair = {
                guarded: stack.enter_context(starting(model_info.launch(guarded=guarded)))
                for guarded in (False, True)
            }
            for guarded, server in pair.items():
                wait_until_healthy(server, print)
                write(model_info, guarded=guarded)
                print(f"{_page(model_info, guarded).relative_to(CHECKOUT)}: written", flush=True)
    write_index()
    return 0


if __name__ == "__main__":
    sys.exit(main())
