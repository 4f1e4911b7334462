"""WebSocket as a sans-IO machine for both roles: bytes and time in, whole messages and bytes out.

``answer_opening`` answers a client's opening handshake, and ``ClientOpening`` performs one; a ``WebSocket`` follows
both. The drivers are ``serve_websocket``, ``open_websocket`` and ``serve_http(websocket=…)`` of ``mcpio.trio``. wsproto
reads the frames.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcpio._lazy import lazy_names

if TYPE_CHECKING:
    from mcpio.websocket.closing import CloseCode as CloseCode
    from mcpio.websocket.frames import WebSocketOptions as WebSocketOptions
    from mcpio.websocket.machine import FragmentReceived as FragmentReceived
    from mcpio.websocket.machine import MessageReceived as MessageReceived
    from mcpio.websocket.machine import PingReceived as PingReceived
    from mcpio.websocket.machine import PongReceived as PongReceived
    from mcpio.websocket.machine import WebSocket as WebSocket
    from mcpio.websocket.machine import WebSocketEnded as WebSocketEnded
    from mcpio.websocket.machine import WebSocketEvent as WebSocketEvent
    from mcpio.websocket.opening import AcceptedHandshake as AcceptedHandshake
    from mcpio.websocket.opening import ClientOpening as ClientOpening
    from mcpio.websocket.opening import CompletedHandshake as CompletedHandshake
    from mcpio.websocket.opening import answer_opening as answer_opening
    from mcpio.websocket.opening import asks_for_websocket as asks_for_websocket

    __all__: list[str]
else:
    __all__, __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "opening": ("AcceptedHandshake ClientOpening CompletedHandshake answer_opening asks_for_websocket"),
            "closing": "CloseCode",
            "machine": (
                "FragmentReceived MessageReceived PingReceived PongReceived WebSocket WebSocketEnded WebSocketEvent"
            ),
            "frames": "WebSocketOptions",
        },
    )
