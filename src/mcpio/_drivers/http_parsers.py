"""Parsers and writers of HTTP/1.1."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Awaitable, Callable, Hashable
from email.utils import formatdate
from enum import Enum
from http import HTTPStatus
from math import inf
from time import time
from typing import Final, Literal, Protocol, TypeAlias

import attrs
import h11

from mcpio._checks import is_count, required
from mcpio._drivers import LOOKUP_TIMEOUT
from mcpio._drivers.socket_server import SocketPeer
from mcpio.engine.limits import is_time, without_limit
from mcpio.http.checks import Rejection, rejection_body
from mcpio.http.model import Denied, Headers, RequestHead, names_of

# --------------------------------------------------------------------------------------------------------------- config
# Settings that the connections of an HTTP server share in every version: timeouts and principals.


def _check_rate(_: object, field: attrs.Attribute[float], value: object) -> None:
    if not isinstance(value, int | float) or isinstance(value, bool) or not value > 0:  # not "<= 0": a NaN passes that
        raise ValueError(f"{field.name} must be a number of bytes a second above 0, not {value!r:.60}")


@attrs.frozen(kw_only=True)
class HttpTimeouts:
    """How long a client may take, in seconds; ``None`` for ever."""

    head: float | None = attrs.field(default=10.0, converter=without_limit, validator=is_time)
    """For the TLS handshake, and for a request head: from its first byte, or from the beginning of the connection."""
    body: float | None = attrs.field(default=30.0, converter=without_limit, validator=is_time)
    """For a request body, in addition to the time that its bytes earn by ``rate``. In HTTP/2 it restarts as long as
    other bodies on the connection arrive at that rate."""
    idle: float | None = attrs.field(default=75.0, converter=without_limit, validator=is_time)
    """From the end of a response to the next request."""
    write: float | None = attrs.field(default=30.0, converter=without_limit, validator=is_time)
    """For reading a piece of a response, in addition to the time that its bytes earn by ``rate``. A client that takes
    longer is disconnected."""
    lookup: float | None = attrs.field(default=LOOKUP_TIMEOUT, converter=without_limit, validator=is_time)
    """For ``principal`` or ``auth`` to find out whose a request is; then it is answered with 503. The client waits, and
    what it has sent is held."""
    rate: float = attrs.field(default=4096.0, validator=_check_rate)
    """The least average bytes a second at which bodies and responses must progress. Longer ones may take longer."""

    def to_read(self, size: int) -> float:
        """Return how long a client may take to read ``size`` bytes; infinity for ever."""
        return inf if self.write is None else self.write + size / self.rate


FindPrincipal: TypeAlias = "Callable[[RequestHead, SocketPeer], Hashable | Denied | Awaitable[Hashable | Denied]]"
"""Returns the principal of a request, or ``Denied``."""


# -------------------------------------------------------------------------------------------------------------- parsers
# Parsers of HTTP/1.1 requests, one on h11 and one on httptools, behind one strict check of request heads.
# A parser belongs to one connection: ``feed`` takes bytes, ``next_event`` returns one event at a time. A parser decides
# syntax only. ``mcpio._drivers.http_parsers`` writes the responses, whichever parser read the request.

try:
    import httptools
except ModuleNotFoundError:
    HAS_HTTPTOOLS = False
else:
    HAS_HTTPTOOLS = True


ParserName: TypeAlias = Literal["auto", "h11", "httptools"]
"""``"auto"`` is httptools where it is installed, and h11 otherwise."""


class ParserMark(Enum):
    """Parser events that carry no data."""

    END = "end"
    """The request is complete."""
    CLOSED = "closed"
    """The client closed its side between two requests."""


@attrs.define  # Frozen would cost more than everything else in it.
class ParsedHead:
    """The head of a request."""

    method: str
    target: str
    headers: Headers = attrs.field(repr=names_of)
    """Names are in lower case."""
    is_current: bool
    """Whether the version is HTTP/1.1 rather than HTTP/1.0."""
    keeps_alive: bool
    """Whether the client may send another request on this connection; never true for HTTP/1.0."""
    expects: bool
    """Whether the client waits for ``100 Continue`` before it sends the body (RFC 9110 section 10.1.1)."""


ParserEvent: TypeAlias = ParsedHead | bytes | ParserMark
"""A head, then pieces of the body, then ``ParserMark.END``; or ``ParserMark.CLOSED``."""


class BadRequest(Exception):
    """The bytes are not a request that can be served. The connection cannot be used after it."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Parser(Protocol):
    """Reads the requests of one connection."""

    def feed(self, data: bytes) -> None:
        """Process received bytes; ``b""`` is the end of input."""

    def next_event(self) -> ParserEvent | None:
        """Return the next event of the current request; ``None`` means "feed me".

        After ``ParserMark.END`` there are no events before ``next_cycle``. Raises BadRequest.
        """

    @property
    def has_more(self) -> bool:
        """Whether bytes were fed that no event has reported yet."""

    def next_cycle(self) -> None:
        """Start the next request, after ``ParserMark.END`` of one that keeps the connection alive."""

    def take_rest(self) -> bytes:
        """Return the bytes after the last head, once its request has switched protocols.

        Such a request has no body. The parser gives no event after this.
        """


