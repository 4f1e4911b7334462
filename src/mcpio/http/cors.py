"""What pages of other origins may read: only for servers that opted in, and only what they welcome."""

from __future__ import annotations

from mcpio.http.checks import Facts
from mcpio.http.model import Headers
from mcpio.http.options import HttpOptions

__all__ = ["cors_headers", "preflight_headers"]


def cors_headers(facts: Facts, options: HttpOptions) -> Headers:
    """Return what every response to a page of a welcome origin carries."""
    cors, origin = options.cors, facts.origin
    if cors is None or origin is None or (cors.origins != "*" and origin.lower() not in cors.origins):
        return ()
    allowed = b"*" if cors.origins == "*" else origin.encode("latin-1")
    return (
        (b"access-control-allow-origin", allowed),
        (b"access-control-expose-headers", b"mcp-session-id, mcp-protocol-version, www-authenticate"),
        (b"vary", b"origin"),
    )


def preflight_headers(options: HttpOptions) -> Headers:
    """Return what a browser that asks beforehand is told, beside ``cors_headers``."""
    if options.cors is None:
        return ()
    return (
        (b"access-control-allow-methods", b"POST, GET, DELETE"),
        (
            b"access-control-allow-headers",
            b"authorization, content-type, accept, mcp-session-id, mcp-protocol-version, last-event-id",
        ),
        (b"access-control-max-age", b"%d" % options.cors.max_age),
    )
