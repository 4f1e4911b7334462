"""The terms on which a server over HTTP serves a client, in whatever version: how long it may take, and who it is."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable
from enum import IntEnum
from inspect import isawaitable
from math import inf
from typing import Final, TypeAlias

import attrs

from mcpio._drivers import report
from mcpio.engine.limits import seconds
from mcpio.http.model import Denied, RequestHead
from mcpio.trio._net.listening import SocketPeer

__all__ = ["LINGER", "FindPrincipal", "HttpTimeouts", "Stage", "principal_of"]

LINGER: Final = 1.0
"""Seconds to go on reading from a client that was answered before its request was complete, so that it can read the
answer: closing while bytes come in would throw the answer away."""


@attrs.frozen(kw_only=True)
class HttpTimeouts:
    """How long a client may take, in seconds; ``None`` for ever."""

    head: float | None = attrs.field(default=10.0, converter=seconds)
    """For the handshake of TLS, and for a head: from its first byte, or from the beginning of the connection."""
    body: float | None = attrs.field(default=30.0, converter=seconds)
    """For a body, beside the time that it has by ``rate``."""
    idle: float | None = attrs.field(default=75.0, converter=seconds)
    """From the end of a response to the next request."""
    write: float | None = attrs.field(default=30.0, converter=seconds)
    """For a piece of a response, beside the time that it has by ``rate``: a client that reads nothing is cut off."""
    rate: float = attrs.field(default=4096.0, validator=attrs.validators.gt(0))
    """Bytes a second with which bodies and responses have to get on, on the whole. What is longer may take longer."""

    def to_read(self, size: int) -> float:
        """Return how long a client may take to read so many bytes; infinity for ever."""
        return inf if self.write is None else self.write + size / self.rate


class Stage(IntEnum):
    """What a client is doing, which bounds how long it may take."""

    IDLE = 0
    HEAD = 1
    BODY = 2
    ANSWER = 3


FindPrincipal: TypeAlias = "Callable[[RequestHead, SocketPeer], Hashable | Denied | Awaitable[Hashable | Denied]]"
"""Returns whose a request is, or ``Denied``."""


async def principal_of(find: FindPrincipal, head: RequestHead, peer: SocketPeer) -> Hashable:
    """Return whose a request is. Where that cannot be found, which is reported, nobody's: it is refused."""
    try:
        found = find(head, peer)
        return (await found) if isawaitable(found) else found
    except Exception as error:
        report("the principal of a request could not be found", error)
        return Denied(500, "Internal error")