def new_parser(name: ParserName, head_bytes: int) -> Parser:
    """Return a parser that rejects heads longer than about ``head_bytes``.

    Raises ImportError if the parser is not installed, TypeError or ValueError for an invalid argument.
    """
    if not is_count(required("head_bytes", head_bytes, int), 1):
        raise ValueError(f"head_bytes must be 1 or more, not {head_bytes!r:.60}")
    if name == "auto":
        return HttptoolsParser(head_bytes) if HAS_HTTPTOOLS else H11Parser(head_bytes)
    if name == "h11":
        return H11Parser(head_bytes)
    if name == "httptools":
        if not HAS_HTTPTOOLS:
            raise ImportError("parser='httptools' needs httptools: install mcpio[httptools]", name="httptools")
        return HttptoolsParser(head_bytes)
    raise ValueError(f"parser must be 'auto', 'h11' or 'httptools', not {name!r:.100}")


def parsed_head(method: bytes, target: bytes, headers: Headers, version: bytes) -> ParsedHead:
    """Return the head of a request from its parts; names must be in lower case already.

    Raises BadRequest unless there is exactly one ``Host``, or none in HTTP/1.0 (RFC 9112 section 3.2).
    """
    is_current = version == b"1.1"
    keeps_alive, expects, hosts = is_current, False, 0
    for name, value in headers:
        if name == b"host":
            hosts += 1
        elif name == b"connection":
            keeps_alive = keeps_alive and b"close" not in [token.strip() for token in value.lower().split(b",")]
        elif name == b"expect":
            expects = is_current and value.lower() == b"100-continue"
    if hosts != 1 and (is_current or hosts):
        raise BadRequest(400, "expected exactly one Host header")
    return ParsedHead(method.decode("ascii"), target.decode("latin-1"), headers, is_current, keeps_alive, expects)


class HeadBuffer:
    """Collects the head of a request and rejects any head that could be read in two ways.

    RFC 9112 leaves it to the recipient whether to accept lines that end in LF alone, folded lines, repeated spaces or
    equal Content-Length fields. Each library accepts some of these, and a proxy in front may accept others: the proxy
    and this server could then see different requests in the same bytes (request smuggling). This check rejects all of
    them before a library sees the head, so both parsers read the same requests.
    """

    __slots__ = ("_bytes", "_last", "_limit")

    def __init__(self, limit: int) -> None:
        """Reject heads of more than ``limit`` bytes."""
        self._bytes = bytearray()
        self._last = b""
        self._limit = limit

    def __bool__(self) -> bool:
        """Whether it holds the beginning of a head."""
        return bool(self._bytes)

    def feed(self, data: bytes) -> tuple[bytes, bytes] | None:
        """Add bytes; return the head and the bytes after it once the head is complete. Raises BadRequest."""
        held = self._bytes
        if not held:
            # Some clients end a body with an empty line that belongs to neither request (RFC 9112 section 2.2).
            data = data.lstrip(b"\r\n")
        start = len(held)
        held += data
        # The end may straddle two reads; what is before the last three bytes was searched already.
        end = held.find(_HEAD_END, max(start - 3, 0))
        if (len(held) if end < 0 else end) > self._limit:
            raise BadRequest(431, "the request head is too long")
        if end < 0:
            if _FORBIDDEN.search(held, start):
                # Reject without waiting for the end of the head: a client that does not speak HTTP may never send one.
                raise BadRequest(400, "control character, or line ending in LF without CR, in the request head")
            return None
        head, rest = bytes(held[: end + 4]), bytes(held[end + 4 :])
        held.clear()
        # Most clients send one head again and again: their session, and often the length of the body, stay the same.
        if head != self._last:
            _check_head(head)  # raises before the head is remembered
            self._last = head if len(head) <= _REMEMBERED else b""
        return head, rest


