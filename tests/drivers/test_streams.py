"""Clients and servers over a stream: options, lifetimes, and what leaves a block."""

from __future__ import annotations

import random
import signal
import threading
from typing import Any

import pytest
from eachloop import EachLoop, Here, on_each_loop, on_each_virtual_loop
from lifespans import Scope
from rawstream import RawEnd

from mcpio import (
    Client,
    CloseReason,
    ConnectFailed,
    ConnectionLost,
    Context,
    LocalProtocolError,
    RequestError,
    RequestTimeout,
    Server,
)


def make_server(**options: Any) -> Server:
    server = Server("s", **options)

    @server.tool
    def echo(text: str) -> str:
        return text

    @server.tool
    async def never_ends(ctx: Context) -> None:
        await ctx.sleep(1e6)

    @server.tool
    async def takes(ctx: Context, seconds: float) -> str:
        await ctx.sleep(seconds)
        return "done"

    @server.tool
    def whoami(ctx: Context) -> str:
        return str(ctx.peer.principal)

    @server.tool
    def warn(ctx: Context) -> None:
        ctx.warning("careful")

    return server


# Arguments


@pytest.mark.parametrize(
    ("options", "error", "fault"),
    [
        ({"samplng": None}, TypeError, r"^unknown option 'samplng'; the options are .*sampling"),
        ({"snapshot": {}}, LocalProtocolError, "not the snapshot of a session"),
        ({"unanswered": "x"}, ValueError, "unanswered must be 'again' or 'fail', not 'x'"),
        ({"tap": 5}, TypeError, "a tap must be an mcpio.observe.Tap, or a function that returns one, not 5"),
    ],
)
@on_each_virtual_loop
async def test_invalid_arguments_raise_before_the_start(
    here: Here, options: Any, error: type[Exception], fault: str
) -> None:
    near, far = await here.joined()
    with pytest.raises(error, match=fault):
        await here.connect(near, **options)
    assert await RawEnd(far).at_end()
    with pytest.raises(error, match=fault.replace("the options are .*sampling", "the options are alone")):
        await here.drivers.serve(make_server(), *far, **options)
    await RawEnd(far).close()


@on_each_virtual_loop
async def test_invalid_option_of_the_client_closes_the_transport(here: Here) -> None:
    near, far = await here.joined()
    with pytest.raises(TypeError):
        await here.connect(near, on_log=5)
    assert await RawEnd(far).at_end()
    await RawEnd(far).close()


def test_principal_reaches_handlers_and_server_lists_its_session(each_virtual_loop: EachLoop) -> None:
    server = make_server()

    async def main(here: Here) -> None:
        async with here.served(server, principal="ada") as near:
            async with here.open_client(near, era="handshake") as client:
                assert (await client.call_tool("whoami")).text == "ada"
                (session,) = server.sessions
                assert session.connection.peer is not None
            await session.driver.wait_closed()
        assert server.sessions == ()
        assert session.ended is not None

    each_virtual_loop.run(main, virtual=True)


# Lifespans


@pytest.mark.parametrize("end", ["closed", "lost", "cancelled"])
def test_lifespan_is_left_at_any_end_of_the_conversation(end: str, each_virtual_loop: EachLoop) -> None:
    scope = Scope()
    server = Server("s", lifespan=scope)
    states: list[object] = []

    @server.tool
    async def work(ctx: Context) -> None:
        states.append(ctx.state)
        await ctx.sleep(1e6)

    async def main(here: Here) -> None:
        near, far = await here.joined()
        lost = here.event()

        async def call() -> None:
            try:
                await client.call_tool("work")
            except ConnectionLost:
                lost.set()

        async with here.tasks() as tasks:
            serving = tasks.spawn(here.drivers.serve(server, *far))
            client = await here.connect(near, era="handshake")
            tasks.spawn(call())
            await here.settle()
            assert (states, scope.seen) == (["the state"], ["entered"])
            (session,) = server.sessions
            if end == "closed":
                session.close(0)
            elif end == "cancelled":
                serving.cancel()
            elif here.is_trio:
                far[0].receive_stream.close()
            else:
                far[1].transport.abort()
            await lost.wait()
            await client.aclose()
            if here.is_trio:
                await session.driver.wait_closed()
            serving.cancel()  # on asyncio a transport that is aborted looks like the end of the input
        assert session.ended is not None
        if here.is_trio and end == "lost":
            assert session.ended.reason is CloseReason.LOST

    each_virtual_loop.run(main, virtual=True)
    assert scope.seen == ["entered", "left"]


