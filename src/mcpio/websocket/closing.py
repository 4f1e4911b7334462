"""The codes with which a WebSocket closes, and the errors and reasons of this library that they stand for.

To hear 1000, 1001 or no code is the end in order, ``CloseReason.END_OF_FILE``. Any other code, and a connection that
breaks (1006), is ``CloseReason.LOST``, caused by a ``WebSocketClosed`` with the code. What the other side does wrong is
``CloseReason.LOST`` too, caused by a ``RemoteProtocolError``: what breaks the rules of frames is told so with 1002, a
binary message with 1003, text that is no UTF-8 with 1007, a message that is too long with 1009, and a client that says
nothing with 1008. A side that is silent after a ping is gone (1011): the cause is a ``RequestTimeout``.
"""

from __future__ import annotations

import enum
from typing import Final

from mcpio.engine.table import Role
from mcpio.errors import McpError, WebSocketClosed
from mcpio.events import CloseReason, ConnectionClosed

__all__ = ["CloseCode", "code_for", "error_for", "is_valid"]


class CloseCode(enum.IntEnum):
    """The codes that this library sends, and the two that stand for none (RFC 6455 section 7.4.1)."""

    NORMAL = 1000
    """This side is done."""
    GOING_AWAY = 1001
    """The server ends, or the program that was the client."""
    PROTOCOL_ERROR = 1002
    """The other side broke the rules of frames, or of the handshake of MCP."""
    UNSUPPORTED = 1003
    """A binary message came."""
    NO_CODE = 1005
    """Never sent: the other side closed without a code."""
    ABNORMAL = 1006
    """Never sent: the connection ended without a close frame."""
    INVALID_TEXT = 1007
    """A text was not UTF-8, or not what was compressed."""
    POLICY = 1008
    """The other side said nothing in time, or reads too slowly."""
    TOO_LARGE = 1009
    """A message was longer than the limit."""
    FAILED = 1011
    """This side failed, or the other gave no sign of life."""


def code_for(end: ConnectionClosed | None, role: Role) -> CloseCode:
    """Return the code to close with when a connection ended so; ``None`` for one that is given up before its end."""
    reason = CloseReason.ABORTED if end is None else end.reason
    if reason is CloseReason.ABORTED:
        return CloseCode.FAILED if end is not None and end.cause is not None else CloseCode.GOING_AWAY
    if reason is CloseReason.CLOSED and role is Role.SERVER:
        return CloseCode.GOING_AWAY
    return _CODES.get(reason, CloseCode.NORMAL)


def error_for(code: int, said: str) -> McpError | None:
    """Return what a code that was heard stands for; ``None`` for the end in order. ``said`` is its reason."""
    return None if code in _IN_ORDER else WebSocketClosed(code, said)


def is_valid(code: int) -> bool:
    """Whether a close frame may say that code."""
    return code in _DEFINED or 3000 <= code <= 4999


_CODES: Final = {
    CloseReason.VERSION_MISMATCH: CloseCode.PROTOCOL_ERROR,
    CloseReason.HANDSHAKE_FAILED: CloseCode.PROTOCOL_ERROR,
    CloseReason.MESSAGE_TOO_LARGE: CloseCode.TOO_LARGE,
    CloseReason.SLOW_CONSUMER: CloseCode.POLICY,
    CloseReason.UNRESPONSIVE: CloseCode.FAILED,
}
_IN_ORDER: Final = frozenset({CloseCode.NORMAL, CloseCode.GOING_AWAY, CloseCode.NO_CODE})
_DEFINED: Final = frozenset({1000, 1001, 1002, 1003, *range(1007, 1015)})
"""Those of RFC 6455, and 1012 to 1014, which were registered later."""
