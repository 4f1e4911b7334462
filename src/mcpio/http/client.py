"""The client's machine: requests to make come out, responses go in."""

from __future__ import annotations

import enum
import re
import sys
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias
from urllib.parse import unquote, urljoin, urlsplit

import attrs

from mcpio._checks import called, checked, chosen, is_amount, is_count, required
from mcpio.engine.channel import BACKLOG, Kind, Outgoing, Timers
from mcpio.engine.client import ClientConnection
from mcpio.engine.limits import MESSAGE_COST, check_time
from mcpio.engine.table import Phase
from mcpio.errors import (
    AuthorizationRequired,
    ConnectFailed,
    ConnectionLost,
    InvalidMessage,
    LocalProtocolError,
    McpError,
    RequestError,
    UnexpectedResponse,
)
from mcpio.events import Event, Negotiated, OutgoingId, RequestFailed, ResponseReceived
from mcpio.framing import jsonrpc
from mcpio.framing.headers import encode_field
from mcpio.framing.json import loads
from mcpio.framing.sse import ServerSentEvent, SseParser
from mcpio.http.model import (
    Body,
    End,
    Headers,
    ParamHeader,
    RequestHead,
    RequestItem,
    Reset,
    ResponseHead,
    ResponseItem,
    mirrored_name,
    param_fields,
)
from mcpio.revisions import Era
from mcpio.types.base import META_PROTOCOL_VERSION

if TYPE_CHECKING:
    from mcpio.auth.authorizer import Authorizer
    from mcpio.auth.effects import Effect
    from mcpio.profiles import Profile


# -------------------------------------------------------------------------------------------------------------- options
# Options of a client over HTTP: headers, listening, reconnection and redirects.

