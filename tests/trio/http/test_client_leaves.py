"""``open_http``: leaving the block as soon as the server has been told."""

from __future__ import annotations

import pytest
import trio

from mcpio import Server
from mcpio.http.client.options import HttpClientOptions
from mcpio.http.options import HttpOptions
from mcpio.trio import open_http, serve_http

server = Server("here", "1.0")


@server.tool
def echo(text: str) -> str:
    """Say it back."""
    return text


@pytest.mark.parametrize("listen", [True, False])
@pytest.mark.parametrize("sessions", [True, False])
def test_leaving_the_block_does_not_wait(sessions: bool, listen: bool) -> None:
    async def main() -> None:
        async with trio.open_nursery() as nursery:

            async def serve(task_status: trio.TaskStatus[object]) -> None:
                options = HttpOptions(sessions=sessions)
                await serve_http(server, port=0, options=options, grace=0, task_status=task_status)

            listening = await nursery.start(serve)
            with trio.fail_after(5):
                async with open_http(listening.url, http=HttpClientOptions(listen=listen)) as client:
                    assert (await client.call_tool("echo", {"text": "x"})).text == "x"
            nursery.cancel_scope.cancel()

    trio.run(main)
