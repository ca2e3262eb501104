# SPDX-License-Identifier: Apache-2.0
"""Find out what a server is, by asking it things that cannot harm it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import httpx

from ...rules.decision import Policy, WithoutConnector
from ..conformance import Profile
from ..conformance.endpoints import ENDPOINTS, REFERENCE
from ..conformance.values import ModelInfo

NIXL = "NixlConnector"
"""The connector that the cases about transfer params speak about."""

_HARMONY_START = 200006
"""The id of <|start|>, with which every prompt of a Harmony model begins."""

_BEYOND_ANY_VOCABULARY = 2**24
_NOT_ALLOWED = 405
_DOT = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9Q"
    "DwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
_QUESTION = "What is for dinner, and is there enough of it for everybody?"
_INFO = re.compile(r"^reuse_guard_info\{(.*)\} 1(?:\.0)?$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')


class ProbeError(Exception):
    """A server cannot be probed; the message says why in one line."""


@dataclass(frozen=True)
class About:
    """
    What was found out about a server.

    version: of vLLM. guard: the labels of the guard's info metric. Either is None if the server
    does not say. connector: the name of its KV connector, None without one. harmony: whether its
    model is a Harmony one. paths: the endpoints that it has. model_info: what its model is like.
    """

    url: str
    version: str | None
    model: str
    guard: dict[str, str] | None
    connector: str | None
    harmony: bool
    paths: frozenset[str]
    model_info: ModelInfo

    @property
    def takes_images(self) -> bool:
        """Whether its model takes images."""
        return self.model_info.placeholder is not None

    @property
    def profiles(self) -> frozenset[Profile]:
        """The kinds of server, as cases name them, that this one is."""
        guard = self.guard or {}
        policy = guard.get("policy", Policy.CONNECTOR.value)
        if policy == Policy.OFF.value:
            return frozenset({Profile.POLICY_OFF})
        if self.connector is not None:
            media = {Profile.MEDIA} if self.takes_images else set()
            return frozenset({Profile.CONNECTOR, *media})
        if policy == Policy.ALWAYS.value:
            narrow = {Profile.NARROW_EMBEDDING} if self._is_narrow else set()
            # Where ids are used it does not matter why.
            return frozenset({Profile.POLICY_ALWAYS, Profile.CONNECTOR, *narrow})
        refuses = guard.get("without_connector") == WithoutConnector.REJECT.value
        return frozenset({Profile.REJECT if refuses else Profile.NO_CONNECTOR})

    @property
    def _is_narrow(self) -> bool:
        rows, last = self.model_info.embedding_rows, self.model_info.last_known
        return rows is not None and last is not None and last >= rows


def discover(
    client: httpx.Client, *, model: str | None = None, connector: bool | None = None
) -> About:
    """
    Find out what a server is.

    client: its base URL is the server's. model: which of its models to ask; its first if None.
    connector: whether it has a KV connector; found out from its metrics if None.
    Raises ProbeError if it is no server that can be probed.
    """
    try:
        return _discover(client, model, connector)
    except ProbeError:
        raise
    except Exception as error:
        says = f"{_url(client)} answers what no vLLM does ({type(error).__name__}: {error})"
        raise ProbeError(printable(says)) from None


def printable(text: str) -> str:
    """Return what somebody else said as one line that neither steers a terminal nor breaks XML."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def _url(client: httpx.Client) -> str:
    return str(client.base_url.copy_with(username="", password="")).rstrip("/")


def _discover(client: httpx.Client, model: str | None, connector: bool | None) -> About:
    name, context = _find_model(client, model)
    metrics = _get(client, "/metrics").text
    guard = _find_guard(metrics)
    paths = _find_paths(client, name)
    asker = _Asker(client, name, paths)
    forwarded = asker.ids_of([{"role": "user", "content": _QUESTION}])
    if not forwarded:
        raise ProbeError(
            f"{_url(client)} tells the ids of a prompt neither by rendering nor by chatting"
        )
    rows = _find_rows(asker)
    return About(
        url=_url(client),
        version=_find_version(client),
        model=name,
        guard=guard,
        connector=_find_connector(metrics, guard, connector),
        harmony=forwarded[0] == _HARMONY_START,
        paths=paths,
        model_info=ModelInfo(
            forwarded=forwarded,
            # One token of the answer must fit too.
            max_prompt_len=context - 1,
            embedding_rows=rows,
            last_known=_find_last_known(asker, rows),
            placeholder=_find_placeholder(asker),
        ),
    )