def _check_head(head: bytes) -> None:
    """Raise BadRequest unless a head is strictly that of a request, with framing that has one reading."""
    match = _HEAD.fullmatch(head)
    if match is None:
        raise BadRequest(400, "malformed request head")
    method, target, version = match.groups()
    if version not in (b"1.1", b"1.0"):
        raise BadRequest(505, "only HTTP/1.1 and HTTP/1.0 are served")
    if method not in _METHODS:
        raise BadRequest(501, "unknown request method")
    if method != b"CONNECT" and _TARGET.match(target) is None:
        raise BadRequest(400, "malformed request target")
    framing = _FRAMING.findall(head)
    if len(framing) > 1:
        # A proxy may have gone by the other field, and taken what follows for another request.
        raise BadRequest(400, "more than one Content-Length or Transfer-Encoding header")
    if not framing:
        return
    (name, value), *_ = framing
    if name.lower() == b"transfer-encoding":
        if value.lower() != b"chunked":
            raise BadRequest(501, "the only supported transfer encoding is chunked")
    elif not value.isdigit():
        raise BadRequest(400, "Content-Length is not a number")
    elif len(value) > _LENGTH_DIGITS:
        raise BadRequest(413, "the request body is too long")


_HEAD_END: Final = b"\r\n\r\n"
_REMEMBERED: Final = 2048
"""A longer head is checked each time: what connections hold is bounded, and idle ones should hold little."""
_FORBIDDEN: Final = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|(?<!\r)\n")
_TOKEN: Final = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_HEAD: Final = re.compile(rb"(%b) ([!-~]+) HTTP/([0-9]\.[0-9])\r\n(?:%b:[\t -~\x80-\xff]*\r\n)*\r\n" % (_TOKEN, _TOKEN))
_TARGET: Final = re.compile(rb"/|\*\Z|[A-Za-z]+://[A-Za-z0-9._~%!$&'()*+,;=:@\[\]-]+(?:[/?]|\Z)")
_FRAMING: Final = re.compile(rb"\n(content-length|transfer-encoding):[\t ]*(.*?)[\t ]*\r", re.IGNORECASE)
_METHODS: Final = frozenset(b"GET HEAD POST PUT DELETE CONNECT OPTIONS TRACE PATCH".split())
"""The methods of RFC 9110 and RFC 5789. Others that httptools knows cannot be served."""
_LENGTH_DIGITS: Final = 18
"""A longer Content-Length would overflow the 64 bits that httptools counts in."""


