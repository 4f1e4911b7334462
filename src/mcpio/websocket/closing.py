"""Close codes, with the errors and close reasons that they map to.

Receiving 1000, 1001 or no code is a graceful end, ``CloseReason.END_OF_FILE``. Any other code, and a connection that
breaks (1006), is ``CloseReason.LOST``, caused by a WebSocketClosed with the code. A fault of the peer is
``CloseReason.LOST`` too, caused by a RemoteProtocolError. The peer is told 1002 for a violation of the rules of frames,
1003 for a binary message, 1007 for a text that is not UTF-8, 1009 for a message that is too long, and 1008 if it sends
no first message. A peer that does not answer a ping is gone (1011): the cause is a RequestTimeout.
"""

from __future__ import annotations

import enum
from typing import Final

from mcpio.engine.table import Role
from mcpio.errors import McpError, WebSocketClosed
from mcpio.events import CloseReason, ConnectionClosed

__all__ = ["CloseCode", "code_for", "error_for", "is_valid"]


class CloseCode(enum.IntEnum):
    """The codes that this library sends, and the two for a missing code (RFC 6455 section 7.4.1)."""

    NORMAL = 1000
    """This side is done."""
    GOING_AWAY = 1001
    """The server shuts down, or the program of the client ends."""
    PROTOCOL_ERROR = 1002
    """The peer broke a rule of frames, or of the handshake of MCP."""
    UNSUPPORTED = 1003
    """A binary message came."""
    NO_CODE = 1005
    """Never sent: the peer closed without a code."""
    ABNORMAL = 1006
    """Never sent: the connection ended without a close frame."""
    INVALID_TEXT = 1007
    """A text was not UTF-8, or not validly compressed."""
    POLICY = 1008
    """The peer sent no first message in time, reads too slowly, or its token has expired."""
    TOO_LARGE = 1009
    """A message was longer than the limit."""
    FAILED = 1011
    """This side failed, or the peer gave no sign of life."""


def code_for(end: ConnectionClosed | None, role: Role) -> CloseCode:
    """Return the close code for the end of a connection; ``None`` is a connection abandoned earlier."""
    reason = CloseReason.ABORTED if end is None else end.reason
    if reason is CloseReason.ABORTED:
        return CloseCode.FAILED if end is not None and end.cause is not None else CloseCode.GOING_AWAY
    if reason is CloseReason.CLOSED and role is Role.SERVER:
        return CloseCode.GOING_AWAY
    return _CODES.get(reason, CloseCode.NORMAL)


def error_for(code: int, reason: str) -> McpError | None:
    """Return the error for a received code; ``None`` for a graceful end. ``reason`` is the reason with it."""
    return None if code in _GRACEFUL else WebSocketClosed(code, reason)


def is_valid(code: int) -> bool:
    """Return whether a close frame may contain that code."""
    return code in _DEFINED or 3000 <= code <= 4999


_CODES: Final = {
    CloseReason.VERSION_MISMATCH: CloseCode.PROTOCOL_ERROR,
    CloseReason.HANDSHAKE_FAILED: CloseCode.PROTOCOL_ERROR,
    CloseReason.MESSAGE_TOO_LARGE: CloseCode.TOO_LARGE,
    CloseReason.SLOW_CONSUMER: CloseCode.POLICY,
    CloseReason.UNRESPONSIVE: CloseCode.FAILED,
}
_GRACEFUL: Final = frozenset({CloseCode.NORMAL, CloseCode.GOING_AWAY, CloseCode.NO_CODE})
_DEFINED: Final = frozenset({1000, 1001, 1002, 1003, *range(1007, 1015)})
"""The codes of RFC 6455, and 1012 to 1014, which were registered later."""
