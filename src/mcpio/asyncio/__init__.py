"""The drivers for asyncio: clients and servers over the same transports as ``mcpio.trio``.

``open_…`` are for clients tied to a block, ``connect_…`` for clients tied to none: any task may close them.
``serve_…`` are for servers. ``serve``, ``serving``, ``connect`` and ``open_streams`` take a reader and a writer that
asyncio itself opened; ``serve_channel``, ``connect_channel`` and ``open_channel`` take two functions that carry
messages. ``mcpio.asgi`` is an HTTP server under any ASGI server. ``AsyncioRuntime`` implements ``mcpio.app.runtime``.
A name is looked up, and its module imported, on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcpio._lazy import lazy_names

if TYPE_CHECKING:
    from mcpio._drivers.http_parsers import HttpTimeouts as HttpTimeouts
    from mcpio._drivers.http_server import HttpListening as HttpListening
    from mcpio._drivers.http_server import HttpServingOptions as HttpServingOptions
    from mcpio._drivers.http_server import ServeHttpOptions as ServeHttpOptions
    from mcpio._drivers.websocket import WebSocketConnectOptions as WebSocketConnectOptions
    from mcpio._drivers.websocket_server import ServeWebSocketOptions as ServeWebSocketOptions
    from mcpio._drivers.websocket_server import WebSocketListening as WebSocketListening
    from mcpio.asyncio._drivers import ServeStreams as ServeStreams
    from mcpio.asyncio._drivers import connect as connect
    from mcpio.asyncio._drivers import connect_channel as connect_channel
    from mcpio.asyncio._drivers import open_channel as open_channel
    from mcpio.asyncio._drivers import open_streams as open_streams
    from mcpio.asyncio._drivers import serve as serve
    from mcpio.asyncio._drivers import serve_channel as serve_channel
    from mcpio.asyncio._drivers import serving as serving
    from mcpio.asyncio._event_loop import terminate_on_signals as terminate_on_signals
    from mcpio.asyncio._http import HttpClientTimeouts as HttpClientTimeouts
    from mcpio.asyncio._http import connect_http as connect_http
    from mcpio.asyncio._http import finish_login as finish_login
    from mcpio.asyncio._http import open_http as open_http
    from mcpio.asyncio._memory import memory_client as memory_client
    from mcpio.asyncio._runtime import AsyncioRuntime as AsyncioRuntime
    from mcpio.asyncio._servers import Servers as Servers
    from mcpio.asyncio._servers import ServerSource as ServerSource
    from mcpio.asyncio._servers import ServerState as ServerState
    from mcpio.asyncio._servers import open_servers as open_servers
    from mcpio.asyncio._servers import proxy as proxy
    from mcpio.asyncio._sockets import ServeSocketOptions as ServeSocketOptions
    from mcpio.asyncio._sockets import SocketListening as SocketListening
    from mcpio.asyncio._sockets import SocketOptions as SocketOptions
    from mcpio.asyncio._sockets import SocketPeer as SocketPeer
    from mcpio.asyncio._sockets import TcpOptions as TcpOptions
    from mcpio.asyncio._sockets import connect_tcp as connect_tcp
    from mcpio.asyncio._sockets import connect_unix as connect_unix
    from mcpio.asyncio._sockets import connect_websocket as connect_websocket
    from mcpio.asyncio._sockets import open_tcp as open_tcp
    from mcpio.asyncio._sockets import open_unix as open_unix
    from mcpio.asyncio._sockets import open_websocket as open_websocket
    from mcpio.asyncio._sockets import serve_http as serve_http
    from mcpio.asyncio._sockets import serve_tcp as serve_tcp
    from mcpio.asyncio._sockets import serve_unix as serve_unix
    from mcpio.asyncio._sockets import serve_websocket as serve_websocket
    from mcpio.asyncio._stdio import ChildProcess as ChildProcess
    from mcpio.asyncio._stdio import StdioClient as StdioClient
    from mcpio.asyncio._stdio import connect_stdio as connect_stdio
    from mcpio.asyncio._stdio import open_stdio as open_stdio
    from mcpio.asyncio._stdio import serve_stdio as serve_stdio

    __all__: list[str]
else:
    __all__, __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "_drivers": ("ServeStreams connect connect_channel open_channel open_streams serve serve_channel serving"),
            "_http": "HttpClientTimeouts connect_http finish_login open_http",
            "_memory": "memory_client",
            "_stdio": "ChildProcess StdioClient connect_stdio open_stdio serve_stdio",
            "_event_loop": "terminate_on_signals",
            "_runtime": "AsyncioRuntime",
            "_servers": "ServerSource ServerState Servers open_servers proxy",
            "_sockets": (
                "ServeSocketOptions SocketListening SocketOptions SocketPeer TcpOptions connect_tcp connect_unix "
                "connect_websocket open_tcp open_unix open_websocket serve_http serve_tcp serve_unix serve_websocket"
            ),
            "._drivers.http_parsers": "HttpTimeouts",
            "._drivers.http_server": "HttpListening HttpServingOptions ServeHttpOptions",
            "._drivers.websocket": "WebSocketConnectOptions",
            "._drivers.websocket_server": "ServeWebSocketOptions WebSocketListening",
        },
    )
