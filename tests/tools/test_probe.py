# SPDX-License-Identifier: Apache-2.0
"""The attempts that the probe plans for a server, and its reports. Live tests: tests/live."""

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
from vllm_reuse_guard.tools.probe.discovery import NIXL, ServerInfo
from vllm_reuse_guard.tools.probe.reports import Format, describe, rows, summary, table, write
from vllm_reuse_guard.tools.probe.session import ProbeReport, Result, Verdict, plan, should

EVERY = tuple(cases().values())
PLAIN = ServerInfo(
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


def guarded(**labels: str) -> ServerInfo:
    """The same server with a guard, whose info metric has these labels."""
    info = {"version": "1.0", "policy": "connector", "without_connector": "ignore", **labels}
    return replace(PLAIN, guard=info)


@pytest.mark.parametrize(
    ("server", "profiles"),
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
        (guarded(allowed_peers="any"), {Profile.CONNECTOR}),
        (guarded(allowed_peers="2"), {Profile.CONNECTOR, Profile.PEERS}),
        (guarded(allowed_peers="2", policy="off"), {Profile.POLICY_OFF}),
        (replace(guarded(allowed_peers="2"), connector=None), {Profile.NO_CONNECTOR}),
    ],
)
def test_profiles_of_a_server(server: ServerInfo, profiles: set[Profile]) -> None:
    """
    What the probe finds out about a server decides which cases are about it.
    """
    assert profiles == server.profiles


@pytest.mark.parametrize("unsafe", [False, True])
def test_unsafe_cases_are_sent_when_asked_for(unsafe: bool) -> None:
    """
    Only --unsafe plans cases that can harm a server, and plans them last.
    """
    planned = [one for one in plan(PLAIN, EVERY, unsafe=unsafe) if one.attempts]

    assert unsafe == any(not one.case.safe for one in planned)
    assert [one.case.safe for one in planned] == sorted(
        (one.case.safe for one in planned), reverse=True
    )


def test_every_case_is_accounted_for() -> None:
    """
    Each case has attempts, or a reason for having none.
    """
    planned = plan(PLAIN, EVERY, unsafe=True)

    assert {case.id for case in EVERY} == {one.case.id for one in planned}
    assert all(bool(one.attempts) != (one.instead is not None) for one in planned)


def test_unknown_vocabulary() -> None:
    """
    A case is not applicable if the probe cannot determine a value that it needs.
    """
    model_info = replace(PLAIN.model_info, embedding_rows=None, last_known=None)

    results = {
        one.case.id: one.instead
        for one in plan(replace(PLAIN, model_info=model_info), EVERY, unsafe=True)
    }

    instead = results["chat.the-first-id-past-the-vocabulary-is-refused"]
    assert instead is not None
    assert Verdict.NOT_APPLICABLE is instead.verdict
    assert "cannot determine first_past" == instead.happened
    assert results["chat.one-id-is-used"] is None


def test_missing_endpoints() -> None:
    """
    The probe sends nothing to an endpoint that the server does not have.
    """
    only = frozenset({"/tokenize"})
    planned = plan(replace(PLAIN, paths=only), EVERY, unsafe=True)

    assert only == {attempt.endpoint.path for one in planned for attempt in one.attempts}


def test_other_connector() -> None:
    """
    Cases about the fields of NixlConnector are not applicable with another connector.
    """
    planned = plan(replace(PLAIN, connector="unknown"), EVERY, unsafe=True)

    assert not [one for one in planned if one.attempts and one.case.id.startswith("params.")]


@pytest.mark.parametrize(
    ("allowed", "not_applicable", "reason"),
    [
        ({"10.1.2.3"}, set(), None),
        ({"10.1.2.3", "localhost"}, {"peers.name-is-not-its-address"}, "localhost is in"),
        (set(), {"peers.ids-are-still-used"}, "10.1.2.3 is not in"),
    ],
)
def test_allowed_peers_of_another_server(
    allowed: set[str], not_applicable: set[str], reason: str | None
) -> None:
    """
    A case about a host is not applicable on a server whose list treats the host differently.
    """
    server = replace(guarded(allowed_peers="1"), allowed_peers=frozenset(allowed))
    peers = [case for case in EVERY if case.server is Profile.PEERS]

    skipped = {one.case.id: one.instead for one in plan(server, peers, unsafe=False) if one.instead}

    assert not_applicable == skipped.keys()
    for result in skipped.values():
        assert Verdict.NOT_APPLICABLE is result.verdict
        assert str(reason) in result.happened


def probed(*happened: tuple[str, Verdict, str]) -> ProbeReport:
    """A server with these results, each for two attempts."""
    results = [
        Result(cases()[case], verdict, what, "/v1/chat/completions", stream)
        for case, verdict, what in happened
        for stream in (False, True)
    ]
    other = Result(
        cases()["chat.echo-renders"], Verdict.NOT_APPLICABLE, "for another kind of server"
    )
    unsent = Result(cases()["batch.ids-are-refused"], Verdict.NOT_SENT, "requires --unsafe")
    return ProbeReport(PLAIN, (*results, other, unsent))


GOOD = probed(("chat.one-id-is-used", Verdict.HOLDS, "the IDs are the prompt"))
BAD = probed(("chat.one-id-is-used", Verdict.FAILS, NASTY))