_OWN = frozenset(
    {
        "accept",
        "accept-encoding",
        "cache-control",
        "connection",
        "content-length",
        "content-type",
        "expect",
        "host",
        "keep-alive",
        "last-event-id",
        "mcp-method",
        "mcp-name",
        "mcp-protocol-version",
        "mcp-session-id",
        "sec-websocket-extensions",
        "sec-websocket-key",
        "sec-websocket-protocol",
        "sec-websocket-version",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_VALUE = re.compile(r"[!-~]([\t -~]*[!-~])?")


def _usable(_: object, __: object, headers: Any) -> None:
    if not isinstance(headers, Mapping):
        raise TypeError(f"headers must be a mapping of names to values, not a {type(headers).__name__}")
    for name, value in headers.items():
        if not isinstance(name, str) or _NAME.fullmatch(name) is None:
            raise ValueError(f"headers must have names of header fields, not {name!r:.60}")
        if name.lower() in _OWN or name.lower().startswith("mcp-param-"):
            raise ValueError(f"headers must not have {name}: the client sets it")
        # The value stays out of the message: it may be a secret.
        if not isinstance(value, str) or _VALUE.fullmatch(value) is None:
            raise ValueError(f"headers: the value of {name} must be printable ASCII without surrounding space")


def _count(_: object, field: attrs.Attribute[int], value: Any) -> None:
    least = 1 if field.name == "max_requests" else 0
    if not is_count(value, least):
        raise ValueError(f"{field.name} must be an integer of {least} or more, not {value!r:.60}")


def _time(_: object, field: attrs.Attribute[float], value: Any) -> None:
    if not is_amount(value):
        raise ValueError(f"{field.name} must be a number of seconds, 0 or more, not {value!r:.60}")


@attrs.frozen(kw_only=True)
class HttpClientOptions:
    """Options of a client. Raises ValueError for invalid values."""

    headers: Mapping[str, str] = attrs.field(factory=dict, validator=_usable, repr=False)
    """Header fields of every request, such as ``Authorization``."""
    listen: bool = True
    """Whether to listen for messages that belong to no request, if the server offers that (HTTP-26)."""
    reinitialize: bool = True
    """Whether to open a new session when the server no longer knows the old one (SESS-06). Waiting requests fail with
    ``ConnectionLost`` then. Otherwise the connection ends."""
    fall_back: bool = True
    """Whether to try the HTTP+SSE transport of 2024-11-05 if the server knows no other (FALL-07)."""
    reconnect_after: float = attrs.field(default=1.0, validator=_time)
    """Seconds before a broken stream is resumed, or an answer sent again, doubled each time. For streams the server may
    set the first."""
    reconnect_at_most: float = attrs.field(default=30.0, validator=_time)
    """The most seconds before a broken stream is resumed, or an answer sent again."""
    reconnect_tries: int = attrs.field(default=5, validator=_count)
    """How often in a row a stream is resumed, an answer sent again, or a new session opened, without success before
    giving up."""
    redirects: int = attrs.field(default=5, validator=_count)
    """How many redirects in a row are followed, within the server's origin (HTTP-38)."""
    max_requests: int = attrs.field(default=64, validator=_count)
    """How many requests may be open at once. Further ones wait; answers and notifications do not."""
    tell_timeout: float = attrs.field(default=30.0, validator=_time)
    """Seconds for the server to acknowledge a notification or an answer, before that is given up and reported. Where it
    is sent again, they begin anew."""

    def delay(self, tries: int, least: float | None = None) -> float:
        """Return how many seconds to wait before the next try, after ``tries`` without success.

        ``least`` is what the server asked for (HTTP-21).
        """
        if least is not None:
            # After the first try our own delays hold too: a server may name a short time and then be gone.
            return max(least, self.delay(tries - 1) if tries else _SOONEST)
        return min(self.reconnect_after * 2.0 ** min(tries, 64), self.reconnect_at_most)


_SOONEST = 0.1
"""The least seconds: some servers say 0, and end each stream at once."""


# --------------------------------------------------------------------------------------------------------------- events
# Events of the HTTP client that its connection does not report.


@attrs.frozen
class SessionLost:
    """The server no longer knows the session (SESS-06). The requests that waited for answers have failed."""

    again_in: float | None
    """Seconds to wait before opening a new session by ``send_initialize`` on the same connection. ``None`` if the
    connection has ended, because ``reinitialize`` is off or new sessions were lost several times in a row."""


@attrs.frozen
class MessageRefused:
    """The server refused a notification, or an answer to one of its requests. No other event reports it (P11)."""

    error: McpError
    """The reason."""


@attrs.frozen
class ListeningEnded:
    """The listening stream ended. Messages that belong to no request are missed until the next request is answered."""

    error: McpError
    """The reason."""
    is_lost: bool = False
    """Whether the stream broke, rather than that the server offers none: it is opened again when the server answers
    the next request, which ``ListeningResumed`` reports."""


@attrs.frozen
class ListeningResumed:
    """The listening stream is open again after it was lost. Messages in between may have been missed."""


TransportEvent: TypeAlias = SessionLost | MessageRefused | ListeningEnded | ListeningResumed


# ------------------------------------------------------------------------------------------------------------- location
# The URL of a server, parsed, and how redirects and references resolve against it.

_PORTS = {"http": 80, "https": 443}
_UNIX = re.compile(r"(?P<scheme>https?)\+unix://(?P<path>[^/?#]*)")
_HOST = re.compile(r"[A-Za-z0-9._~%:-]+")


@attrs.frozen
class Location:
    """An ``http://`` or ``https://`` URL.

    In ``http+unix://`` and ``https+unix://`` URLs the percent-encoded path of a Unix socket takes the place of the
    host; the ``Host`` field is then ``localhost``.
    """

    scheme: str
    host: str
    """The host, in ASCII and without the brackets of an IPv6 address."""
    port: int
    target: str
    """The path with its query, as in the request line."""
    unix: str | None = None
    """The path of the Unix socket to connect to, in place of host and port; ``None`` for TCP."""

    @classmethod
    def parse(cls, url: str) -> Location:
        """Parse a URL. Raises ValueError if it is not one of a server, and TypeError if it is no string."""
        if (unix_match := _UNIX.match(required("url", url, str))) is not None:
            path = unquote(unix_match["path"])
            if not path or "\0" in path:
                example = "http+unix://%2Frun%2Fserver.sock/mcp"
                raise ValueError(f"a server's URL must name its socket, as in {example}, not {url!r:.100}")
            return attrs.evolve(cls.parse(f"{unix_match['scheme']}://localhost{url[unix_match.end() :]}"), unix=path)
        parts = urlsplit(url)
        # First of all: the other texts quote the URL.
        if parts.username is not None or parts.password is not None:
            raise ValueError("a server's URL must not contain credentials: give them as headers")
        if parts.scheme not in _PORTS:
            raise ValueError(f"a server's URL must begin with http:// or https://, not {url!r:.100}")
        if not parts.hostname:
            raise ValueError(f"a server's URL must name a host, not {url!r:.100}")
        # A UnicodeError of this is a ValueError too.
        host = parts.hostname if parts.hostname.isascii() else parts.hostname.encode("idna").decode()
        if _HOST.fullmatch(host) is None:
            raise ValueError(f"a server's URL must have the name or address of a host, not {url!r:.100}")
        if parts.port == 0:
            raise ValueError(f"a server's URL must have a port from 1 to 65535, not {url!r:.100}")
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        if not target.isascii() or any(character <= " " or character == "\x7f" for character in target):
            raise ValueError(f"a server's URL must have spaces and other characters percent-encoded, not {url!r:.100}")
        return cls(parts.scheme, host, parts.port or _PORTS[parts.scheme], target)

    @property
    def place(self) -> str:
        """The address to connect to, for messages."""
        return self.authority if self.unix is None else self.unix

    @property
    def authority(self) -> str:
        """The host, with the port unless it is the default: the value of the ``Host`` field."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def url(self) -> str:
        """The whole URL."""
        return f"{self.scheme}://{self.authority}{self.target}"

    def at(self, target: str) -> Location:
        """Return the location of another target of this origin."""
        return attrs.evolve(self, target=target)

    def join(self, reference: str) -> Location | None:
        """Resolve a reference against this URL; return ``None`` if it is invalid or of another origin (HTTP-38).

        Credentials must not be sent to another origin.
        """
        try:
            location = Location.parse(urljoin(self.url, reference))
        except ValueError:
            return None
        same = (location.scheme, location.host, location.port) == (self.scheme, self.host, self.port)
        same = same and location.unix in (None, self.unix)
        return attrs.evolve(location, unix=self.unix) if same else None


# ------------------------------------------------------------------------------------------------------------- mirrored
# The header fields of stateless requests, which repeat what stands in the body (HDR-01, HDR-02).

ParamHeaders: TypeAlias = Callable[[str], tuple[ParamHeader, ...]]
"""Returns the annotated arguments of a tool, as far as they are known."""


@attrs.frozen
class Mirrored:
    """The parts of a stateless message that its header fields repeat."""

    method: str
    revision: str
    fields: Headers


def mirrored(method: str, params: Mapping[str, Any], text: bytes, param_headers: ParamHeaders) -> Mirrored | None:
    """Return the parts of a request that header fields repeat; ``None`` for one of the handshake era."""
    meta = params.get("_meta")
    revision = meta.get(META_PROTOCOL_VERSION) if isinstance(meta, dict) else None
    if not isinstance(revision, str):
        return None
    fields = [(b"mcp-method", encode_field(method).encode())]
    name = mirrored_name(method, params)
    if name is not None:
        fields.append((b"mcp-name", encode_field(name).encode()))
        if method == "tools/call" and (headers := param_headers(name)):
            # As the server reads them: the arguments may hold enumerations and other values that JSON writes as plain.
            fields += param_fields(headers, loads(text)["params"].get("arguments"))
    return Mirrored(method, revision, fields)


# ------------------------------------------------------------------------------------------------------------- exchange
# The exchanges of a client: one request each, with the response received so far.

REDIRECTS: Final = (301, 302, 303, 307, 308)
"""The statuses that redirect to another location."""


class Purpose(enum.Enum):
    """The purpose of an exchange; the values stand in error messages."""

    method: str
    """The HTTP method."""

    def __new__(cls, value: str, method: str) -> Self:
        """Make a purpose of its value and its method."""
        purpose = object.__new__(cls)
        purpose._value_ = value
        purpose.method = method
        return purpose

    ASK = "a request", "POST"
    """A POST of a request that expects an answer."""
    TELL = "a notification or a response", "POST"
    """A POST that is only acknowledged."""
    RESUME = "the rest of an answer", "GET"
    """A GET for the rest of a broken stream."""
    LISTEN = "what belongs to no request", "GET"
    """A GET for messages that belong to no request."""
    LEGACY = "everything", "GET"
    """A GET for all output of a server of 2024-11-05."""
    END = "the end of the session", "DELETE"
    """A DELETE of the session."""


class ClientExchange:
    """One request, and the response to it so far."""

    __slots__ = (
        "began",
        "body",
        "denied",
        "head",
        "is_handshake",
        "may_repeat",
        "media_type",
        "mirrored",
        "number",
        "operation",
        "owed",
        "parser",
        "purpose",
        "redirects",
        "requests",
        "resumes",
        "retry",
        "session_id",
        "target",
        "text",
        "tries",
        "was_open",
    )

    requests: tuple[OutgoingId, ...]
    """The engine's requests that it is to answer."""
    owed: int
    """How many of them have no outcome yet."""
    operation: tuple[str, ...]
    """The method of its request, and the tool, prompt or resource: authorizers count step-ups by it (AUTH-35)."""
    resumes: str | None
    """The last event that was seen of the stream that it resumes."""
    may_repeat: bool
    """Whether its request may be sent again where it is unknown whether it arrived."""
    is_handshake: bool
    """Whether it carries ``initialize``, before which nothing else may be sent."""
    mirrored: Mirrored | None
    """The parts of its message that header fields repeat; ``None`` for a message of the handshake era."""
    session_id: str | None
    """The session that it names."""
    began: float
    """When it was sent."""
    tries: int
    """How often in a row the stream was resumed without any event, or the message sent again."""
    denied: McpError | None
    """Why it cannot be authorized."""
    retry: float | None
    """Seconds to wait before resuming it, as the server said."""
    was_open: bool
    """Whether its stream was open at some time."""
    media_type: str
    """The media type of the response."""

    def __init__(
        self,
        number: int,
        purpose: Purpose,
        target: str,
        *,
        text: bytes = b"",
        requests: tuple[OutgoingId, ...] = (),
        resumes: str | None = None,
    ) -> None:
        self.number: int = number
        self.purpose: Purpose = purpose
        self.target: str = target
        self.text: bytes = text
        self.requests = requests
        self.owed = len(requests)
        self.resumes = resumes
        self.mirrored = None
        self.operation = (purpose.name,)
        self.is_handshake = self.was_open = False
        self.may_repeat = purpose.method in _SAFE
        self.redirects: int = 0
        self.tries = 0
        self.retry = self.denied = None

    def begin(self, session_id: str | None, now: float) -> None:
        """Start an attempt in a session, and drop the response to an earlier one."""
        self.session_id = session_id
        self.began = now
        self.head: ResponseHead | None = None
        self.media_type = ""
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
        id = None if self.parser is None else self.parser.last_id
        if id is None:
            return self.resumes
        return id if _USABLE_ID.fullmatch(id) else None

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
        return isinstance(message, jsonrpc.Error | jsonrpc.Result) and message.id in self.requests

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
        reason = "; ".join(challenges) or self._quote() or "it does not say what it wants"
        text = f"the server refuses {self.purpose.value} with status {head.status}: {reason}"
        return AuthorizationRequired(
            text,
            status=head.status,
            challenges=challenges,
            nonce=header(head, b"dpop-nonce"),
            date=header(head, b"date"),
            is_without_auth=is_without_auth,
        )

    def unexpected(self, head: ResponseHead, reason: str | None = None) -> UnexpectedResponse:
        """Return the error for a response that does not fit the request."""
        if reason is None:
            kind = media_type(head)
            what = (kind if self.body else f"{kind} without a body") if kind else "nothing"
            reason = f"{what} in answer to {self.purpose.value}"
        return UnexpectedResponse(head.status, reason, self._quote())

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
            what = "a malformed message"
        else:
            error = ConnectionLost("the response ended without the answer")
            what = "a message that is not the answer" if self.body else "an event stream that ended before the answer"
        error.__cause__ = None if self.head is None else self.unexpected(self.head, what)
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
    open: dict[Any, ClientExchange]
    """The open ones by their numbers. Any hashable value may be looked up."""

    def __init__(self, target: str, headers: Mapping[str, str], authorizer: Authorizer | None = None) -> None:
        """``headers`` are sent with every request, and those of the ``authorizer``."""
        self.now = float("-inf")
        self.timers = Timers()
        self.target = target
        self.open = {}
        self._later: dict[int, ClientExchange] = {}
        self._items: list[RequestItem] = []
        self._next = 1
        self._authorizer = authorizer
        self._resting: set[int] = set()
        self._headers = tuple((name.lower().encode(), value.encode()) for name, value in headers.items())

    def set_time(self, now: float) -> None:
        """Note the time. Raises ``LocalProtocolError`` for other values."""
        check_time(now)
        self.now = max(now, self.now)

    def __len__(self) -> int:
        """Return how many are open."""
        return len(self.open)

    @property
    def subscriptions(self) -> int:
        """How many of the open ones are subscriptions, which stay open as long as something listens."""
        return sum(exchange.is_subscription for exchange in self.open.values())

    def __contains__(self, exchange: ClientExchange) -> bool:
        """Return whether an exchange is open, or begins later."""
        return exchange.number in self.open or exchange.number in self._later

    def get(self, number: object) -> ClientExchange | None:
        """Return the exchange with that number, if it is open."""
        return self.open.get(number) if isinstance(number, int) else None

    def new(
        self,
        purpose: Purpose,
        *,
        text: bytes = b"",
        requests: tuple[OutgoingId, ...] = (),
        resumes: str | None = None,
    ) -> ClientExchange:
        """Return an exchange whose request was not sent."""
        exchange = ClientExchange(self._next, purpose, self.target, text=text, requests=requests, resumes=resumes)
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
        self.open[exchange.number] = exchange
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
        self._items.append(
            RequestHead(
                exchange.number, exchange.purpose.method, exchange.target, headers, may_repeat=exchange.may_repeat
            )
        )
        if exchange.text:
            self._items.append(Body(exchange.number, exchange.text))
        self._items.append(End(exchange.number))
        return True

    def rest(self, exchange: ClientExchange) -> None:
        """Keep an exchange that waits for the authorizer. It counts as open, and its timeouts stop."""
        self.open[exchange.number] = exchange
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
        if exchange.number in self.open and exchange.number not in self._resting:
            self._items.append(Reset(exchange.number))  # the driver knows nothing of those that rest, or begin later
        self.forget(exchange)

    def cut_all(self, *, but: ClientExchange | None = None) -> None:
        """Break off all exchanges but one."""
        for exchange in [*self.open.values(), *self._later.values()]:
            if exchange is not but:
                self.cut(exchange)

    def forget(self, exchange: ClientExchange) -> None:
        """Drop an exchange that has ended."""
        self.open.pop(exchange.number, None)
        self._later.pop(exchange.number, None)
        self._resting.discard(exchange.number)
        self.timers.clear(exchange.number)
        if self._authorizer is not None:
            self._authorizer.drop(exchange.number)

    def end_soon(self, exchange: ClientExchange, delay: float) -> None:
        """Break off an exchange in ``delay`` seconds if it has not ended; drop one that has not begun, or rests."""
        if exchange.number in self._later or exchange.number in self._resting:
            self.forget(exchange)
        elif exchange.number in self.open:
            self.timers.set(exchange.number, self.now + delay)

    @property
    def collected_bytes(self) -> int:
        """Memory of all unfinished messages, in bytes."""
        return sum(exchange.collected_bytes for exchange in self.open.values())

    @property
    def longest(self) -> ClientExchange:
        """The exchange with the longest unfinished message, the first of several. Some exchange is open."""
        return max(self.open.values(), key=lambda exchange: exchange.collected_bytes)

    def pop_items(self) -> list[RequestItem]:
        """Remove and return the items to send."""
        items, self._items = self._items, []
        return items

    @property
    def is_idle(self) -> bool:
        """Whether no exchange is open, and no item waits."""
        return not self.open and not self._items


def headers_named(head: ResponseHead, name: bytes) -> list[str]:
    """Return the values of all header fields with a name."""
    return [value.decode("latin-1") for each, value in head.headers if each == name]


def header(head: ResponseHead, name: bytes) -> str | None:
    """Return the value of the first header field with a name, or ``None``."""
    for each, value in head.headers:
        if each == name:
            return value.decode("latin-1")
    return None


def media_type(head: ResponseHead) -> str:
    """Return the media type of a response in lower case, without parameters."""
    return (header(head, b"content-type") or "").partition(";")[0].strip().lower()


def takes_any_event_type(profiles: Collection[Profile]) -> bool:
    """Return whether a profile accepts messages in server-sent events of any type (D12)."""
    if not profiles:
        return False
    from mcpio.profiles import DIALECTS

    return any(DIALECTS[profile].any_event_type for profile in profiles)


_QUOTE: Final = 200
_USABLE_ID = re.compile(r"[^\x00-\x20\x7f]([^\x00-\x1f\x7f]{0,1022}[^\x00-\x20\x7f])?")
"""Event ids that can stand in a header field."""


# --------------------------------------------------------------------------------------------------------------- client
# Streamable HTTP as a machine for clients: messages become requests, responses become messages.
# The obligation after every call that is not a mere look: *drain the events, make the requests, re-arm the deadline.*

HttpClientEvent: TypeAlias = Event | TransportEvent
"""The events of the connection, and those of this transport."""

LEAVE_TIMEOUT: Final = 5.0
"""Seconds in all for the last messages and the end of the session (SESS-08)."""

TRAILING_TIMEOUT: Final = 2.0
"""Seconds that a response may continue after its last answer, before it is cut off."""

LISTEN_TIMEOUT: Final = 0.5
"""Seconds that requests wait for the listening stream: messages that the server sends before it may be lost."""

FALLBACK: Final = (400, 404, 405)
"""Statuses for ``initialize`` of servers that may know only the transport of 2024-11-05 (FALL-07)."""

LATER: Final = (429, 502, 503, 504)
"""Statuses of servers that are overloaded or restarting, and of proxies in front of them."""

REPEATABLE: Final = ("notifications/initialized", "notifications/cancelled", "notifications/roots/list_changed")
"""Notifications that change nothing when they arrive twice, or late. Progress and the status of a task are followed by
newer ones, which an older one must not overtake, and what others mean is not known here."""


class Stage(enum.Enum):
    """The phase of a session. A session that the server lost starts over."""

    NEW = "new"
    """Nothing was sent: ``initialize`` may be sent."""
    OPENING = "opening"
    """``initialize`` is in flight, and then ``notifications/initialized``; nothing else may be sent."""
    OPEN = "open"
    """Requests go in parallel."""
    LEAVING = "leaving"
    """The connection has closed; the last messages are going out."""
    LEFT = "left"
    """Everything is sent, and the server was notified of the end."""


_NEVER: Final = float("inf")
_ITEMS: Final = frozenset([ResponseHead, Body, End, Reset])
_UNOPENED: Final = (Stage.NEW, Stage.OPENING)


class HttpClient:
    """One client of one server, over HTTP. It owns the engine.

    Act on ``connection``; ``requests_to_send`` then gives the HTTP requests to make, and ``receive`` takes the
    responses. Each exchange is one HTTP request, and any number may be open at once. The machine reads no clock and
    waits for nothing. Requests of the protocol go in parallel. Notifications and answers go one after the other, so
    that they arrive in order. Nothing overtakes the handshake.
    """

    param_headers: ParamHeaders
    """Returns which arguments of a tool header fields have to repeat."""
    _session_id: str | None
    _stage: Stage
    _must_listen_again: bool
    _has_lost_listening: bool
    """Whether ``ListeningEnded`` said that the stream was lost, and none has been open since."""
    _mirrors: bool
    """Whether header fields repeat what requests say: until a session is open, and always in the stateless era."""
    _opened_at: float

    def __init__(
        self,
        connection: ClientConnection,
        location: Location,
        *,
        options: HttpClientOptions | None = None,
        session_id: str | None = None,
        authorizer: Authorizer | None = None,
        param_headers: ParamHeaders = lambda _: (),
    ) -> None:
        """Make the client of a server.

        Args:
            connection: The engine.
            location: The URL of the server.
            options: Header fields, listening, and reconnection.
            session_id: The session in which a restored connection goes on: see ``save``.
            authorizer: Authorizes the requests, and is this client's own. Do the effects of ``next_effect``, and answer
                them to the authorizer; ``next_deadline`` and ``handle_timeout`` are its too.
            param_headers: Returns which arguments of a tool header fields have to repeat.

        Raises ValueError if there is an ``authorizer`` beside an ``Authorization`` field in the options.

        """
        self.connection: ClientConnection = required("connection", connection, ClientConnection)
        self.authorizer = authorizer
        if authorizer is not None:
            called("authorizer", getattr(authorizer, "authorize", authorizer))
        required("location", location, Location)
        checked("session_id", session_id, str)
        called("param_headers", param_headers)
        options = chosen("options", options, HttpClientOptions)
        connection.over_http = True
        self.param_headers = param_headers
        self._location = location
        self._options = options
        has_own = any(name.lower() == "authorization" for name in self._options.headers)
        self._is_without_auth = authorizer is None and not has_own
        if authorizer is not None and has_own:
            raise ValueError("headers must not have Authorization beside auth=: only one of them can be sent")
        self._limits = connection.options.limits
        self._held = connection.held
        self._exchanges = ClientExchanges(location.target, self._options.headers, authorizer)
        self._events: deque[TransportEvent] = deque()
        # Requests, and notifications and answers, which may not be sent yet.
        self._asks = _Queue()
        self._tells = _Queue()
        # By request without an outcome: the exchange that is to bring it.
        self._by_request: dict[OutgoingId, ClientExchange] = {}
        # Exchanges whose response is complete. Whether it brought all answers shows when the events are drained.
        self._owing: list[ClientExchange] = []
        # The notification or answer in flight, the request that opens the session, and the first listening stream while
        # requests wait for it. Each may name an exchange that has ended: ask ``_exchanges`` whether it is open.
        self._telling: ClientExchange | None = None
        self._opening: ClientExchange | None = None
        self._first_listening: ClientExchange | None = None
        self._is_legacy = False
        # The request that waits for the address of a 2024-11-05 server, and the error if there is no such server.
        self._before_endpoint: tuple[ClientExchange, McpError] | None = None
        # How many sessions in a row were lost before they answered any request.
        self._fruitless = 0
        # Whether a session was ever open, and whether the engine's timeouts stand still for a login.
        self._was_open = self._holds = False
        self._any_event_type = takes_any_event_type(connection.options.profiles)
        self._forget_session()
        self._session_id = session_id

    # Pull

    def next_event(self) -> HttpClientEvent | None:
        """Return what happened next, or ``None`` for "feed me"."""
        event = self.connection.next_event()
        if event is None:
            return self._events.popleft() if self._events else None
        if isinstance(event, ResponseReceived | RequestFailed | Negotiated):
            self._settle(event)
        return event

    def next_effect(self) -> Effect | None:
        """Return the next effect of the authorizer, or ``None``. Pull them after the requests."""
        return None if self.authorizer is None else self.authorizer.next_effect()

    def requests_to_send(self, now: float) -> list[RequestItem]:
        """Return the HTTP requests to make, in order: whole requests, and ``Reset`` for those to break off.

        Drain the events before and after: the connection may end when nothing is left to send.
        """
        exchanges = self._exchanges
        if now.__class__ is float and exchanges.now <= now < _NEVER:
            exchanges.now = now
        else:
            exchanges.set_time(now)
        if self._owing:
            self._see_what_is_owed()
        self._send_what_may_go()
        # While logins fail, the authorizer fails the requests that were just made, and others may take their places.
        while self.authorizer is not None and self._make_authorized(self.authorizer):
            self._send_what_may_go()
        # Answers that wait hold back the server's requests. Our own requests do not: the server did not ask for them.
        if self._held.unwritten != self._tells.size:
            self.connection.set_unwritten(self._tells.size)
        self._held.own = self._asks.size
        if self.connection.phase is Phase.CLOSED:
            self._leave()
        return self._exchanges.pop_items()

    # Feed

    def receive(self, item: ResponseItem, now: float) -> None:
        """Process an item of a response. Never raises for the server's input.

        ``Reset`` says that the exchange broke, or that there was no connection for it. If its cause is an ``McpError``,
        the requests of the exchange fail with it. Items of no open exchange are ignored.
        """
        self.receive_all((item,), now)

    def receive_all(self, items: Sequence[ResponseItem], now: float) -> None:
        """Process items of responses, as ``receive`` would one after the other."""
        exchanges = self._exchanges
        if now.__class__ is float and exchanges.now <= now < _NEVER:
            exchanges.now = now
        else:
            exchanges.set_time(now)
        for item in items:
            if item.__class__ not in _ITEMS:
                raise TypeError(f"receive() must get a ResponseHead, Body, End or Reset, not {item!r:.100}")
            call = exchanges.open.get(item.exchange)
            if call is None:
                continue
            if isinstance(item, ResponseHead):
                self._take_head(call, item)
            elif isinstance(item, Body):
                self._take_body(call, item.data)
            elif self.authorizer is None or not isinstance(item, End) or not self._is_made_again(call, self.authorizer):
                exchanges.forget(call)
                if isinstance(item, End) and call.head is not None:
                    self._complete(call, call.head)
                else:
                    self._break(call, item.cause if isinstance(item, Reset) else None)
                if self._stage is Stage.LEFT and not exchanges.open:
                    exchanges.timers.clear(LEAVING)  # that was the end of the session

    def wants_read(self, exchange: object) -> bool:
        """Return whether to read the response of an exchange now. False means "not now": ask again after each turn.

        Streams are not read while too many answers wait for the server to take them. While unfinished messages take
        half of ``Limits.peer_bytes``, only the longest of them is read to its end.
        """
        call = self._exchanges.open.get(exchange)
        if call is None or call.head is None or call.purpose in (Purpose.TELL, Purpose.END):
            return True
        if call.parser is not None and (
            # Output does not depend on streams, so they need not be read while answers wait to be sent.
            self._tells.size > self._limits.high_water or not self.connection.wants_read
        ):
            return False
        collected = call.collected_bytes
        if collected <= BACKLOG or self._exchanges.collected_bytes <= self._limits.peer_bytes // 2:
            return True
        return call is self._exchanges.longest

    # Time

    def next_deadline(self) -> float | None:
        """Return when ``handle_timeout`` is due, on the caller's clock, or ``None``. Every call may change it."""
        own, engine = self._exchanges.timers.next(), self.connection.next_deadline()
        if self.authorizer is not None and (login := self.authorizer.next_deadline()) is not None:
            own = login if own is None else min(own, login)
        return own if engine is None else engine if own is None else min(own, engine)

    def handle_timeout(self, now: float) -> None:
        """Handle the deadlines up to ``now``. Early or repeated calls do nothing."""
        exchanges = self._exchanges
        if now.__class__ is float and exchanges.now <= now < _NEVER:
            exchanges.now = now
        else:
            exchanges.set_time(now)
        if self.authorizer is not None:
            self.authorizer.handle_timeout(now)
        self.connection.handle_timeout(now)
        for number in self._exchanges.timers.pop_expired(now):
            if number == LEAVING:
                self._tells.clear()
                self._exchanges.cut_all()
            elif (due := self._exchanges.pop_due(number)) is not None:
                self._request(due)
            elif (call := self._exchanges.get(number)) is not None:
                self._let_expire(call)

    # Look

    @property
    def closed(self) -> bool:
        """Whether the connection has ended and the server was notified."""
        return self._stage is Stage.LEFT and self.connection.closed and self._exchanges.is_idle

    @property
    def has_events(self) -> bool:
        """Whether ``next_event`` has events to give without being fed."""
        return bool(self._events) or self.connection.has_events

    @property
    def has_session(self) -> bool:
        """Whether the server keeps a session, and so can ask its client. After a handshake some do not."""
        return self._is_legacy or self._session_id is not None

    def save(self) -> str | None:
        """Return the id of the session, to resume it elsewhere; ``None`` without one. It is a credential (SESS-09).

        Raises LocalProtocolError while messages are on their way to the server, and on the transport of 2024-11-05.
        """
        if self._is_legacy:
            raise LocalProtocolError("by the transport of 2024-11-05 a session ends with its stream")
        if self._tells.size or self._asks.size or self._is_telling:
            raise LocalProtocolError("write the output before taking a snapshot")
        return self._session_id

    # Requests

    def _send_what_may_go(self) -> None:
        connection = self.connection
        while connection.wants_write and (message := connection.next_message()) is not None:
            if message.requests:
                self._asks.append(message)
            elif not self._is_cancellation(message):
                self._tells.append(message)
        if not self._exchanges.target:
            return  # an older server has not told where to POST to
        if self._tells.size and not self._is_telling:
            self._post(self._tells.popleft())
        is_settled = self._stage in _UNOPENED and not self._tells.size and not self._is_telling
        if is_settled and connection.phase is Phase.OPERATING:
            # ``notifications/initialized`` has arrived.
            self._stage = Stage.OPEN
            self._was_open = True
            self._mirrors = self._is_stateless
            self._opened_at = self._exchanges.now
            if self._options.listen and not self._is_legacy and not self._mirrors:
                self._listen(first=True)
        while self._asks.size and self._may_ask:
            self._post(self._asks.popleft())

    @property
    def _is_telling(self) -> bool:
        return self._telling is not None and self._telling in self._exchanges

    @property
    def _may_ask(self) -> bool:
        if self._stage is Stage.OPENING and self._opening is not None:
            # A probe that was answered leads to another one, or to ``initialize``.
            return self._opening.is_probe and not any(map(self.connection.is_pending, self._opening.requests))
        if self._stage in _UNOPENED:
            return self._stage is Stage.NEW
        if self._first_listening is not None and self._first_listening in self._exchanges:
            return False
        running, most = len(self._exchanges.open), self._options.max_requests
        # Subscriptions do not count: as many as ``max_requests`` of them would keep every other request waiting.
        return running < most or (self._is_stateless and running - self._exchanges.subscriptions < most)

    @property
    def _is_stateless(self) -> bool:
        revision = self.connection.revision
        return revision is not None and revision.era is Era.STATELESS

    def _is_cancellation(self, message: Outgoing) -> bool:
        """Return whether a message cancels a stateless request: over HTTP the end of its stream does (PAT-06)."""
        if not self._is_stateless and self.connection.phase is not Phase.DISCOVERING:
            return False
        return _method(message) == "notifications/cancelled"

    def _post(self, message: Outgoing) -> None:
        if not message.requests:
            self._telling = self._exchanges.new(Purpose.TELL, text=message.text)
            self._telling.may_repeat = message.kind == Kind.RESPONSE or _method(message) in REPEATABLE
            self._request(self._telling)
        elif any(map(self.connection.is_pending, message.requests)):  # others were cancelled before they could go
            call = self._exchanges.new(Purpose.ASK, text=message.text, requests=message.requests)
            # A repeated opening does no harm: at most it leaves a session that expires.
            call.is_handshake = call.may_repeat = self._stage in _UNOPENED
            if message.call is not None:  # a batch has no header fields
                method, params = message.call
                if self._mirrors:
                    call.mirrored = mirrored(method, params, message.text, self.param_headers)
                if self.authorizer is not None:
                    names = (params.get("name"), params.get("uri"))
                    call.operation = (method, *(name for name in names if isinstance(name, str)))
            if call.is_handshake:
                self._stage, self._opening = Stage.OPENING, call
            self._by_request.update(dict.fromkeys(message.requests, call))
            self._request(call)

    def _listen(self, *, first: bool = False) -> None:
        """Listen for messages that belong to no request; the ``first`` time, requests wait for it for a while."""
        self._must_listen_again = False
        call = self._exchanges.new(Purpose.LISTEN)
        if first:
            self._first_listening = call
        self._request(call)

    def _request(self, call: ClientExchange) -> None:
        """Send the request of an exchange: for the first time, or again for a redirect or with another token."""
        repeated = call.mirrored
        revision = None if call.is_handshake or repeated is not None else self.connection.revision
        # No person is asked for the sake of streams that are taken up again, or a session that is opened again.
        reopens = self._was_open and self._stage in _UNOPENED
        background = reopens or call.purpose in (Purpose.LISTEN, Purpose.RESUME, Purpose.END)
        named = repeated.revision if repeated is not None else None if revision is None else revision.name
        session_id = self._session_id if repeated is None else None
        url = None if self.authorizer is None else self._location.at(call.target).url
        if not self._exchanges.make(call, session_id, named, url=url, background=background):
            if call.purpose is Purpose.END:
                # The end of a session is not worth a login.
                self._exchanges.forget(call)
        elif call is self._telling:
            self._exchanges.timers.set(call.number, self._exchanges.now + self._options.tell_timeout)
        elif call is self._first_listening:
            self._exchanges.timers.set(call.number, self._exchanges.now + LISTEN_TIMEOUT)

    # Authorization

    def _make_authorized(self, authorizer: Authorizer) -> bool:
        """Send the requests that no longer wait; return whether there were any.

        Timeouts stop while a person logs in.
        """
        has_acted = False
        while (ready := authorizer.next_ready()) is not None:
            has_acted = True
            call = self._exchanges.get(ready.call)
            assert call is not None  # the authorizer drops those that are forgotten
            if ready.error is None:
                self._request(call)
            else:
                self._exchanges.forget(call)
                self._fail(call, ready.error)
        if authorizer.waits_for_person is not self._holds:
            self._holds = not self._holds
            if self._holds:
                self.connection.hold(self._exchanges.now)
            else:
                self.connection.release(self._exchanges.now)
        return has_acted

    def _is_made_again(self, call: ClientExchange, authorizer: Authorizer) -> bool:
        """Return whether a request that was refused is made again, at once or with the next token."""
        head = call.head
        if head is None or head.status not in (401, 403) or call.purpose is Purpose.END:
            return False
        challenges = headers_named(head, b"www-authenticate")
        if head.status == 403 and not challenges:
            return False  # a firewall, or a check of Host or Origin: no token would help
        nonce = header(head, b"dpop-nonce")
        now, date = self._exchanges.now, header(head, b"date")
        verdict = authorizer.refused(call.number, head.status, challenges, now, nonce=nonce, date=date)
        if isinstance(verdict, McpError):
            call.denied = verdict
            return False
        self._exchanges.rest(call)
        if verdict is verdict.RETRY:
            self._request(call)
        return True

    # Responses, as they come

    def _take_head(self, call: ClientExchange, head: ResponseHead) -> None:
        call.head = head
        fields = dict(reversed(head.headers))  # the first of each name
        content_type = fields.get(b"content-type", b"")
        call.media_type = content_type.partition(b";")[0].strip().lower().decode("latin-1")
        if self.authorizer is not None and head.status not in (401, 403):
            self.authorizer.succeeded(call.number, nonce=header(head, b"dpop-nonce"))
        if call is self._first_listening:
            self._first_listening = None
            self._exchanges.timers.clear(call.number)
        encoding = fields.get(b"content-encoding", b"identity").decode("latin-1") or "identity"
        opens = call.is_handshake and call.purpose is Purpose.ASK and not self._is_legacy and not call.is_probe
        if opens and head.status == 200 and not self._take_session_id(call, head):
            return
        if call is self._telling and 200 <= head.status < 300:
            # The message has arrived. The rest of the response must not hold up the next one.
            self._telling = None
            self._exchanges.timers.set(call.number, self._exchanges.now + TRAILING_TIMEOUT)
        elif head.status == 200 and encoding.strip().lower() != "identity":
            self._refuse(call, head, f"a response in the encoding {encoding!r:.60}, which was not requested")
        elif head.status == 200 and call.media_type == "text/event-stream" and call.purpose is not Purpose.TELL:
            call.parser = SseParser(self._limits.message_bytes)
            call.was_open = True
            if call.purpose is Purpose.LISTEN and self._has_lost_listening:
                self._has_lost_listening = False
                self._events.append(ListeningResumed())

    def _take_session_id(self, call: ClientExchange, head: ResponseHead) -> bool:
        """Store the id of the session that the server opened (SESS-01, SESS-02); refuse an invalid one."""
        id = header(head, b"mcp-session-id")
        if id is not None and not (id and all("!" <= character <= "~" for character in id)):
            self._refuse(call, head, f"the session id {id!r:.60}, which is not visible ASCII")
            return False
        self._session_id = id
        return True

    def _take_body(self, call: ClientExchange, data: bytes) -> None:
        most = self._limits.message_bytes
        if call.parser is not None:
            for event in call.parser.receive(data):
                self._take_event(call, event)
        elif call.purpose is not Purpose.TELL or call is self._telling:
            call.body += data
        if call.head is not None and (len(call.body) > most or (call.parser is not None and call.parser.is_too_large)):
            self._refuse(call, call.head, f"a response of more than {most} bytes")

    def _take_event(self, call: ClientExchange, event: ServerSentEvent) -> None:
        call.tries = 0
        if event.retry is not None:
            call.retry = event.retry / 1000
        if call.purpose is Purpose.LEGACY and event.type == "endpoint":
            self._take_endpoint(call, event.data or "")
        elif event.data and (event.type == "message" or self._any_event_type):
            # An event without data only sets the id (RESUME-07).
            self.connection.receive_message(event.data, self._exchanges.now)

    def _refuse(self, call: ClientExchange, head: ResponseHead, reason: str) -> None:
        """Break off a response that cannot be used."""
        self._exchanges.cut(call)
        self._fail(call, call.unexpected(head, reason))

    def _settle(self, event: ResponseReceived | RequestFailed | Negotiated) -> None:
        """Account for the outcome of one of our requests."""
        call = None if event.id is None else self._by_request.pop(event.id, None)
        if call is None:
            return
        call.owed -= 1
        if isinstance(event, ResponseReceived):
            self._fruitless = 0
            if self._must_listen_again:
                self._listen()  # a server that answers again may be listened to again
        if not call.owed and call.mirrored is not None and isinstance(event, RequestFailed):
            # The end of the stream is what tells the server that nothing waits for the answer (PAT-06).
            self._exchanges.cut(call)
        elif not call.owed:
            # Some servers leave the stream open behind the answer.
            self._exchanges.end_soon(call, TRAILING_TIMEOUT)

    # Responses, when they are whole

    def _complete(self, call: ClientExchange, head: ResponseHead) -> None:
        if call.purpose is Purpose.END:
            return  # any status will do, 405 too: the session is over for us (SESS-08)
        if head.status in REDIRECTS:
            self._follow(call, head)
        elif head.status == 404 and self._is_session_gone(call):
            if call.purpose is Purpose.ASK:
                # Before the others fail: the server refused these, so it has certainly not acted on them.
                error = ConnectionLost("the server no longer knows the session", unprocessed=True)
                for id in call.requests:
                    self.connection.fail_request(id, error, self._exchanges.now)
            self._lose_session()
        elif head.status in (401, 403):
            self._fail(call, call.denied or call.unauthorized(head, is_without_auth=self._is_without_auth))
        elif not 200 <= head.status < 300:
            self._reject(call, head)
        elif call.parser is not None:
            self._owing.append(call)
        elif call.purpose is Purpose.ASK and call.body and call.media_type == "application/json":
            self.connection.receive_message(bytes(call.body), self._exchanges.now)
            self._owing.append(call)
        elif call.purpose is not Purpose.TELL and not (call.purpose is Purpose.ASK and self._is_legacy):
            # A server of 2024-11-05 only acknowledges a request here, and answers on the listening stream (FALL-01).
            self._fail(call, call.unexpected(head))

    def _is_session_gone(self, call: ClientExchange) -> bool:
        """Return whether a 404 means that (SESS-06). Some servers answer GET with it and mean 405 (HTTP-27)."""
        named = call.session_id is not None and call.session_id == self._session_id
        return named and (call.purpose is not Purpose.LISTEN or call.was_open)

    def _reject(self, call: ClientExchange, head: ResponseHead) -> None:
        """Handle an error status."""
        is_temporary = head.status >= 500 or head.status == 429
        if call.is_probe and is_temporary:
            # Even with an answer in it, this says nothing of the era (ERA-07).
            self._fail(call, call.unexpected(head))
        elif call.holds_answer(head):
            self.connection.receive_message(call.text_received, self._exchanges.now)
            self._owing.append(call)
        elif self._may_fall_back(call, head):
            self._fall_back(call, call.refusal(head))
        elif call.purpose is Purpose.RESUME or (call.purpose is Purpose.LISTEN and call.was_open):
            self._resume(call, call.unexpected(head), is_worth_it=is_temporary)
        elif call.purpose is Purpose.LISTEN and self._has_lost_listening and is_temporary:
            self._resume(call, call.unexpected(head))  # it was offered before
        elif call.purpose is Purpose.TELL and head.status in LATER:
            self._tell_again(call, call.refusal(head))
        elif call.purpose is not Purpose.LISTEN or self._has_lost_listening:
            # A server need not offer listening (HTTP-27): that is reported only where it has offered it before.
            self._fail(call, call.refusal(head))

    def _may_fall_back(self, call: ClientExchange, head: ResponseHead) -> bool:
        """Return whether an error status may mean the transport of 2024-11-05."""
        is_first = call.is_handshake and not call.is_probe and not self._is_legacy
        return is_first and head.status in FALLBACK and self._options.fall_back

    def _follow(self, call: ClientExchange, head: ResponseHead) -> None:
        """Follow a redirect, within the origin (HTTP-38)."""
        location = call.leads_to(head, self._location) if call.redirects < self._options.redirects else None
        if location is None:
            reason = f"a redirect that is not followed, to {header(head, b'location') or ''!r:.200}"
            self._fail(call, call.unexpected(head, reason))
            return
        call.redirects += 1
        if head.status == 308 and call.target == self._exchanges.target:
            self._exchanges.target = location.target  # permanent (RFC 9110, 15.4.9)
        call.target = location.target
        self._request(call)

    def _fail(self, call: ClientExchange, error: McpError) -> None:
        """Fail the requests of an exchange, or report the failure by an event."""
        if call.purpose is Purpose.RESUME and isinstance(error, UnexpectedResponse):
            error = call.lost(error)
        if call.purpose is Purpose.TELL:
            self._events.append(MessageRefused(error))
        elif call.purpose is Purpose.LISTEN:
            # Without a connection, the server has not said whether it offers listening.
            is_lost = call.was_open or isinstance(error, ConnectionLost)
            self._must_listen_again = self._has_lost_listening = is_lost
            self._events.append(ListeningEnded(error, is_lost))
        for id in call.requests:
            self.connection.fail_request(id, error, self._exchanges.now)
        if call.purpose is Purpose.LEGACY:
            self._lose_legacy(call, error)
        elif call.is_handshake and (not call.is_probe or self.connection.phase is Phase.DISCOVERING):
            # The engine has judged what a probe failed with, unless that was a loss.
            self.connection.connection_lost(error, self._exchanges.now)

    # Sessions

    def _lose_session(self) -> None:
        """Handle a session that the server no longer knows (SESS-06)."""
        # ``reset_session`` or ``connection_lost`` below fails the requests, so nothing is owed any more. What waits to
        # be sent belongs to the lost session too.
        self._exchanges.cut_all()
        self._owing.clear()
        self._by_request.clear()
        self._asks.clear()
        self._tells.clear()
        options = self._options
        if self._exchanges.now - self._opened_at >= options.reconnect_at_most:
            self._fruitless = 0  # it lasted: this server does keep sessions
        self._forget_session()
        if not options.reinitialize or self._fruitless >= options.reconnect_tries:
            error = ConnectionLost("the server no longer knows the session")
            self.connection.connection_lost(error, self._exchanges.now)
            self._events.append(SessionLost(None))
            return
        self.connection.reset_session(self._exchanges.now)
        wait = self._options.delay(self._fruitless - 1) if self._fruitless else 0.0
        self._fruitless += 1
        self._events.append(SessionLost(wait))

    def _forget_session(self) -> None:
        self._session_id = None
        self._stage, self._mirrors = Stage.NEW, True
        self._must_listen_again = self._has_lost_listening = False
        self._opened_at = self._exchanges.now

    # Streams that break

    def _break(self, call: ClientExchange, cause: BaseException | None) -> None:
        """Handle a broken exchange: resume its stream, or fail its requests."""
        if call.purpose in (Purpose.RESUME, Purpose.LISTEN) or (
            call.purpose is Purpose.ASK and call.last_id is not None
        ):
            self._resume(call, cause)
        elif call is self._telling:
            self._tell_again(call, call.lost(cause))
        elif call.purpose not in (Purpose.END, Purpose.TELL):
            self._fail(call, call.lost(cause))

    def _tell_again(self, call: ClientExchange, error: McpError) -> None:
        """Send a notification or an answer again after a delay, before all later ones, or report the failure.

        A request of the server waits for the answer, and both sides may take it twice: the server ignores the second.
        """
        may_repeat = call.may_repeat or isinstance(error, ConnectFailed)  # of which nothing was sent
        if self.connection.phase is Phase.CLOSED and may_repeat and not call.tries:
            call.tries = self._options.reconnect_tries  # for the last time, as ``_leave`` sends one that waits
            self._request(call)
            return
        if not may_repeat or call.tries >= self._options.reconnect_tries or self.connection.phase is Phase.CLOSED:
            self._fail(call, error)
            return
        self._exchanges.make_later(call, self._options.delay(call.tries))
        call.tries += 1

    def _see_what_is_owed(self) -> None:
        """Check, now that their messages were handled, whether complete responses brought all answers."""
        owing, self._owing = self._owing, []
        for call in owing:
            if call.purpose is Purpose.LEGACY:
                self._fail(call, call.lost(None))
            elif call.purpose is Purpose.LISTEN or any(map(self.connection.is_pending, call.requests)):
                if call.purpose is not Purpose.ASK or call.last_id is not None:
                    self._resume(call, None)
                else:
                    self._fail(call, call.without_answer())

    def _resume(self, call: ClientExchange, cause: BaseException | None, *, is_worth_it: bool = True) -> None:
        """Resume a stream after a delay (RESUME-03, RESUME-06, HTTP-21)."""
        if self.connection.phase in (Phase.CLOSING, Phase.CLOSED):
            return
        if self._exchanges.now - call.began >= self._options.reconnect_at_most:
            call.tries = 0  # some proxies cut streams that are quiet for long
        if not is_worth_it or call.tries >= self._options.reconnect_tries:
            self._fail(call, call.lost(cause))
            return
        purpose = Purpose.LISTEN if call.purpose is Purpose.LISTEN else Purpose.RESUME
        again = self._exchanges.new(purpose, requests=call.requests, resumes=call.last_id)
        again.owed, again.retry, again.tries = call.owed, call.retry, call.tries + 1
        again.was_open, again.is_handshake = call.was_open, call.is_handshake
        self._by_request.update({id: again for id in call.requests if id in self._by_request})
        self._exchanges.make_later(again, self._options.delay(call.tries, call.retry))

    def _let_expire(self, call: ClientExchange) -> None:
        if call is self._first_listening:
            self._first_listening = None
            return
        self._exchanges.cut(call)
        if call is self._telling:
            limit = self._options.tell_timeout
            self._fail(call, ConnectionLost(f"the server did not acknowledge it within {limit:g} s"))

    # The transport of 2024-11-05

    def _fall_back(self, call: ClientExchange, error: McpError) -> None:
        """Try the older transport, which begins by listening (FALL-07). If that fails, ``error`` stands."""
        self._is_legacy, self._session_id = True, None
        listening = self._exchanges.new(Purpose.LEGACY)
        self._before_endpoint = call, error
        self._request(listening)
        self._exchanges.target = ""  # nothing else goes out before ``_take_endpoint`` has the address

    def _take_endpoint(self, call: ClientExchange, reference: str) -> None:
        """Store the address for messages (FALL-01, FALL-02)."""
        if self._before_endpoint is None or call.head is None:
            return  # only the first endpoint event counts
        location = self._location.at(call.target).join(reference)
        if location is None:
            self._refuse(call, call.head, f"an endpoint of another origin: {reference!r:.200}")
            return
        first, _ = self._before_endpoint
        self._before_endpoint = None
        self._exchanges.target = first.target = location.target
        self._request(first)

    def _lose_legacy(self, call: ClientExchange, error: McpError) -> None:
        """Handle the end of the stream that carries all output of the server."""
        if self._before_endpoint is not None:
            first, refusal = self._before_endpoint
            # Without a stream, the answer to the first request says more; with one, its own fault does.
            error = error if call.was_open else refusal
            for id in first.requests:
                self.connection.fail_request(id, error, self._exchanges.now)
        self.connection.connection_lost(error, self._exchanges.now)

    # The end

    def _leave(self) -> None:
        """Break off the exchanges, send the last messages, and end the session (SESS-08, HTTP-36)."""
        if self._stage is not Stage.LEAVING and self._stage is not Stage.LEFT:
            self._stage = Stage.LEAVING
            self._asks.clear()
            self._exchanges.cut_all(but=self._telling)
            if self._telling is not None and (due := self._exchanges.pop_due(self._telling.number)) is not None:
                self._request(due)  # for the last time, and without a delay: nothing else is to come
            if not self._exchanges.target:
                self._tells.clear()  # they have no address
            self._exchanges.timers.set(LEAVING, self._exchanges.now + LEAVE_TIMEOUT)
        if self._stage is Stage.LEFT or self._tells.size or self._is_telling:
            return
        self._stage = Stage.LEFT
        self._exchanges.cut_all()
        if self._exchanges.timers.get(LEAVING) is None:
            return  # the time is over: the server has not even taken the last messages
        if self._session_id is not None:
            self._request(self._exchanges.new(Purpose.END))
        if not len(self._exchanges):
            self._exchanges.timers.clear(LEAVING)
        if self.authorizer is not None:
            self.authorizer.close(self._exchanges.now)


def _method(message: Outgoing) -> str | None:
    """Return the method of a notification; ``None`` for an answer."""
    parsed = jsonrpc.parse(message.text, len(message.text))
    return parsed.method if isinstance(parsed, jsonrpc.Notification) else None


class _Queue:
    """Messages that wait to be sent, and their size in memory."""

    __slots__ = ("_messages", "size")

    def __init__(self) -> None:
        self._messages: deque[Outgoing] = deque()
        self.size = 0

    def append(self, message: Outgoing) -> None:
        if self.size > BACKLOG:
            # orjson gives short texts in buffers of a KiB: see ``Outbox``, which they leave too soon to be copied.
            message.text = bytes(memoryview(message.text))
        self._messages.append(message)
        self.size += len(message.text) + MESSAGE_COST

    def popleft(self) -> Outgoing:
        message = self._messages.popleft()
        self.size -= len(message.text) + MESSAGE_COST
        return message

    def clear(self) -> None:
        self._messages.clear()
        self.size = 0
