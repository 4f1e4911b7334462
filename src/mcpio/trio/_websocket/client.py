"""``open_websocket`` and ``connect_websocket``: clients over WebSocket."""

from __future__ import annotations

from typing import Any, Unpack

import trio

from mcpio._drivers.websocket.client import WebSocketConnectOptions, websocket_connector
from mcpio.app.client import Client
from mcpio.trio._drivers import TrioClientContext
from mcpio.trio._event_loop import TrioEventLoop
from mcpio.trio._net.client import connect_by
from mcpio.trio._runtime import TrioRuntime
from mcpio.trio._transport import quickened

__all__ = ["WebSocketConnectOptions", "connect_websocket", "open_websocket"]


def open_websocket(url: str, **options: Unpack[WebSocketConnectOptions]) -> TrioClientContext[Client]:
    """Async context manager that yields a client: ``async with open_websocket("ws://…/mcp") as client``.

    See ``connect_websocket``.
    """
    return TrioClientContext(lambda nursery: connect_websocket(url, nursery=nursery, **options))


async def connect_websocket(url: str, *, nursery: trio.Nursery, **options: Unpack[WebSocketConnectOptions]) -> Client:
    """Return a client of the server at a ``ws://`` or ``wss://`` URL, tied to no block.

    ``ws+unix://%2Frun%2Fserver.sock/mcp`` is a server on the Unix socket of that path, as for ``connect_http``.

    Raises ConnectFailed. Its cause is an OSError if there is no connection, an AuthorizationRequired for status 401 and
    403, with ``auth`` an AuthorizationError if there is no token to be had, an UnexpectedResponse for any other answer
    that is not a WebSocket with an offered subprotocol, and a RemoteProtocolError if the answer is not HTTP. Raises
    ValueError for an invalid URL or header field.

    When the connection ends, waiting calls raise ConnectionLost. Its cause tells how, unless the server closed
    gracefully (with 1000, 1001 or no code): a WebSocketClosed has any other code, 1006 for a connection that broke; a
    RemoteProtocolError tells what the server did wrong, a RequestTimeout that it gave no sign of life, and an OSError
    or ``trio.BrokenResourceError`` how the stream failed (XPORT-04).
    """
    given: dict[str, Any] = dict(options)
    connector = websocket_connector(url, given, quickened, TrioEventLoop(), TrioRuntime(None))
    return await connect_by(connector, nursery, given)
