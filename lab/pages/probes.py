# SPDX-License-Identifier: Apache-2.0
"""
Probe real servers, without the guard and with it, and write the reports into docs/probes.

The page of the command links the reports.

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
"""The folder of the reports."""

INDEX = CHECKOUT / "docs" / "commands" / "probe.md"
_PART = WrittenPart(
    INDEX, "<!-- The table is written by `make probes`. -->\n", "<!-- End of the table. -->\n"
)

_PORTS = {False: 8100, True: 8200}


@dataclass(frozen=True)
class ProbedServer:
    """A server to probe: a release, with an engine or as a render server."""

    release: str
    engine: bool = True

    @property
    def name(self) -> str:
        """The beginning of the names of its pages."""
        return self.release if self.engine else f"{self.release}-render"

    def launch(self, *, guarded: bool) -> Launch:
        """Return how to start it, at a port that is the same each time."""
        launch_of = launch if self.engine else render_launch
        usual = launch_of(Profile.CONNECTOR, self.release, Model.TINY_QWEN2)
        return replace(usual, guarded=guarded, port=_PORTS[guarded])

    def options(self, *, guarded: bool) -> list[str]:
        """Return the options of the command: a plain render server shows no connector."""
        return [] if self.engine or guarded else ["--connector"]


SERVERS = (ProbedServer("0.27.0"), ProbedServer("0.32.0"), ProbedServer("0.33.0", engine=False))


def write(server: ProbedServer, *, guarded: bool) -> None:
    """Probe the running server, and write its page."""
    url = f"http://127.0.0.1:{_PORTS[guarded]}"
    arguments = ["probe", url, "--format", "markdown", *server.options(guarded=guarded)]
    command = [sys.executable, "-m", "vllm_reuse_guard", *arguments]
    probe = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if probe.returncode > 1:
        raise SystemExit(probe.returncode)
    name = "vLLM" if server.engine else "The render server of vLLM"
    kind = "with the guard" if guarded else "without the guard"
    _page(server, guarded).write_text(
        f"# {name} {server.release} {kind}\n\n"
        "`make probes` writes this page: the output of the following command on a real server. "
        f"Exit status: {probe.returncode}.\n\n"
        f"```console\nvllm-reuse-guard {' '.join(arguments)}\n```\n\n{probe.stdout}"
    )


def write_index() -> None:
    """Link the pages on the page of the command, each with its number of cases."""
    lines = ["| server | without the guard | with the guard |", "| --- | --- | --- |"]
    for server in SERVERS:
        cells = (_link(_page(server, guarded)) for guarded in (False, True))
        lines.append(f"| {server.name} | {' | '.join(cells)} |")
    INDEX.write_text(_PART.page_with("\n".join([*lines, ""])))


def _link(page: Path) -> str:
    (counts,) = re.findall(r"(\d+ hold, \d+ fail)", page.read_text())
    return f"[{counts}](../probes/{page.name})"


def _page(server: ProbedServer, guarded: bool) -> Path:
    return PAGES / f"{server.name}-{'guarded' if guarded else 'plain'}.md"


def main() -> int:
    """Write all six pages, and the table that links them."""
    PAGES.mkdir(parents=True, exist_ok=True)
    for server in SERVERS:
        with ExitStack() as stack:
            running = {
                guarded: stack.enter_context(starting(server.launch(guarded=guarded)))
                for guarded in (False, True)
            }
            for guarded, process in running.items():
                wait_until_healthy(process, print)
                write(server, guarded=guarded)
                print(f"{_page(server, guarded).relative_to(CHECKOUT)}: written", flush=True)
    write_index()
    return 0


if __name__ == "__main__":
    sys.exit(main())
