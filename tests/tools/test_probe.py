# SPDX-License-Identifier: Apache-2.0
"""What the probe plans for a server, and how it writes what came of it. Live: tests/live."""

from __future__ import annotations

import json
from dataclasses import replace
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest
from rich.console import Console

from vllm_reuse_guard.tools.conformance import Expected, Profile, cases
from vllm_reuse_guard.tools.conformance.endpoints import ENDPOINTS
from vllm_reuse_guard.tools.conformance.values import ModelInfo
from vllm_reuse_guard.tools.probe.discovery import NIXL, About
from vllm_reuse_guard.tools.probe.reports import Format, describe, rows, summary, table, write
from vllm_reuse_guard.tools.probe.session import Probed, Result, Verdict, plan, should

EVERY = tuple(cases().values())
PLAIN = About(
    url="http://server",
    version="0.32.0",
    model="model",
    guard=None,
    connector=NIXL,
    harmony=False,
    paths=frozenset(endpoint.path for endpoint in ENDPOINTS),
    model_info=ModelInfo(forwarded=[5, 6], max_prompt_len=10, embedding_rows=100, last_known=99),
)
NASTY = 'a|b *c* <script>alert("1")</script> `d` \x00\nnew line'


def guarded(**labels: str) -> About:
    """The same server with a guard that says these things."""
    info = {"version": "1.0", "policy": "connector", "without_connector": "ignore", **labels}
    return replace(PLAIN, guard=info)


@pytest.mark.parametrize(
    ("about", "profiles"),
    [
        (PLAIN, {Profile.CONNECTOR}),
        (replace(PLAIN, connector=None), {Profile.NO_CONNECTOR}),
        (guarded(), {Profile.CONNECTOR}),
        (guarded(policy="off"), {Profile.POLICY_OFF}),
        (
            replace(guarded(policy="always"), connector=None),
            {Profile.POLICY_ALWAYS, Profile.CONNECTOR},
        ),
        (replace(guarded(without_connector="reject"), connector=None), {Profile.REJECT}),
        (
            replace(PLAIN, model_info=replace(PLAIN.model_info, placeholder=7)),
            {Profile.CONNECTOR, Profile.MEDIA},
        ),
        (
            replace(
                guarded(policy="always"),
                connector=None,
                model_info=replace(PLAIN.model_info, last_known=100),
            ),
            {Profile.POLICY_ALWAYS, Profile.CONNECTOR, Profile.NARROW_EMBEDDING},
        ),
    ],
)
def test_kind_of_server(about: About, profiles: set[Profile]) -> None:
    """
    From what was found out follows which cases speak about a server.
    """
    assert profiles == about.profiles


@pytest.mark.parametrize("unsafe", [False, True])
def test_unsafe_cases_are_sent_when_asked_for(unsafe: bool) -> None:
    """
    A case that can harm a server is planned with --unsafe alone, and after the others.
    """
    planned = [one for one in plan(PLAIN, EVERY, unsafe=unsafe) if one.attempts]

    assert unsafe == any(not one.case.safe for one in planned)
    assert [one.case.safe for one in planned] == sorted(
        (one.case.safe for one in planned), reverse=True
    )


def test_every_case_is_accounted_for() -> None:
    """
    A case is tried, or it is said why not.
    """
    planned = plan(PLAIN, EVERY, unsafe=True)

    assert {case.id for case in EVERY} == {one.case.id for one in planned}
    assert all(bool(one.attempts) != (one.instead is not None) for one in planned)


def test_unknown_vocabulary() -> None:
    """
    Cases that need a bound which cannot be found out are not applicable.
    """
    model_info = replace(PLAIN.model_info, embedding_rows=None, last_known=None)

    found = {
        one.case.id: one.instead
        for one in plan(replace(PLAIN, model_info=model_info), EVERY, unsafe=True)
    }

    instead = found["chat.the-first-id-past-the-vocabulary-is-refused"]
    assert instead is not None
    assert Verdict.NOT_APPLICABLE is instead.verdict
    assert "first_past cannot be found out" == instead.happened
    assert found["chat.one-id-is-used"] is None


def test_missing_endpoints() -> None:
    """
    Of a case only what the server has is tried.
    """
    only = frozenset({"/tokenize"})
    planned = plan(replace(PLAIN, paths=only), EVERY, unsafe=True)

    assert only == {attempt.endpoint.path for one in planned for attempt in one.attempts}


def test_other_connector() -> None:
    """
    What is about NixlConnector's fields is not applicable with another one.
    """
    planned = plan(replace(PLAIN, connector="unknown"), EVERY, unsafe=True)

    assert not [one for one in planned if one.attempts and one.case.id.startswith("params.")]


def probed(*happened: tuple[str, Verdict, str]) -> Probed:
    """A server at which this came of these cases, each tried twice."""
    results = [
        Result(cases()[case], verdict, says, "/v1/chat/completions", stream)
        for case, verdict, says in happened
        for stream in (False, True)
    ]
    other = Result(cases()["chat.echo-renders"], Verdict.NOT_APPLICABLE, "is about others")
    unsent = Result(cases()["batch.ids-are-refused"], Verdict.NOT_SENT, "needs --unsafe")
    return Probed(PLAIN, (*results, other, unsent))


