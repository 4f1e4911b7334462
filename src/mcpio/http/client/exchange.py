"""The exchanges of a client: one request each, with the response received so far."""

from __future__ import annotations

import enum
import re
import sys
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Final

from mcpio.engine.timers import Timers
from mcpio.errors import (
    AuthorizationRequired,
    ConnectionLost,
    InvalidMessage,
    McpError,
    RequestError,
    UnexpectedResponse,
)
from mcpio.events import OutgoingId
from mcpio.framing import jsonrpc
from mcpio.framing.sse import SseParser
from mcpio.http.location import Location
from mcpio.http.model import Body, End, Headers, RequestHead, RequestItem, Reset, ResponseHead

if TYPE_CHECKING:
    from mcpio.auth.authorizer import Authorizer
    from mcpio.http.client.mirrored import Mirrored
    from mcpio.profiles import Profile

__all__ = [
    "LEAVING",
    "REDIRECTS",
    "ClientExchange",
    "ClientExchanges",
    "Purpose",
    "header",
    "headers_named",
    "media_type",
    "takes_any_event_type",
]


REDIRECTS: Final = (301, 302, 303, 307, 308)
"""The statuses that redirect to another location."""


class Purpose(enum.Enum):
    """The purpose of an exchange; the values stand in error messages."""

    ASK = "a request"
    """A POST of a request that expects an answer."""
    TELL = "a notification or a response"
    """A POST that is only acknowledged."""
    RESUME = "the rest of an answer"
    """A GET for the rest of a broken stream."""
    LISTEN = "what belongs to no request"
    """A GET for messages that belong to no request."""
    LEGACY = "everything"
    """A GET for all output of a server of 2024-11-05."""
    END = "the end of the session"
    """A DELETE of the session."""

    @property
    def method(self) -> str:
        """The HTTP method."""
        if self in (Purpose.ASK, Purpose.TELL):
            return "POST"
        return "DELETE" if self is Purpose.END else "GET"


