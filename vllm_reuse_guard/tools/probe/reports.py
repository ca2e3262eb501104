# SPDX-License-Identifier: Apache-2.0
"""What was found out, as a table for people and as files for machines."""

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
from .discovery import About, printable
from .session import Probed, Result, Verdict, should

_STYLES = {Verdict.HOLDS: "green", Verdict.FAILS: "bold red"}


_ORDER = (Verdict.FAILS, Verdict.HOLDS, Verdict.NOT_SENT, Verdict.NOT_APPLICABLE)
"""What is to be seen first, of cases."""

_WORST_FIRST = (Verdict.FAILS, Verdict.NOT_SENT, Verdict.NOT_APPLICABLE, Verdict.HOLDS)
"""What speaks for a case, of its requests."""


class Format(str, Enum):
    """How the result is written."""

    TABLE = "table"
    JSON = "json"
    JUNIT = "junit"
    MARKDOWN = "markdown"
    HTML = "html"


@dataclass(frozen=True)
class Cell:
    """
    What came of a case at one server, all of its endpoints together.

    count: how many of its requests came to that, None if there was none.
    """

    verdict: Verdict
    happened: str
    count: str | None = None

    @property
    def counted(self) -> str:
        """The verdict, and of how many requests it is that of how many."""
        return self.verdict.value + (f" ({self.count})" if self.count else "")

    @property
    def in_short(self) -> str:
        """The verdict and, unless the case holds, what happened."""
        holds = self.verdict is Verdict.HOLDS
        return self.counted if holds else f"{self.counted}: {self.happened}"


@dataclass(frozen=True)
class Row:
    """One case at every server."""

    case: Case
    cells: tuple[Cell, ...]

    @property
    def worst(self) -> Verdict:
        """What is to be seen first."""
        return min((cell.verdict for cell in self.cells), key=_ORDER.index)


def rows(probed: Sequence[Probed]) -> tuple[Row, ...]:
    """Return a row for each case that says something about one of the servers, the worst first."""
    by_case: dict[str, list[list[Result]]] = {}
    for position, one in enumerate(probed):
        for result in one.results:
            empty: list[list[Result]] = [[] for _ in probed]
            by_case.setdefault(result.case.id, empty)[position].append(result)
    found = (Row(results[0][0].case, tuple(map(_cell, results))) for results in by_case.values())
    told = [row for row in found if row.worst is not Verdict.NOT_APPLICABLE]
    return tuple(sorted(told, key=lambda row: _ORDER.index(row.worst)))


def summary(one: Probed) -> str:
    """Say of a server how many cases hold, and how many do not, in one line."""
    count = Counter(cell.verdict for row in rows([one]) for cell in row.cells)
    counted = ", ".join(
        f"{count[verdict]} {words}"
        for verdict, words in (
            (Verdict.HOLDS, "hold"),
            (Verdict.FAILS, "fail"),
            (Verdict.NOT_SENT, "not sent"),
        )
        if count[verdict] or verdict is not Verdict.NOT_SENT
    )
    return f"{counted} ({one.tried} requests with a case in them)"


def describe(about: About) -> str:
    """Say in one line what a server was found to be."""
    model_info = about.model_info
    facts = [
        f"vLLM {about.version or 'of an unknown version'}",
        f"vllm-reuse-guard {about.guard['version']}" if about.guard else "no guard",
        f"KV connector: {about.connector or 'none seen'}",
        f"model {printable(about.model)}",
        f"context {model_info.max_prompt_len + 1}",
        f"vocabulary {model_info.last_known + 1 if model_info.last_known else 'not known'}",
        *(["takes images"] if about.takes_images else []),
        *(["Harmony"] if about.harmony else []),
    ]
    return ", ".join(facts)


def write(probed: Sequence[Probed], wanted: Format) -> str:
    """Return the result in one of the formats for files."""
    writers: Mapping[Format, Callable[[Sequence[Probed]], str]] = {
        Format.JSON: _json,
        Format.JUNIT: _junit,
        Format.MARKDOWN: _markdown,
        Format.HTML: _html,
    }
    return writers[wanted](probed)


def table(probed: Sequence[Probed]) -> Table:
    """Return the result as a table for a terminal."""
    made = Table(title_justify="left", expand=False, pad_edge=False)
    for heading in _headings(probed):
        made.add_column(Text(heading), overflow="fold")
    for row in rows(probed):
        made.add_row(*(Text(text, style) for text, style in _line(row)))
    return made


