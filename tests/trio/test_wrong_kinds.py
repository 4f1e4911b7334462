"""Options of the wrong kind, of everything that connects or serves: a ``TypeError`` that names them, at once."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from runners import run_by

from mcpio import Server
from mcpio.backoff import Backoff
from mcpio.trio import (
    HttpTimeouts,
    memory_client,
    open_http,
    open_stdio,
    open_tcp,
    open_transport,
    open_websocket,
    run_tasks,
    serve,
    serve_http,
    serve_stdio,
    serve_tcp,
    serve_unix,
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
    *((partial(serve_http, SERVER), name) for name in ("max_per_address", "principal", "head_bytes")),
    (partial(serve_tcp, SERVER), "ssl_context"),
]


@pytest.mark.parametrize(("opened", "name"), CLIENTS)
@run_by(trio.run)
async def test_client_option_of_the_wrong_type_raises(opened: Callable[..., Any], name: str) -> None:
    with pytest.raises(TypeError, match=rf"^{name} must be .+, not 'wrong'"):
        async with opened(**{name: "wrong"}):
            pass


@run_by(trio.run)
async def test_option_of_the_wrong_type_sends_nothing() -> None:
    near, far = trio.testing.memory_stream_pair()
    async with far:
        with pytest.raises(TypeError, match=r"^options must be Options, not 'wrong'"):
            async with open_transport(near, options="wrong"):  # type: ignore[arg-type]  # which is the point
                pass
        assert await far.receive_some() == b""


def test_head_bytes_must_be_positive() -> None:
    with pytest.raises(ValueError, match=r"^head_bytes must be 1 or more, not 0"):
        trio.run(partial(serve_http, SERVER, head_bytes=0))


@pytest.mark.parametrize("wrong", [0, -1, math.nan, "4096", None])
def test_rate_must_be_a_positive_number(wrong: Any) -> None:
    with pytest.raises(ValueError, match=r"^rate must be a number of bytes a second above 0, not"):
        HttpTimeouts(rate=wrong)


def test_a_server_with_its_own_options() -> None:
    with pytest.raises(TypeError, match=r"^options must be Options, not 'wrong'"):
        Server("here", "1", options="wrong")  # type: ignore[arg-type]  # which is the point


@pytest.mark.parametrize(("serve", "name"), SERVERS)
@run_by(trio.run)
async def test_server_argument_of_the_wrong_type_raises(serve: Callable[..., Any], name: str) -> None:
    with pytest.raises(TypeError, match=rf"^{name} must be .+, not 'wrong'"):
        await serve(**{name: "wrong"})


@pytest.mark.parametrize("wrong", ["server", Server, None])
@run_by(trio.run)
async def test_serving_a_non_server_raises_type_error(wrong: Any, tmp_path: Path) -> None:
    near, far = trio.testing.memory_stream_pair()
    for serving in (
        lambda: serve(wrong, near),
        lambda: serve_tcp(wrong),
        lambda: serve_unix(wrong, tmp_path / "socket"),
        lambda: serve_http(wrong, port=0),
        lambda: serve_websocket(wrong, port=0),
        lambda: run_tasks(wrong),
        lambda: memory_client(wrong).__aenter__(),
    ):
        with pytest.raises(TypeError, match=r"^server must be Server, not "):
            await serving()
    assert await far.receive_some() == b""


def test_server_outside_trio_raises_runtime_error(tmp_path: Path) -> None:
    async def main() -> None:
        for serving in (
            serve(SERVER, trio.testing.memory_stream_pair()[0]),
            serve_stdio(SERVER),
            serve_tcp(SERVER),
            serve_unix(SERVER, tmp_path / "socket"),
            serve_http(SERVER, port=0),
            serve_websocket(SERVER, port=0),
            run_tasks(SERVER),
        ):
            with pytest.raises(
                RuntimeError, match=r"^servers of mcpio\.trio need Trio, .* mcpio\.asyncio, .* mcpio\.asgi$"
            ):
                await serving

    asyncio.run(main())