@pytest.mark.parametrize("where", ["enter", "leave"])
def test_exception_of_a_lifespan_propagates_unwrapped(where: str, each_virtual_loop: EachLoop) -> None:
    error = ValueError("no database")

    async def main(here: Here) -> None:
        near, far = await here.joined()
        raw = RawEnd(near)
        await raw.send_eof()
        with pytest.raises(ValueError, match="no database") as caught:
            await here.drivers.serve(Server("s", lifespan=Scope(**{where: error})), *far)
        assert caught.value is error
        assert await raw.at_end()
        await raw.close()

    each_virtual_loop.run(main, virtual=True)


# What leaves the block of a client


@on_each_virtual_loop
async def test_context_manager_that_is_not_entered_or_entered_twice_raises(here: Here) -> None:
    async with here.served(make_server()) as near:
        opened = here.open_client(near, era="handshake")
        with pytest.raises(AttributeError, match=r"^'ping' belongs to the client that the block yields: async with"):
            await opened.ping()
        assert not hasattr(opened, "server")
        async with opened as client:
            with pytest.raises(RuntimeError, match="this context manager is in use"):
                await opened.__aenter__()
            await client.ping()


class Odd(BaseException):
    pass


@pytest.mark.parametrize(
    "error",
    [ValueError("v"), ExceptionGroup("g", [ValueError("v")]), KeyboardInterrupt(), Odd(), RequestError(1, "r")],
    ids=lambda error: type(error).__name__,
)
@on_each_virtual_loop
async def test_body_error_propagates_unwrapped(here: Here, error: BaseException) -> None:
    async with here.served(make_server()) as near:
        with pytest.raises(type(error)) as caught:
            async with here.open_client(near):
                raise error
        assert caught.value is error
        assert error.__cause__ is None


def test_cancelled_block_raises_only_the_cancellation(each_virtual_loop: EachLoop) -> None:
    seen: list[type[BaseException]] = []
    cancelled: list[type[BaseException]] = []

    async def main(here: Here) -> None:
        cancelled.append(here.loop.runtime.cancellation)
        began = here.now()
        async with here.served(make_server()) as near:
            with here.scope(1) as scope:
                try:
                    async with here.open_client(near) as client:
                        await client.call_tool("never_ends", timeout=None)
                except BaseException as error:
                    seen.append(type(error))
                    raise
            assert scope.cancelled_caught
        assert here.now() - began == pytest.approx(1)

    each_virtual_loop.run(main, virtual=True)
    assert seen == cancelled


@on_each_virtual_loop
async def test_block_cancelled_while_connecting_leaks_nothing(here: Here) -> None:
    near, far = await here.joined()
    raw = RawEnd(far)
    with here.scope(1) as scope:
        async with here.open_client(near):
            pytest.fail("a client was opened without an answer")
    assert scope.cancelled_caught
    await raw.receive()
    assert await raw.at_end()
    await raw.close()


@pytest.mark.req("LIFE-19")
@pytest.mark.parametrize("options", [{}, {"era": "handshake"}], ids=["either era", "handshake"])
@on_each_virtual_loop
async def test_unanswered_handshake_fails_and_closes_the_transport(here: Here, options: dict[str, Any]) -> None:
    near, far = await here.joined()
    raw = RawEnd(far)
    with pytest.raises(ConnectFailed, match=r"^the handshake failed: initialize: no answer within 30 s$") as caught:
        async with here.open_client(near, **options):
            pytest.fail("a client was opened without an answer")
    assert isinstance(caught.value.__cause__, RequestTimeout)
    methods = [(await raw.receive())["method"] for _ in ((options and "a") or "ab")]
    assert methods[-1] == "initialize"
    assert await raw.at_end()
    await raw.close()


@pytest.mark.parametrize("error", [Odd(), GeneratorExit(), ValueError()])
def test_callback_that_fails_is_reported_and_the_call_goes_on(
    error: BaseException, each_virtual_loop: EachLoop, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_: object) -> None:
        raise error

    async def main(here: Here) -> None:
        async with (
            here.served(make_server()) as near,
            here.open_client(near, on_log=fail, era="handshake") as client,
        ):
            await client.call_tool("warn")

    each_virtual_loop.run(main, virtual=True)
    ((_, shown, _),) = [record.exc_info for record in caplog.records if record.exc_info]
    assert shown is error


# Close


async def close_here(_: Here, client: Client) -> None:
    client.close()


async def close_later(here: Here, client: Client) -> None:
    here.runtime.call_soon(client.close)


async def close_in_thread(here: Here, client: Client) -> None:
    await here.runtime.to_thread(client.close)


async def wait_too(_: Here, client: Client) -> None:
    await client.aclose(0)


