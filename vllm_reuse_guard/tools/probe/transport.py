# SPDX-License-Identifier: Apache-2.0
"""A transport with limits on the time and the size of a whole response."""

from __future__ import annotations

import time
from collections.abc import Iterator

import httpx

_MOST_BYTES = 64 * 1024 * 1024
"""Far more than any response to a case, and far less than would fill the memory."""


class BoundedTransport(httpx.HTTPTransport):
    """
    Gives up on a response that takes too long as a whole, or is too large.

    seconds: for one response. httpx's own time-outs apply to each piece of it.
    """

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._seconds = seconds

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send one request. Reading the response raises httpx.ReadTimeout or httpx.ReadError."""
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
                raise httpx.ReadTimeout("the response does not end")
            if size > _MOST_BYTES:
                raise httpx.ReadError(f"the response has more than {_MOST_BYTES} bytes")
            yield piece

    def close(self) -> None:
        """Close the connection, even if the response was not read whole."""
        self._stream.close()
