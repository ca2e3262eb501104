# SPDX-License-Identifier: Apache-2.0
"""
What the guard counts, on vLLM's own ``/metrics``.

prometheus_client decides on its import whether a process shares its values with others, and
vLLM says so late: it is imported here when a server begins to serve, and not before.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from ..log import logger
from ..rules.outcome import OF_PARAMS, Outcome, Reason, Reuse

if TYPE_CHECKING:
    from prometheus_client import Counter, Gauge, Histogram

_SHARED = "PROMETHEUS_MULTIPROC_DIR"
"""Where processes share their values; vLLM sets it if it starts several API servers."""

_FILE_BYTES = 65536
"""How long prometheus_client makes a file of values."""

_IDS = (64, 256, 1024, 4096, 16384, 65536, 262144, 1048576)
_SECONDS = (0.00001, 0.00003, 0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1)

_NO_REQUEST: Mapping[str, Any] = {"path": "in process"}
_scope: ContextVar[Mapping[str, Any]] = ContextVar("vllm_reuse_guard_scope", default=_NO_REQUEST)


@dataclass(frozen=True)
class _FrontEnd:
    decisions: Counter
    reused: Histogram
    seconds: Histogram
    refused: Counter
    info: Gauge
    patches: Gauge


@dataclass(frozen=True)
class _EngineCore:
    dropped: Counter
    refused: Counter


class NameEndpoint:
    """ASGI middleware that keeps the scope of a request: decisions are counted by its endpoint."""

    def __init__(self, app: Callable[..., Any]) -> None:
        self._app = app

    def __call__(self, scope: Any, receive: Any, send: Any) -> Any:
        """Call the next one."""
        if scope["type"] == "http":
            _scope.set(scope)
        return self._app(scope, receive, send)


def start_front_end(labels: dict[str, str], patches: list[str]) -> None:
    """Show an API server: labels are those of the info metric, patches those that are active."""
    _front_end().info.labels(**labels).set(1)
    for patch in patches:
        _front_end().patches.labels(patch).set(1)


def show_engine_core(config: Any) -> None:
    """
    Show what the engine cores of an API server count.

    config: its ``VllmConfig``. Raises OSError if there is no place to pass values on.
    """
    if _SHARED not in os.environ:
        _show(_folder(config))


def start_engine_core(config: Any) -> None:
    """
    Have what an engine core counts shown by its API server.

    config: its ``VllmConfig``. Raises OSError if there is no place to pass values on.
    """
    if _SHARED in os.environ:
        _engine_core()
        return
    with _sharing_values(_folder(config)):
        _engine_core()


def count_decision(outcome: Outcome) -> None:
    """Count what became of the ids of a request."""
    kind = type(outcome).__name__.lower()
    _front_end().decisions.labels(kind, outcome.reason.value, _endpoint()).inc()
    if isinstance(outcome, Reuse):
        _front_end().reused.observe(len(outcome.ids))


@contextmanager
def timing_decision() -> Iterator[None]:
    """Measure how long a decision takes."""
    begin = perf_counter()
    try:
        yield
    finally:
        _front_end().seconds.observe(perf_counter() - begin)


def count_refused_params(reason: Reason) -> None:
    """Count a request that the front end refused for its transfer params."""
    _front_end().refused.labels(reason.value, _endpoint()).inc()


def count_params_refused_by_engine_core(reason: Reason) -> None:
    """Count a request that the engine core refused for its transfer params."""
    _engine_core().refused.labels(reason.value).inc()


def count_dropped_frame() -> None:
    """Count a frame that the engine core could not decode."""
    _engine_core().dropped.inc()


def _endpoint() -> str:
    # The route's own path: clients can write it in several ways.
    scope = _scope.get()
    return str(getattr(scope.get("route"), "path", scope["path"]))


@cache
def _front_end() -> _FrontEnd:
    from prometheus_client import Counter, Gauge, Histogram

    return _FrontEnd(
        decisions=Counter(
            "reuse_guard_decisions",
            "Requests with forwarded prompt token ids, by what became of the ids and why.",
            ("outcome", "reason", "endpoint"),
        ),
        reused=Histogram(
            "reuse_guard_reused_prompt_tokens",
            "How many prompt token ids were reused, by request.",
            buckets=_IDS,
        ),
        seconds=Histogram(
            "reuse_guard_decision_seconds",
            "How long the decision about forwarded ids took.",
            buckets=_SECONDS,
        ),
        refused=Counter(
            "reuse_guard_refused_transfer_params",
            "Requests that the front end refused for their KV transfer params.",
            ("reason", "endpoint"),
        ),
        info=Gauge(
            "reuse_guard_info",
            "The guard of this server, and its settings.",
            (
                "version",
                "policy",
                "without_connector",
                "kv_connector",
                "allowed_peers",
                "emits_ids",
            ),
            multiprocess_mode="max",
        ),
        patches=Gauge(
            "reuse_guard_patch_info",
            "The patches that are active in the API server.",
            ("patch",),
            multiprocess_mode="max",
        ),
    )


@cache
def _engine_core() -> _EngineCore:
    from prometheus_client import Counter

    made = _EngineCore(
        dropped=Counter(
            "reuse_guard_engine_core_dropped_frames",
            "Frames that the engine core could not decode; each was one request.",
        ),
        refused=Counter(
            "reuse_guard_engine_core_refused_transfer_params",
            "Requests that the engine core refused for their KV transfer params.",
            ("reason",),
        ),
    )
    # All of them now: a value is put where values are put while it is made.
    for reason in OF_PARAMS:
        made.refused.labels(reason.value)
    return made


def _folder(config: Any) -> Path:
    # The API server gives its engine cores its own configuration, with this id of one server.
    return Path(tempfile.gettempdir(), f"vllm-reuse-guard-{config.instance_id}")


@contextmanager
def _sharing_values(folder: Path) -> Iterator[None]:
    from prometheus_client import values

    folder.mkdir(mode=0o700, exist_ok=True)
    # A file that was only made long enough kills the process that writes to it on a full disk.
    (folder / f"counter_{os.getpid()}.db").write_bytes(bytes(_FILE_BYTES))
    own = values.ValueClass
    values.ValueClass = values.MultiProcessValue()  # type: ignore[no-untyped-call]
    os.environ[_SHARED] = str(folder)
    try:
        yield
    finally:
        del os.environ[_SHARED]
        values.ValueClass = own


@cache
def _show(folder: Path) -> None:
    from prometheus_client import REGISTRY, Metric
    from prometheus_client.multiprocess import MultiProcessCollector

    class Collector(MultiProcessCollector):
        def collect(self) -> Iterable[Metric]:
            # What somebody did to the folder must not take vLLM's own metrics away.
            try:
                return list(super().collect())  # type: ignore[no-untyped-call]
            except Exception:
                logger.warning("The counters in %s cannot be read", folder, exc_info=True)
                return []

    folder.mkdir(mode=0o700, exist_ok=True)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    Collector(REGISTRY, path=str(folder))  # type: ignore[no-untyped-call]
