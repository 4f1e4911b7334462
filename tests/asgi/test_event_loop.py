"""Event loops that come and go under an application, and handlers that use the running one."""

from __future__ import annotations

import asyncio
import gc
import logging
import weakref
from typing import Any

import pytest
import trio
from asgiserved import Served, raw
from asgiwire import EventLoop, OnAsyncio

from mcpio import Context, Server
from mcpio.asgi import app
from mcpio.http.model import HttpOptions

# Sessions and event loops


def test_sessions_continue_in_the_next_event_loop(loop: EventLoop) -> None:
    served = Served(OnAsyncio())

    async def begin() -> None:
        await served.client.initialize()

    async def go_on() -> None:
        served.wire.loop = loop
        assert (await served.client.call("echo", text="x")).status == 200
        served.assert_nothing_is_left()

    OnAsyncio().run(begin)
    for _ in range(3):
        loop.run(go_on)


def test_second_concurrent_event_loop_raises_runtime_error() -> None:
    async def main() -> None:
        loop = OnAsyncio()
        served = Served(loop)
        await served.client.initialize()
        async with served.application.lifespan():
            await asyncio.to_thread(asyncio.run, elsewhere(served))

    async def elsewhere(served: Served) -> None:
        async def never(*_: Any) -> Any:
            raise AssertionError("nothing is read")

        scope = {"type": "http", "method": "GET", "path": "/mcp", "headers": []}
        with pytest.raises(RuntimeError, match="in another event loop"):
            await served.application(scope, never, never)

    asyncio.run(main())


def test_unreferenced_application_is_freed(loop: EventLoop) -> None:
    gone: list[weakref.ref[Any]] = []

    async def main() -> None:
        served = Served(loop)
        await served.client.initialize()
        await served.client.call("flood", pieces=2)
        gone.append(weakref.ref(served.asgi_server))

    loop.run(main)
    gc.collect()
    assert [found() for found in gone] == [None]


# What handlers may do


def test_blocking_handler_runs_in_a_thread(loop: EventLoop) -> None:
    async def main() -> None:
        server = Server("blocking", "1")

        @server.tool(blocking=True)
        def block(ctx: Context) -> str:
            return str(ctx.session.driver.runtime.from_thread(lambda: "in the loop"))

        application = app(server, options=HttpOptions(sessions=False))
        sent: list[Any] = []
        body = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"block","arguments":{}}}'
        head = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
        scope = {"type": "http", "method": "POST", "path": "/", "headers": raw(head)}
        received = [{"type": "http.request", "body": body}]

        async def receive() -> Any:
            if not received:
                await loop.event().wait()
            return received.pop()

        async def send(message: Any) -> None:
            sent.append(message)

        await application(scope, receive, send)
        assert b"in the loop" in sent[1]["body"]

    # A thread takes real time.
    if isinstance(loop, OnAsyncio):
        asyncio.run(main())
    else:
        trio.run(main)


def test_handler_can_close_its_session(loop: EventLoop) -> None:
    async def main() -> None:
        served = Served(loop)

        @served.server.tool
        def leave(ctx: Context) -> str:
            ctx.session.close(1)
            return "bye"

        await served.client.initialize()
        (session,) = served.server.sessions
        assert (await served.client.call("leave")).json["result"]["content"][0]["text"] == "bye"
        await session.driver.wait_closed()
        assert served.server.sessions == ()
        assert (await served.client.call("echo", text="x")).status == 404

    loop.run(main)


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()])
def test_system_exit_of_a_handler_leaves_the_application(loop: EventLoop, error: BaseException) -> None:
    async def main() -> None:
        served = Served(loop)

        @served.server.tool
        async def leave() -> str:
            await loop.sleep(0)
            raise error

        await served.client.initialize()
        await served.client.call("leave")

    with pytest.raises((type(error), BaseExceptionGroup)) as caught:
        loop.run(main)
    found: BaseException = caught.value
    while isinstance(found, BaseExceptionGroup):  # of the test's own nurseries
        (found,) = found.exceptions
    assert found is error


def test_reports_go_to_the_log(loop: EventLoop, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        served = Served(loop)

        @served.server.tool
        def fail() -> int:
            return "not a number"  # type: ignore[return-value]  # on purpose

        await served.client.initialize()
        await served.client.call("fail")

    with caplog.at_level(logging.WARNING, "mcpio"):
        loop.run(main)
    assert [record.name for record in caplog.records] == ["mcpio"]
