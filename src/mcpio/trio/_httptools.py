"""The parser on httptools, which is written in C: for servers that have the ``httptools`` extra installed."""

from __future__ import annotations

from collections import deque
from http import HTTPStatus
from typing import Final, TypeAlias

import attrs
import httptools

from mcpio.http.model import Headers
from mcpio.trio._http_parsers import BadRequest, Fed, HeadRead, Mark, date

__all__ = ["HttptoolsParser"]


class HttptoolsParser:
    """The same as ``H11Parser``. It is fed no more than one read gives, which bounds what it keeps ahead."""

    def __init__(self, head_bytes: int) -> None:
        self._head_bytes = head_bytes
        self._events: deque[_Event] = deque()
        self._since_event = 0
        self._is_over = self._is_paused = False
        # The request that is being answered, and how its response is written.
        self._request = _NONE
        self._expects = self._is_chunked = self._closes = False
        # The request that is being parsed.
        self._parser = httptools.HttpRequestParser(self)
        self._is_between = True
        self._is_repeated = False
        self._framing = b""
        self._target = b""
        self._fields: list[tuple[bytes, bytes]] = []

    # Reading

    def feed(self, data: bytes) -> None:
        """Take in what arrived."""
        if self._is_over:
            return
        if not data:
            self._is_over = True
            self._events.append(Mark.CLOSED if self._is_between else BadRequest(400, "the request broke off"))
            return
        known = len(self._events)
        self._parse(data)
        if len(self._events) > known:
            self._since_event = 0
            return
        self._since_event += len(data)
        if self._since_event > self._head_bytes:
            self._fail(431, "the head of the request, or a line of its body, is too long")

    def next_event(self) -> Fed | None:
        """Return what comes next."""
        if self._is_paused or not self._events:
            return None
        event = self._events.popleft()
        if event.__class__ is bytes:
            self._expects = False
        elif event is Mark.END:
            self._is_paused = True
        elif isinstance(event, BadRequest):
            raise event
        elif isinstance(event, _Request):
            self._request, self._expects = event, event.expects
            return event.head
        return event

    @property
    def has_more(self) -> bool:
        """Whether something was fed that no event told of yet."""
        return bool(self._events) or not self._is_between

    @property
    def wants_continue(self) -> bool:
        """Whether the client waits for leave to send the body."""
        return self._expects

    def leave_to_continue(self) -> bytes:
        """Return what gives that leave."""
        self._expects = False
        return b"HTTP/1.1 100 Continue\r\n\r\n"

    # Writing

    def head(self, status: int, headers: Headers, *, closes: bool) -> bytes:
        """Return the head of the response. ``ValueError`` for what would be more than that."""
        lines = [_STATUS_LINES.get(status) or b"HTTP/1.1 %d " % status, b"date: " + date()]
        has_length = status in _BODILESS
        for name, value in headers:
            has_length = has_length or name == b"content-length"
            lines.append(name + b": " + value)
        self._is_chunked = not has_length and self._request.is_current
        self._closes = closes or not self._request.keeps_alive or not (has_length or self._is_chunked)
        if self._is_chunked:
            lines.append(b"transfer-encoding: chunked")
        if self._closes:
            lines.append(b"connection: close")
        head = b"\r\n".join(lines)
        if head.count(b"\n") != len(lines) - 1 or head.count(b"\r") != len(lines) - 1 or b"\0" in head:
            raise ValueError("a header field of a response has the end of a line in it")
        return head + b"\r\n\r\n"

    def body(self, data: bytes) -> bytes:
        """Return a piece of the body of the response."""
        if self._request.head.method == "HEAD" or not data:
            return b""
        return b"%x\r\n%b\r\n" % (len(data), data) if self._is_chunked else data

    def end(self) -> bytes:
        """Return the end of the response."""
        return b"0\r\n\r\n" if self._is_chunked and self._request.head.method != "HEAD" else b""

    def next_cycle(self) -> bool:
        """Begin the next request, if there may be one."""
        if self._closes or not self._is_paused:
            return False
        self._is_paused = False
        return True

    # What httptools calls

    def on_message_begin(self) -> None:
        """Take note that a request begins."""
        self._is_between = False
        self._target = b""
        self._fields = []

    def on_url(self, url: bytes) -> None:
        """Take in a piece of the target."""
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take in a header field; or one after the body, which nobody asks for."""
        self._fields.append((name.lower(), value.rstrip(b" \t")))

    def on_headers_complete(self) -> None:
        """Hand over the head of a request."""
        if self._is_repeated:
            self._is_repeated = False
            return
        parser, fields = self._parser, self._fields
        version = parser.get_http_version()
        is_current = version == "1.1"
        found = {name: value for name, value in fields if name in _FRAMING}
        hosts = sum(name == b"host" for name, _ in fields)
        if not is_current and version != "1.0":
            self._fail(505, "only HTTP/1.1 and HTTP/1.0 are served here")
        elif hosts != 1 and (is_current or hosts):
            self._fail(400, "there must be one Host")
        elif found.get(b"transfer-encoding", b"chunked").lower() != b"chunked":
            self._fail(501, "of transfer encodings, only chunked is served here")
        if parser.should_upgrade():
            self._framing = b"".join(b"%b: %b\r\n" % field for field in found.items() if field[0] != b"expect")
        head = HeadRead(parser.get_method().decode("ascii"), self._target.decode("latin-1"), tuple(fields))
        expects = is_current and found.get(b"expect", b"").lower() == b"100-continue"
        self._events.append(_Request(head, is_current, is_current and parser.should_keep_alive(), expects))

    def on_body(self, body: bytes) -> None:
        """Hand over a piece of a body."""
        self._events.append(body)

    def on_message_complete(self) -> None:
        """Hand over the end of a request. One that would change protocols only seems to have none."""
        if not self._framing:
            self._is_between = True
            self._events.append(Mark.END)

    def _parse(self, data: bytes) -> None:
        while data:
            try:
                self._parser.feed_data(data)
            except httptools.HttpParserUpgrade as upgrade:
                data = data[upgrade.args[0] :]
                self._go_on_without_upgrade()
            except httptools.HttpParserError as error:
                self._fail(400, f"{error}")
            else:
                return
            if self._is_over:
                return

    def _go_on_without_upgrade(self) -> None:
        """Read on after a request for another protocol as one may that does not care for it (RFC 9110 section 7.8).

        httptools leaves what follows such a request, its body too, to whoever speaks that protocol.
        """
        self._parser = httptools.HttpRequestParser(self)
        if self._framing:
            framing, self._framing = self._framing, b""
            self._is_repeated = True
            self._parser.feed_data(b"POST / HTTP/1.1\r\n" + framing + b"\r\n")

    def _fail(self, status: int, message: str) -> None:
        self._is_over = True
        self._events.append(BadRequest(status, message))


@attrs.define  # Frozen would cost more than all the rest of it.
class _Request:
    head: HeadRead
    is_current: bool
    """Whether it is of HTTP/1.1."""
    keeps_alive: bool
    expects: bool


_Event: TypeAlias = _Request | bytes | Mark | BadRequest

_NONE: Final = _Request(HeadRead("", "", ()), is_current=False, keeps_alive=False, expects=False)
_FRAMING: Final = frozenset({b"content-length", b"transfer-encoding", b"expect"})
_BODILESS: Final = frozenset({HTTPStatus.NO_CONTENT.value, HTTPStatus.NOT_MODIFIED.value})
_STATUS_LINES: Final = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}".encode("ascii") for status in HTTPStatus
}