class ClientExchange:
    """One request, and the response to it so far."""

    __slots__ = (
        "asked",
        "began",
        "body",
        "denied",
        "head",
        "is_handshake",
        "mirrored",
        "number",
        "owed",
        "parser",
        "purpose",
        "redirects",
        "resumes",
        "retry",
        "session_id",
        "target",
        "text",
        "tries",
        "was_open",
    )

    asked: tuple[OutgoingId, ...]
    """The engine's requests that it is to answer."""
    owed: int
    """How many of them have no outcome yet."""
    resumes: str | None
    """The last event that was seen of the stream that it resumes."""
    is_handshake: bool
    """Whether it carries ``initialize``, before which nothing else may be sent."""
    mirrored: Mirrored | None
    """The parts of its message that header fields repeat; ``None`` for a message of the handshake era."""
    session_id: str | None
    """The session that it names."""
    began: float
    """When it was sent."""
    tries: int
    """How often in a row the stream was resumed without any event."""
    denied: McpError | None
    """Why it cannot be authorized."""
    retry: float | None
    """Seconds to wait before resuming it, as the server said."""
    was_open: bool
    """Whether its stream was open at some time."""

    def __init__(
        self,
        number: int,
        purpose: Purpose,
        target: str,
        *,
        text: bytes = b"",
        asked: tuple[OutgoingId, ...] = (),
        resumes: str | None = None,
        mirrored: Mirrored | None = None,
    ) -> None:
        self.number: int = number
        self.purpose: Purpose = purpose
        self.target: str = target
        self.text: bytes = text
        self.asked = asked
        self.owed = len(asked)
        self.resumes = resumes
        self.mirrored = mirrored
        self.is_handshake = self.was_open = False
        self.redirects: int = 0
        self.tries = 0
        self.retry = self.denied = None
        self.begin(None, 0.0)

    def begin(self, session_id: str | None, now: float) -> None:
        """Start an attempt in a session, and drop the response to an earlier one."""
        self.session_id = session_id
        self.began = now
        self.head: ResponseHead | None = None
        self.parser: SseParser | None = None
        self.body: bytearray = bytearray()

    def headers(self) -> Headers:
        """Return the header fields of its request (HTTP-07, HTTP-26, HTTP-39)."""
        fields: list[tuple[bytes, bytes]] = []
        if self.purpose.method == "POST":
            fields.append((b"content-type", b"application/json"))
            fields.append((b"content-length", b"%d" % len(self.text)))
            fields.append((b"accept", b"application/json, text/event-stream"))
        elif self.purpose.method == "GET":
            fields.append((b"accept", b"text/event-stream"))
            fields.append((b"cache-control", b"no-store"))
        if self.mirrored is not None:
            fields += self.mirrored.fields
        if self.session_id is not None:
            fields.append((b"mcp-session-id", self.session_id.encode()))
        if self.resumes is not None:
            fields.append((b"last-event-id", self.resumes.encode()))
        return fields

    @property
    def last_id(self) -> str | None:
        """The id of the last event of the stream, of this attempt or an earlier one; ``None`` if it cannot be resumed.

        An empty id resets the earlier ones, and an id that no header field can hold cannot be sent. In the stateless
        era nothing is resumed (SHTTP-07).
        """
        if self.mirrored is not None:
            return None
        found = None if self.parser is None else self.parser.last_id
        if found is None:
            return self.resumes
        return found if _USABLE_ID.fullmatch(found) else None

    @property
    def operation(self) -> tuple[str | None, ...]:
        """The method of its message, and the tool, prompt or resource: authorizers count step-ups by it (AUTH-35)."""
        message = jsonrpc.parse(self.text) if len(self.text) <= _LONGEST_OPERATION else None
        if not isinstance(message, jsonrpc.Request):
            return (self.purpose.name,)
        names = (message.params.get(name) for name in ("name", "uri"))
        return (message.method, *(name for name in names if isinstance(name, str)))

    @property
    def is_probe(self) -> bool:
        """Whether it finds out the era of the server (ERA-07)."""
        return self.is_handshake and self.mirrored is not None

    @property
    def is_subscription(self) -> bool:
        """Whether it stays open until something no longer listens."""
        return self.mirrored is not None and self.mirrored.method == "subscriptions/listen"

    # The response

    @property
    def collected_bytes(self) -> int:
        """Memory of the body, or of the unfinished event of the stream, in bytes."""
        return sys.getsizeof(self.body) + (0 if self.parser is None else self.parser.held_bytes)

    @property
    def text_received(self) -> bytes:
        """The body of the response."""
        return bytes(self.body)

    def holds_answer(self, head: ResponseHead) -> bool:
        """Return whether the body answers one of its requests."""
        message = self._message(head)
        return isinstance(message, jsonrpc.Error | jsonrpc.Result) and message.id in self.asked

    def refusal(self, head: ResponseHead) -> McpError:
        """Return the error for an error status: the server's JSON-RPC error, if the body is one."""
        message = self._message(head)
        if isinstance(message, jsonrpc.Error):
            error = RequestError(message.code, message.message, message.data)
            error.__cause__ = self.unexpected(head)
            return error
        return self.unexpected(head)

    def unauthorized(self, head: ResponseHead, *, is_without_auth: bool = False) -> AuthorizationRequired:
        """Return the error for the statuses 401 and 403."""
        challenges = headers_named(head, b"www-authenticate")
        said = "; ".join(challenges) or self._quote() or "it does not say what it wants"
        text = f"the server refuses {self.purpose.value} with status {head.status}: {said}"
        return AuthorizationRequired(text, status=head.status, challenges=challenges, is_without_auth=is_without_auth)

    def unexpected(self, head: ResponseHead, reason: str | None = None) -> UnexpectedResponse:
        """Return the error for a response that does not fit the request."""
        what = reason or f"{media_type(head) or 'nothing'} in answer to {self.purpose.value}"
        return UnexpectedResponse(head.status, what, self._quote())

    def lost(self, cause: BaseException | None) -> McpError:
        """Return the error for an exchange that broke off, or for which there was no connection."""
        if isinstance(cause, McpError) and self.purpose in (Purpose.ASK, Purpose.TELL):
            # The driver knows more, such as that nothing was sent.
            return cause
        detail = "" if cause is None else f": {cause}"
        error = ConnectionLost(f"the exchange for {self.purpose.value} broke off{detail}")
        error.__cause__ = cause
        return error

    def without_answer(self) -> McpError:
        """Return the error for a response that ended without the answer."""
        message = None if self.head is None else self._message(self.head)
        if isinstance(message, jsonrpc.Malformed):
            error: McpError = InvalidMessage("", f"the answer is malformed: {message.reason}")
        else:
            error = ConnectionLost("the response ended without the answer")
        error.__cause__ = None if self.head is None else self.unexpected(self.head)
        return error

    def leads_to(self, head: ResponseHead, origin: Location) -> Location | None:
        """Resolve a redirect; ``None`` if it leaves the origin or would drop the body (HTTP-38)."""
        keeps_method = head.status in (307, 308) or self.purpose.method == "GET"
        return origin.at(self.target).join(header(head, b"location") or "") if keeps_method else None

    def _message(self, head: ResponseHead) -> object:
        return jsonrpc.parse(self.text_received) if media_type(head) == "application/json" else None

    def _quote(self) -> str:
        return self.text_received[:_QUOTE].decode(errors="replace")


