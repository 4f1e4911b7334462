"""The Trio drivers: the only part of mcpio that waits.

Each transport has an ``open_…``, a ``connect_…`` and a ``serve_…``: ``…_stdio``, ``…_tcp``, ``…_unix``, ``…_http`` and
``…_websocket``. ``open_transport``, ``connect`` and ``serve`` take any ``trio.abc.Stream`` or ``trio.abc.Channel``;
``memory_client`` joins a client to a server in the same process.

Programs that want something in between use the parts of the stdio drivers: ``open_process_stream`` and
``start_process`` start a child process and give a stream to it, ``stdio_stream`` is this process's own standard input
and output, and ``terminate_on_signals`` and ``run_until_signalled`` end a program at SIGINT or SIGTERM. A name is
looked up, and its module imported, on first use: a server does not pay for what starts processes.
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
    from mcpio.trio._drivers import connect as connect
    from mcpio.trio._drivers import open_transport as open_transport
    from mcpio.trio._drivers import run_tasks as run_tasks
    from mcpio.trio._drivers import serve as serve
    from mcpio.trio._event_loop import Terminated as Terminated
    from mcpio.trio._event_loop import run_until_signalled as run_until_signalled
    from mcpio.trio._event_loop import terminate_on_signals as terminate_on_signals
    from mcpio.trio._http import HttpClientTimeouts as HttpClientTimeouts
    from mcpio.trio._http import connect_http as connect_http
    from mcpio.trio._http import finish_login as finish_login
    from mcpio.trio._http import open_http as open_http
    from mcpio.trio._memory import memory_client as memory_client
    from mcpio.trio._net import ServeSocketOptions as ServeSocketOptions
    from mcpio.trio._net import SocketListening as SocketListening
    from mcpio.trio._net import SocketOptions as SocketOptions
    from mcpio.trio._net import SocketPeer as SocketPeer
    from mcpio.trio._net import TcpOptions as TcpOptions
    from mcpio.trio._net import connect_tcp as connect_tcp
    from mcpio.trio._net import connect_unix as connect_unix
    from mcpio.trio._net import connect_websocket as connect_websocket
    from mcpio.trio._net import open_tcp as open_tcp
    from mcpio.trio._net import open_unix as open_unix
    from mcpio.trio._net import open_websocket as open_websocket
    from mcpio.trio._net import serve_http as serve_http
    from mcpio.trio._net import serve_tcp as serve_tcp
    from mcpio.trio._net import serve_unix as serve_unix
    from mcpio.trio._net import serve_websocket as serve_websocket
    from mcpio.trio._servers import Servers as Servers
    from mcpio.trio._servers import ServerSource as ServerSource
    from mcpio.trio._servers import ServerState as ServerState
    from mcpio.trio._servers import open_servers as open_servers
    from mcpio.trio._servers import proxy as proxy
    from mcpio.trio._stdio import ChildProcess as ChildProcess
    from mcpio.trio._stdio import StdioClient as StdioClient
    from mcpio.trio._stdio import connect_stdio as connect_stdio
    from mcpio.trio._stdio import default_environment as default_environment
    from mcpio.trio._stdio import open_process_stream as open_process_stream
    from mcpio.trio._stdio import open_stdio as open_stdio
    from mcpio.trio._stdio import serve_stdio as serve_stdio
    from mcpio.trio._stdio import start_process as start_process
    from mcpio.trio._stdio import stdio_stream as stdio_stream

    __all__: list[str]
else:
    __all__, __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "_drivers": "connect open_transport run_tasks serve",
            "_http": "HttpClientTimeouts connect_http finish_login open_http",
            "._drivers.http_parsers": "HttpTimeouts",
            "._drivers.http_server": "HttpListening HttpServingOptions ServeHttpOptions",
            "._drivers.websocket": "WebSocketConnectOptions",
            "._drivers.websocket_server": "ServeWebSocketOptions WebSocketListening",
            "_net": (
                "ServeSocketOptions SocketListening SocketOptions SocketPeer TcpOptions connect_tcp connect_unix "
                "connect_websocket open_tcp open_unix open_websocket serve_http serve_tcp serve_unix serve_websocket"
            ),
            "_memory": "memory_client",
            "_stdio": (
                "ChildProcess StdioClient connect_stdio default_environment open_process_stream open_stdio "
                "serve_stdio start_process stdio_stream"
            ),
            "_servers": "ServerSource ServerState Servers open_servers proxy",
            "_event_loop": "Terminated run_until_signalled terminate_on_signals",
        },
    )
