# SPDX-License-Identifier: Apache-2.0
"""The results as a table for people and as files for machines."""

from __future__ import annotations

import html
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from importlib.resources import files
from string import Template
from typing import Any
from xml.etree import ElementTree

from rich.table import Table
from rich.text import Text

from ... import __version__
from ..conformance import Case
from .discovery import ServerInfo, printable
from .session import ProbeReport, Result, Verdict, should

_STYLES = {Verdict.HOLDS: "green", Verdict.FAILS: "bold red"}

_ORDER = (Verdict.FAILS, Verdict.HOLDS, Verdict.NOT_SENT, Verdict.NOT_APPLICABLE)
"""The order of the rows."""

_DECISIVE_FIRST = (Verdict.FAILS, Verdict.NOT_SENT, Verdict.HOLDS, Verdict.NOT_APPLICABLE)
"""The verdict on a case is the first of these that one of its attempts has."""


class Format(str, Enum):
    """The format of the output."""

    TABLE = "table"
    JSON = "json"
    JUNIT = "junit"
    MARKDOWN = "markdown"
    HTML = "html"


@dataclass(frozen=True)
class Cell:
    """
    The results of a case at one server, all endpoints together.

    count: how many of the attempts have the verdict; None if the server got none of them.
    """

    verdict: Verdict
    happened: str
    count: str | None = None

    @property
    def counted(self) -> str:
        """The verdict, with the count."""
        return self.verdict.value + (f" ({self.count})" if self.count else "")

    @property
    def in_short(self) -> str:
        """The verdict and, unless the case holds, what happened."""
        holds = self.verdict is Verdict.HOLDS
        return self.counted if holds else f"{self.counted}: {self.happened}"

    @property
    def is_shown(self) -> bool:
        """Whether the tables have a row for the case: not if it is about another server."""
        return self.verdict is not Verdict.NOT_APPLICABLE or self.count is not None


@dataclass(frozen=True)
class Row:
    """One case at every server."""

    case: Case
    cells: tuple[Cell, ...]

    @property
    def worst(self) -> Verdict:
        """The verdict that decides the position of the row."""
        return min((cell.verdict for cell in self.cells), key=_ORDER.index)


def rows(reports: Sequence[ProbeReport]) -> tuple[Row, ...]:
    """Return a row for each case that applies to one of the servers, failing cases first."""
    by_case: dict[str, list[list[Result]]] = {}
    for position, report in enumerate(reports):
        for result in report.results:
            empty: list[list[Result]] = [[] for _ in reports]
            by_case.setdefault(result.case.id, empty)[position].append(result)
    every = (Row(results[0][0].case, tuple(map(_cell, results))) for results in by_case.values())
    shown = [row for row in every if any(cell.is_shown for cell in row.cells)]
    return tuple(sorted(shown, key=lambda row: _ORDER.index(row.worst)))


def summary(report: ProbeReport) -> str:
    """Return the number of cases with each verdict at one server, in one line."""
    count = Counter(cell.verdict for row in rows([report]) for cell in row.cells)
    counts = ", ".join(
        f"{count[verdict]} {words}"
        for verdict, words in (
            (Verdict.HOLDS, "hold"),
            (Verdict.FAILS, "fail"),
            (Verdict.NOT_APPLICABLE, "not applicable"),
            (Verdict.NOT_SENT, "not sent"),
        )
        if count[verdict] or verdict in (Verdict.HOLDS, Verdict.FAILS)
    )
    return f"{counts} ({report.sent} requests)"


def describe(server: ServerInfo) -> str:
    """Return what the probe found out about a server, in one line."""
    model_info = server.model_info
    facts = [
        f"vLLM {server.version or '(unknown version)'}",
        f"vllm-reuse-guard {server.guard['version']}" if server.guard else "no guard",
        f"KV connector: {server.connector or 'none visible'}",
        f"model {printable(server.model)}",
        f"context {model_info.max_prompt_len + 1}",
        f"vocabulary {model_info.last_known + 1 if model_info.last_known else 'unknown'}",
        *(["takes images"] if server.takes_images else []),
        *(["Harmony"] if server.harmony else []),
    ]
    return ", ".join(facts)


def write(reports: Sequence[ProbeReport], wanted: Format) -> str:
    """Return the results in one of the formats for files."""
    writers: Mapping[Format, Callable[[Sequence[ProbeReport]], str]] = {
        Format.JSON: _json,
        Format.JUNIT: _junit,
        Format.MARKDOWN: _markdown,
        Format.HTML: _html,
    }
    return writers[wanted](reports)


def table(reports: Sequence[ProbeReport]) -> Table:
    """Return the results as a table for a terminal."""
    lines = Table(title_justify="left", expand=False, pad_edge=False)
    for heading in _headings(reports):
        lines.add_column(Text(heading), overflow="fold")
    for row in rows(reports):
        lines.add_row(*(Text(text, style) for text, style in _line(row)))
    return lines


def _cell(results: Sequence[Result]) -> Cell:
    verdict = min((result.verdict for result in results), key=_DECISIVE_FIRST.index)
    same = [result for result in results if result.verdict is verdict]
    # Of attempts that hold, the others repeat what the second column says.
    telling = results if verdict is Verdict.HOLDS else same
    first = min(telling, key=lambda result: result.happened == should(result.case))
    happened = printable(first.happened)
    if not first.sent:
        return Cell(verdict, happened)
    some = verdict is Verdict.FAILS or len({result.happened for result in results}) > 1
    where = f", at {first.where}" if some and happened != should(first.case) else ""
    return Cell(verdict, f"{happened}{where}", f"{len(same)} of {len(results)}")


