"""Listeners of the caller's own, and the grace at the end: invalid ones are refused at once."""

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
        with pytest.raises(ValueError, match="listeners must be at least one that listens"):
            await serve(Server("s"), listeners=[])
        advice = r"not <socket.socket .*from_stdlib_socket\(sock\)\) makes one"
        with socket.create_server(("127.0.0.1", 0)) as plain, pytest.raises(TypeError, match=advice):
            await serve(Server("s"), listeners=[plain])

    trio.run(main)


@pytest.mark.parametrize("serve", [serve_tcp, serve_http, serve_websocket])
@pytest.mark.parametrize("handles_signals", [False, True])
@pytest.mark.parametrize("grace", ["1", -1, True])
def test_grace_that_is_no_time_raises(serve: Callable[..., Any], handles_signals: bool, grace: Any) -> None:
    async def main() -> None:
        with pytest.raises(ValueError, match="grace must be a number of seconds"):
            await serve(Server("s"), port=0, grace=grace, handle_signals=handles_signals)

    trio.run(main)
