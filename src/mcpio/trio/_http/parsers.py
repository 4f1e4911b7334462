"""What stands between bytes and the requests of HTTP/1.1 at a server, and the parser on h11.

A parser belongs to one connection. It is fed what arrives, and gives one event at a time. It decides nothing but what
the syntax of HTTP decides. Responses are written by ``_http_writing``, whatever parser read the request.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import Final, Literal, Protocol, TypeAlias

import attrs
import h11

from mcpio.http.model import Headers

__all__ = [
    "BadRequest",
    "H11Parser",
    "HeadBuffer",
    "ParsedHead",
    "Parser",
    "ParserEvent",
    "ParserMark",
    "ParserName",
    "new_parser",
    "parsed_head",
]

ParserName: TypeAlias = Literal["h11", "httptools"]


class ParserMark(Enum):
    """What is neither a head nor a piece of a body."""

    END = "end"
    """The request is complete."""
    CLOSED = "closed"
    """The client sends nothing more, and is not in the middle of anything."""


@attrs.define  # Frozen would cost more than all the rest of it.
class ParsedHead:
    """The head of a request."""

    method: str
    target: str
    headers: Headers
    is_current: bool
    """Whether it is of HTTP/1.1, and not of 1.0."""
    keeps_alive: bool
    """Whether the client may ask again on this connection. Clients of HTTP/1.0 may not."""
    expects: bool
    """Whether the client waits for leave to send the body (RFC 9110 section 10.1.1)."""


ParserEvent: TypeAlias = ParsedHead | bytes | ParserMark
"""An event: a head, then pieces of a body, then ``ParserMark.END``; or ``ParserMark.CLOSED``."""


class BadRequest(Exception):
    """What came is no HTTP that can be served. The connection cannot go on after it."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Parser(Protocol):
    """What a client says on one connection."""

    def feed(self, data: bytes) -> None:
        """Take in what arrived; ``b""`` is the end of it."""

    def next_event(self) -> ParserEvent | None:
        """Return what comes next of the request that is being read; ``None`` for "feed me".

        After ``ParserMark.END`` nothing comes before ``next_cycle``. Raises ``BadRequest``.
        """

    @property
    def has_more(self) -> bool:
        """Whether something was fed that no event told of yet."""

    def next_cycle(self) -> None:
        """Begin with the next request, after ``ParserMark.END`` of one that keeps the connection alive."""

    def take_rest(self) -> bytes:
        """Take what was fed after the head that was read last, of a request for another protocol and without a body.

        No event comes after that.
        """


def new_parser(name: ParserName, head_bytes: int) -> Parser:
    """Return a parser; a head that is longer than about ``head_bytes`` is not served.

    ``ValueError`` for a name that there is not; ``ImportError`` where what it needs is not installed.
    """
    if name == "h11":
        return H11Parser(head_bytes)
    if name == "httptools":
        try:
            from mcpio.trio._http.httptools_parser import HttptoolsParser
        except ModuleNotFoundError as error:
            raise ImportError("this parser needs httptools: pip install 'mcpio[httptools]'", name=error.name) from error
        return HttptoolsParser(head_bytes)
    raise ValueError(f"there is no HTTP parser {name!r:.100}: there are 'h11' and 'httptools'")


def parsed_head(method: bytes, target: bytes, headers: Headers, version: bytes) -> ParsedHead:
    """Return a head; names are in lower case. ``BadRequest`` for what this server does not do, whoever parsed it."""
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
        raise BadRequest(400, "there must be one Host")
    return ParsedHead(method.decode("ascii"), target.decode("latin-1"), headers, is_current, keeps_alive, expects)


class HeadBuffer:
    """Collects the head of a request, and lets through only what has a single reading.

    RFC 9112 leaves it to the recipient whether it takes lines that end in LF alone, folded lines, more than one space,
    or the same Content-Length twice. Each library takes some of that, and a proxy in front may take other parts: they
    could then see different requests in the same bytes. So all of it is refused here, before a library sees it, and
    which library reads the head makes no difference.
    """

    __slots__ = ("_bytes", "_limit")

    def __init__(self, limit: int) -> None:
        """Begin without a head. One of more than ``limit`` bytes is refused."""
        self._bytes = bytearray()
        self._limit = limit

    def __bool__(self) -> bool:
        """Whether a head has begun, and is not whole."""
        return bool(self._bytes)

    def take(self, data: bytes) -> tuple[bytes, bytes] | None:
        """Add what arrived; return the head as soon as it is whole, and what follows it. Raises ``BadRequest``."""
        held = self._bytes
        if not held:
            # Some clients end a body with an empty line, which is none of the next request (RFC 9112 section 2.2).
            data = data.lstrip(b"\r\n")
        start = len(held)
        held += data
        end = held.find(_HEAD_END, max(start - 3, 0))
        if _NEVER.search(held, start, len(held) if end < 0 else end):
            # At once, for the end of the head may never come: what is no HTTP at all shows here too.
            raise BadRequest(400, "a control character in the head, or a line that ends in LF without CR")
        if (len(held) if end < 0 else end) > self._limit:
            raise BadRequest(431, "the head of the request is too long")
        if end < 0:
            return None
        head, rest = bytes(held[: end + 4]), bytes(held[end + 4 :])
        held.clear()
        _check_head(head)
        return head, rest


