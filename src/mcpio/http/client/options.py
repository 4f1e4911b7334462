"""Options of a client over HTTP: headers, listening, reconnection and redirects."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import attrs

from mcpio._checks import is_amount, is_count

__all__ = ["HttpClientOptions"]

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
            raise ValueError(f"headers: {name!r:.60} is not a valid header name")
        if name.lower() in _OWN or name.lower().startswith("mcp-param-"):
            raise ValueError(f"headers: {name} is set by the client itself")
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
    """Seconds before a broken stream is resumed, doubled each time. The server may set the first."""
    reconnect_at_most: float = attrs.field(default=30.0, validator=_time)
    """The most seconds before a broken stream is resumed."""
    reconnect_tries: int = attrs.field(default=5, validator=_count)
    """How often in a row a stream is resumed, or a new session opened, without success before giving up."""
    redirects: int = attrs.field(default=5, validator=_count)
    """How many redirects in a row are followed, within the server's origin (HTTP-38)."""
    max_requests: int = attrs.field(default=64, validator=_count)
    """How many requests may be open at once. Further ones wait; answers and notifications do not."""
    tell_timeout: float = attrs.field(default=30.0, validator=_time)
    """Seconds for the server to acknowledge a notification or an answer, before that is given up and reported."""

    def delay(self, tries: int, said: float | None = None) -> float:
        """Return how many seconds to wait before the next try, after ``tries`` without success.

        ``said`` is the least that the server asked for (HTTP-21).
        """
        if said is not None:
            # After the first try our own delays hold too: a server may name a short time and then be gone.
            return max(said, self.delay(tries - 1) if tries else _SOONEST)
        return min(self.reconnect_after * 2.0 ** min(tries, 64), self.reconnect_at_most)


_SOONEST = 0.1
"""The least seconds: some servers say 0, and end each stream at once."""
