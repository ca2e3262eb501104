# SPDX-License-Identifier: Apache-2.0
"""Answers that end: within a time and a size, whatever a server sends."""

from __future__ import annotations

import time
from collections.abc import Iterator

import httpx

_MOST_BYTES = 64 * 1024 * 1024
"""Far more than an answer to a case, far less than what fills the memory."""


class BoundedTransport(httpx.HTTPTransport):
    """
    Gives an answer up that takes longer than a time-out as a whole, or is very large.

    seconds: for one answer. httpx's own time-outs are for each piece of it.
    """

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._seconds = seconds

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send one request; raises httpx.ReadTimeout or ReadError while the answer is read."""
        deadline = time.monotonic() + self._seconds
        response = super().handle_request(request)
        response.stream = _Bounded(response.stream, deadline)
        return response


class _Bounded(httpx.SyncByteStream):
    def __init__(self, stream: object, deadline: float) -> None:
        assert isinstance(stream, httpx.SyncByteStream)  # noqa: S101 - for the type alone
        self._stream = stream
        self._deadline = deadline

    def __iter__(self) -> Iterator[bytes]:
        size = 0
        for piece in self._stream:
            size += len(piece)
            if time.monotonic() > self._deadline:
                raise httpx.ReadTimeout("the answer does not end")
            if size > _MOST_BYTES:
                raise httpx.ReadError(f"the answer has more than {_MOST_BYTES} bytes")
            yield piece

    def close(self) -> None:
        """Let go of the connection, whether all was read or not."""
        self._stream.close()
