"""``serve``, ``serving``, ``connect`` and ``open_streams`` on asyncio: options, lifetimes, and what leaves a block."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from lifespans import Scope
from streams import Raw, joined, run, served, settle

from mcpio import (
    CloseReason,
    ConnectFailed,
    ConnectionLost,
    Context,
    LocalProtocolError,
    RequestError,
    RequestTimeout,
    Server,
)
from mcpio.app import Client
from mcpio.asyncio import connect, open_streams, serve, serving

server = Server("s")


@server.tool
def echo(text: str) -> str:
    return text


@server.tool
async def never_ends() -> None:
    await asyncio.sleep(1e6)


# What is refused


def test_argument_that_is_not_a_stream_raises() -> None:
    async def main() -> None:
        near, far = await joined()
        reader, writer = near
        wrong: Any = object()
        for streams, fault in (
            ((wrong, writer), "a reader is an asyncio.StreamReader, not object"),
            ((reader, wrong), "a writer is an asyncio.StreamWriter, not object"),
            ((writer, reader), "a reader is an asyncio.StreamReader, not StreamWriter"),
        ):
            with pytest.raises(TypeError, match=fault):
                await serve(server, *streams)
            with pytest.raises(TypeError, match=fault):
                await connect(*streams)
            with pytest.raises(TypeError, match=fault):
                async with open_streams(*streams):
                    pass
        with pytest.raises(TypeError, match=r"^server= takes Server, not <object"):
            await serve(wrong, *near)
        await Raw(near).close()
        await Raw(far).close()

    run(main)


@pytest.mark.parametrize(
    ("options", "error", "fault"),
    [
        ({"samplng": None}, TypeError, r"^unknown option 'samplng'; the options are .*sampling"),
        ({"snapshot": {}}, LocalProtocolError, "not the snapshot of a session"),
        ({"unanswered": "x"}, ValueError, "unanswered must be 'again' or 'fail', not 'x'"),
        ({"tap": 5}, TypeError, "a tap is an mcpio.observe.Tap, or a function that returns one, not 5"),
    ],
)
def test_invalid_arguments_raise_before_the_start(options: Any, error: type[Exception], fault: str) -> None:
    async def main() -> None:
        near, far = await joined()
        with pytest.raises(error, match=fault):
            await connect(*near, **options)
        assert near[1].is_closing()
        with pytest.raises(error, match=fault.replace("the options are .*sampling", "the options are alone")):
            await serve(server, *far, **options)
        await Raw(near).close()
        await Raw(far).close()

    run(main)


@pytest.mark.parametrize("grace", [-1, float("nan")])
def test_invalid_grace_raises(grace: float) -> None:
    async def main() -> None:
        with pytest.raises(LocalProtocolError):
            async with serving(server, grace=grace):
                pass

    run(main)


# One client


def test_the_principal_reaches_the_handlers_and_the_server_knows_its_session() -> None:
    server = Server("s")

    @server.tool
    def whoami(ctx: Context) -> str:
        return str(ctx.peer.principal)

    async def main() -> None:
        near, far = await joined()
        async with served(server, far, principal="ada"), open_streams(*near, era="handshake") as client:
            assert (await client.call_tool("whoami")).text == "ada"
            (session,) = server.sessions
            assert session.connection.peer is not None
        assert server.sessions == ()
        assert session.ended is not None

    run(main)


@pytest.mark.parametrize("end", ["closed", "lost", "cancelled"])
def test_lifespan_is_left_at_any_end_of_the_conversation(end: str) -> None:
    scope = Scope()
    server = Server("s", lifespan=scope)
    states: list[object] = []

    @server.tool
    async def work(ctx: Context) -> None:
        states.append(ctx.state)
        await asyncio.sleep(1e6)

    async def main() -> None:
        near, far = await joined()
        async with served(server, far) as serving:
            client = await connect(*near)
            calling = asyncio.ensure_future(client.call_tool("work"))
            await settle()
            assert (states, scope.seen) == (["the state"], ["entered"])
            (session,) = server.sessions
            if end == "closed":
                session.close(0)
            elif end == "lost":
                far[1].transport.abort()
            else:
                serving.cancel()
            with pytest.raises(ConnectionLost):
                await calling
            await client.aclose()

    run(main)
    assert scope.seen == ["entered", "left"]


@pytest.mark.parametrize("where", ["enter", "leave"])
@pytest.mark.parametrize("many", [False, True])
def test_exception_of_a_lifespan_propagates_unwrapped(where: str, many: bool) -> None:
    error = ValueError("no database")

    async def main() -> None:
        near, far = await joined()
        broken = Server("s", lifespan=Scope(**{where: error}))
        near[1].write_eof()
        with pytest.raises(ValueError, match="no database") as caught:
            await (serve_as_one_of_many(broken, far) if many else serve(broken, *far))
        assert caught.value is error
        if many and where == "enter":
            far[1].close()
        assert await near[0].read() == b""
        await Raw(near).close()

    async def serve_as_one_of_many(server: Server, streams: Any) -> None:
        async with serving(server) as serve_one:
            await serve_one(*streams)

    run(main)


# What leaves a block of a client


def test_a_block_cannot_be_entered_twice() -> None:
    async def main() -> None:
        near, far = await joined()
        async with served(server, far):
            opened: Any = open_streams(*near, era="handshake")
            with pytest.raises(AttributeError, match=r"^'ping' belongs to the client that the block yields"):
                await opened.ping()
            async with opened as client:
                with pytest.raises(RuntimeError, match="this context manager is in use"):
                    await opened.__aenter__()
                await client.ping()

    run(main)


class Odd(BaseException):
    pass


@pytest.mark.parametrize(
    "error",
    [ValueError("v"), ExceptionGroup("g", [ValueError("v")]), Odd(), RequestError(1, "r")],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("kind", ["client", "serving"])
def test_body_error_propagates_unwrapped(error: BaseException, kind: str) -> None:
    async def main() -> None:
        near, far = await joined()
        async with served(server, far):
            block: Any = open_streams(*near) if kind == "client" else serving(server)
            with pytest.raises(type(error)) as caught:
                async with block:
                    raise error
            assert caught.value is error
            assert error.__cause__ is None
        await Raw(near).close()

    run(main)


def test_a_cancelled_block_leaves_by_the_cancellation_alone() -> None:
    seen: list[type[BaseException]] = []

    async def block(near: Any) -> None:
        try:
            async with open_streams(*near) as client:
                await client.call_tool("never_ends", timeout=None)
        except BaseException as error:
            seen.append(type(error))
            raise

    async def main() -> None:
        near, far = await joined()
        async with served(server, far):
            running = asyncio.ensure_future(block(near))
            await asyncio.sleep(1)
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            assert asyncio.get_running_loop().time() == pytest.approx(1)

    run(main)
    assert seen == [asyncio.CancelledError]


@pytest.mark.req("LIFE-19")
def test_unanswered_handshake_fails_and_closes_the_writer() -> None:
    async def main() -> None:
        near, far = await joined()
        with pytest.raises(ConnectFailed, match=r"^the handshake failed: initialize: no answer within 30 s$") as caught:
            async with open_streams(*near, era="handshake"):
                pytest.fail("nobody answered")
        assert isinstance(caught.value.__cause__, RequestTimeout)
        assert (await far[0].readline()).endswith(b"\n")
        assert await Raw(far).at_end()
        await Raw(far).close()

    run(main)


def test_base_exception_of_a_callback_leaves_the_block() -> None:
    error = Odd()

    def fail(_: object) -> None:
        raise error

    many = Server("s")

    @many.tool
    def warn(ctx: Context) -> None:
        ctx.warning("careful")

    async def main() -> None:
        near, far = await joined()
        async with served(many, far):
            with pytest.raises(Odd) as caught:
                await block(near)
            assert caught.value is error

    async def block(near: Any) -> None:
        async with open_streams(*near, on_log=fail, era="handshake") as client:
            with contextlib.suppress(ConnectionLost):
                await client.call_tool("warn")

    run(main)


# Groups


def test_client_ends_with_its_cancelled_group() -> None:
    async def main() -> None:
        near, far = await joined()
        async with served(server, far):
            clients: list[Client] = []
            with pytest.raises(ExceptionGroup):
                await fail(near, clients)
            (client,) = clients
            assert client.ended is not None
            assert client.ended.reason is CloseReason.ABORTED
            client.close()
            await client.aclose()

    async def fail(near: Any, clients: list[Client]) -> None:
        async with asyncio.TaskGroup() as group:
            clients.append(await connect(*near, group=group, era="handshake"))
            raise ValueError

    run(main)


async def left_closed(fail: Callable[[Any], Awaitable[None]]) -> None:
    """See that a stream is closed whose client was not begun, for a group of tasks that ``fail`` has failed."""
    near, far = await joined()
    with pytest.raises(ExceptionGroup):
        await fail(near)
    assert near[1].is_closing()
    await Raw(far).close()


def test_client_in_a_group_cancelled_before_its_start_leaks_nothing() -> None:
    async def fail(near: Any) -> None:
        async with asyncio.TaskGroup() as group:
            connecting = asyncio.ensure_future(connect(*near, group=group))
            await asyncio.sleep(0)
            connecting.add_done_callback(lambda _: seen.append(connecting.cancelled()))
            raise ValueError

    seen: list[bool] = []
    run(lambda: left_closed(fail))
    assert seen == [True]


def test_closed_group_refuses_a_client() -> None:
    async def fail(near: Any) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(late(near, group))
            await asyncio.sleep(0)
            raise ValueError

    async def late(near: Any, group: asyncio.TaskGroup) -> None:
        try:
            await asyncio.sleep(1e6)
        finally:
            with pytest.raises(RuntimeError, match="shutting down"):
                await connect(*near, group=group)

    run(lambda: left_closed(fail))


def test_a_group_waits_for_its_clients() -> None:
    async def main() -> None:
        near, far = await joined()
        async with served(server, far):
            async with asyncio.TaskGroup() as group:
                client = await connect(*near, group=group)
                asyncio.get_running_loop().call_later(5, client.close)
            assert client.ended is not None
            assert asyncio.get_running_loop().time() == pytest.approx(5)

    run(main)


# Sessions that go on


def test_both_sides_continue_from_snapshots_on_other_streams() -> None:
    async def main() -> None:
        near, far = await joined()
        async with served(server, far):
            client = await connect(*near, era="handshake")
            await client.set_log_level("error")
            await settle()
            (session,) = server.sessions
            saved = client.snapshot(), session.snapshot()
        await client.aclose()
        near, far = await joined()
        async with (
            served(server, far, snapshot=saved[1]),
            open_streams(*near, snapshot=saved[0], era="handshake") as client,
        ):
            assert (await client.call_tool("echo", {"text": "hi"})).text == "hi"
            (session,) = server.sessions
            assert session.log_level == "error"

    run(main)
