"""The parser on httptools, which is written in C: for servers that have the ``httptools`` extra installed."""

from __future__ import annotations

from collections import deque

import httptools

from mcpio.trio._http.parsers import BadRequest, HeadBuffer, ParserEvent, ParserMark, parsed_head

__all__ = ["HttptoolsParser"]


class HttptoolsParser:
    """The same as ``H11Parser``. It is fed no more than one read gives, which bounds what it keeps ahead."""

    def __init__(self, head_bytes: int) -> None:
        self._head_bytes = head_bytes
        self._head = HeadBuffer(head_bytes)
        self._events: deque[ParserEvent | BadRequest] = deque()
        self._since_event = 0
        self._is_over = self._is_paused = False
        # The request that is being parsed, which may be ahead of the one that events tell of.
        self._parser = httptools.HttpRequestParser(self)
        self._is_between = True
        # How much of its body is to come, ``None`` for chunks; and the end of what came of those.
        self._body_left: int | None = None
        self._tail = b""
        self._is_repeated = False
        self._framing = b""
        self._target = b""
        self._fields: list[tuple[bytes, bytes]] = []
        # What follows a request for another protocol: whose it is shows later.
        self._held: bytes | None = None
        self._has_ended = False

    def feed(self, data: bytes) -> None:
        """Take in what arrived."""
        if self._is_over:
            return
        if self._held is not None:
            self._held += data
            self._has_ended = self._has_ended or not data
            return
        if not data:
            self._is_over = True
            is_whole = self._is_between and not self._head
            self._events.append(ParserMark.CLOSED if is_whole else BadRequest(400, "the request broke off"))
            return
        known = len(self._events)
        self._parse(data)
        if len(self._events) > known or self._is_between:
            self._since_event = 0
            return
        self._since_event += len(data)
        if self._since_event > self._head_bytes:
            self._fail(BadRequest(431, "a line of the body of the request is too long"))

    def next_event(self) -> ParserEvent | None:
        """Return what comes next."""
        if self._is_paused or not self._events:
            return None
        event = self._events.popleft()
        if isinstance(event, BadRequest):
            raise event
        self._is_paused = event is ParserMark.END
        return event

    @property
    def has_more(self) -> bool:
        """Whether something was fed that no event told of yet."""
        return bool(self._events or self._held or self._head) or not self._is_between

    def next_cycle(self) -> None:
        """Begin with the next request."""
        self._is_paused = False
        # With events left, it follows a request that comes after the one that is over.
        if self._held is not None and not self._events:
            held, self._held = self._held, None
            self._go_on_without_upgrade()
            self._parse(held)
            if self._has_ended:
                self.feed(b"")

    def take_rest(self) -> bytes:
        """Take what was fed after the head that was read last."""
        self._is_over = True
        return self._held or b""

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
            framing = [b"%b: %b\r\n" % field for field in fields if field[0] in _FRAMING and field != _NO_BODY]
            self._framing = b"".join(framing)
        self._events.append(head)

    def on_body(self, body: bytes) -> None:
        """Hand over a piece of a body."""
        self._events.append(body)

    def on_message_complete(self) -> None:
        """Hand over the end of a request. One that would change protocols only seems to have none."""
        if not self._framing:
            self._is_between = True
            self._events.append(ParserMark.END)

    def _parse(self, data: bytes) -> None:
        """Give httptools what arrived, cut where a request ends: the next head is looked at before it goes on."""
        position = 0
        while position < len(data) and not self._is_over:
            try:
                if self._is_between:
                    found = self._head.take(data[position:])
                    if found is None:
                        return
                    piece, rest = found
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
                self._go_on_without_upgrade()
            except httptools.HttpParserError as error:
                self._fail(BadRequest(400, f"{error}"))
        self._tail = (self._tail + data[-3:])[-3:]

    def _end_of_piece(self, data: bytes, position: int) -> int:
        """Return up to where bytes of a body may be given to httptools, so that nothing of the next request is.

        A body in chunks ends with an empty line, though not every empty line is its end.
        """
        if self._body_left is not None:
            end = min(position + self._body_left, len(data))
            self._body_left -= end - position
            return end
        if not position and (found := (self._tail + data[:3]).find(_EMPTY_LINE)) >= 0:
            return found + len(_EMPTY_LINE) - len(self._tail)
        found = data.find(_EMPTY_LINE, max(position - 3, 0))
        return len(data) if found < 0 else found + len(_EMPTY_LINE)

    def _go_on_without_upgrade(self) -> None:
        """Read on after a request for another protocol as one may that does not care for it (RFC 9110 section 7.8).

        httptools leaves what follows such a request, its body too, to whoever speaks that protocol.
        """
        self._parser = httptools.HttpRequestParser(self)
        if self._framing:
            framing, self._framing = self._framing, b""
            self._is_repeated = True
            self._parser.feed_data(b"POST / HTTP/1.1\r\n" + framing + b"\r\n")

    def _fail(self, error: BadRequest) -> None:
        self._is_over = True
        self._events.append(error)


_EMPTY_LINE = b"\r\n\r\n"
_FRAMING = frozenset({b"content-length", b"transfer-encoding"})
_NO_BODY = (b"content-length", b"0")
