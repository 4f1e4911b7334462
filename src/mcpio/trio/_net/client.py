"""Clients over TCP and Unix sockets: one message a line, as over standard input and output."""

from __future__ import annotations

import os
from typing import Any, Unpack

import trio

from mcpio._drivers.setup import open_in_either_era
from mcpio._drivers.sockets.client import SocketConnector, SocketOptions, TcpOptions, tcp_connector, unix_connector
from mcpio.app.client import Client
from mcpio.trio._drivers import TrioClientContext, start_client
from mcpio.trio._event_loop import TrioEventLoop
from mcpio.trio._transport import stream_adapter

__all__ = ["SocketOptions", "TcpOptions", "connect_by", "connect_tcp", "connect_unix", "open_tcp", "open_unix"]


def open_tcp(host: str, port: int, **options: Unpack[TcpOptions]) -> TrioClientContext[Client]:
    """Async context manager that yields a client of a server on TCP. See ``serve_tcp``.

    Raises ConnectFailed if the connection or the handshake fails.
    """
    return TrioClientContext(lambda nursery: connect_tcp(host, port, nursery=nursery, **options))


async def connect_tcp(host: str, port: int, *, nursery: trio.Nursery, **options: Unpack[TcpOptions]) -> Client:
    """Return a client of a server on TCP, tied to no block. See ``open_tcp``."""
    given: dict[str, Any] = dict(options)
    return await connect_by(tcp_connector(host, port, given, stream_adapter, TrioEventLoop()), nursery, given)


def open_unix(path: str | os.PathLike[str], **options: Unpack[SocketOptions]) -> TrioClientContext[Client]:
    """Async context manager that yields a client of a server on a Unix socket. See ``serve_unix``.

    Raises ConnectFailed if the connection or the handshake fails.
    """
    return TrioClientContext(lambda nursery: connect_unix(path, nursery=nursery, **options))


async def connect_unix(
    path: str | os.PathLike[str], *, nursery: trio.Nursery, **options: Unpack[SocketOptions]
) -> Client:
    """Return a client of a server on a Unix socket, tied to no block. See ``open_unix``."""
    given: dict[str, Any] = dict(options)
    return await connect_by(unix_connector(path, given, stream_adapter, TrioEventLoop()), nursery, given)


@trio.lowlevel.enable_ki_protection  # or a connection might be left that nothing closes
async def connect_by(connector: SocketConnector[Any], nursery: trio.Nursery, given: dict[str, Any]) -> Client:
    """Return a client of the connector's server, which outlives its connections if ``reconnect`` is given."""
    return await open_in_either_era(lambda options: _connect_once(connector, nursery, options), given)


async def _connect_once(connector: SocketConnector[Any], nursery: trio.Nursery, given: dict[str, Any]) -> Client:
    adapter, make = await connector.client(given)
    return await start_client(adapter, nursery, given, make)