def _headings(reports: Sequence[ProbeReport]) -> list[str]:
    if len(reports) == 1:
        return ["case", "expected", "actual", "verdict"]
    return ["case", "expected", *(_name(report.server) for report in reports)]


def _name(server: ServerInfo) -> str:
    guard = "guarded" if server.guard else "no guard"
    return f"{server.url} ({server.version or 'unknown version'}, {guard})"


def _line(row: Row) -> list[tuple[str, str]]:
    begin = [(row.case.id, ""), (should(row.case), "")]
    styles = [_STYLES.get(cell.verdict, "dim") for cell in row.cells]
    if len(row.cells) > 1:
        short = [cell.in_short for cell in row.cells]
        return [*begin, *zip(short, styles, strict=True)]
    (cell,), (style,) = row.cells, styles
    return [*begin, (cell.happened, ""), (cell.counted, style)]


def _json(reports: Sequence[ProbeReport]) -> str:
    document = {
        "guard": __version__,
        "servers": [
            {
                "url": report.server.url,
                "vllm": report.server.version,
                "model": report.server.model,
                "guard": report.server.guard,
                "kv_connector": report.server.connector,
                "takes_images": report.server.takes_images,
                "harmony": report.server.harmony,
                "endpoints": sorted(report.server.paths),
                "holds": report.holds,
                "results": [_result(result) for result in report.results],
            }
            for report in reports
        ],
    }
    return json.dumps(document, indent=2) + "\n"


def _result(result: Result) -> dict[str, Any]:
    return {
        "case": result.case.id,
        "description": result.case.description,
        "rule": result.case.rule.value,
        "endpoint": result.endpoint,
        "stream": result.stream,
        "should": should(result.case),
        "happened": result.happened,
        "verdict": result.verdict.value,
    }


def _junit(reports: Sequence[ProbeReport]) -> str:
    suites = ElementTree.Element("testsuites", name="vllm-reuse-guard probe")
    for report in reports:
        count = Counter(result.verdict for result in report.results)
        suite = ElementTree.SubElement(
            suites,
            "testsuite",
            name=report.server.url,
            tests=str(len(report.results)),
            failures=str(count[Verdict.FAILS]),
            errors="0",
            skipped=str(count[Verdict.NOT_APPLICABLE] + count[Verdict.NOT_SENT]),
        )
        for result in report.results:
            where = f" at {result.where}" if result.endpoint else ""
            case = ElementTree.SubElement(
                suite, "testcase", classname=result.case.id, name=f"{result.case.id}{where}"
            )
            if result.verdict is Verdict.FAILS:
                failure = ElementTree.SubElement(
                    case, "failure", message=printable(result.happened)
                )
                failure.text = f"expected: {should(result.case)}"
            elif result.verdict is not Verdict.HOLDS:
                message = f"{result.verdict.value}: {printable(result.happened)}"
                ElementTree.SubElement(case, "skipped", message=message)
    ElementTree.indent(suites)
    return ElementTree.tostring(suites, encoding="unicode", xml_declaration=True) + "\n"


def _markdown(reports: Sequence[ProbeReport]) -> str:
    # Special characters in a URL are percent-encoded.
    lines = [
        f"- `{report.server.url}`: {_escape_markdown(describe(report.server))}. {summary(report)}"
        for report in reports
    ]
    headings = [_escape_markdown(heading) for heading in _headings(reports)]
    lines += ["", _markdown_line(headings), _markdown_line(["---"] * len(headings))]
    for row in rows(reports):
        first, *rest = (text for text, _ in _line(row))
        lines.append(_markdown_line([f"`{first}`", *map(_escape_markdown, rest)]))
    return "\n".join([*lines, ""])


def _markdown_line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _escape_markdown(text: str) -> str:
    # As HTML, so that a server's text is neither markup nor the end of a cell.
    escaped = html.escape(text, quote=False)
    return "".join(f"\\{c}" if c in "|*_`[]" else c for c in escaped)


def _html(reports: Sequence[ProbeReport]) -> str:
    page = Template((files(__package__) / "report.html").read_text(encoding="utf-8"))
    headings = _headings(reports)
    return page.substitute(
        version=__version__,
        servers="\n".join(_html_server(report) for report in reports),
        headings="".join(f"<th>{html.escape(heading)}</th>" for heading in headings),
        rows="\n".join(_html_row(row, headings) for row in rows(reports)),
    )


def _html_server(report: ProbeReport) -> str:
    kind = "holds" if report.holds else "fails"
    lines = (report.server.url, describe(report.server), summary(report))
    url, facts, counts = map(html.escape, lines)
    return f'<li class="{kind}"><strong>{url}</strong> {facts}. <em>{counts}</em></li>'


def _html_row(row: Row, headings: Sequence[str]) -> str:
    return f"<tr>{''.join(_html_cells(row, headings))}</tr>"


def _html_cells(row: Row, headings: Sequence[str]) -> Iterator[str]:
    classes = ["", *(_class(cell) for cell in row.cells)]
    if len(row.cells) == 1:
        classes.append(classes[-1])
    description = html.escape(row.case.description)
    yield f"<td><code>{html.escape(row.case.id)}</code> <small>{description}</small></td>"
    for (text, _), heading, kind in zip(_line(row)[1:], headings[1:], classes, strict=True):
        label, content = html.escape(heading), html.escape(text)
        yield f'<td data-label="{label}" class="{kind}">{content}</td>'


def _class(cell: Cell) -> str:
    return cell.verdict.value.replace(" ", "-")
