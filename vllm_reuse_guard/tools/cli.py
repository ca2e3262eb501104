# SPDX-License-Identifier: Apache-2.0
"""The command ``vllm-reuse-guard``. It imports no vLLM, so it works beside a broken one."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Annotated

import httpx
import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress
from rich.table import Table
from rich.text import Text

from .. import __version__
from ..errors import GuardError
from .conformance import Case, cases
from .doctor import Report, Start, examine
from .in_tree import Tree
from .probe.discovery import ProbeError, discover
from .probe.reports import Format, describe, summary, table, write
from .probe.session import UNSAFE_WARNING, ProbeReport, plan, run
from .probe.transport import BoundedTransport

_HELD, _NOT_HELD, _COULD_NOT = 0, 1, 2
"""Exit statuses: every requirement holds, one does not, the command could not run."""

_WIDE = 2000
_CASES_A_LINE = 20

app = typer.Typer(
    name="vllm-reuse-guard",
    help="Checks prompt token IDs and KV transfer params that are forwarded to vLLM.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
in_tree = typer.Typer(
    help="Add the guard to a vLLM source tree, or remove it.", no_args_is_help=True
)
app.add_typer(in_tree, name="in-tree")

_TREE = Annotated[
    Path | None,
    typer.Option(
        "--tree",
        exists=True,
        file_okay=False,
        help="A vLLM checkout or package. Default: the vLLM that this Python imports.",
    ),
]


_URLS = Annotated[list[str], typer.Argument(help="Base URLs of the servers.", metavar="URL...")]
_FORMAT = Annotated[Format, typer.Option("--format", help="Output format.")]
_CASES = Annotated[
    list[str] | None,
    typer.Option(
        "--case", metavar="ID", help="Send only this case. Repeat the option for several cases."
    ),
]
_MODEL = Annotated[
    str | None,
    typer.Option("--model", help="Model name. Default: the first model of the server."),
]
_KEY = Annotated[
    str | None,
    typer.Option("--api-key", envvar="VLLM_API_KEY", help="API key, sent as a bearer token."),
]
_TIMEOUT = Annotated[
    float, typer.Option("--timeout", min=0.1, help="Timeout of each request, in seconds.")
]
_UNSAFE = Annotated[bool, typer.Option("--unsafe", help=UNSAFE_WARNING)]
_CONNECTOR = Annotated[
    bool | None,
    typer.Option(
        "--connector/--no-connector",
        help="Whether the servers have a KV connector and must reuse forwarded IDs. Default: read "
        "from /metrics, which shows NixlConnector and the guard.",
    ),
]
_ARGUMENTS = Annotated[
    list[str] | None,
    typer.Argument(metavar="[-- ARGUMENT...]", help="The arguments of `vllm serve`."),
]


@app.callback(invoke_without_command=True)
def show_version(
    version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False,
) -> None:
    """Checks prompt token IDs and KV transfer params that are forwarded to vLLM."""
    if version:
        typer.echo(f"vllm-reuse-guard {__version__}")
        raise typer.Exit


@in_tree.command()
def diff(tree: _TREE = None) -> None:
    """
    Print the in-tree form as a patch for `git apply`; print nothing if the tree has it.

    Exit status: 0 on success, 2 with the reason if the guard does not fit the tree.
    """
    typer.echo(Tree.at(tree).diff(), nl=False)


@in_tree.command()
def apply(tree: _TREE = None) -> None:
    """
    Add the guard to the tree. Resumes an interrupted run.

    Exit status: 0 if the tree has the guard, 2 with the reason if not.
    """
    found = Tree.at(tree)
    done = found.apply()
    typer.echo(f"{found.vllm}: the guard {'was added' if done else 'is already there'}")


@in_tree.command()
def revert(tree: _TREE = None) -> None:
    """
    Remove the guard from the tree and restore every byte.

    Exit status: 0 if the tree is without the guard, 2 with the reason if not.
    """
    found = Tree.at(tree)
    done = found.revert()
    typer.echo(f"{found.vllm}: the guard {'was removed' if done else 'is not there'}")


@app.command()
def probe(
    urls: _URLS,
    wanted: _FORMAT = Format.TABLE,
    case: _CASES = None,
    model: _MODEL = None,
    api_key: _KEY = None,
    timeout: _TIMEOUT = 30.0,
    unsafe: _UNSAFE = False,
    connector: _CONNECTOR = None,
) -> None:
    """
    Run the conformance cases against running servers, guarded or not, side by side.

    Exit status: 0 if every attempted case holds, 1 if one fails, 2 if the probe could not run.
    """
    chosen = _choose(case or [])
    if unsafe:
        print(f"warning: {UNSAFE_WARNING}", file=sys.stderr)
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    with ExitStack() as stack:
        clients = [
            stack.enter_context(
                httpx.Client(
                    base_url=_url(url),
                    headers=headers,
                    timeout=timeout,
                    transport=BoundedTransport(timeout),
                )
            )
            for url in urls
        ]
        # All servers first: an unreachable one is reported at once.
        found = [discover(client, model=model, connector=connector) for client in clients]
        progress = stack.enter_context(Progress(console=Console(stderr=True), transient=True))
        probed = []
        for client, about in zip(clients, found, strict=True):
            planned = plan(about, chosen, unsafe=unsafe)
            if not any(one.attempts for one in planned):
                raise ProbeError(
                    f"no case applies to {about.url}: {describe(about)}. Most are about servers "
                    f"that use ids: those with a KV connector, or --connector"
                )
            say = _progress(progress, about.url, len(planned))
            probed.append(run(client, about, planned, say))
    _show(probed, wanted)
    raise typer.Exit(_HELD if all(one.holds for one in probed) else _NOT_HELD)


@app.command()
def doctor(
    arguments: _ARGUMENTS = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
) -> None:
    """
    Check whether `vllm serve`, started in this environment, would load the guard.

    Imports no vLLM and starts nothing. Exit status: 0 if the server would be guarded, 1 if not,
    2 if doctor could not run.
    """
    report = examine(arguments or [])
    if as_json:
        typer.echo(json.dumps({**asdict(report), "start": report.start.value}, indent=2))
    else:
        _show_report(report)
    raise typer.Exit(_HELD if report.start is Start.GUARDED else _NOT_HELD)


def _url(url: str) -> str:
    return url if "://" in url else f"http://{url}"


def _progress(bars: Progress, url: str, total: int) -> Callable[[], object]:
    if not sys.stderr.isatty():
        return _Lines(url, total).advance
    return partial(bars.advance, bars.add_task(escape(url), total=total))


class _Lines:
    """Progress without a terminal: one line for every 20 cases."""

    def __init__(self, url: str, total: int) -> None:
        self._url = url
        self._total = total
        self._done = 0

    def advance(self) -> None:
        """Count one case as done."""
        self._done += 1
        if self._done % _CASES_A_LINE == 0 or self._done == self._total:
            print(f"{self._url}: {self._done} of {self._total} cases", file=sys.stderr)


def _choose(ids: list[str]) -> list[Case]:
    if unknown := [name for name in ids if name not in cases()]:
        close = [like for name in unknown for like in get_close_matches(name, cases())]
        listed = "run the probe without --case to list them"
        hint = f"did you mean {', '.join(close)}?" if close else listed
        raise ProbeError(f"unknown case {', '.join(map(repr, unknown))}; {hint}")
    return [case for case in cases().values() if not ids or case.id in ids]


def _show(probed: list[ProbeReport], wanted: Format) -> None:
    if wanted is not Format.TABLE:
        typer.echo(write(probed, wanted), nl=False)
        return
    _print(table(probed))
    for one in probed:
        typer.echo(f"\n{one.server.url}: {describe(one.server)}\n  {summary(one)}")


def _show_report(report: Report) -> None:
    typer.echo(f"vllm-reuse-guard {report.guard}, vLLM: {report.vllm or 'none'}")
    found = Table("", "check", "result")
    for finding in report.findings:
        mark = Text("ok", "green") if finding.good else Text("BAD", "bold red")
        found.add_row(mark, finding.subject, Text(finding.says))
    patches = Table("patch", "module", "state")
    for patch in report.patches:
        patches.add_row(
            patch.name, patch.module, Text(", ".join([patch.state.value, *patch.missing]))
        )
    chosen = Table("setting", "value", "from")
    for setting in report.settings:
        chosen.add_row(setting.name, Text(setting.value), setting.source)
    for section in (found, patches, chosen):
        if section.row_count:
            typer.echo()
            _print(section)
    typer.echo(f"\nResult: `vllm serve`, started here, {report.start.value}.")


def _print(made: Table) -> None:
    if sys.stdout.isatty():
        Console().print(made)
        return
    # In a file or a pipe a row is one line, whatever its width, without borders.
    made.box = None
    plain = Console(width=_WIDE, color_system=None)
    with plain.capture() as captured:
        plain.print(made)
    for line in captured.get().splitlines():
        typer.echo(line.rstrip())


def main() -> None:
    """Run the command. Exit status 2, with one line, if it could not run."""
    try:
        app()
    except (GuardError, ProbeError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(_COULD_NOT) from None
    except Exception as error:
        print(f"error: {type(error).__name__}: {error}", file=sys.stderr)
        raise SystemExit(_COULD_NOT) from None
