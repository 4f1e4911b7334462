"""``serve``, ``serving``, ``connect`` and ``open_streams`` on asyncio: options, lifetimes, and what leaves a block."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from lifespans import Scope
from runners import run_by
from streams import Raw, joined, run, served

from mcpio import (
    CloseReason,
    LocalProtocolError,
    RequestError,
    Server,
)
from mcpio.app import Client
from mcpio.asyncio import connect, open_streams, serve, serving

server = Server("s")


# What is refused


@run_by(run)
async def test_argument_that_is_not_a_stream_raises() -> None:
    near, far = await joined()
    reader, writer = near
    wrong: Any = object()
    for streams, fault in (
        ((wrong, writer), "a reader must be an asyncio.StreamReader, not object"),
        ((reader, wrong), "a writer must be an asyncio.StreamWriter, not object"),
        ((writer, reader), "a reader must be an asyncio.StreamReader, not StreamWriter"),
    ):
        with pytest.raises(TypeError, match=fault):
            await serve(server, *streams)
        with pytest.raises(TypeError, match=fault):
            await connect(*streams)
        with pytest.raises(TypeError, match=fault):
            async with open_streams(*streams):
                pass
    with pytest.raises(TypeError, match=r"^server must be Server, not <object"):
        await serve(wrong, *near)
    assert writer.is_closing()
    await Raw(far).close()


@pytest.mark.parametrize("grace", [-1, float("nan")])
@run_by(run)
async def test_invalid_grace_raises(grace: float) -> None:
    with pytest.raises(LocalProtocolError):
        async with serving(server, grace=grace):
            pass


# What leaves a block of a server


@pytest.mark.parametrize("where", ["enter", "leave"])
def test_exception_of_a_lifespan_propagates_from_serving(where: str) -> None:
    error = ValueError("no database")

    async def main() -> None:
        near, far = await joined()
        broken = Server("s", lifespan=Scope(**{where: error}))
        near[1].write_eof()
        with pytest.raises(ValueError, match="no database") as caught:
            async with serving(broken) as serve_one:
                await serve_one(*far)
        assert caught.value is error
        if where == "enter":
            far[1].close()
        assert await near[0].read() == b""
        await Raw(near).close()

    run(main)


class Odd(BaseException):
    pass


@pytest.mark.parametrize(
    "error",
    [ValueError("v"), ExceptionGroup("g", [ValueError("v")]), Odd(), RequestError(1, "r")],
    ids=lambda error: type(error).__name__,
)
@run_by(run)
async def test_body_error_propagates_from_serving(error: BaseException) -> None:
    with pytest.raises(type(error)) as caught:
        async with serving(server):
            raise error
    assert caught.value is error
    assert error.__cause__ is None


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
            connecting.add_done_callback(
                lambda _: seen.append(connecting.cancelled() or connecting.exception() is not None)
            )
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


@run_by(run)
async def test_a_group_waits_for_its_clients() -> None:
    near, far = await joined()
    async with served(server, far):
        async with asyncio.TaskGroup() as group:
            client = await connect(*near, group=group)
            asyncio.get_running_loop().call_later(5, client.close)
        assert client.ended is not None
        assert asyncio.get_running_loop().time() == pytest.approx(5)


# Sessions that go on
