"""``open_http``: leaving the block as soon as the server has been told."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
import trio
from eachloop import EachLoop, Here
from trio_thread import TrioThread

from mcpio import Server
from mcpio.http.client import HttpClientOptions
from mcpio.http.model import HttpOptions
from mcpio.trio import serve_http

server = Server("here", "1.0")


@server.tool
def echo(text: str) -> str:
    """Say it back."""
    return text


@pytest.mark.parametrize("listen", [True, False])
@pytest.mark.parametrize("sessions", [True, False])
def test_block_left_after_a_call_ends_cleanly(sessions: bool, listen: bool, each_loop: EachLoop) -> None:
    @asynccontextmanager
    async def served() -> AsyncIterator[str]:
        options = HttpOptions(sessions=sessions)
        async with trio.open_nursery() as nursery:
            listening: Any = await nursery.start(partial(serve_http, server, port=0, options=options, grace=0))
            yield listening.url
            nursery.cancel_scope.cancel()

    async def main(here: Here, url: str) -> None:
        async with here.open_http(url, http=HttpClientOptions(listen=listen)) as client:
            assert (await client.call_tool("echo", {"text": "x"})).text == "x"

    with TrioThread(served) as url:
        each_loop.run(lambda here: main(here, url))
