"""The checks of a request's head, in their order; the first that fails gives the answer.

Who may ask is checked before what they ask. Checks that need the body or the session are those of ``HttpServer``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Mapping
from typing import Final, Generic, Protocol, TypeAlias, TypeVar

import attrs

from mcpio.errors import ErrorCode
from mcpio.framing import jsonrpc
from mcpio.http.model import (
    HANDSHAKE_NAMES,
    STATELESS_NAMES,
    Answers,
    Denied,
    Headers,
    HostPolicy,
    HttpOptions,
    RequestHead,
)

__all__ = [
    "HEALTH_CHECKS",
    "LEGACY_CHECKS",
    "MCP_CHECKS",
    "REQUESTED_HEADERS",
    "UPGRADE_CHECKS",
    "Admission",
    "Admissions",
    "Checks",
    "ParsedRequest",
    "Rejection",
    "acceptable_answers",
    "accepts_events",
    "cors_headers",
    "first_failure",
    "preflight_headers",
    "rejection_body",
    "too_large",
]


Check: TypeAlias = "Callable[[ParsedRequest, Checks], Rejection | None]"
"""Returns the answer to a request that fails the check, or ``None``."""


@attrs.frozen
class Rejection:
    """An answer that says why a request is not served, with a JSON-RPC error for its body."""

    status: int
    message: str
    code: int = ErrorCode.INVALID_REQUEST
    headers: Headers = ()
    advice: str = ""
    """For the operator, if a setting may be what refuses honest clients: what was refused, and what admits it."""


class ParsedRequest:
    """The parts of a request's head that the checks look at, from one pass over the header fields.

    The values of a field that comes twice are joined, and then match nothing that is served: a proxy may have read
    another of them than this server would.
    """

    __slots__ = (
        "accept",
        "content_encoding",
        "content_length",
        "content_type",
        "host",
        "last_event_id",
        "method",
        "origin",
        "path",
        "policy",
        "principal",
        "query",
        "session_id",
        "size",
        "version",
    )

    def __init__(self, head: RequestHead) -> None:
        self.method: str = head.method
        self.principal: Hashable = head.principal
        self.policy: HostPolicy | None = head.policy
        text: dict[bytes, str] = {}
        for name, value in head.headers:
            if name in _FIELDS:
                version = value.decode("latin-1")
                text[name] = version if name not in text else f"{text[name]}, {version}"
        target, self.host = head.target, text.get(b"host")
        if not target.startswith("/"):
            target, self.host = _in_origin_form(target, self.host)
        path, _, query = target.partition("?")
        self.path: str = path
        self.query: str = query
        self.origin: str | None = text.get(b"origin")
        self.accept: str = text.get(b"accept", "")
        self.content_encoding: str = text.get(b"content-encoding", "")
        self.content_type: str = text.get(b"content-type", "")
        self.content_length: str | None = text.get(b"content-length")
        self.session_id: str | None = text.get(b"mcp-session-id")
        self.version: str | None = text.get(b"mcp-protocol-version")
        self.last_event_id: str | None = text.get(b"last-event-id")
        self.size: int = len(target) + sum(map(len, text.values()))
        """Bytes of all these."""


def _in_origin_form(target: str, host: str | None) -> tuple[str, str | None]:
    """Return the target and the host of a request whose target may be an absolute URL (RFC 9112, 3.2.2).

    The host of the URL then takes the place of the ``Host`` field.
    """
    scheme, is_address, rest = target.partition("://")
    if not is_address or scheme.lower() not in ("http", "https"):
        return target, host
    authority, _, path = rest.partition("/")
    return f"/{path}", authority


@attrs.frozen
class Checks:
    """The checks that one endpoint makes of a request."""

    order: tuple[Check, ...]
    """The checks, in their order."""
    methods: tuple[str, ...]
    """The methods that the endpoint serves, in addition to OPTIONS if ``options.cors`` is set."""
    options: HttpOptions
    max_bytes: int
    """The longest body that it accepts."""
    stateless: bool = False
    """Whether a POST may be of a revision without sessions. The body tells, so its version is not checked here."""


def first_failure(request: ParsedRequest, checks: Checks) -> Rejection | None:
    """Return the answer of the first check that fails, or ``None`` if all pass."""
    for check in checks.order:
        rejection = check(request, checks)
        if rejection is not None:
            return rejection
    return None


def rejection_body(rejection: Rejection, id: int | str | None = None) -> bytes:
    """Return the JSON-RPC error for a rejection; ``id`` is that of the request, if it could be read (RPC-12)."""
    return jsonrpc.encode_error(id, rejection.code, rejection.message, with_null_id=False)


def acceptable_answers(request: ParsedRequest, options: HttpOptions) -> Answers:
    """Return which forms of response the client of a POST takes that passed the checks."""
    if request.accept == _USUAL_ACCEPT or options.strict_accept or not request.accept:
        return options.answers
    takes_json, takes_events = (_accepts(request, kind) for kind in (_JSON, _EVENTS))
    if takes_json and takes_events:
        return options.answers
    return "json" if takes_json else "sse"


def accepts_events(request: ParsedRequest) -> bool:
    """Return whether the client takes a stream. One that does not say is taken to."""
    return not request.accept or _accepts(request, _EVENTS)


# CORS: what pages of other origins may read


def cors_headers(request: ParsedRequest, options: HttpOptions) -> Headers:
    """Return the header fields of every response to a page of an allowed origin."""
    cors, origin = options.cors, request.origin
    if cors is None or origin is None or (cors.origins != "*" and origin.lower() not in cors.origins):
        return ()
    allowed = b"*" if cors.origins == "*" else origin.encode("latin-1")
    return (
        (b"access-control-allow-origin", allowed),
        (b"access-control-expose-headers", b"mcp-session-id, mcp-protocol-version, www-authenticate, dpop-nonce"),
        (b"vary", b"origin"),
    )


def preflight_headers(checks: Checks, requested: Headers = ()) -> Headers:
    """Return the header fields of the answer to a preflight request, in addition to ``cors_headers``.

    ``requested`` are its fields. The names of ``Mcp-Param-*`` have no wildcard, so those that it asks for are
    allowed by name.
    """
    options = checks.options
    if options.cors is None:
        return ()
    names = b",".join(value for name, value in requested if name == REQUESTED_HEADERS).lower()
    params = b"".join(b", " + name for name in dict.fromkeys(_PARAM_NAME.findall(names)))
    return (
        (b"access-control-allow-methods", ", ".join(checks.methods).encode()),
        (
            b"access-control-allow-headers",
            b"authorization, dpop, content-type, accept, mcp-session-id, mcp-protocol-version, last-event-id, "
            b"mcp-method, mcp-name" + params,
        ),
        (b"access-control-max-age", b"%d" % options.cors.max_age),
    )


REQUESTED_HEADERS: Final = b"access-control-request-headers"
_PARAM_NAME: Final = re.compile(rb"mcp-param-[!#$%&'*+\-.^_`|~0-9a-z]+")


_ADMIT: Final = "if its clients are to be served, add it to {}= of HostPolicy, for HttpOptions(policy=…)"

# The checks


def _host(request: ParsedRequest, checks: Checks) -> Rejection | None:
    """Require a ``Host`` that is served, against DNS rebinding (HTTP-04)."""
    hosts = _policy(request, checks).hosts
    if hosts is None or (request.host is not None and request.host.lower() in hosts):
        return None
    advice = f"the Host {request.host!r:.200} is refused: {_ADMIT.format('hosts')}"
    return Rejection(403, "Forbidden: this Host is not served here", advice=advice)


def _origin(request: ParsedRequest, checks: Checks) -> Rejection | None:
    """Require an allowed ``Origin`` of a request from a web page (HTTP-02, HTTP-03)."""
    origin, cors = request.origin, checks.options.cors
    if origin is None or origin.lower() in _welcome(request, _policy(request, checks)):
        return None
    # An origin that CORS lets read responses may send requests, too.
    if cors is not None and (cors.origins == "*" or origin.lower() in cors.origins):
        return None
    advice = f"the Origin {origin!r:.200} is refused: {_ADMIT.format('origins')}"
    return Rejection(403, "Forbidden: this Origin is not welcome here", advice=advice)


def _policy(request: ParsedRequest, checks: Checks) -> HostPolicy:
    return request.policy or checks.options.policy


def _welcome(request: ParsedRequest, policy: HostPolicy) -> frozenset[str] | tuple[str, ...]:
    if policy.origins is not None:
        return policy.origins
    # Pages of this server itself. Their scheme is unknown behind a proxy that ends TLS.
    host = (request.host or "").lower()
    return (f"http://{host}", f"https://{host}")


def _method(request: ParsedRequest, checks: Checks) -> Rejection | None:
    """Require one of the methods of the endpoint (HTTP-01)."""
    allowed = checks.methods if checks.options.cors is None else (*checks.methods, "OPTIONS")
    if request.method in allowed:
        return None
    allow = ((b"allow", ", ".join(allowed).encode()),)
    return Rejection(405, f"Method not allowed: {request.method:.20}", headers=allow)


def _principal(request: ParsedRequest, _: Checks) -> Rejection | None:
    """Require that authentication did not refuse the caller. Preflight requests carry no credentials."""
    denied = request.principal
    if not isinstance(denied, Denied) or request.method == "OPTIONS":
        return None
    code = ErrorCode.INTERNAL_ERROR if denied.status >= 500 else ErrorCode.INVALID_REQUEST
    return Rejection(denied.status, denied.message, code, denied.headers)


def _accept(request: ParsedRequest, checks: Checks) -> Rejection | None:
    """Require that the client accepts the forms of response (HTTP-07, HTTP-26)."""
    if request.accept == _USUAL_ACCEPT:
        return None
    wanted = {"POST": (_JSON, _EVENTS), "GET": (_EVENTS,)}.get(request.method, ())
    accepted = [_accepts(request, kind) for kind in wanted]
    if all(accepted) or (not checks.options.strict_accept and (any(accepted) or not request.accept)):
        return None
    return Rejection(406, f"Not acceptable: Accept must list {' and '.join(wanted)}")


def _accepts(request: ParsedRequest, kind: str) -> bool:
    """Return whether ``Accept`` takes a media type: the most specific range decides (RFC 9110, 12.5.1)."""
    ranges = {"*/*": 0, f"{kind.partition('/')[0]}/*": 1, kind: 2}
    best, accepted = -1, False
    for part in request.accept.lower().split(","):
        name, *parameters = [piece.strip() for piece in part.split(";")]
        rank = ranges.get(name, -1)
        takes = not any(map(_NO_WEIGHT.fullmatch, parameters))
        if rank > best or (rank == best >= 0 and takes):
            best, accepted = rank, takes
    return accepted


def _content_type(request: ParsedRequest, checks: Checks) -> Rejection | None:
    """Require JSON (HTTP-08)."""
    if request.method != "POST" or request.content_type == _JSON:
        return None
    if request.content_type.partition(";")[0].strip().lower() == _JSON:
        return None
    return Rejection(415, "Unsupported media type: Content-Type must be application/json")


def _content_encoding(request: ParsedRequest, checks: Checks) -> Rejection | None:
    """Require an uncompressed body (RFC 9110, 15.5.16)."""
    if request.method != "POST" or request.content_encoding.lower() in ("", "identity"):
        return None
    message = f"Unsupported media type: Content-Encoding {request.content_encoding!r:.60} is not supported"
    return Rejection(415, message, headers=((b"accept-encoding", b"identity"),))


def _length(request: ParsedRequest, checks: Checks) -> Rejection | None:
    """Require that the announced length is within the limit, before the body comes (HTTP-14)."""
    length = request.content_length
    if length is None or not (length.isascii() and length.isdigit()):
        return None  # for the parser to reject, or a length given twice: the body is counted as it comes
    return too_large(checks.max_bytes) if len(length) > _LENGTH_DIGITS or int(length) > checks.max_bytes else None


def too_large(max_bytes: int) -> Rejection:
    """Return the answer to a body over the limit."""
    return Rejection(413, f"Invalid request: a message is longer than {max_bytes} bytes")


def _version(request: ParsedRequest, checks: Checks) -> Rejection | None:
    """Require that the client's revision is one of the handshake era, if it names one (HTTP-31)."""
    if request.version is None or request.version in HANDSHAKE_NAMES or (checks.stateless and request.method == "POST"):
        return None
    reason = f"Invalid request: MCP-Protocol-Version {request.version!r:.60} is not supported"
    if checks.stateless and request.version in STATELESS_NAMES:
        reason = f"Invalid request: {request.method:.20} is for sessions, and {request.version} has none: only POST"
    return Rejection(400, reason)


