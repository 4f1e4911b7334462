"""WebSocket at a server: silence, and how it ends."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing
from rawframes import CLOSE, PING, PONG, FarClient, Frame, close, request, text
from runners import run_by
from triowire import in_virtual_time
from websocketed import (
    ENDED,
    HOST,
    Ends,
    call,
    each_kind,
    half_stalled,
    heard_close,
    is_over,
    make_server,
    websocket_site,
)

from mcpio import CloseReason, Server
from mcpio.errors import RequestTimeout, WebSocketClosed
from mcpio.websocket import WebSocketOptions


@pytest.fixture(autouse=True)
def _forget() -> None:
    ENDED.clear()


# Silence


@pytest.mark.req("XPORT-04", "PING-03")
@each_kind
@run_by(in_virtual_time)
async def test_missing_pong_closes_the_connection_with_1011(kind: str) -> None:
    options = WebSocketOptions(ping_interval=30, pong_timeout=20)
    async with websocket_site(make_server(), kind, options, tap=Ends) as site:
        far, began = await site.open(), trio.current_time()
        for n in range(1, 4):
            assert await far.frame() == Frame(PING)
            assert trio.current_time() == began + 30 * n
            await far.send(Frame(PONG))
        assert await far.frame() == Frame(PING)
        assert await heard_close(far) == (1011, b"no sign of life after a ping")
        assert trio.current_time() == began + 140
        assert await is_over(far)
        assert ENDED[0].reason is CloseReason.LOST
        assert isinstance(ENDED[0].cause, RequestTimeout)


@run_by(in_virtual_time)
async def test_silent_client_is_disconnected() -> None:
    async with websocket_site(make_server(), options=WebSocketOptions(first_message_timeout=5)) as site:
        far, began = site.dial(), trio.current_time()
        await far.ask()
        assert await heard_close(far) == (1008, b"no message came within 5 s")
        assert trio.current_time() == began + 5


@run_by(in_virtual_time)
async def test_incomplete_opening_request_gets_408() -> None:
    async with websocket_site(make_server()) as site:
        far, began = site.dial(), trio.current_time()
        await far.send_bytes(request(HOST)[:-2])
        assert (await far.head())[0].startswith("HTTP/1.1 408 ")
        assert trio.current_time() == began + 10


@run_by(in_virtual_time)
async def test_an_idle_session_is_closed() -> None:
    async with websocket_site(make_server(), idle_timeout=60.0) as site:
        far, began = await site.open(), trio.current_time()
        await call(far, 1, "wait", seconds=100)
        assert (await far.frame()).opcode == PING
        await far.send(Frame(PONG))
        while (frame := await far.frame()).opcode == PING:
            await far.send(Frame(PONG))
        assert b"waited" in frame.payload
        while (frame := await far.frame()).opcode == PING:
            await far.send(Frame(PONG))
        assert (frame.opcode, frame.code) == (CLOSE, 1001)
        assert trio.current_time() >= began + 120


# The end


@asynccontextmanager
async def ending(kind: str, grace: float) -> AsyncIterator[tuple[Any, FarClient]]:
    """Give a site, and a client whose request takes 3 seconds."""
    async with websocket_site(make_server(), kind, grace=grace, tap=Ends) as site:
        far = await site.open()
        await call(far, 1, "wait", seconds=3)
        await trio.sleep(1)
        yield site, far


@each_kind
def test_missing_close_frame_of_a_client_does_not_delay_the_server(kind: str) -> None:
    left: list[float] = []

    @asynccontextmanager
    async def lifespan(server: Server) -> AsyncIterator[None]:
        try:
            yield
        finally:
            left.append(trio.current_time())

    async def main() -> None:
        async with websocket_site(make_server(lifespan=lifespan), kind, grace=0.5) as site:
            far, began = await site.open(), trio.current_time()
            site.scope.cancel()
            assert (await heard_close(far))[0] == 1001
            assert await is_over(far)
        # A moment before a signal would end the process on the spot.
        assert left == [pytest.approx(began + 0.7)]

    in_virtual_time(main)


@pytest.mark.req("XPORT-04")
@each_kind
@pytest.mark.parametrize("grace", [5.0, 1.0])
@run_by(in_virtual_time)
async def test_cancelled_server_answers_within_its_grace_and_closes_with_1001(kind: str, grace: float) -> None:
    async with ending(kind, grace) as (site, far):
        site.scope.cancel()
        began = trio.current_time()
        if grace > 2:
            assert (await far.message())["result"]["content"][0]["text"] == "waited"
        code, _ = await heard_close(far)
        assert (code, trio.current_time()) == (1001, began + min(grace, 2))
        await far.send(close(1001))
        assert await is_over(far)


@pytest.mark.req("XPORT-04")
@each_kind
@pytest.mark.parametrize(
    ("code", "reason"), [(1000, CloseReason.END_OF_FILE), (None, CloseReason.END_OF_FILE), (1011, CloseReason.LOST)]
)
@run_by(in_virtual_time)
async def test_a_client_closes_while_its_request_runs(kind: str, code: int | None, reason: CloseReason) -> None:
    async with ending(kind, 5.0) as (_, far):
        began = trio.current_time()
        await far.send(close(code, "why" if code else ""))
        assert await far.frame() == close(code)
        assert await is_over(far)
        # The answer has no reader, so the server does not wait for it.
        assert trio.current_time() == began
        await trio.testing.wait_all_tasks_blocked()
        assert [end.reason for end in ENDED] == [reason]
        assert isinstance(ENDED[0].cause, WebSocketClosed) is (code == 1011)


@each_kind
def test_client_in_the_handshake_at_shutdown_gets_503(kind: str) -> None:
    async def slowly(*_: object) -> None:
        await trio.sleep(1)

    async def main() -> None:
        async with websocket_site(make_server(), kind, principal=slowly, grace=5) as site:
            far = site.dial()
            await far.send_bytes(request(HOST))
            await trio.testing.wait_all_tasks_blocked()
            site.scope.cancel()
            assert (await far.head())[0] == "HTTP/1.1 503 Service Unavailable"

    in_virtual_time(main)


@each_kind
@run_by(in_virtual_time)
async def test_a_request_and_the_close_frame_come_at_once(kind: str) -> None:
    server = make_server()
    async with websocket_site(server, kind, tap=Ends) as site:
        far, began = await site.open(), trio.current_time()
        params = {"name": "wait", "arguments": {"seconds": 30}}
        asked = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        await far.send(text(json.dumps(asked)), close())
        assert await far.frame() == close()
        assert await is_over(far)
        await trio.testing.wait_all_tasks_blocked()
        assert (server.sessions, trio.current_time()) == ((), began)
        assert [end.reason for end in ENDED] == [CloseReason.END_OF_FILE]


@pytest.mark.parametrize("is_read", [True, False])
@run_by(in_virtual_time)
async def test_closing_client_may_finish_reading_a_frame(is_read: bool) -> None:
    server = make_server()
    async with websocket_site(server, tap=Ends) as site:
        far = site.dial(half_stalled)
        await far.open()
        await call(far, 1, "much", size=100_000)
        await trio.testing.wait_all_tasks_blocked()
        await far.send(close())
        if is_read:
            assert len((await far.message())["result"]["content"][0]["text"]) == 100_000
            assert await far.frame() == close()
            assert await is_over(far)
        await trio.sleep(0.6)
        assert server.sessions == ()
        assert [end.reason for end in ENDED] == [CloseReason.END_OF_FILE if is_read else CloseReason.LOST]


@each_kind
@pytest.mark.parametrize("politely", [True, False])
@run_by(in_virtual_time)
async def test_connection_end_without_a_close_frame_is_lost(kind: str, politely: bool) -> None:
    async with ending(kind, 5.0) as (_, far):
        if politely:
            await far.stream.send_eof()  # type: ignore[attr-defined]  # a memory stream
        else:
            await far.stream.aclose()
        await trio.testing.wait_all_tasks_blocked()
        assert [end.reason for end in ENDED] == [CloseReason.LOST]
        cause = ENDED[0].cause
        assert isinstance(cause, WebSocketClosed)
        assert cause.code == 1006


@run_by(in_virtual_time)
async def test_the_server_closes_a_session_itself() -> None:
    server = make_server()
    async with websocket_site(server) as site:
        far = await site.open()
        server.sessions[0].close()
        assert await heard_close(far) == (1001, b"")
        await far.send(close(1001))
        assert await is_over(far)
        assert server.sessions == ()
