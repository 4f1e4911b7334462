"""The ladder of checks that a request climbs before anything acts on it; the first rung that breaks is the answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import attrs

from mcpio.errors import ErrorCode
from mcpio.framing import jsonrpc
from mcpio.http.model import Headers, RequestHead
from mcpio.http.options import HttpOptions
from mcpio.revisions import Era, Revision

__all__ = ["Facts", "Rejection", "first_broken", "rejection_body", "too_large"]


@attrs.frozen
class Rejection:
    """The answer to a request that is not served."""

    status: int
    message: str
    code: int = ErrorCode.INVALID_REQUEST
    headers: Headers = ()


class Facts:
    """What the ladder looks at, found in one pass over the header fields.

    Fields that must be unique and are not count as what nobody serves: an attacker and a proxy may read different ones.
    """

    __slots__ = (
        "accept",
        "content_length",
        "content_type",
        "host",
        "last_event_id",
        "method",
        "origin",
        "path",
        "query",
        "session_id",
        "version",
    )

    def __init__(self, head: RequestHead) -> None:
        self.method = head.method
        self.path, _, self.query = head.target.partition("?")
        found: dict[bytes, bytes] = {}
        for name, value in head.headers:
            found[name] = value if name not in found else found[name] + b", " + value
        text = {name: found[name].decode("latin-1") for name in _FIELDS if name in found}
        self.host = text.get(b"host")
        self.origin = text.get(b"origin")
        self.accept = text.get(b"accept", "")
        self.content_type = text.get(b"content-type", "")
        self.content_length = text.get(b"content-length")
        self.session_id = text.get(b"mcp-session-id")
        self.version = text.get(b"mcp-protocol-version")
        self.last_event_id = text.get(b"last-event-id")


def first_broken(facts: Facts, options: HttpOptions, max_bytes: int) -> Rejection | None:
    """Return the answer of the first rung that breaks, or ``None`` for a request that may go on.

    The rungs that need the body, or a session, are ``HttpServer``'s.
    """
    for rung in _LADDER:
        rejection = rung(facts, options, max_bytes)
        if rejection is not None:
            return rejection
    return None


def rejection_body(rejection: Rejection) -> bytes:
    """Return the JSON-RPC error for a rejection. It answers no message, so it has no id (RPC-12)."""
    return jsonrpc.encode_error(None, rejection.code, rejection.message, with_null_id=False)


def _method(facts: Facts, options: HttpOptions, _: int) -> Rejection | None:
    """Require one of three methods (HTTP-01), or OPTIONS where pages of other origins may ask."""
    allowed = ["POST"]
    if options.sessions:
        allowed += ["GET", "DELETE"] if options.listening else ["DELETE"]
    if options.cors is not None:
        allowed.append("OPTIONS")
    if facts.method in allowed:
        return None
    allow = ((b"allow", ", ".join(allowed).encode()),)
    return Rejection(405, f"Method not allowed: {facts.method:.20}", headers=allow)


def _host(facts: Facts, options: HttpOptions, _: int) -> Rejection | None:
    """Require that the client calls us by a name of ours (HTTP-04)."""
    hosts = options.policy.hosts
    if hosts is None or (facts.host is not None and facts.host.lower() in hosts):
        return None
    return Rejection(403, "Forbidden: this Host is not served here")


def _origin(facts: Facts, options: HttpOptions, _: int) -> Rejection | None:
    """Require that a page that calls is of a welcome origin (HTTP-02, HTTP-03)."""
    origin = facts.origin
    if origin is None or origin.lower() in _welcome(facts, options):
        return None
    if options.cors is not None and (options.cors.origins == "*" or origin.lower() in options.cors.origins):
        return None
    return Rejection(403, "Forbidden: this Origin is not welcome here")


def _welcome(facts: Facts, options: HttpOptions) -> frozenset[str] | tuple[str, ...]:
    if options.policy.origins is not None:
        return options.policy.origins
    host = (facts.host or "").lower()
    return (f"http://{host}", f"https://{host}")


def _accept(facts: Facts, options: HttpOptions, _: int) -> Rejection | None:
    """Require that the client can read what we may answer (HTTP-07, HTTP-26)."""
    wanted = {"POST": ("application/json", "text/event-stream"), "GET": ("text/event-stream",)}.get(facts.method, ())
    if not wanted or facts.accept == _USUAL_ACCEPT:
        return None
    offered = {part.partition(";")[0].strip().lower() for part in facts.accept.split(",")}
    for kind in wanted:
        if not offered & {kind, "*/*", kind.partition("/")[0] + "/*"}:
            return Rejection(406, f"Not acceptable: Accept must list {' and '.join(wanted)}")
    return None


def _content_type(facts: Facts, options: HttpOptions, _: int) -> Rejection | None:
    """Require that a message comes as JSON (HTTP-08)."""
    if facts.method != "POST" or facts.content_type == "application/json":
        return None
    if facts.content_type.partition(";")[0].strip().lower() == "application/json":
        return None
    return Rejection(415, "Unsupported media type: Content-Type must be application/json")


def _length(facts: Facts, options: HttpOptions, max_bytes: int) -> Rejection | None:
    """Require that a body is not announced as too long: it need not come (HTTP-14)."""
    length = facts.content_length
    if length is None or not (length.isascii() and length.isdigit()):
        return None
    return too_large(max_bytes) if len(length) > 18 or int(length) > max_bytes else None


def too_large(max_bytes: int) -> Rejection:
    """Return the answer to a body over the limit."""
    return Rejection(413, f"Invalid request: a message is longer than {max_bytes} bytes")


def _version(facts: Facts, options: HttpOptions, _: int) -> Rejection | None:
    """Require that the revision that a client says it speaks is one that has sessions (HTTP-31)."""
    version = facts.version
    revision = None if version is None else Revision.parse(version)
    if version is None or (revision is not None and revision.era is Era.HANDSHAKE):
        return None
    return Rejection(400, f"Invalid request: MCP-Protocol-Version {version!r:.60} is not supported")


_LADDER: Final[tuple[Callable[[Facts, HttpOptions, int], Rejection | None], ...]] = (
    _host,
    _origin,
    _method,
    _accept,
    _content_type,
    _length,
    _version,
)
"""In this order: who may ask comes before what they ask. The path comes before both, for each has its own ladder."""

_FIELDS: Final = frozenset(
    {
        b"host",
        b"origin",
        b"accept",
        b"content-type",
        b"content-length",
        b"mcp-session-id",
        b"mcp-protocol-version",
        b"last-event-id",
    }
)
_USUAL_ACCEPT: Final = "application/json, text/event-stream"