class H11Parser:
    """Parser on h11, which is written in Python.

    h11 could write the responses too, but then it would have to be told of each before it reads the next request. A new
    ``h11.Connection`` for each request takes a thirtieth of the time that telling it takes.
    """

    def __init__(self, head_bytes: int) -> None:
        self._head_bytes = head_bytes
        self._head = HeadBuffer(head_bytes)
        self._fault: BadRequest | None = None
        self._begin()

    def _begin(self) -> None:
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=self._head_bytes)
        self._is_empty = True  # h11 was given nothing of this request; asking it would cost as much as an answer

    def feed(self, data: bytes) -> None:
        """Process received bytes; ``b""`` is the end of input."""
        if self._is_empty and data:
            try:
                parts = self._head.feed(data)
            except BadRequest as fault:
                self._fault = fault
                return
            if parts is None:
                return
            head, data = parts
            self._http.receive_data(head)
            self._is_empty = False
            if not data:
                return
        elif self._head:
            self._fault = BadRequest(400, "the connection ended within a request")
            return
        self._http.receive_data(data)
        self._is_empty = False

    def next_event(self) -> ParserEvent | None:
        """Return the next event of the current request. Raises BadRequest."""
        if self._fault is not None:
            raise self._fault
        if self._is_empty:
            return None
        try:
            event = self._http.next_event()
        except h11.RemoteProtocolError as error:
            raise BadRequest(error.error_status_hint, str(error)) from error
        if isinstance(event, h11.Request):
            headers = tuple([(name.lower(), value) for name, value in event.headers.raw_items()])
            return parsed_head(event.method, event.target, headers, event.http_version)
        if isinstance(event, h11.Data):
            return bytes(event.data)
        if isinstance(event, h11.EndOfMessage):
            return ParserMark.END
        return ParserMark.CLOSED if isinstance(event, h11.ConnectionClosed) else None

    @property
    def has_more(self) -> bool:
        """Whether bytes were fed that no event has reported yet."""
        if self._is_empty:
            return bool(self._head) or self._fault is not None
        data, is_closed = self._http.trailing_data
        return bool(data) or is_closed

    def next_cycle(self) -> None:
        """Start the next request."""
        data, is_closed = self._http.trailing_data
        self._begin()
        if data:
            self.feed(data)
        if is_closed:
            self.feed(b"")

    def take_rest(self) -> bytes:
        """Return the bytes after the last head."""
        data, _ = self._http.trailing_data
        return data