_SAFE: Final = ("GET", "DELETE")
"""The methods that may be repeated when it is unknown whether the request arrived."""

LEAVING: Final = 0
"""The timer of leaving. Those of exchanges have their numbers, which are positive."""


class ClientExchanges:
    """The open exchanges of a client, and those that begin later; each has a number, and may have a timer."""

    now: float
    """The latest time passed to a call."""
    timers: Timers[int]
    """By the number of an exchange, and ``LEAVING``."""
    target: str
    """The target of new exchanges; while it is empty, none may begin."""

    def __init__(self, target: str, headers: Mapping[str, str], authorizer: Authorizer | None = None) -> None:
        """``headers`` are sent with every request, and those of the ``authorizer``."""
        self.now = float("-inf")
        self.timers = Timers()
        self.target = target
        self._open: dict[int, ClientExchange] = {}
        self._later: dict[int, ClientExchange] = {}
        self._items: list[RequestItem] = []
        self._next = 1
        self._authorizer = authorizer
        self._resting: set[int] = set()
        self._headers = tuple((name.lower().encode(), value.encode()) for name, value in headers.items())

    def __len__(self) -> int:
        """Return how many are open."""
        return len(self._open)

    @property
    def subscriptions(self) -> int:
        """How many of the open ones are subscriptions, which stay open as long as something listens."""
        return sum(exchange.is_subscription for exchange in self._open.values())

    def __contains__(self, exchange: ClientExchange | None) -> bool:
        """Return whether an exchange is open."""
        return exchange is not None and exchange.number in self._open

    def get(self, number: object) -> ClientExchange | None:
        """Return the exchange with that number, if it is open."""
        return self._open.get(number) if isinstance(number, int) else None

    def new(
        self,
        purpose: Purpose,
        *,
        text: bytes = b"",
        asked: tuple[OutgoingId, ...] = (),
        resumes: str | None = None,
        mirrored: Mirrored | None = None,
    ) -> ClientExchange:
        """Return an exchange whose request was not sent."""
        target = self.target
        exchange = ClientExchange(
            self._next, purpose, target, text=text, asked=asked, resumes=resumes, mirrored=mirrored
        )
        self._next += 1
        return exchange

    def make(
        self,
        exchange: ClientExchange,
        session_id: str | None,
        revision: str | None,
        *,
        url: str | None = None,
        background: bool = False,
    ) -> bool:
        """Queue the request of an exchange: for the first time, or again for a redirect or with another token.

        Returns whether it was queued. Otherwise it rests, without a timer, until the authorizer names it. An exchange
        without a waiting caller is in the ``background``. ``url`` is that of its target.
        """
        self._open[exchange.number] = exchange
        self._resting.discard(exchange.number)
        exchange.begin(session_id, self.now)  # even if it rests now: a refused response must not be read again
        headers = [*self._headers, *exchange.headers()]
        if self._authorizer is not None:
            fields = self._authorizer.authorize(
                exchange.number,
                exchange.operation,
                self.now,
                method=exchange.purpose.method,
                url=url,
                background=background,
            )
            if fields is None:
                self.rest(exchange)
                return False
            headers += [(name.encode(), value.encode()) for name, value in fields]
        if revision is not None:
            headers.append((b"mcp-protocol-version", revision.encode()))
        # A repeated opening does no harm: at most it leaves a session that expires.
        method, may_repeat = exchange.purpose.method, exchange.is_handshake or exchange.purpose.method in _SAFE
        self._items.append(RequestHead(exchange.number, method, exchange.target, headers, may_repeat=may_repeat))
        if exchange.text:
            self._items.append(Body(exchange.number, exchange.text))
        self._items.append(End(exchange.number))
        return True

    def rest(self, exchange: ClientExchange) -> None:
        """Keep an exchange that waits for the authorizer. It counts as open, and its timeouts stop."""
        self._open[exchange.number] = exchange
        self._resting.add(exchange.number)
        self.timers.clear(exchange.number)

    def make_later(self, exchange: ClientExchange, delay: float) -> None:
        """Keep an exchange until its timer expires; then ``pop_due`` returns it."""
        self._later[exchange.number] = exchange
        self.timers.set(exchange.number, self.now + delay)

    def pop_due(self, number: int) -> ClientExchange | None:
        """Remove and return an exchange that was kept, or ``None``."""
        return self._later.pop(number, None)

    def cut(self, exchange: ClientExchange) -> None:
        """Break off an exchange, or do not begin it."""
        if exchange.number in self._open and exchange.number not in self._resting:
            self._items.append(Reset(exchange.number))  # the driver knows nothing of those that rest, or begin later
        self.forget(exchange)

    def cut_all(self, *, but: ClientExchange | None = None) -> None:
        """Break off all exchanges but one."""
        for exchange in [*self._open.values(), *self._later.values()]:
            if exchange is not but:
                self.cut(exchange)

    def forget(self, exchange: ClientExchange) -> None:
        """Drop an exchange that has ended."""
        self._open.pop(exchange.number, None)
        self._later.pop(exchange.number, None)
        self._resting.discard(exchange.number)
        self.timers.clear(exchange.number)
        if self._authorizer is not None:
            self._authorizer.drop(exchange.number)

    def end_soon(self, exchange: ClientExchange, delay: float) -> None:
        """Break off an exchange in ``delay`` seconds if it has not ended; drop one that has not begun, or rests."""
        if exchange.number in self._later or exchange.number in self._resting:
            self.forget(exchange)
        elif exchange.number in self._open:
            self.timers.set(exchange.number, self.now + delay)

    @property
    def collected_bytes(self) -> int:
        """Memory of all unfinished messages, in bytes."""
        return sum(exchange.collected_bytes for exchange in self._open.values())

    @property
    def longest(self) -> ClientExchange:
        """The exchange with the longest unfinished message, the first of several. Some exchange is open."""
        return max(self._open.values(), key=lambda exchange: exchange.collected_bytes)

    def pop_items(self) -> list[RequestItem]:
        """Remove and return the items to send."""
        items, self._items = self._items, []
        return items

    @property
    def is_idle(self) -> bool:
        """Whether no exchange is open, and no item waits."""
        return not self._open and not self._items


def headers_named(head: ResponseHead, name: bytes) -> list[str]:
    """Return the values of all header fields with a name."""
    return [value.decode("latin-1") for each, value in head.headers if each == name]


def header(head: ResponseHead, name: bytes) -> str | None:
    """Return the value of the first header field with a name, or ``None``."""
    values = headers_named(head, name)
    return values[0] if values else None


def media_type(head: ResponseHead) -> str:
    """Return the media type of a response in lower case, without parameters."""
    return (header(head, b"content-type") or "").partition(";")[0].strip().lower()


def takes_any_event_type(profiles: Collection[Profile]) -> bool:
    """Return whether a profile accepts messages in server-sent events of any type (D12)."""
    if not profiles:
        return False
    from mcpio.profiles import DIALECTS

    return any(DIALECTS[profile].any_event_type for profile in profiles)


_LONGEST_OPERATION: Final = 1 << 16
"""Bytes of a message that is parsed for its operation."""
_QUOTE: Final = 200
_USABLE_ID = re.compile(r"[^\x00-\x20\x7f]([^\x00-\x1f\x7f]{0,1022}[^\x00-\x20\x7f])?")
"""Event ids that can stand in a header field."""
