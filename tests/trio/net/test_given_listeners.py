"""Listeners of the caller's own: what is none is refused at once."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

import pytest
import trio

from mcpio import Server
from mcpio.trio import serve_http, serve_tcp, serve_websocket


@pytest.mark.parametrize("serve", [serve_tcp, serve_http, serve_websocket])
def test_listeners_that_are_none_raise(serve: Callable[..., Any]) -> None:
    async def main() -> None:
        with pytest.raises(ValueError, match="there is none"):
            await serve(Server("s"), listeners=[])
        advice = r"not <socket.socket .*from_stdlib_socket\(sock\)\) makes one"
        with socket.create_server(("127.0.0.1", 0)) as plain, pytest.raises(TypeError, match=advice):
            await serve(Server("s"), listeners=[plain])

    trio.run(main)
