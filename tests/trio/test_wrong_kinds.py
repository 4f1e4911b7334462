"""Options of the wrong kind, of everything that connects or serves: a ``TypeError`` that names them, at once."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import trio
import trio.testing

from mcpio import Backoff, Server
from mcpio.trio import (
    open_http,
    open_stdio,
    open_tcp,
    open_transport,
    open_websocket,
    serve_http,
    serve_tcp,
    serve_websocket,
)

SERVER = Server("here", "1")
AT = "127.0.0.1:1/mcp"

CLIENTS: list[tuple[Callable[..., Any], str]] = [
    *((partial(open_websocket, f"ws://{AT}"), name) for name in ("options", "connection", "websocket", "ssl_context")),
    *((partial(open_http, f"http://{AT}"), name) for name in ("options", "http", "timeouts", "ssl_context")),
    (partial(open_tcp, "127.0.0.1", 1), "ssl_context"),
    (partial(open_stdio, ["true"]), "options"),
    (partial(open_stdio, ["true"], restart=Backoff()), "options"),
]

SERVERS: list[tuple[Callable[..., Any], str]] = [
    *((partial(serve_websocket, SERVER), name) for name in ("options", "policy", "timeouts", "ssl_context")),
    *((partial(serve_http, SERVER), name) for name in ("options", "timeouts", "websocket", "ssl_context")),
    (partial(serve_http, SERVER), "max_per_address"),
    (partial(serve_tcp, SERVER), "ssl_context"),
]


@pytest.mark.parametrize(("opened", "name"), CLIENTS)
def test_a_client(opened: Callable[..., Any], name: str) -> None:
    async def main() -> None:
        with pytest.raises(TypeError, match=rf"^{name}= takes \w+, not 'wrong'"):
            async with opened(**{name: "wrong"}):
                pass

    trio.run(main)


def test_a_client_over_a_transport_of_ones_own() -> None:
    async def main() -> None:
        near, far = trio.testing.memory_stream_pair()
        async with far:
            with pytest.raises(TypeError, match=r"^options= takes Options, not 'wrong'"):
                async with open_transport(near, options="wrong"):  # type: ignore[arg-type]  # which is the point
                    pass
            assert await far.receive_some() == b""

    trio.run(main)


def test_a_server_with_its_own_options() -> None:
    with pytest.raises(TypeError, match=r"^options= takes Options, not 'wrong'"):
        Server("here", "1", options="wrong")  # type: ignore[arg-type]  # which is the point


@pytest.mark.parametrize(("serve", "name"), SERVERS)
def test_a_server(serve: Callable[..., Any], name: str) -> None:
    async def main() -> None:
        with pytest.raises(TypeError, match=rf"^{name}= takes \w+, not 'wrong'"):
            await serve(**{name: "wrong"})

    trio.run(main)