@pytest.mark.parametrize("seed", range(10))
def test_any_number_of_clients_closed_in_any_order_from_anywhere(seed: int, each_loop: EachLoop) -> None:
    """Clients in tasks of their own, in both shapes; closed by tasks, threads and the loop, more than once (P9)."""
    chance = random.Random(seed)
    clients: list[Client] = []
    server = make_server()

    async def main(here: Here) -> None:
        async def hold(near: Any) -> None:
            async with here.open_client(near) as client:
                clients.append(client)
                await client.driver.wait_closed()

        async def connect(near: Any) -> None:
            clients.append(await here.connect(near))

        async with here.tasks() as tasks:
            for number in range(20):
                near, far = await here.joined()
                tasks.spawn(here.drivers.serve(server, *far))
                tasks.spawn(hold(near) if number % 2 else connect(near))
            while len(clients) < 20:
                await here.checkpoint()
            for client in chance.sample(clients * 2, 40):
                tasks.spawn(chance.choice([close_here, close_in_thread, close_later, wait_too])(here, client))
        if here.is_trio:
            assert not here.nursery.child_tasks
        assert [client for client in clients if client.ended is None] == []

    each_loop.run(main)
    assert (len(clients), server.sessions) == (20, ())
    for client in clients:
        client.close()
    thread = threading.Thread(target=clients[0].close)
    thread.start()
    thread.join()


@pytest.mark.parametrize(("grace", "outcomes", "end"), [(5, ["done", "lost"], 6), (30, ["done", "done"], 20)])
def test_running_requests_are_answered_within_the_grace(
    grace: float, outcomes: list[str], end: float, each_virtual_loop: EachLoop
) -> None:
    server = make_server()

    async def main(here: Here) -> None:
        found: list[str] = []

        async def ask(client: Client, seconds: float) -> None:
            try:
                found.append((await client.call_tool("takes", {"seconds": seconds})).text)
            except ConnectionLost:
                found.append("lost")

        async with here.served(server) as near, here.tasks() as tasks:
            client = await here.connect(near)
            began = here.now()
            for seconds in (2, 20):
                tasks.spawn(ask(client, seconds))
            await here.sleep(1)
            (session,) = server.sessions
            session.close(grace)
            await session.driver.wait_closed()
            assert here.now() - began == pytest.approx(end, abs=0.1)
        await client.aclose()
        assert found == outcomes

    each_virtual_loop.run(main, virtual=True)


def test_close_is_idempotent(each_virtual_loop: EachLoop) -> None:
    clients: list[Client] = []

    async def main(here: Here) -> None:
        async with here.served(make_server()) as near:
            client = await here.connect(near)
            clients.append(client)
            client.close()
            client.close()
            await client.aclose()
            await client.aclose(0)
            client.close()
            assert client.ended is not None
            assert client.ended.reason is CloseReason.CLOSED

    each_virtual_loop.run(main, virtual=True)
    clients[0].close()


@pytest.mark.parametrize("grace", [-1, float("nan"), "soon"])
@on_each_virtual_loop
async def test_invalid_grace_raises_without_closing(here: Here, grace: Any) -> None:
    async with here.served(make_server()) as near, here.open_client(near, era="handshake") as client:
        with pytest.raises(LocalProtocolError, match="grace must be a number of seconds, 0 or more"):
            client.close(grace)
        await client.ping()


@on_each_loop
async def test_close_from_a_thread(here: Here) -> None:
    async with here.served(make_server()) as near:
        client = await here.connect(near)
        thread = threading.Thread(target=client.close)
        thread.start()
        await client.driver.wait_closed()
        thread.join()


@on_each_loop
async def test_close_from_a_signal_handler(here: Here) -> None:
    async with here.served(make_server()) as near:
        client = await here.connect(near)
        previous = signal.signal(signal.SIGTERM, lambda *_: client.close())
        try:
            signal.raise_signal(signal.SIGTERM)
            await client.driver.wait_closed()
        finally:
            signal.signal(signal.SIGTERM, previous)


# Sessions that go on


def test_both_sides_continue_from_snapshots_on_other_streams(each_virtual_loop: EachLoop) -> None:
    server = make_server()

    async def main(here: Here) -> None:
        async with here.served(server) as near:
            client = await here.connect(near, era="handshake")
            await client.set_log_level("error")
            await here.settle()
            (session,) = server.sessions
            saved = client.snapshot(), session.snapshot()
            await client.aclose()
        async with (
            here.served(server, snapshot=saved[1]) as near,
            here.open_client(near, snapshot=saved[0], era="handshake") as client,
        ):
            assert (await client.call_tool("echo", {"text": "hi"})).text == "hi"
            (session,) = server.sessions
            assert session.log_level == "error"

    each_virtual_loop.run(main, virtual=True)
