"""HTTP/1.1 responses as bytes. Each connection has one writer, for either parser."""

from __future__ import annotations

from email.utils import formatdate
from http import HTTPStatus
from time import time
from typing import Final

from mcpio.http.checks import Rejection, rejection_body
from mcpio.http.model import Headers
from mcpio.trio._http.parsers import ParsedHead

__all__ = ["LINE_END", "ResponseWriter", "http_date", "plain_text"]

LINE_END: Final = "a response header field contains a line end"


class ResponseWriter:
    """Encodes the responses of one connection, one after the other."""

    closes: bool
    """Whether the head written last ends the connection after its response."""

    def __init__(self) -> None:
        self.closes = False
        self._is_bodiless = self._is_chunked = False

    def head(self, request: ParsedHead | None, status: int, headers: Headers, *, closes: bool) -> bytes:
        """Return the head of a response; ``request`` is None if no request could be parsed.

        Without ``content-length`` the body is chunked, or for an HTTP/1.0 client ends with the connection.
        ``closes`` ends the connection after this response in any case. Raises ValueError for a header field that
        would be read as several.
        """
        lines = [_STATUS_LINES.get(status) or b"HTTP/1.1 %d " % status]
        has_length = status == HTTPStatus.NO_CONTENT
        for name, value in headers:
            has_length = has_length or name == b"content-length"
            lines.append(name + b": " + value)
        lines.append(b"date: " + http_date())
        self._is_bodiless = request is not None and request.method == "HEAD"
        # HTTP/1.0 has no chunks, so the end of the connection is the end of the body.
        self._is_chunked = not has_length and request is not None and request.is_current
        self.closes = closes or request is None or not request.keeps_alive
        if self._is_chunked:
            lines.append(b"transfer-encoding: chunked")
        if self.closes:
            lines.append(b"connection: close")
        head = b"\r\n".join(lines)
        # A value may come from a handler: a line end in it would let it add fields, or a whole response.
        if head.count(b"\n") != len(lines) - 1 or head.count(b"\r") != len(lines) - 1 or b"\0" in head:
            raise ValueError(LINE_END)
        return head + b"\r\n\r\n"

    def rejection(self, request: ParsedHead, rejection: Rejection) -> bytes:
        """Return a whole response that rejects a request and ends the connection. Raises ValueError as ``head``."""
        body = rejection_body(rejection)
        length = (b"content-length", b"%d" % len(body))
        headers = ((b"content-type", b"application/json"), length, *rejection.headers)
        return self.head(request, rejection.status, headers, closes=True) + self.body(body)

    def upgrade(self, headers: Headers) -> bytes:
        """Return the ``101`` response after which the other protocol begins."""
        lines = [_STATUS_LINES[101], *(name + b": " + value for name, value in headers), b"", b""]
        return b"\r\n".join(lines)

    def body(self, data: bytes) -> bytes:
        """Return a piece of the body. Responses to HEAD have none."""
        if self._is_bodiless or not data:
            return b""
        # An empty chunk would be the end of the body (RFC 9112 section 7.1).
        return b"%x\r\n%b\r\n" % (len(data), data) if self._is_chunked else data

    def end(self) -> bytes:
        """Return the end of the body."""
        return b"0\r\n\r\n" if self._is_chunked and not self._is_bodiless else b""


def plain_text(message: str) -> tuple[Headers, bytes]:
    """Return the header fields and the body of a plain-text response."""
    body = message.encode()
    return ((b"content-type", b"text/plain; charset=utf-8"), (b"content-length", b"%d" % len(body))), body


def http_date() -> bytes:
    """Return the time in the format of HTTP (RFC 9110 section 5.6.7)."""
    now = int(time())
    if _last.second != now:
        _last.second, _last.text = now, formatdate(now, usegmt=True).encode("ascii")
    return _last.text


class _Date:
    """The date formatted last: formatting takes longer than the rest of a head."""

    second = 0
    text = b""


_last: Final = _Date()
_STATUS_LINES: Final = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}".encode("ascii") for status in HTTPStatus
}