def test_rows() -> None:
    """
    The tables have one row for each case that applies to one of the servers.
    """
    reused, batch = rows([GOOD, BAD])

    assert "chat.one-id-is-used" == reused.case.id
    assert [Verdict.HOLDS, Verdict.FAILS] == [cell.verdict for cell in reused.cells]
    assert ["2 of 2", "2 of 2"] == [cell.count for cell in reused.cells]
    assert [Verdict.NOT_SENT] * 2 == [cell.verdict for cell in batch.cells]


def test_worst_attempt_decides_the_case() -> None:
    """
    An attempt that fails, or was not sent, is not hidden by the others.
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
        ((cell,),) = [row.cells for row in rows([ProbeReport(PLAIN, results)])]
        assert (verdict, count) == (cell.verdict, cell.count)


UNDECIDED = "vLLM answers the same request without transfer params with status 400"


def test_attempt_that_is_not_applicable_is_shown() -> None:
    """
    A case whose request fails without IDs too has a row that gives the reason.
    """
    report = probed(("chat.one-id-is-used", Verdict.NOT_APPLICABLE, UNDECIDED))

    _, row = rows([report])

    (cell,) = row.cells
    assert (Verdict.NOT_APPLICABLE, UNDECIDED) == (cell.verdict, cell.happened)
    assert "2 of 2" == cell.count
    assert "0 hold, 0 fail, 1 not applicable, 1 not sent (2 requests)" == summary(report)
    assert report.holds


def test_attempt_that_is_not_applicable_beside_one_that_holds() -> None:
    """
    The case holds, its count shows that not every attempt does, and the reason is given.
    """
    case = cases()["chat.one-id-is-used"]
    results = (
        Result(case, Verdict.HOLDS, should(case), "/v1/chat/completions"),
        Result(case, Verdict.NOT_APPLICABLE, UNDECIDED, "/v1/chat/completions", stream=True),
    )

    ((cell,),) = [row.cells for row in rows([ProbeReport(PLAIN, results)])]

    assert (Verdict.HOLDS, "1 of 2") == (cell.verdict, cell.count)
    assert f"{UNDECIDED}, at /v1/chat/completions with stream" == cell.happened


def test_summary() -> None:
    """
    The line below the table counts cases, and requests.
    """
    assert "1 hold, 0 fail, 1 not sent (2 requests)" == summary(GOOD)
    assert GOOD.holds
    assert not BAD.holds


@pytest.mark.parametrize("servers", [[GOOD], [GOOD, BAD]], ids=["one", "two"])
def test_table(servers: list[ProbeReport]) -> None:
    """
    The table can be printed, and a server's text does not control the terminal.
    """
    console = Console(width=300, force_terminal=False, record=True)

    console.print(table(servers))

    text = console.export_text()
    assert "chat.one-id-is-used" in text
    assert "\x00" not in text


def test_json() -> None:
    """
    JSON has each result, in the words of the table.
    """
    document = json.loads(write([GOOD, BAD], Format.JSON))

    good, bad = document["servers"]
    assert (True, False) == (good["holds"], bad["holds"])
    assert 4 == len(good["results"])
    assert NASTY == bad["results"][0]["happened"]


def test_junit() -> None:
    """
    A reader of JUnit files sees which attempts failed and which were skipped.
    """
    good, bad = ElementTree.fromstring(write([GOOD, BAD], Format.JUNIT))  # noqa: S314 - our own

    assert ("4", "0", "2") == tuple(good.attrib[name] for name in ("tests", "failures", "skipped"))
    assert ("4", "2", "2") == tuple(bad.attrib[name] for name in ("tests", "failures", "skipped"))
    assert 2 == len(bad.findall("testcase/failure"))
    assert 2 == len(bad.findall("testcase/skipped"))


def test_markdown() -> None:
    """
    One line is one row, whatever text a server sends.
    """
    lines = [line for line in write([BAD], Format.MARKDOWN).splitlines() if line.startswith("|")]

    headings, *_ = lines
    assert 4 == len(lines)
    assert {headings.count(" | ")} == {line.replace("\\|", "").count(" | ") for line in lines}
    assert "<script>" not in "".join(lines)


class Tags(HTMLParser):
    """Collects the tags of a page, and the URLs in them."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.references: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.references += [str(value) for name, value in attrs if name in ("src", "href")]


@pytest.mark.parametrize("servers", [[BAD], [GOOD, BAD]], ids=["one", "two"])
def test_html(servers: list[ProbeReport]) -> None:
    """
    The page is one file without scripts or links, with a row for each case.
    """
    page = write(servers, Format.HTML)

    tags = Tags(page)
    assert [] == tags.references
    assert "script" not in tags.tags
    assert 3 == tags.tags.count("tr")
    assert "$" not in page


def test_every_outcome_has_its_words() -> None:
    """
    Each outcome has a short text; that of a rejection names the field.
    """
    texts = {case.expect.outcome: should(case) for case in EVERY}

    assert set(Expected) == texts.keys()
    assert all(should(case).startswith("400") for case in EVERY if "refused" in case.id)


def test_server_in_words() -> None:
    """
    One line describes a server, unknown facts included.
    """
    unknown = replace(
        PLAIN, version=None, connector=None, model_info=ModelInfo(forwarded=[1], max_prompt_len=9)
    )

    assert "vLLM 0.32.0, no guard, KV connector: NixlConnector" in describe(PLAIN)
    assert "vocabulary 100" in describe(PLAIN)
    assert "unknown version" in describe(unknown)
    assert "vocabulary unknown" in describe(unknown)