@dataclass(frozen=True)
class _Asker:
    client: httpx.Client
    model: str
    paths: frozenset[str]

    def ask(self, path: str, body: dict[str, Any]) -> httpx.Response | None:
        """Send a body to an endpoint; None if the server has none of that path."""
        if path not in self.paths:
            return None
        return _send(self.client, path, {"model": self.model, **body})

    def ids_of(self, messages: list[dict[str, Any]]) -> list[int]:
        """Return the ids of a conversation's prompt; none if the server does not tell them."""
        ways: dict[str, Callable[[Any], Any]] = {
            f"{REFERENCE.path}/render": lambda told: told["token_ids"],
            "/tokenize": lambda told: told["tokens"],
            REFERENCE.path: lambda told: told["prompt_token_ids"],
        }
        body = {"messages": messages}
        for path, ids in ways.items():
            more = {"max_tokens": 1, "return_token_ids": True} if path == REFERENCE.path else {}
            answer = self.ask(path, {**body, **more})
            if answer is not None and answer.status_code == httpx.codes.OK:
                return list(ids(answer.json()) or [])
        return []


def _find_model(client: httpx.Client, wanted: str | None) -> tuple[str, int]:
    answer = _get(client, "/v1/models")
    if answer.status_code in (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN):
        raise ProbeError(f"{_url(client)} wants an API key: give it with --api-key")
    try:
        models = {entry["id"]: entry for entry in answer.json()["data"]}
        name = wanted or next(iter(models))
        return name, _length(models[name]["max_model_len"])
    except (ValueError, TypeError, LookupError, StopIteration):
        kind = f"has no model {wanted!r}" if wanted else "has no vLLM model"
        path = client.base_url.path.rstrip("/")
        hint = "; leave the path out of the URL" if path.endswith("/v1") else ""
        says = f"{_url(client)} {kind} (/v1/models: {answer.status_code}){hint}"
        raise ProbeError(says) from None


def _length(value: object) -> int:
    if type(value) is not int or not 1 < value < _BEYOND_ANY_VOCABULARY:
        raise ProbeError(f"a context of {value!r} tokens is none")
    return value


def _find_version(client: httpx.Client) -> str | None:
    answer = _get(client, "/version")
    try:
        return printable(str(answer.json()["version"]))
    except (ValueError, TypeError, LookupError):
        return None


def _find_guard(metrics: str) -> dict[str, str] | None:
    found = _INFO.search(metrics)
    if not found:
        return None
    labels = {name: printable(value) for name, value in _LABEL.findall(found[1])}
    return {"version": "of an unknown version", **labels}


def _find_connector(metrics: str, guard: dict[str, str] | None, given: bool | None) -> str | None:
    if given is False:
        return None
    if guard is not None and guard.get("kv_connector", "none") != "none":
        return guard["kv_connector"]
    # It has metrics of its own; no other connector of vLLM can be told from outside.
    if "vllm:nixl_" in metrics:
        return NIXL
    return "unknown" if given else None


def _find_paths(client: httpx.Client, model: str) -> frozenset[str]:
    # A render server has routes that it cannot serve.
    plain = {endpoint.path: endpoint.asks for endpoint in ENDPOINTS}
    asked = {**plain, "/detokenize": {"tokens": [1]}}
    return frozenset(
        path
        for path, body in asked.items()
        if _get(client, path).status_code == _NOT_ALLOWED
        and _send(client, path, {"model": model, **body}).is_success
    )


def _find_rows(asker: _Asker) -> int | None:
    # A bias for a token is refused by its id before the engine hears of it, and changes no state.
    def is_known(token: int) -> bool | None:
        body = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1}
        answer = asker.ask(REFERENCE.path, {**body, "logit_bias": {str(token): 1}})
        return None if answer is None else answer.status_code == httpx.codes.OK

    if not is_known(0) or is_known(_BEYOND_ANY_VOCABULARY):
        return None
    return _first_false(is_known, 0, _BEYOND_ANY_VOCABULARY)


def _find_last_known(asker: _Asker, rows: int | None) -> int | None:
    def has_text(token: int) -> bool:
        answer = asker.ask("/detokenize", {"tokens": [token]})
        return answer is not None and answer.is_success and bool(answer.json().get("prompt"))

    if rows is None:
        return None
    if not has_text(rows):
        return rows - 1
    return _first_false(has_text, rows, _BEYOND_ANY_VOCABULARY) - 1


def _find_placeholder(asker: _Asker) -> int | None:
    text = {"type": "text", "text": _QUESTION}
    image = {"type": "image_url", "image_url": {"url": _DOT}}
    plain, with_image = (
        Counter(asker.ids_of([{"role": "user", "content": content}]))
        for content in ([text], [text, image])
    )
    # One image is many of them, between marks of its own.
    more = (with_image - plain).most_common(1)
    return more[0][0] if more else None


def _first_false(holds: Callable[[int], bool | None], low: int, high: int) -> int:
    """Return the first number that does not hold; low holds and high does not."""
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return high


def _get(client: httpx.Client, path: str) -> httpx.Response:
    try:
        return client.get(path)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise ProbeError(f"{_url(client)} cannot be reached: {_why(error)}") from None


def _send(client: httpx.Client, path: str, body: dict[str, Any]) -> httpx.Response:
    try:
        return client.post(path, json=body, headers={"Connection": "close"})
    except httpx.HTTPError as error:
        raise ProbeError(f"{_url(client)}{path} does not answer: {_why(error)}") from None


def _why(error: Exception) -> str:
    return str(error) or type(error).__name__