class HttptoolsParser:
    """Parser on httptools, which is written in C.

    httptools calls back for everything in the bytes it is given, so events may run ahead of ``next_event``. The caller
    feeds at most one read at a time, which bounds how far. Before each request the bytes are cut, so that its head
    passes through ``HeadBuffer`` first.
    """

    def __init__(self, head_bytes: int) -> None:
        self._head_bytes = head_bytes
        self._head = HeadBuffer(head_bytes)
        self._events: deque[ParserEvent | BadRequest] = deque()
        self._since_event = 0
        self._is_over = self._is_paused = False
        # The request that httptools reads, which may be later than the one whose events are given out.
        self._parser = httptools.HttpRequestParser(self)
        self._is_between = True
        # The bytes of its body that are to come, None for a chunked body; and the last bytes of the chunks so far.
        self._body_left: int | None = None
        self._tail = b""
        # Reading on after an upgrade that is ignored: see _restart_after_upgrade.
        self._is_repeated = False
        self._framing = b""
        self._target = b""
        self._fields: list[tuple[bytes, bytes]] = []
        # The bytes after an upgrade request: the next protocol's, or the next request's if the upgrade is ignored.
        self._held: bytes | None = None
        self._has_ended = False

    def feed(self, data: bytes) -> None:
        """Process received bytes; ``b""`` is the end of input."""
        if self._is_over:
            return
        if self._held is not None:
            self._held += data
            self._has_ended = self._has_ended or not data
            return
        if not data:
            self._is_over = True
            is_whole = self._is_between and not self._head
            end = ParserMark.CLOSED if is_whole else BadRequest(400, "the connection ended within a request")
            self._events.append(end)
            return
        before = len(self._events)
        self._parse(data)
        # An event is progress: only bytes that no event accounts for are counted.
        if len(self._events) > before or self._is_between:
            self._since_event = 0
            return
        # httptools keeps no count of the length of chunk extensions and trailers.
        self._since_event += len(data)
        if self._since_event > self._head_bytes:
            self._fail(BadRequest(431, "a line within the request body is too long"))

    def next_event(self) -> ParserEvent | None:
        """Return the next event of the current request. Raises BadRequest."""
        if self._is_paused or not self._events:
            return None
        event = self._events.popleft()
        if isinstance(event, BadRequest):
            raise event
        self._is_paused = event is ParserMark.END
        return event

    @property
    def has_more(self) -> bool:
        """Whether bytes were fed that no event has reported yet."""
        return bool(self._events or self._held or self._head) or not self._is_between

    def next_cycle(self) -> None:
        """Start the next request."""
        self._is_paused = False
        # With events left, the held bytes follow a later request than the one that is over.
        if self._held is not None and not self._events:
            held, self._held = self._held, None
            self._restart_after_upgrade()
            self._parse(held)
            if self._has_ended:
                self.feed(b"")

    def take_rest(self) -> bytes:
        """Return the bytes after the last head."""
        self._is_over = True
        return self._held or b""

    # Callbacks of httptools

    def on_message_begin(self) -> None:
        """Start a request."""
        self._is_between = False
        self._target = b""
        self._fields = []

    def on_url(self, url: bytes) -> None:
        """Collect a piece of the target."""
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Collect a header field, or a trailer field, which is ignored."""
        self._fields.append((name.lower(), value.rstrip(b" \t")))  # httptools strips only the space before a value

    def on_headers_complete(self) -> None:
        """Report the head."""
        if self._is_repeated:
            self._is_repeated = False
            return
        parser, fields = self._parser, tuple(self._fields)
        try:
            head = parsed_head(parser.get_method(), self._target, fields, parser.get_http_version().encode())
        except BadRequest as error:
            self._fail(error)
            return
        lengths = [value for name, value in fields if name == b"content-length"]
        self._body_left = int(lengths[0]) if lengths else None
        self._tail = b""
        if parser.should_upgrade():
            framing = [b"%b: %b\r\n" % field for field in fields if field[0] in _FRAMING_NAMES and field != _NO_BODY]
            self._framing = b"".join(framing)
        self._events.append(head)

    def on_body(self, body: bytes) -> None:
        """Report a piece of the body."""
        self._events.append(body)

    def on_message_complete(self) -> None:
        """Report the end, unless httptools merely skipped the body of an upgrade request."""
        if not self._framing:
            self._is_between = True
            self._events.append(ParserMark.END)

    def _parse(self, data: bytes) -> None:
        """Feed httptools, cutting the bytes where a request ends so that the next head is checked first."""
        position = 0
        while position < len(data) and not self._is_over:
            try:
                if self._is_between:
                    parts = self._head.feed(data[position:])
                    if parts is None:
                        return
                    piece, rest = parts
                    position = len(data) - len(rest)
                else:
                    end = self._end_of_piece(data, position)
                    piece, position = data[position:end], end
                self._parser.feed_data(piece)
            except BadRequest as fault:
                self._fail(fault)
            except httptools.HttpParserUpgrade:
                if not self._framing:
                    self._held = data[position:]
                    return
                self._restart_after_upgrade()
            except httptools.HttpParserError as error:
                self._fail(BadRequest(400, f"{error}"))
        # The blank line that ends a trailer has four bytes, and a read may end within them.
        self._tail = (self._tail + data[-3:])[-3:]

    def _end_of_piece(self, data: bytes, position: int) -> int:
        """Return where to cut the bytes of a body so that httptools does not read into the next request.

        A chunked body ends with an empty line, though not every empty line is its end.
        """
        if self._body_left is not None:
            end = min(position + self._body_left, len(data))
            self._body_left -= end - position
            return end
        if not position and (position_of_end := (self._tail + data[:3]).find(_HEAD_END)) >= 0:
            return position_of_end + len(_HEAD_END) - len(self._tail)
        position_of_end = data.find(_HEAD_END, max(position - 3, 0))
        return len(data) if position_of_end < 0 else position_of_end + len(_HEAD_END)

    def _restart_after_upgrade(self) -> None:
        """Read on after an upgrade request as a server that ignores the upgrade may (RFC 9110 section 7.8).

        httptools stops reading HTTP after such a request, and even skips its body. A fresh parser gets a head with the
        same framing, so that it reads the body.
        """
        self._parser = httptools.HttpRequestParser(self)
        if self._framing:
            framing, self._framing = self._framing, b""
            self._is_repeated = True
            self._parser.feed_data(b"POST / HTTP/1.1\r\n" + framing + b"\r\n")

    def _fail(self, error: BadRequest) -> None:
        self._is_over = True
        self._events.append(error)


_FRAMING_NAMES: Final = frozenset({b"content-length", b"transfer-encoding"})
_NO_BODY: Final = (b"content-length", b"0")


# ------------------------------------------------------------------------------------------------------------ responses
# HTTP/1.1 responses as bytes. Each connection has one writer, for either parser.

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
