"""A client and a server in one process: the same conversation, without a transport and without time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NoReturn

import pytest
import trio
from eachloop import EachLoop, Here, on_each_virtual_loop
from lifespans import Scope

from mcpio import (
    Client,
    CloseReason,
    ConnectFailed,
    ConnectionLost,
    Context,
    LocalProtocolError,
    NoBackChannel,
    RequestTimeout,
    Server,
)
from mcpio.engine.limits import Limits
from mcpio.engine.options import Options
from mcpio.revisions import STATELESS_REVISIONS
from mcpio.types import (
    CreateMessageRequest,
    CreateMessageResult,
    LoggingMessageNotification,
    PingRequest,
    SamplingMessage,
    TextContent,
)


def make_server(**options: Any) -> Server:
    server = Server("memory", **options)
    server.instructions = "running"

    @server.tool
    def echo(text: str) -> str:
        return text

    @server.tool
    async def never_ends(ctx: Context) -> None:
        try:
            await ctx.sleep(1e6)
        finally:
            server.instructions = "cancelled"

    @server.tool
    async def count(to: int, ctx: Context) -> str:
        for number in range(1, to + 1):
            ctx.progress(number, to, f"step {number}")
            ctx.info({"step": number})
            await ctx.sleep(1)
        return "done"

    return server


def test_calls_get_their_results_progress_and_log_messages(each_virtual_loop: EachLoop) -> None:
    progress: list[tuple[float, float | None, str | None]] = []
    logs: list[LoggingMessageNotification] = []

    async def main(here: Here) -> None:
        memory_client = here.drivers.memory_client
        began = here.now()
        async with memory_client(make_server(), on_log=logs.append, era="handshake") as client:
            assert client.server.info.name == "memory"
            assert {tool.name async for tool in client.tools()} == {"echo", "never_ends", "count"}
            assert (await client.call_tool("echo", {"text": "hi"})).content == (TextContent("hi"),)
            await client.call_tool("count", {"to": 2}, on_progress=lambda *report: progress.append(report))
            assert here.now() - began == pytest.approx(2)

    each_virtual_loop.run(main, virtual=True)
    assert progress == [(1, 2, "step 1"), (2, 2, "step 2")]
    assert [log.data for log in logs] == [{"step": 1}, {"step": 2}]


def test_concurrent_calls_get_their_own_answers(each_virtual_loop: EachLoop) -> None:
    texts: dict[int, str] = {}

    async def main(here: Here) -> None:
        async with here.drivers.memory_client(make_server()) as client, here.tasks() as tasks:

            async def call(number: int) -> None:
                texts[number] = (await client.call_tool("echo", {"text": str(number)})).text

            for number in range(50):
                tasks.spawn(call(number))

    each_virtual_loop.run(main, virtual=True)
    assert texts == {number: str(number) for number in range(50)}


def test_close_ends_a_call_whose_callback_has_not_answered(each_virtual_loop: EachLoop) -> None:
    server = Server("asking", options=Options(revisions=STATELESS_REVISIONS))

    @server.tool
    async def ask(ctx: Context) -> str:
        return str(await ctx.sample(CreateMessageRequest((SamplingMessage("user", TextContent("?")),), 1)))

    async def main(here: Here) -> None:
        is_asked, began = here.event(), here.now()

        async def never(scope: Any, request: Any) -> Any:
            is_asked.set()
            await here.forever()

        async with here.tasks() as tasks, here.drivers.memory_client(server, sampling=never) as client:

            async def call() -> None:
                with pytest.raises(ConnectionLost):
                    await client.call_tool("ask")

            tasks.spawn(call())
            await is_asked.wait()
        assert here.now() == began

    each_virtual_loop.run(main, virtual=True)


@pytest.mark.parametrize("how", ["timeout", "cancelled"])
@on_each_virtual_loop
async def test_call_that_ends_early_ends_its_handler(here: Here, how: str) -> None:
    server = make_server()
    async with here.drivers.memory_client(server) as client:
        if how == "timeout":
            with pytest.raises(RequestTimeout):
                await client.call_tool("never_ends", timeout=5.0)
        else:
            with here.scope(1) as scope:
                await client.call_tool("never_ends")
            assert scope.cancelled_caught
        await here.settle()
        assert server.instructions == "cancelled"
        assert (await client.call_tool("echo", {"text": "hi"})).text == "hi"


@pytest.mark.long
def test_simultaneous_deadlines_of_both_sides_expire(each_virtual_loop: EachLoop) -> None:
    """The end of one side's call may take the other's deadline with it."""
    seen: list[str] = []

    async def main(here: Here) -> None:
        async def sample(*_: object) -> CreateMessageResult:
            await here.forever()
            raise AssertionError

        server = make_server()

        @server.tool
        async def ask(ctx: Context) -> None:
            try:
                await ctx.sample(CreateMessageRequest((SamplingMessage("user", TextContent("?")),), 1), timeout=5)
            except RequestTimeout as error:
                seen.append(str(error))
                raise

        async with here.drivers.memory_client(server, sampling=sample, era="handshake") as client:
            with pytest.raises(RequestTimeout, match="tools/call: no answer within 5 s"):
                await client.call_tool("ask", timeout=5)
            await client.ping()

    for _ in range(10):
        each_virtual_loop.run(main, virtual=True)
    assert set(seen) <= {"sampling/createMessage: no answer within 5 s"}


@pytest.mark.parametrize("end", ["left", "closed", "cancelled", "closed by the server", "lost by the server"])
def test_block_ends_though_a_handler_never_does(end: str, each_virtual_loop: EachLoop) -> None:
    server = make_server()
    lost: list[str] = []

    async def call(client: Client) -> None:
        try:
            await client.call_tool("never_ends", timeout=None)
        except ConnectionLost as error:
            lost.append(error.reason)

    async def main(here: Here) -> None:
        began = here.now()
        with here.scope() as scope:
            async with here.tasks() as tasks, here.drivers.memory_client(server, era="handshake") as client:
                tasks.spawn(call(client))
                await here.settle()
                (session,) = server.sessions
                match end:
                    case "closed":
                        await client.aclose(0)
                    case "cancelled":
                        scope.cancel()
                    case "closed by the server":
                        session.close(0)
                        await client.driver.wait_closed()
                    case "lost by the server":
                        session.connection.abort()
                        session.driver.wake()
                        await client.driver.wait_closed()
        assert here.now() - began == pytest.approx(0, abs=1e-6)
        assert not server.sessions
        assert client.ended is not None
        with pytest.raises(NoBackChannel):
            await client.ping()

    each_virtual_loop.run(main, virtual=True)
    assert server.instructions == "cancelled"
    if end != "cancelled":
        how = "closed by the peer" if "server" in end else "closed here"
        assert lost == [f"tools/call: the connection ended ({how})"]


def test_server_may_close_after_its_answers(each_virtual_loop: EachLoop) -> None:
    server = make_server()

    @server.tool
    async def hang_up(ctx: Context) -> str:
        ctx.session.close()
        await ctx.sleep(1)
        return "the last word"

    async def main(here: Here) -> None:
        async with here.drivers.memory_client(server) as client:
            assert (await client.call_tool("hang_up")).content == (TextContent("the last word"),)
            await client.driver.wait_closed()
            assert client.ended is not None
            assert client.ended.reason is CloseReason.END_OF_FILE

    each_virtual_loop.run(main, virtual=True)


def test_close_takes_any_number_of_calls_and_leaves_nothing(each_loop: EachLoop) -> None:
    clients: list[Client] = []

    async def main(here: Here) -> None:
        def living_tasks() -> int:
            return trio.lowlevel.current_statistics().tasks_living if here.is_trio else len(asyncio.all_tasks())

        before = living_tasks()
        async with here.drivers.memory_client(make_server()) as client:
            clients.append(client)
            client.close()
            client.close()
            await here.runtime.to_thread(client.close)
            await client.aclose()
            client.close()
        assert living_tasks() == before

    each_loop.run(main)
    clients[0].close()


@on_each_virtual_loop
async def test_invalid_grace_raises_local_protocol_error(here: Here) -> None:
    async with here.drivers.memory_client(make_server(), era="handshake") as client:
        with pytest.raises(LocalProtocolError, match="grace must be a number of seconds"):
            client.close(-1)
        await client.ping()


def test_lifespan_is_entered_for_the_block(each_virtual_loop: EachLoop) -> None:
    scope = Scope()
    server = make_server(lifespan=scope)

    @server.tool
    def state(ctx: Context) -> str:
        return str(ctx.state)

    async def main(here: Here) -> None:
        async with here.drivers.memory_client(server) as client:
            assert (await client.call_tool("state")).content == (TextContent("the state"),)
            assert scope.seen == ["entered"]
        assert scope.seen == ["entered", "left"]

    each_virtual_loop.run(main, virtual=True)


@pytest.mark.parametrize("when", ["enter", "leave"])
def test_lifespan_error_propagates_unwrapped(when: str, each_virtual_loop: EachLoop) -> None:
    error = ValueError("no database")

    async def main(here: Here) -> None:
        with pytest.raises(ValueError, match="no database") as caught:
            async with here.drivers.memory_client(make_server(lifespan=Scope(**{when: error}))):
                pass
        assert caught.value is error

    each_virtual_loop.run(main, virtual=True)


@pytest.mark.parametrize("how", ["calls", "waits"])
def test_failure_of_a_task_of_the_lifespan_ends_the_block(how: str, each_virtual_loop: EachLoop) -> None:
    error = ValueError("the database is gone")

    async def fail(sleep: Any) -> None:
        await sleep(1)
        raise error

    @asynccontextmanager
    async def on_trio(_: Server) -> AsyncIterator[None]:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fail, trio.sleep)
            yield

    @asynccontextmanager
    async def on_asyncio(_: Server) -> AsyncIterator[None]:
        async with asyncio.TaskGroup() as group:
            group.create_task(fail(asyncio.sleep))
            yield

    async def main(here: Here) -> None:
        server = make_server(lifespan=on_trio if here.is_trio else on_asyncio)

        async def body() -> None:
            async with here.drivers.memory_client(server) as client:
                await here.sleep(2)
                if how == "calls":
                    await client.call_tool("echo", {"text": "x"})

        with pytest.raises(ValueError, match="the database is gone") as caught:
            await body()
        assert caught.value is error

    each_virtual_loop.run(main, virtual=True)


@pytest.mark.parametrize("error", [KeyError("mine"), ExceptionGroup("mine", [ValueError()])], ids=["error", "group"])
@on_each_virtual_loop
async def test_body_error_propagates_unwrapped(here: Here, error: Exception) -> None:
    with pytest.raises(type(error)) as caught:
        async with here.drivers.memory_client(make_server()):
            raise error
    assert caught.value is error


@on_each_virtual_loop
async def test_failed_handshake_raises_connect_failed(here: Here) -> None:
    server = make_server(options=Options(limits=Limits(message_bytes=10)))
    with pytest.raises(ConnectFailed, match="the connection ended while the server was asked for its era"):
        async with here.drivers.memory_client(server):
            pytest.fail("a client was opened")


@on_each_virtual_loop
async def test_invalid_arguments_raise_type_error(here: Here) -> None:
    with pytest.raises(TypeError, match="unknown option 'on_logs'"):
        async with here.drivers.memory_client(make_server(), on_logs=print):
            pytest.fail("a client was opened")
    with pytest.raises(TypeError, match="server must be Server"):
        here.drivers.memory_client(object(), era="handshake")


def test_session_that_fails_ends_the_conversation_and_nothing_else(
    each_virtual_loop: EachLoop, caplog: pytest.LogCaptureFixture
) -> None:
    async def main(here: Here) -> None:
        server = make_server()
        async with here.drivers.memory_client(server, era="handshake") as client:
            (session,) = server.sessions

            def broken(event: object) -> NoReturn:
                del session._handle  # The one of the class is back.
                raise ValueError("a fault in the library")

            session._handle = broken  # type: ignore[method-assign]  # there is no other way to make it fail
            with pytest.raises(ConnectionLost):
                await client.request(PingRequest())

    each_virtual_loop.run(main, virtual=True)
    assert [(record.levelno, record.getMessage()) for record in caplog.records] == [(logging.ERROR, "a session failed")]


@on_each_virtual_loop
async def test_server_serves_several_memory_clients(here: Here) -> None:
    server = make_server()
    memory_client = here.drivers.memory_client
    async with memory_client(server, era="handshake") as first, memory_client(server, era="handshake") as second:
        assert len(server.sessions) == 2
        await first.call_tool("echo", {"text": "a"})
        await second.call_tool("echo", {"text": "b"})
        first.close()
        await first.driver.wait_closed()
        await second.ping()
