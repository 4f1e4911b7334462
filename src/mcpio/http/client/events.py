"""Events of the HTTP client that its connection does not report."""

from __future__ import annotations

from typing import TypeAlias

import attrs

from mcpio.errors import McpError

__all__ = ["ListeningEnded", "MessageRefused", "SessionLost", "TransportEvent"]


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


TransportEvent: TypeAlias = SessionLost | MessageRefused | ListeningEnded
