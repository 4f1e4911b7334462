"""How a session begins, by Trio's clock. See ``mcpio._driving.beginnings``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack

import trio

from mcpio import _driving
from mcpio._driving import TapSource, beginnings
from mcpio._driving.beginnings import Beginning, ClientBeginning, ServerBeginning
from mcpio.app.client import ClientOptions
from mcpio.engine.connection import Connection

if TYPE_CHECKING:
    from mcpio.app.server import Server

__all__ = ["Beginning", "ClientBeginning", "ServerBeginning", "TapSource", "begin_client", "begin_server", "watch"]


def begin_server(server: Server, principal: Any, **options: Unpack[ServerBeginning]) -> Beginning:
    """Return the beginning of a session of a server. ``LocalProtocolError`` for what cannot go on."""
    return beginnings.begin_server(server, principal, trio.current_time(), **options)


def begin_client(options: ClientOptions, **how: Unpack[ClientBeginning]) -> Beginning:
    """Return the beginning of a client. ``LocalProtocolError`` for what cannot go on."""
    return beginnings.begin_client(options, trio.current_time(), **how)


def watch(connection: Connection, tap: TapSource | None) -> None:
    """Put a tap on a connection. ``TypeError`` for what is none; raises what ``Tap.opened`` does."""
    if tap is not None:
        _driving.watch(connection, tap, trio.current_time())
