"""What a client over HTTP reports beside the events of its connection."""

from __future__ import annotations

from typing import TypeAlias

import attrs

from mcpio.errors import McpError

__all__ = ["ListeningEnded", "MessageRefused", "SessionLost", "TransportEvent"]


@attrs.frozen
class SessionLost:
    """The server does not know the session any more (SESS-06). Whatever waited for an answer has failed."""

    again_in: float | None
    """Seconds to wait before opening a session anew, by ``send_initialize`` on the same connection. ``None``: the
    connection has ended, because that was not asked for, or led to nothing several times in a row."""


@attrs.frozen
class MessageRefused:
    """The server did not take a notification, or an answer to one of its requests. Nobody else hears of it (P11)."""

    error: McpError
    """Why not."""


@attrs.frozen
class ListeningEnded:
    """What belongs to no request is not heard any more, until the next request is answered."""

    error: McpError
    """Why not."""


TransportEvent: TypeAlias = SessionLost | MessageRefused | ListeningEnded