GOOD = probed(("chat.one-id-is-used", Verdict.HOLDS, "the ids are the prompt"))
BAD = probed(("chat.one-id-is-used", Verdict.FAILS, NASTY))


def test_rows() -> None:
    """
    One line for each case that says something about one of the servers.
    """
    used, batch = rows([GOOD, BAD])

    assert "chat.one-id-is-used" == used.case.id
    assert [Verdict.HOLDS, Verdict.FAILS] == [cell.verdict for cell in used.cells]
    assert ["2 of 2", "2 of 2"] == [cell.count for cell in used.cells]
    assert [Verdict.NOT_SENT] * 2 == [cell.verdict for cell in batch.cells]


def test_worst_request_speaks_for_the_case() -> None:
    """
    One of several that fails, or was not sent, is not hidden by the others.
    """
    case = cases()["chat.one-id-is-used"]
    held, failed, unsent = (
        Result(case, verdict, verdict.value, "/tokenize")
        for verdict in (Verdict.HOLDS, Verdict.FAILS, Verdict.NOT_SENT)
    )

    for results, verdict, count in (
        ((held, failed, unsent), Verdict.FAILS, "1 of 3"),
        ((held, unsent), Verdict.NOT_SENT, None),
        ((held, held), Verdict.HOLDS, "2 of 2"),
    ):
        ((cell,),) = [row.cells for row in rows([Probed(PLAIN, results)])]
        assert (verdict, count) == (cell.verdict, cell.count)


def test_summary() -> None:
    """
    The line below the table counts cases, and requests.
    """
    assert "1 hold, 0 fail, 1 not sent (2 requests with a case in them)" == summary(GOOD)
    assert GOOD.holds
    assert not BAD.holds


@pytest.mark.parametrize("servers", [[GOOD], [GOOD, BAD]], ids=["one", "two"])
def test_table(servers: list[Probed]) -> None:
    """
    It can be printed, and what a server said does nothing to the terminal.
    """
    console = Console(width=300, force_terminal=False, record=True)

    console.print(table(servers))

    text = console.export_text()
    assert "chat.one-id-is-used" in text
    assert "\x00" not in text


def test_json() -> None:
    """
    Every result is there, the same words as on the screen.
    """
    document = json.loads(write([GOOD, BAD], Format.JSON))

    good, bad = document["servers"]
    assert (True, False) == (good["holds"], bad["holds"])
    assert 4 == len(good["results"])
    assert NASTY == bad["results"][0]["happened"]


def test_junit() -> None:
    """
    Any reader of JUnit files sees what failed and what was skipped.
    """
    good, bad = ElementTree.fromstring(write([GOOD, BAD], Format.JUNIT))  # noqa: S314 - our own

    assert ("4", "0", "2") == tuple(good.attrib[name] for name in ("tests", "failures", "skipped"))
    assert ("4", "2", "2") == tuple(bad.attrib[name] for name in ("tests", "failures", "skipped"))
    assert 2 == len(bad.findall("testcase/failure"))
    assert 2 == len(bad.findall("testcase/skipped"))


def test_markdown() -> None:
    """
    One line is one row, whatever a server said.
    """
    lines = [line for line in write([BAD], Format.MARKDOWN).splitlines() if line.startswith("|")]

    headings, *_ = lines
    assert 4 == len(lines)
    assert {headings.count(" | ")} == {line.replace("\\|", "").count(" | ") for line in lines}
    assert "<script>" not in "".join(lines)


class Tags(HTMLParser):
    """Collects the tags of a page and what they refer to."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.references: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.references += [str(value) for name, value in attrs if name in ("src", "href")]


@pytest.mark.parametrize("servers", [[BAD], [GOOD, BAD]], ids=["one", "two"])
def test_html(servers: list[Probed]) -> None:
    """
    One file that loads nothing and runs nothing, with a row for each case.
    """
    page = write(servers, Format.HTML)

    tags = Tags(page)
    assert [] == tags.references
    assert "script" not in tags.tags
    assert 3 == tags.tags.count("tr")
    assert "$" not in page


def test_every_outcome_has_its_words() -> None:
    """
    What should happen is said in a few words, with the field that a refusal names.
    """
    said = {case.expect.outcome: should(case) for case in EVERY}

    assert set(Expected) == said.keys()
    assert all(should(case).startswith("400") for case in EVERY if "refused" in case.id)


def test_server_in_words() -> None:
    """
    A line says what a server was found to be, and what was not found out.
    """
    unknown = replace(
        PLAIN, version=None, connector=None, model_info=ModelInfo(forwarded=[1], max_prompt_len=9)
    )

    assert "vLLM 0.32.0, no guard, KV connector: NixlConnector" in describe(PLAIN)
    assert "vocabulary 100" in describe(PLAIN)
    assert "unknown version" in describe(unknown)
    assert "vocabulary not known" in describe(unknown)
