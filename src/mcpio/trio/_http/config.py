"""Settings that the connections of an HTTP server share in every version: timeouts and principals."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable
from inspect import isawaitable
from math import inf
from typing import TypeAlias

import attrs

from mcpio._drivers import report
from mcpio.engine.limits import seconds
from mcpio.http.model import Denied, RequestHead
from mcpio.trio._net.listening import SocketPeer

__all__ = ["FindPrincipal", "HttpTimeouts", "begin_lookup", "end_lookup", "principal_of"]


def _check_rate(_: object, field: attrs.Attribute[float], value: object) -> None:
    if not isinstance(value, int | float) or isinstance(value, bool) or not value > 0:  # not "<= 0": a NaN passes that
        raise ValueError(f"{field.name} must be a number of bytes a second above 0, not {value!r:.60}")


@attrs.frozen(kw_only=True)
class HttpTimeouts:
    """How long a client may take, in seconds; ``None`` for ever."""

    head: float | None = attrs.field(default=10.0, converter=seconds)
    """For the TLS handshake, and for a request head: from its first byte, or from the beginning of the connection."""
    body: float | None = attrs.field(default=30.0, converter=seconds)
    """For a request body, in addition to the time that its bytes earn by ``rate``. In HTTP/2 it restarts as long as
    other bodies on the connection arrive at that rate."""
    idle: float | None = attrs.field(default=75.0, converter=seconds)
    """From the end of a response to the next request."""
    write: float | None = attrs.field(default=30.0, converter=seconds)
    """For reading a piece of a response, in addition to the time that its bytes earn by ``rate``. A client that takes
    longer is disconnected."""
    rate: float = attrs.field(default=4096.0, validator=_check_rate)
    """The least average bytes a second at which bodies and responses must progress. Longer ones may take longer."""

    def to_read(self, size: int) -> float:
        """Return how long a client may take to read ``size`` bytes; infinity for ever."""
        return inf if self.write is None else self.write + size / self.rate


FindPrincipal: TypeAlias = "Callable[[RequestHead, SocketPeer], Hashable | Denied | Awaitable[Hashable | Denied]]"
"""Returns the principal of a request, or ``Denied``."""


def begin_lookup(find: FindPrincipal, head: RequestHead, peer: SocketPeer) -> Hashable | Awaitable[Hashable | Denied]:
    """Return the principal of a request, or what ``end_lookup`` awaits for it. A failure is reported, and denied."""
    try:
        return find(head, peer)
    except Exception as error:
        return _failed(error)


async def end_lookup(found: Awaitable[Hashable | Denied]) -> Hashable:
    """Await the principal of a request. A failure is reported, and the request is denied with status 500."""
    try:
        return await found
    except Exception as error:
        return _failed(error)


async def principal_of(find: FindPrincipal, head: RequestHead, peer: SocketPeer) -> Hashable:
    """Return the principal of a request, whether that takes a wait or not."""
    found = begin_lookup(find, head, peer)
    return (await end_lookup(found)) if isawaitable(found) else found


def _failed(error: Exception) -> Denied:
    report("the principal of a request could not be found", error)
    return Denied(500, "Internal error")