def _cell(results: Sequence[Result]) -> Cell:
    # The worst that came of one of the requests is what came of the case.
    first = min(results, key=lambda result: _WORST_FIRST.index(result.verdict))
    happened = printable(first.happened)
    if first.verdict in (Verdict.NOT_SENT, Verdict.NOT_APPLICABLE):
        return Cell(first.verdict, happened)
    count = sum(result.verdict is first.verdict for result in results)
    where = f", at {first.where}" if first.verdict is Verdict.FAILS else ""
    return Cell(first.verdict, f"{happened}{where}", f"{count} of {len(results)}")


def _headings(probed: Sequence[Probed]) -> list[str]:
    if len(probed) == 1:
        return ["case", "what should happen", "what happened", "verdict"]
    return ["case", "what should happen", *(_name(one.about) for one in probed)]


def _name(about: About) -> str:
    guard = "guarded" if about.guard else "no guard"
    return f"{about.url} ({about.version or 'unknown version'}, {guard})"


def _line(row: Row) -> list[tuple[str, str]]:
    begin = [(row.case.id, ""), (should(row.case), "")]
    styles = [_STYLES.get(cell.verdict, "dim") for cell in row.cells]
    if len(row.cells) > 1:
        short = [cell.in_short for cell in row.cells]
        return [*begin, *zip(short, styles, strict=True)]
    (cell,), (style,) = row.cells, styles
    return [*begin, (cell.happened, ""), (cell.counted, style)]


def _json(probed: Sequence[Probed]) -> str:
    document = {
        "guard": __version__,
        "servers": [
            {
                "url": one.about.url,
                "vllm": one.about.version,
                "model": one.about.model,
                "guard": one.about.guard,
                "kv_connector": one.about.connector,
                "takes_images": one.about.takes_images,
                "harmony": one.about.harmony,
                "endpoints": sorted(one.about.paths),
                "holds": one.holds,
                "results": [_result(result) for result in one.results],
            }
            for one in probed
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


def _junit(probed: Sequence[Probed]) -> str:
    suites = ElementTree.Element("testsuites", name="vllm-reuse-guard probe")
    for one in probed:
        count = Counter(result.verdict for result in one.results)
        suite = ElementTree.SubElement(
            suites,
            "testsuite",
            name=one.about.url,
            tests=str(len(one.results)),
            failures=str(count[Verdict.FAILS]),
            errors="0",
            skipped=str(count[Verdict.NOT_APPLICABLE] + count[Verdict.NOT_SENT]),
        )
        for result in one.results:
            where = f" at {result.where}" if result.endpoint else ""
            case = ElementTree.SubElement(
                suite, "testcase", classname=result.case.id, name=f"{result.case.id}{where}"
            )
            if result.verdict is Verdict.FAILS:
                fault = ElementTree.SubElement(case, "failure", message=printable(result.happened))
                fault.text = f"should happen: {should(result.case)}"
            elif result.verdict is not Verdict.HOLDS:
                message = f"{result.verdict.value}: {printable(result.happened)}"
                ElementTree.SubElement(case, "skipped", message=message)
    ElementTree.indent(suites)
    return ElementTree.tostring(suites, encoding="unicode", xml_declaration=True) + "\n"


def _markdown(probed: Sequence[Probed]) -> str:
    # A URL has its odd characters encoded.
    lines = [
        f"- `{one.about.url}`: {_escape_markdown(describe(one.about))}. {summary(one)}"
        for one in probed
    ]
    headings = [_escape_markdown(heading) for heading in _headings(probed)]
    lines += ["", _markdown_line(headings), _markdown_line(["---"] * len(headings))]
    for row in rows(probed):
        first, *rest = (text for text, _ in _line(row))
        lines.append(_markdown_line([f"`{first}`", *map(_escape_markdown, rest)]))
    return "\n".join([*lines, ""])


def _markdown_line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _escape_markdown(text: str) -> str:
    # As HTML, so that what a server said is neither markup nor the end of a cell.
    escaped = html.escape(text, quote=False)
    return "".join(f"\\{c}" if c in "|*_`[]" else c for c in escaped)


def _html(probed: Sequence[Probed]) -> str:
    page = Template((files(__package__) / "report.html").read_text(encoding="utf-8"))
    headings = _headings(probed)
    return page.substitute(
        version=__version__,
        servers="\n".join(_html_server(one) for one in probed),
        headings="".join(f"<th>{html.escape(heading)}</th>" for heading in headings),
        rows="\n".join(_html_row(row, headings) for row in rows(probed)),
    )


def _html_server(one: Probed) -> str:
    kind = "holds" if one.holds else "fails"
    lines = (one.about.url, describe(one.about), summary(one))
    url, about, counted = map(html.escape, lines)
    return f'<li class="{kind}"><strong>{url}</strong> {about}. <em>{counted}</em></li>'


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