MCP_CHECKS: Final[tuple[Check, ...]] = (
    _host,
    _origin,
    _method,
    _principal,
    _accept,
    _content_type,
    _content_encoding,
    _length,
    _version,
)
"""The checks of the MCP endpoint: who may ask comes before what they ask."""

LEGACY_CHECKS: Final[tuple[Check, ...]] = tuple(check for check in MCP_CHECKS if check is not _accept)
"""The same for clients of 2024-11-05, which need not say what they accept."""

UPGRADE_CHECKS: Final[tuple[Check, ...]] = (_host, _origin, _method, _principal)
"""The checks of a request for another protocol on the same connection, which checks the rest itself."""

PUBLIC_CHECKS: Final[tuple[Check, ...]] = (_host, _method)
"""The checks of what anyone may read: metadata, and pages."""

HEALTH_CHECKS: Final[tuple[Check, ...]] = (_method,)
"""The checks of the health endpoint: monitors may use any ``Host``, and learn only that the server runs."""

_FIELDS: Final = frozenset(
    {
        b"host",
        b"origin",
        b"accept",
        b"content-encoding",
        b"content-type",
        b"content-length",
        b"mcp-session-id",
        b"mcp-protocol-version",
        b"last-event-id",
    }
)
_JSON: Final = "application/json"
_EVENTS: Final = "text/event-stream"
_USUAL_ACCEPT: Final = f"{_JSON}, {_EVENTS}"
_NO_WEIGHT: Final = re.compile(r"q\s*=\s*0(?:\.0*)?")
_LENGTH_DIGITS: Final = 18
"""A longer length is over every limit, and ``int`` raises for one of thousands of digits."""


