"""The responses of HTTP/1.1 as bytes: one writer for each connection, whatever parser reads the requests."""

from __future__ import annotations

from email.utils import formatdate
from http import HTTPStatus
from time import time
from typing import Final

from mcpio.http.checks import Rejection, rejection_body
from mcpio.http.model import Headers
from mcpio.trio._http.parsers import ParsedHead

__all__ = ["LINE_END", "ResponseWriter", "http_date", "plain_text"]

LINE_END: Final = "a header field of a response has the end of a line in it"


class ResponseWriter:
    """Writes one response after the other."""

    closes: bool
    """Whether the connection is not to be used again after the response whose head was written last."""

    def __init__(self) -> None:
        self.closes = False
        self._is_bodiless = self._is_chunked = False

    def head(self, request: ParsedHead | None, status: int, headers: Headers, *, closes: bool) -> bytes:
        """Return the head of the response to a request; ``None`` for what is no request.

        Without ``content-length`` the body comes in chunks, or for a client of HTTP/1.0 to the end of the connection.
        ``closes`` says that the connection is not to be used again in any case. ``ValueError`` for header fields that
        would be more than that.
        """
        lines = [_STATUS_LINES.get(status) or b"HTTP/1.1 %d " % status]
        has_length = status == HTTPStatus.NO_CONTENT
        for name, value in headers:
            has_length = has_length or name == b"content-length"
            lines.append(name + b": " + value)
        lines.append(b"date: " + http_date())
        self._is_bodiless = request is not None and request.method == "HEAD"
        self._is_chunked = not has_length and request is not None and request.is_current
        self.closes = closes or request is None or not request.keeps_alive
        if self._is_chunked:
            lines.append(b"transfer-encoding: chunked")
        if self.closes:
            lines.append(b"connection: close")
        head = b"\r\n".join(lines)
        if head.count(b"\n") != len(lines) - 1 or head.count(b"\r") != len(lines) - 1 or b"\0" in head:
            raise ValueError(LINE_END)
        return head + b"\r\n\r\n"

    def rejection(self, request: ParsedHead, rejection: Rejection) -> bytes:
        """Return the whole response to a request that is not served, which is the last one. ``ValueError`` likewise."""
        body = rejection_body(rejection)
        length = (b"content-length", b"%d" % len(body))
        headers = ((b"content-type", b"application/json"), length, *rejection.headers)
        return self.head(request, rejection.status, headers, closes=True) + self.body(body)

    def upgrade(self, headers: Headers) -> bytes:
        """Return the response to a request for another protocol, which follows."""
        lines = [_STATUS_LINES[101], *(name + b": " + value for name, value in headers), b"", b""]
        return b"\r\n".join(lines)

    def body(self, data: bytes) -> bytes:
        """Return a piece of the body. Of what answers HEAD there is none."""
        if self._is_bodiless or not data:
            return b""
        return b"%x\r\n%b\r\n" % (len(data), data) if self._is_chunked else data

    def end(self) -> bytes:
        """Return the end of the body."""
        return b"0\r\n\r\n" if self._is_chunked and not self._is_bodiless else b""


def plain_text(message: str) -> tuple[Headers, bytes]:
    """Return the header fields and the body of a response that is a message for people."""
    body = message.encode()
    return ((b"content-type", b"text/plain; charset=utf-8"), (b"content-length", b"%d" % len(body))), body


def http_date() -> bytes:
    """Return the time as HTTP has it."""
    now = int(time())
    if _last.second != now:
        _last.second, _last.text = now, formatdate(now, usegmt=True).encode("ascii")
    return _last.text


class _Date:
    second = 0
    text = b""


_last: Final = _Date()
_STATUS_LINES: Final = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}".encode("ascii") for status in HTTPStatus
}
