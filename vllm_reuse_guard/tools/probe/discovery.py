# SPDX-License-Identifier: Apache-2.0
"""Find out what a server is, with requests that cannot harm it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import httpx

from ...rules.outcome import KV_TRANSFER_PARAMS
from ..conformance.endpoints import ENDPOINTS, REFERENCE
from ..conformance.profiles import ALLOWED_PEER, UNLISTED_NAME, Observed, Profile
from ..conformance.values import ModelInfo

NIXL = "NixlConnector"
"""The connector that the cases about transfer params are about."""

_HARMONY_START = 200006
"""The ID of <|start|>, the first token of every prompt of a Harmony model."""

_BEYOND_ANY_VOCABULARY = 2**24
_NOT_ALLOWED = 405
_DOT = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9Q"
    "DwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
_QUESTION = "What is for dinner, and is there enough of it for everybody?"
_INFO = re.compile(r"^reuse_guard_info\{(.*)\} 1(?:\.0)?$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')
_ANY_PEER = "any"
"""The guard's label for allowed peers on a server without a list of them."""

_READERS: dict[str, Callable[[Any], Any]] = {
    f"{REFERENCE.path}/render": lambda body: body["token_ids"],
    "/tokenize": lambda body: body["tokens"],
    REFERENCE.path: lambda body: body["prompt_token_ids"],
}
"""How to read the token IDs of a prompt, by endpoint; the cheapest endpoint first."""


class ProbeError(Exception):
    """A server cannot be probed. The message is one line with the reason."""


@dataclass(frozen=True)
class ServerInfo:
    """
    What the probe found out about a server.

    version: of vLLM, None if the server does not show it. guard: the labels of the guard's info
    metric, None without a guard. connector: the name of the KV connector, None without one.
    harmony: whether the model is a Harmony model. paths: the endpoints of the server.
    allowed_peers: the hosts that requests may name, out of those that the cases name; empty
    without a guard that has a list of allowed peers.
    """

    url: str
    version: str | None
    model: str
    guard: dict[str, str] | None
    connector: str | None
    harmony: bool
    paths: frozenset[str]
    model_info: ModelInfo
    allowed_peers: frozenset[str] = frozenset()

    @property
    def takes_images(self) -> bool:
        """Whether the model takes images."""
        return self.model_info.placeholder is not None

    @property
    def profiles(self) -> frozenset[Profile]:
        """The profiles whose cases are about this server."""
        labels = self.guard or {}
        observed = Observed(
            policy=labels.get("policy", Observed.policy),
            without_connector=labels.get("without_connector", Observed.without_connector),
            connector=self.connector is not None,
            allowed_peers=_has_allowed_peers(self.guard),
            takes_images=self.takes_images,
            narrow_embedding=self.model_info.has_narrow_embedding,
        )
        return frozenset(profile for profile in Profile if profile.matches(observed))


def discover(
    client: httpx.Client, *, model: str | None = None, connector: bool | None = None
) -> ServerInfo:
    """
    Find out what a server is.

    client: its base URL is the server's. model: the model to ask; None: the server's first.
    connector: whether the server has a KV connector; None: as its metrics say.
    Raises ProbeError if the server cannot be probed.
    """
    try:
        return _discover(client, model, connector)
    except ProbeError:
        raise
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
        message = f"{_url(client)} does not look like a vLLM server ({why})"
        raise ProbeError(printable(message)) from None


