# SPDX-License-Identifier: Apache-2.0
"""One bad request fails alone: the engine core decodes, checks and lives on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from ...installer import PatchPoints
from ...log import logger
from ...rules.outcome import KV_TRANSFER_PARAMS
from ...server.enforce import check_params
from ...server.forwarded_ids import take_ids
from ...server.metrics import count_dropped_frame, count_params_refused_by_engine_core
from ...server.startup import begin_engine_core

_REQUEST_ID, _CLIENT_INDEX = 0, 11
"""Where an encoded EngineCoreRequest, which is an array, has them in every release."""


@dataclass(frozen=True)
class Undecodable:
    """Stands for a request that could not be decoded; the two fields answer its client."""

    request_id: str | None
    client_index: int
    error: Exception


def apply(points: PatchPoints) -> None:
    """Replace the decoder, and wrap the functions that take requests in."""
    decoder = tolerant(points["MsgpackDecoder"], points["EngineCoreRequest"])
    points.replace("MsgpackDecoder", decoder)
    points.wrap("EngineCore.preprocess_add_request", preprocess_add_request)
    points.wrap("EngineCoreProc._handle_request_preproc_error", answer_failure)
    points.wrap("EngineCoreProc.process_input_sockets", report_and_run)
    run_or_end = ending_with(points["EngineCoreRequestType"])
    points.wrap("EngineCoreProc.process_input_sockets", run_or_end)
    points.wrap("EngineCoreProc.process_output_sockets", run_or_end)


def tolerant(decoder: type, request: type) -> type:
    """
    Return a decoder that returns Undecodable where this one raises for a request.

    decoder: vLLM's MsgpackDecoder. request: its EngineCoreRequest.
    """

    class TolerantDecoder(decoder):  # type: ignore[misc]
        def __init__(self, kind: Any = None, *args: Any, **kwargs: Any) -> None:
            super().__init__(*(() if kind is None else (kind,)), *args, **kwargs)
            self._decodes_requests = kind is request

        def decode(self, bufs: Any) -> Any:
            try:
                return super().decode(bufs)
            except Exception as error:
                if not self._decodes_requests:
                    raise
                return recover(bufs, error)

    return TolerantDecoder


def recover(bufs: Any, error: Exception) -> Undecodable:
    """Read who sent a request that cannot be decoded from its first frame, if that much is good."""
    frame: Any = bufs[0] if isinstance(bufs, (list, tuple)) else bufs
    try:
        fields: Sequence[Any] = msgspec.msgpack.decode(getattr(frame, "buffer", frame))
        return Undecodable(str(fields[_REQUEST_ID]), int(fields[_CLIENT_INDEX]), error)
    except Exception:
        return Undecodable(None, 0, error)


def preprocess_add_request(
    wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """
    Check a request once more: not every front end is vLLM's own in Python.

    Raises VLLMValidationError for bad transfer params, the decoder's error for a request that
    could not be decoded. vLLM then fails that request and nothing else.
    """

    def preprocess(request: Any) -> Any:
        if isinstance(request, Undecodable):
            raise request.error
        params = request.sampling_params
        given = ((params and params.extra_args) or {}).get(KV_TRANSFER_PARAMS)
        take_ids(given)
        check_params(given, instance.vllm_config, count=count_params_refused_by_engine_core)
        return wrapped(request)

    return preprocess(*args, **kwargs)


def answer_failure(
    wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    """Answer the client of a failed request; nobody can be answered if nothing says who it was."""

    def answer(request: Any) -> None:
        if isinstance(request, Undecodable):
            count_dropped_frame()
        if isinstance(request, Undecodable) and request.request_id is None:
            logger.error("A request that cannot be decoded is dropped: %s", request.error)
        else:
            wrapped(request)

    answer(*args, **kwargs)


def report_and_run(
    wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Say that the engine core is guarded when it begins to take requests in."""
    begin_engine_core(instance.vllm_config)
    return wrapped(*args, **kwargs)


def ending_with(request_type: Any) -> Callable[..., Any]:
    """
    Return a wrapper for the work of a thread, without which the engine would only seem alive.

    If it raises, the engine core ends by vLLM's own way for a failed executor, and ``/health``
    fails instead of answering 200 for a server that hangs.
    """

    def work(
        wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        try:
            return wrapped(*args, **kwargs)
        except BaseException:
            logger.exception("A thread of the engine core has died; the engine core ends")
            instance.input_queue.put_nowait((request_type.EXECUTOR_FAILED, b""))
            raise

    return work