def _check_head(head: bytes) -> None:
    """Raise ``BadRequest`` for a head that is not strictly that of a request, or asks for what is not done here."""
    match = _HEAD.fullmatch(head)
    if match is None:
        raise BadRequest(400, "the head of the request is malformed")
    method, target, version = match.groups()
    if version not in (b"1.1", b"1.0"):
        raise BadRequest(505, "only HTTP/1.1 and HTTP/1.0 are served here")
    if method not in _METHODS:
        raise BadRequest(501, "this method is not known here")
    if method != b"CONNECT" and _TARGET.match(target) is None:
        raise BadRequest(400, "the target of the request is malformed")
    framing = [(name.lower(), value) for name, value in _FRAMING.findall(head)]
    if len(framing) > 1:
        # Whoever passed it on may have gone by the other one, and what follows is not what it took that for.
        raise BadRequest(400, "a body has one length, or chunks")
    for name, value in framing:
        if name == b"transfer-encoding" and value.lower() != b"chunked":
            raise BadRequest(501, "of transfer encodings, only chunked is served here")
        if name == b"content-length" and not value.isdigit():
            raise BadRequest(400, "the length of the body is no number")
        if name == b"content-length" and len(value) > _LENGTH_DIGITS:
            raise BadRequest(413, "the body is too long")


_HEAD_END: Final = b"\r\n\r\n"
_NEVER: Final = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|(?<!\r)\n")
_TOKEN: Final = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_HEAD: Final = re.compile(rb"(%b) ([!-~]+) HTTP/([0-9]\.[0-9])\r\n(?:%b:[\t -~\x80-\xff]*\r\n)*\r\n" % (_TOKEN, _TOKEN))
_TARGET: Final = re.compile(rb"/|\*\Z|[A-Za-z]+://[A-Za-z0-9._~%!$&'()*+,;=:@\[\]-]+(?:[/?]|\Z)")
_FRAMING: Final = re.compile(rb"\n(content-length|transfer-encoding):[\t ]*(.*?)[\t ]*\r", re.IGNORECASE)
_METHODS: Final = frozenset(b"GET HEAD POST PUT DELETE CONNECT OPTIONS TRACE PATCH".split())
"""Those of RFC 9110 and RFC 5789: httptools knows no others that could be served."""
_LENGTH_DIGITS: Final = 18


class H11Parser:
    """The parser on h11, which is written in Python.

    h11 would write the responses too, and wants to be told of them before it reads on. To begin anew with each request
    costs a thirtieth of that.
    """

    def __init__(self, head_bytes: int) -> None:
        self._head_bytes = head_bytes
        self._head = HeadBuffer(head_bytes)
        self._fault: BadRequest | None = None
        self._begin()

    def _begin(self) -> None:
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=self._head_bytes)
        self._is_empty = True  # nothing was given to h11 for this request: asking it would cost as much as its answer

    def feed(self, data: bytes) -> None:
        """Take in what arrived."""
        if self._is_empty and data:
            try:
                found = self._head.take(data)
            except BadRequest as fault:
                self._fault = fault
                return
            if found is None:
                return
            head, data = found
            self._http.receive_data(head)
            self._is_empty = False
            if not data:
                return
        elif self._head:
            self._fault = BadRequest(400, "the request broke off")
            return
        self._http.receive_data(data)
        self._is_empty = False

    def next_event(self) -> ParserEvent | None:
        """Return what comes next."""
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
        """Whether something was fed that no event told of yet."""
        if self._is_empty:
            return bool(self._head) or self._fault is not None
        data, is_closed = self._http.trailing_data
        return bool(data) or is_closed

    def next_cycle(self) -> None:
        """Begin with the next request."""
        data, is_closed = self._http.trailing_data
        self._begin()
        if data:
            self.feed(data)
        if is_closed:
            self.feed(b"")

    def take_rest(self) -> bytes:
        """Take what was fed after the head."""
        data, _ = self._http.trailing_data
        return data
