"""The Trio drivers: the only part of mcpio that waits.

``open_stdio``, ``connect_stdio`` and ``serve_stdio`` are for standard input and output; the same with ``_tcp``,
``_unix`` and ``_http`` for what their names say; ``open_transport``, ``connect``
and ``serve`` take any ``trio.abc.Stream`` or ``trio.abc.Channel``; ``memory_client`` joins a client to a server in the
same process.

The parts of the stdio drivers are for programs that want something between them: ``open_process_stream`` and
``start_process`` give a child process and the stream to it, ``stdio_stream`` is this process's own standard input and
output, and ``terminate_on_signals`` and ``run_until_signalled`` end a program at SIGINT or SIGTERM. A name is looked
up, and its module imported, when it is first used: a server does not pay for what starts processes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcpio._lazy import names_by_use

if TYPE_CHECKING:
    from mcpio.trio._drivers import connect, open_transport, serve
    from mcpio.trio._http.client import connect_http, open_http
    from mcpio.trio._http.client_pool import HttpClientTimeouts
    from mcpio.trio._http.config import HttpTimeouts
    from mcpio.trio._http.server import HttpListening, serve_http
    from mcpio.trio._memory import memory_client
    from mcpio.trio._net.client import SocketOptions, TcpOptions, connect_tcp, connect_unix, open_tcp, open_unix
    from mcpio.trio._net.listening import SocketPeer
    from mcpio.trio._net.server import ServeSocketOptions, SocketListening, serve_tcp, serve_unix
    from mcpio.trio._signals import Terminated, run_until_signalled, terminate_on_signals
    from mcpio.trio._stdio.drivers import StdioClient, connect_stdio, open_stdio, serve_stdio
    from mcpio.trio._stdio.process import ChildProcess, default_environment, open_process_stream, start_process
    from mcpio.trio._stdio.stdio_stream import stdio_stream
    from mcpio.trio._tasks import run_tasks
    from mcpio.trio._websocket.client import WebSocketConnectOptions, connect_websocket, open_websocket
    from mcpio.trio._websocket.server import WebSocketListening, serve_websocket

__all__ = [
    "ChildProcess",
    "HttpClientTimeouts",
    "HttpListening",
    "HttpTimeouts",
    "ServeSocketOptions",
    "SocketListening",
    "SocketOptions",
    "SocketPeer",
    "StdioClient",
    "TcpOptions",
    "Terminated",
    "WebSocketConnectOptions",
    "WebSocketListening",
    "connect",
    "connect_http",
    "connect_stdio",
    "connect_tcp",
    "connect_unix",
    "connect_websocket",
    "default_environment",
    "memory_client",
    "open_http",
    "open_process_stream",
    "open_stdio",
    "open_tcp",
    "open_transport",
    "open_unix",
    "open_websocket",
    "run_tasks",
    "run_until_signalled",
    "serve",
    "serve_http",
    "serve_stdio",
    "serve_tcp",
    "serve_unix",
    "serve_websocket",
    "start_process",
    "stdio_stream",
    "terminate_on_signals",
]

_HOME = {
    "_drivers": "connect open_transport serve",
    "_http.client": "connect_http open_http",
    "_http.config": "HttpTimeouts",
    "_http.client_pool": "HttpClientTimeouts",
    "_http.server": "HttpListening serve_http",
    "_net.listening": "SocketPeer",
    "_memory": "memory_client",
    "_stdio.process": "ChildProcess default_environment open_process_stream start_process",
    "_signals": "Terminated run_until_signalled terminate_on_signals",
    "_net.server": "ServeSocketOptions SocketListening serve_tcp serve_unix",
    "_net.client": "SocketOptions TcpOptions connect_tcp connect_unix open_tcp open_unix",
    "_stdio.stdio_stream": "stdio_stream",
    "_stdio.drivers": "StdioClient connect_stdio open_stdio serve_stdio",
    "_tasks": "run_tasks",
    "_websocket.server": "WebSocketListening serve_websocket",
    "_websocket.client": "WebSocketConnectOptions connect_websocket open_websocket",
}
"""The module of each name."""

if not TYPE_CHECKING:
    __getattr__, __dir__ = names_by_use(__name__, _HOME)
