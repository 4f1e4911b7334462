"""WebSocket as a machine, both roles: bytes and time go in, whole messages and bytes come out, and nothing waits.

``answer_opening`` answers a client's opening handshake, and ``ClientOpening`` performs one; a ``WebSocket`` is what
both lead to. ``mcpio.trio`` has the drivers: ``serve_websocket``, ``open_websocket`` and ``serve_http(websocket=…)``.
The frames are wsproto's to read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcpio._lazy import names_by_use

if TYPE_CHECKING:
    from mcpio.websocket.client_opening import ClientOpening, CompletedHandshake
    from mcpio.websocket.closing import CloseCode
    from mcpio.websocket.machine import (
        FragmentReceived,
        MessageReceived,
        PingReceived,
        PongReceived,
        WebSocket,
        WebSocketEnded,
        WebSocketEvent,
    )
    from mcpio.websocket.options import WebSocketOptions
    from mcpio.websocket.server_opening import AcceptedHandshake, answer_opening, asks_for_websocket

__all__ = [
    "AcceptedHandshake",
    "ClientOpening",
    "CloseCode",
    "CompletedHandshake",
    "FragmentReceived",
    "MessageReceived",
    "PingReceived",
    "PongReceived",
    "WebSocket",
    "WebSocketEnded",
    "WebSocketEvent",
    "WebSocketOptions",
    "answer_opening",
    "asks_for_websocket",
]

_HOME = {
    "client_opening": "ClientOpening CompletedHandshake",
    "closing": "CloseCode",
    "machine": "FragmentReceived MessageReceived PingReceived PongReceived WebSocket WebSocketEnded WebSocketEvent",
    "options": "WebSocketOptions",
    "server_opening": "AcceptedHandshake answer_opening asks_for_websocket",
}
"""The module of each name."""

if not TYPE_CHECKING:
    __getattr__, __dir__ = names_by_use(__name__, _HOME)
