"""What stands between bytes and HTTP/1.1 by meaning at a server, and the parser on h11.

A parser belongs to one connection. It is fed what arrives, is asked for one event at a time, and writes the response
to one request after the other. It decides nothing but what the syntax of HTTP decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from email.utils import formatdate
from enum import Enum
from http import HTTPStatus
from time import time
from typing import Final, Literal, Protocol, TypeAlias

import attrs
import h11

from mcpio.http.model import Headers

__all__ = ["BadRequest", "Fed", "H11Parser", "HeadRead", "Mark", "Parser", "ParserName", "date", "new_parser"]

ParserName: TypeAlias = Literal["h11", "httptools"]


class Mark(Enum):
    """What is neither a head nor a piece of a body."""

    END = "end"
    """The request is complete."""
    CLOSED = "closed"
    """The client sends nothing more, and is not in the middle of anything."""


@attrs.define  # Frozen would cost more than all the rest of it.
class HeadRead:
    """The head of a request."""

    method: str
    target: str
    headers: Headers


Fed: TypeAlias = HeadRead | bytes | Mark
"""An event: a head, then pieces of a body, then ``Mark.END``; or ``Mark.CLOSED``."""


class BadRequest(Exception):
    """What came is no HTTP that can be served. The connection cannot go on after it."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Parser(Protocol):
    """One connection of a server, without the I/O."""

    def feed(self, data: bytes) -> None:
        """Take in what arrived; ``b""`` is the end of it."""

    def next_event(self) -> Fed | None:
        """Return what comes next of the request that is being read; ``None`` for "feed me".

        After ``Mark.END`` nothing comes before ``next_cycle``. Raises ``BadRequest``.
        """

    @property
    def has_more(self) -> bool:
        """Whether something was fed that no event told of yet."""

    @property
    def wants_continue(self) -> bool:
        """Whether the client waits for leave to send the body (RFC 9110 section 10.1.1)."""

    def leave_to_continue(self) -> bytes:
        """Return what gives that leave."""

    def head(self, status: int, headers: Headers, *, closes: bool) -> bytes:
        """Return the head of the response; with ``closes`` the connection is not to be used again after it."""

    def body(self, data: bytes) -> bytes:
        """Return a piece of the body of the response. Of what answers HEAD there is none."""

    def end(self) -> bytes:
        """Return the end of the response."""

    def next_cycle(self) -> bool:
        """Begin the next request, if there may be one on this connection; return whether there may."""


def new_parser(name: ParserName, head_bytes: int) -> Parser:
    """Return a parser; a head that is longer than ``head_bytes`` is not served.

    ``ValueError`` for a name that there is not; ``ImportError`` where what it needs is not installed.
    """
    if name == "h11":
        return H11Parser(head_bytes)
    if name == "httptools":
        from mcpio.trio._httptools import HttptoolsParser

        return HttptoolsParser(head_bytes)
    raise ValueError(f"there is no HTTP parser {name!r:.100}: there are 'h11' and 'httptools'")


class H11Parser:
    """The parser on h11, which is written in Python."""

    def __init__(self, head_bytes: int) -> None:
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=head_bytes)
        self._is_head = False

    def feed(self, data: bytes) -> None:
        """Take in what arrived."""
        self._http.receive_data(data)

    def next_event(self) -> Fed | None:
        """Return what comes next."""
        try:
            event = self._http.next_event()
        except h11.RemoteProtocolError as error:
            raise BadRequest(error.error_status_hint, str(error)) from error
        if isinstance(event, h11.Request):
            if event.http_version not in _VERSIONS:
                raise BadRequest(505, "only HTTP/1.1 and HTTP/1.0 are served here")
            self._is_head = event.method == b"HEAD"
            return HeadRead(event.method.decode("ascii"), event.target.decode("latin-1"), tuple(event.headers))
        if isinstance(event, h11.Data):
            return bytes(event.data)
        if isinstance(event, h11.EndOfMessage):
            return Mark.END
        return Mark.CLOSED if isinstance(event, h11.ConnectionClosed) else None

    @property
    def has_more(self) -> bool:
        """Whether something was fed that no event told of yet."""
        data, is_closed = self._http.trailing_data
        return bool(data) or is_closed

    @property
    def wants_continue(self) -> bool:
        """Whether the client waits for leave to send the body."""
        return self._http.they_are_waiting_for_100_continue

    def leave_to_continue(self) -> bytes:
        """Return what gives that leave."""
        return self._http.send(h11.InformationalResponse(status_code=100, headers=[])) or b""

    def head(self, status: int, headers: Headers, *, closes: bool) -> bytes:
        """Return the head of the response."""
        fields = [*headers, (b"date", date())]
        if closes:
            fields.append((b"connection", b"close"))
        return (
            self._http.send(h11.Response(status_code=status, headers=fields, reason=_REASONS.get(status, b""))) or b""
        )

    def body(self, data: bytes) -> bytes:
        """Return a piece of the body of the response."""
        return b"" if self._is_head else self._http.send(h11.Data(data=data)) or b""

    def end(self) -> bytes:
        """Return the end of the response."""
        return self._http.send(h11.EndOfMessage()) or b""

    def next_cycle(self) -> bool:
        """Begin the next request, if there may be one."""
        if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
            return False
        self._http.start_next_cycle()
        return True


def date() -> bytes:
    """Return the time as HTTP has it."""
    now = int(time())
    if _last.second != now:
        _last.second, _last.text = now, formatdate(now, usegmt=True).encode()
    return _last.text


class _Date:
    second = 0
    text = b""


_last: Final = _Date()
_VERSIONS: Final[Sequence[bytes]] = (b"1.1", b"1.0")
_REASONS: Final = {status.value: status.phrase.encode("ascii") for status in HTTPStatus}