# The outcome that equal heads share


class Checked(Protocol):
    """An endpoint of the server."""

    checks: Checks


E = TypeVar("E", bound=Checked)


class Admission(Generic[E]):
    """Properties of a request that follow from its head, apart from session, principal and length."""

    __slots__ = ("answers", "cors", "endpoint", "rejection", "request", "size")

    def __init__(self, request: ParsedRequest, endpoint: E | None, options: HttpOptions) -> None:
        self.request = request
        self.endpoint = endpoint
        self.rejection: Rejection | None = (
            Rejection(404, f"Not found: {request.path:.100}")
            if endpoint is None
            else first_failure(request, endpoint.checks)
        )
        self.cors: Headers = cors_headers(request, options if endpoint is None else endpoint.checks.options)
        self.answers: Answers = acceptable_answers(request, options)
        self.size: int = request.size


class Admissions(Generic[E]):
    """Runs the checks of heads, and remembers the outcome for heads that are alike.

    A client sends nearly the same head each time: only the session, the event to resume from and the length change,
    and no outcome that is remembered depends on these or on the principal. A head with a refused principal, with a
    length over the limit or with a field that comes twice is checked anew each time.
    """

    __slots__ = ("_cache", "_endpoints", "_options")

    def __init__(self, endpoints: Mapping[str, E], options: HttpOptions) -> None:
        self._endpoints = endpoints
        self._options = options
        self._cache: dict[Hashable, Admission[E]] = {}

    def of(self, head: RequestHead) -> tuple[Admission[E], str | None, str | None, int]:
        """Return the outcome for a head, the session and the last event that it names, and its size in bytes."""
        fields = head.fields
        get = fields.get
        length = get(b"content-length")
        is_short = length is None or (len(length) <= _SHORT_DIGITS and length.isdigit())
        if len(fields) != len(head.headers) or not is_short or isinstance(head.principal, Denied):
            return self._decide(head)
        # The fields that the checks look at. ``dict.get`` in a row is faster than a loop over all fields.
        key = (
            head.method,
            head.target,
            get(b"host"),
            get(b"accept"),
            get(b"content-type"),
            get(b"mcp-protocol-version"),
            get(b"origin"),
            get(b"content-encoding"),
            id(head.policy),  # which the outcome keeps alive
        )
        remembered = self._cache.get(key)
        session, last = get(b"mcp-session-id"), get(b"last-event-id")
        size = len(length or b"") + len(session or b"") + len(last or b"")
        if remembered is None:
            return self._learn(key, head, size)
        if (
            length is not None
            and remembered.endpoint is not None
            and int(length) > remembered.endpoint.checks.max_bytes
        ):
            return self._decide(head)
        return (
            remembered,
            None if session is None else session.decode("latin-1"),
            None if last is None else last.decode("latin-1"),
            remembered.size + size,
        )

    def _decide(self, head: RequestHead) -> tuple[Admission[E], str | None, str | None, int]:
        request = ParsedRequest(head)
        decided = Admission(request, self._endpoints.get(request.path), self._options)
        return decided, request.session_id, request.last_event_id, request.size

    def _learn(self, key: Hashable, head: RequestHead, size: int) -> tuple[Admission[E], str | None, str | None, int]:
        """Decide on a new request head, and remember the decision for alike heads unless the body is too long."""
        answer = self._decide(head)
        decided, request = answer[0], answer[0].request
        length = request.content_length
        is_too_long = (
            decided.endpoint is not None and length is not None and int(length) > decided.endpoint.checks.max_bytes
        )
        # The ledger does not count what is remembered, so its number and its size are bounded.
        if not is_too_long and request.size - size <= _LARGEST_KNOWN:
            if len(self._cache) >= _MOST_KNOWN:
                self._cache.clear()
            decided.size = request.size - size
            # Shared from now on, so without the parts that differ between alike heads; some of them are credentials.
            request.session_id = request.last_event_id = request.content_length = request.principal = None
            self._cache[key] = decided
        return answer


_MOST_KNOWN: Final = 256
_LARGEST_KNOWN: Final = 1024
_SHORT_DIGITS: Final = 9