def printable(text: str) -> str:
    """Return a server's text as one line that neither controls a terminal nor breaks XML."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def _url(client: httpx.Client) -> str:
    return str(client.base_url.copy_with(username="", password="")).rstrip("/")


def _discover(client: httpx.Client, model: str | None, connector: bool | None) -> ServerInfo:
    name, context = _find_model(client, model)
    metrics = _get(client, "/metrics").text
    guard = _find_guard(metrics)
    paths = _find_paths(client, name)
    asker = _Asker(client, name, paths)
    forwarded = asker.prompt_ids([{"role": "user", "content": _QUESTION}])
    if not forwarded:
        raise ProbeError(
            f"{_url(client)} returns the token IDs of a prompt from none of {', '.join(_READERS)}"
        )
    rows = _find_rows(asker)
    return ServerInfo(
        url=_url(client),
        version=_find_version(client),
        model=name,
        guard=guard,
        connector=_find_connector(metrics, guard, connector),
        harmony=forwarded[0] == _HARMONY_START,
        paths=paths,
        model_info=ModelInfo(
            forwarded=forwarded,
            # One generated token must fit too.
            max_prompt_len=context - 1,
            embedding_rows=rows,
            last_known=_find_last_known(asker, rows),
            placeholder=_find_placeholder(asker),
        ),
        allowed_peers=_find_allowed_peers(asker) if _has_allowed_peers(guard) else frozenset(),
    )


@dataclass(frozen=True)
class _Asker:
    client: httpx.Client
    model: str
    paths: frozenset[str]

    def ask(self, path: str, body: dict[str, Any]) -> httpx.Response | None:
        """Send a body to an endpoint. Returns None if the server does not have the endpoint."""
        if path not in self.paths:
            return None
        return _send(self.client, path, {"model": self.model, **body})

    def prompt_ids(self, messages: list[dict[str, Any]]) -> list[int]:
        """Return the token IDs of a conversation; empty if no endpoint returns them."""
        for path, read in _READERS.items():
            more = {"max_tokens": 1, "return_token_ids": True} if path == REFERENCE.path else {}
            answer = self.ask(path, {"messages": messages, **more})
            if answer is not None and answer.status_code == httpx.codes.OK:
                return list(read(answer.json()) or [])
        return []

    def serves(self, **body: Any) -> bool | None:
        """Tell whether a small chat with these fields is answered; None without the endpoint."""
        chat = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1}
        answer = self.ask(REFERENCE.path, {**chat, **body})
        return None if answer is None else answer.status_code == httpx.codes.OK


def _find_model(client: httpx.Client, wanted: str | None) -> tuple[str, int]:
    answer = _get(client, "/v1/models")
    if answer.status_code in (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN):
        raise ProbeError(f"{_url(client)} requires an API key: pass it with --api-key")
    try:
        models = {entry["id"]: entry for entry in answer.json()["data"]}
        name = wanted or next(iter(models))
        return name, _length(models[name]["max_model_len"])
    except (ValueError, TypeError, LookupError, StopIteration):
        problem = f"has no model {wanted!r}" if wanted else "does not look like a vLLM server"
        path = client.base_url.path.rstrip("/")
        hint = "; remove the path from the URL" if path.endswith("/v1") else ""
        status = f"/v1/models returned status {answer.status_code}"
        raise ProbeError(f"{_url(client)} {problem} ({status}){hint}") from None


def _length(value: object) -> int:
    if type(value) is not int or not 1 < value < _BEYOND_ANY_VOCABULARY:
        raise ProbeError(f"invalid max_model_len: expected an integer above 1, got {value!r}")
    return value


def _find_version(client: httpx.Client) -> str | None:
    answer = _get(client, "/version")
    try:
        return printable(str(answer.json()["version"]))
    except (ValueError, TypeError, LookupError):
        return None


def _find_guard(metrics: str) -> dict[str, str] | None:
    info = _INFO.search(metrics)
    if not info:
        return None
    labels = {name: printable(value) for name, value in _LABEL.findall(info[1])}
    return {"version": "(unknown version)", **labels}


def _has_allowed_peers(guard: dict[str, str] | None) -> bool:
    return guard is not None and guard.get("allowed_peers", _ANY_PEER) != _ANY_PEER


def _find_allowed_peers(asker: _Asker) -> frozenset[str]:
    # Not a pull: the server compares the host with its list, and dials nothing.
    hosts = (ALLOWED_PEER, UNLISTED_NAME)
    return frozenset(
        host for host in hosts if asker.serves(**{KV_TRANSFER_PARAMS: {"remote_host": host}})
    )


def _find_connector(metrics: str, guard: dict[str, str] | None, option: bool | None) -> str | None:
    if option is False:
        return None
    if guard is not None and guard.get("kv_connector", "none") != "none":
        return guard["kv_connector"]
    # NixlConnector has metrics. Plain vLLM shows no other connector to a client.
    if "vllm:nixl_" in metrics:
        return NIXL
    return "unknown" if option else None


def _find_paths(client: httpx.Client, model: str) -> frozenset[str]:
    # A render server has routes that it cannot serve.
    bodies = {endpoint.path: endpoint.plain_body for endpoint in ENDPOINTS}
    return frozenset(
        path
        for path, body in {**bodies, "/detokenize": {"tokens": [1]}}.items()
        if _get(client, path).status_code == _NOT_ALLOWED
        and _send(client, path, {"model": model, **body}).is_success
    )


def _find_rows(asker: _Asker) -> int | None:
    # The API server refuses a bias for an unknown token before the engine sees the request.
    def is_known(token: int) -> bool | None:
        return asker.serves(logit_bias={str(token): 1})

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
        Counter(asker.prompt_ids([{"role": "user", "content": content}]))
        for content in ([text], [text, image])
    )
    # One image is many placeholders, between a start and an end token.
    more = (with_image - plain).most_common(1)
    return more[0][0] if more else None


def _first_false(holds: Callable[[int], bool | None], low: int, high: int) -> int:
    """Return the first number for which the predicate is false: true for low, false for high."""
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return high


def _get(client: httpx.Client, path: str) -> httpx.Response:
    try:
        return client.get(path)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise ProbeError(f"cannot reach {_url(client)}: {_why(error)}") from None


def _send(client: httpx.Client, path: str, body: dict[str, Any]) -> httpx.Response:
    try:
        return client.post(path, json=body, headers={"Connection": "close"})
    except httpx.HTTPError as error:
        raise ProbeError(f"no answer from {_url(client)}{path}: {_why(error)}") from None


def _why(error: Exception) -> str:
    return str(error) or type(error).__name__
