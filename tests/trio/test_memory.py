"""A client and a server in one process: the same conversation, without a transport and without time."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import trio
import trio.testing
from lifespans import Scope
from peers import run

from mcpio.app.client import Client
from mcpio.app.context import Context
from mcpio.app.server import Server
from mcpio.engine.limits import Limits
from mcpio.engine.options import Options
from mcpio.errors import ConnectFailed, ConnectionLost, LocalProtocolError, NoBackChannel, RequestTimeout
from mcpio.events import CloseReason
from mcpio.trio import memory_client
from mcpio.types.content import TextContent
from mcpio.types.lifecycle import PingRequest
from mcpio.types.logging import LoggingMessageNotification
from mcpio.types.sampling import CreateMessageRequest, CreateMessageResult, SamplingMessage


def a_server(**options: Any) -> Server:
    server = Server("memory", **options)
    server.instructions = "running"

    @server.tool
    def echo(text: str) -> str:
        return text

    @server.tool
    async def never_ends() -> None:
        try:
            await trio.sleep_forever()
        finally:
            server.instructions = "cancelled"

    @server.tool
    async def count(to: int, ctx: Context) -> str:
        for number in range(1, to + 1):
            ctx.progress(number, to, f"step {number}")
            ctx.info({"step": number})
            await trio.sleep(1)
        return "done"

    return server


def test_memory_client_calls_tools_and_cancels() -> None:
    progress: list[tuple[float, float | None, str | None]] = []
    logs: list[LoggingMessageNotification] = []

    async def main() -> None:
        async with memory_client(a_server(), on_log=logs.append, era="handshake") as client:
            assert client.server.info.name == "memory"
            assert {tool.name async for tool in client.tools()} == {"echo", "never_ends", "count"}
            assert (await client.call_tool("echo", {"text": "hi"})).content == (TextContent("hi"),)
            await client.call_tool("count", {"to": 2}, on_progress=lambda *report: progress.append(report))
            assert trio.current_time() == 2
            with trio.move_on_after(1) as scope:
                await client.call_tool("never_ends")
            assert scope.cancelled_caught
            await client.ping()

    run(main)
    assert progress == [(1, 2, "step 1"), (2, 2, "step 2")]
    assert [log.data for log in logs] == [{"step": 1}, {"step": 2}]


def test_simultaneous_deadlines_of_both_sides_expire() -> None:
    """The end of one side's call may take the other's deadline with it."""
    seen: list[str] = []

    async def main() -> None:
        async def sample(*_: object) -> CreateMessageResult:
            await trio.sleep_forever()
            raise AssertionError

        server = a_server()

        @server.tool
        async def ask(ctx: Context) -> None:
            try:
                await ctx.sample(CreateMessageRequest((SamplingMessage("user", TextContent("?")),), 1), timeout=5)
            except RequestTimeout as error:
                seen.append(str(error))
                raise

        async with memory_client(server, sampling=sample, era="handshake") as client:
            with pytest.raises(RequestTimeout, match="tools/call: no answer within 5 s"):
                await client.call_tool("ask", timeout=5)
            await client.ping()

    for _ in range(10):
        run(main)
    assert set(seen) <= {"sampling/createMessage: no answer within 5 s"}


@pytest.mark.parametrize("end", ["left", "closed", "cancelled", "closed by the server", "lost by the server"])
def test_block_ends_though_a_handler_never_does(end: str) -> None:
    server = a_server()
    lost: list[str] = []

    async def call(client: Client) -> None:
        try:
            await client.call_tool("never_ends", timeout=None)
        except ConnectionLost as error:
            lost.append(error.reason)

    async def main() -> None:
        async with trio.open_nursery() as nursery, memory_client(server, era="handshake") as client:
            nursery.start_soon(call, client)
            await trio.testing.wait_all_tasks_blocked()
            (session,) = server.sessions
            match end:
                case "closed":
                    await client.aclose(0)
                case "cancelled":
                    nursery.cancel_scope.cancel()
                case "closed by the server":
                    session.close(0)
                    await client.driver.wait_closed()
                case "lost by the server":
                    session.connection.abort()
                    session.driver.wake()
                    await client.driver.wait_closed()
        assert trio.current_time() == 0
        assert not server.sessions
        assert client.ended is not None
        with pytest.raises(NoBackChannel):
            await client.ping()

    run(main)
    assert server.instructions == "cancelled"
    if end != "cancelled":
        how = "closed by the peer" if "server" in end else "closed here"
        assert lost == [f"tools/call: the connection ended ({how})"]


def test_a_server_may_close_after_its_answers() -> None:
    server = a_server()

    @server.tool
    async def hang_up(ctx: Context) -> str:
        ctx.session.close()
        await trio.sleep(1)
        return "the last word"

    async def main() -> None:
        async with memory_client(server) as client:
            assert (await client.call_tool("hang_up")).content == (TextContent("the last word"),)
            await client.driver.wait_closed()
            assert client.ended is not None
            assert client.ended.reason is CloseReason.END_OF_FILE

    run(main)


def test_close_takes_any_number_of_calls_and_leaves_nothing() -> None:
    clients: list[Client] = []

    async def main() -> None:
        before = trio.lowlevel.current_statistics().tasks_living
        async with memory_client(a_server()) as client:
            clients.append(client)
            client.close()
            client.close()
            await trio.to_thread.run_sync(client.close)
            await client.aclose()
            client.close()
        assert trio.lowlevel.current_statistics().tasks_living == before

    trio.run(main)
    clients[0].close()


def test_invalid_grace_raises_local_protocol_error() -> None:
    async def main() -> None:
        async with memory_client(a_server(), era="handshake") as client:
            with pytest.raises(LocalProtocolError, match="a time is a number of seconds"):
                client.close(-1)
            await client.ping()

    run(main)


def test_the_lifespan_is_entered_for_the_block() -> None:
    scope = Scope()
    server = a_server(lifespan=scope)

    @server.tool
    def state(ctx: Context) -> str:
        return str(ctx.state)

    async def main() -> None:
        async with memory_client(server) as client:
            assert (await client.call_tool("state")).content == (TextContent("the state"),)
            assert scope.seen == ["entered"]
        assert scope.seen == ["entered", "left"]

    run(main)


@pytest.mark.parametrize("when", ["enter", "leave"])
def test_lifespan_error_propagates_unwrapped(when: str) -> None:
    error = ValueError("no database")

    async def main() -> None:
        with pytest.raises(ValueError, match="no database") as caught:
            async with memory_client(a_server(lifespan=Scope(**{when: error}))):
                pass
        assert caught.value is error

    run(main)


def test_body_error_propagates_unwrapped() -> None:
    async def main() -> None:
        error = ExceptionGroup("mine", [ValueError()])
        with pytest.raises(ExceptionGroup) as caught:
            async with memory_client(a_server()):
                raise error
        assert caught.value is error

    run(main)


def test_failed_handshake_raises_connect_failed() -> None:
    async def main() -> None:
        server = a_server(options=Options(limits=Limits(message_bytes=10)))
        with pytest.raises(ConnectFailed, match="the connection ended while the server was asked for its era"):
            async with memory_client(server):
                pytest.fail("there was none")

    run(main)


def test_unknown_option_raises() -> None:
    async def main() -> None:
        wrong: Any = {"on_logs": print}
        with pytest.raises(TypeError, match="unknown option 'on_logs'"):
            async with memory_client(a_server(), **wrong):
                pytest.fail("there is none")

    run(main)


def test_a_session_that_fails_ends_the_conversation_and_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        server = a_server()
        async with memory_client(server, era="handshake") as client:
            (session,) = server.sessions

            def broken(event: object) -> None:
                del session._handle  # The one of the class is back.
                raise ValueError("a fault in the library")

            session._handle = broken  # type: ignore[method-assign]  # there is no other way to make it fail
            with pytest.raises(ConnectionLost):
                await client.request(PingRequest())

    run(main)
    assert [(record.levelno, record.getMessage()) for record in caplog.records] == [(logging.ERROR, "a session failed")]


def test_one_server_serves_several_memory_clients() -> None:
    async def main() -> None:
        server = a_server()
        async with memory_client(server, era="handshake") as first, memory_client(server, era="handshake") as second:
            assert len(server.sessions) == 2
            await first.call_tool("echo", {"text": "a"})
            await second.call_tool("echo", {"text": "b"})
            first.close()
            await first.driver.wait_closed()
            await second.ping()

    run(main)
