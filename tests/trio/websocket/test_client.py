"""``open_websocket``: what it says, what each refusal and each end raises, and connecting again."""

from __future__ import annotations

import os
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from certificates import serving_as, trusting
from rawframes import PING, FarServer, Frame, close, text
from runners import run_by
from triowire import in_virtual_time

from mcpio import (
    AuthorizationRequired,
    Client,
    ConnectFailed,
    ConnectionLost,
    McpError,
    NoBackChannel,
    Options,
    RemoteProtocolError,
    RequestTimeout,
    Server,
)
from mcpio._drivers.websocket import WebSocketAdapter
from mcpio.backoff import Backoff
from mcpio.engine.table import Role
from mcpio.errors import UnexpectedResponse, WebSocketClosed
from mcpio.profiles import Profile
from mcpio.trio import connect_websocket, open_websocket, serve_http, serve_websocket
from mcpio.trio._event_loop import TrioEventLoop
from mcpio.websocket import WebSocket, WebSocketOptions

SHARED = partial(serve_http, websocket=WebSocketOptions(compression=True))
SERVING = pytest.mark.parametrize("serve", [serve_websocket, SHARED], ids=["alone", "shared"])


def make_server() -> Server:
    server = Server("here", "1.0")

    @server.tool
    def add(a: int, b: int) -> int:
        return a + b

    return server


def run(main: Callable[[], Awaitable[None]]) -> None:
    async def limited() -> None:
        with trio.fail_after(20):
            await main()

    trio.run(limited)


async def gather(*calls: Callable[[], Awaitable[None]]) -> None:
    """Do things at the same time."""
    async with trio.open_nursery() as nursery:
        for each in calls:
            nursery.start_soon(each)


async def added(client: Client, a: int, b: int) -> int:
    found: int = (await client.call_tool("add", {"a": a, "b": b})).structured_content["result"]
    return found


@asynccontextmanager
async def serving(serve: Any, server: Server | None = None, **how: Any) -> AsyncIterator[str]:
    async with trio.open_nursery() as nursery:
        listening = await nursery.start(partial(serve, server or make_server(), port=0, **how))
        yield listening.url.replace("http", "ws")
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def far_server(play: Callable[[FarServer], Awaitable[None]]) -> AsyncIterator[str]:
    """Give the address of a server that does what a test says, with each client."""

    async def talk(stream: trio.SocketStream) -> None:
        async with FarServer(stream) as far:
            await play(far)

    async with trio.open_nursery() as nursery:
        (listener,) = await nursery.start(partial(trio.serve_tcp, talk, 0, host="127.0.0.1"))
        yield f"ws://127.0.0.1:{listener.socket.getsockname()[1]}/mcp"
        nursery.cancel_scope.cancel()


# In operation


@pytest.mark.long
@pytest.mark.req("XPORT-04")
@SERVING
@pytest.mark.parametrize("compression", [True, False])
@run_by(run)
async def test_many_concurrent_clients_get_their_own_answers(serve: Any, compression: bool) -> None:
    found: list[int] = []

    async def ask(url: str, number: int) -> None:
        async with open_websocket(url, websocket=WebSocketOptions(compression=compression)) as client:
            found.extend([await added(client, number, number) for _ in range(3)])

    async with serving(serve) as url:
        await gather(*[partial(ask, url, number) for number in range(20)])
    assert sorted(found) == sorted([2 * number for number in range(20)] * 3)


@SERVING
@run_by(run)
async def test_connected_client_works_outside_a_block(serve: Any) -> None:
    async with serving(serve) as url, trio.open_nursery() as nursery:
        client = await connect_websocket(url, nursery=nursery, era="handshake")
        assert await added(client, 1, 2) == 3
        client.close()
        await client.aclose()
        with pytest.raises(NoBackChannel):
            await client.ping()


@SERVING
@pytest.mark.parametrize("scheme", ["wss", "wss+unix"])
@run_by(run)
async def test_client_connects_over_tls(serve: Any, scheme: str, tmp_path: Path) -> None:
    where: dict[str, Any] = {"unix": tmp_path / "s"} if scheme.endswith("unix") else {}
    async with serving(serve, ssl_context=serving_as("localhost"), **where) as url:
        assert url.startswith(f"{scheme}://")
        there = url.replace("127.0.0.1", "localhost")
        async with open_websocket(there, ssl_context=trusting()) as client:
            assert await added(client, 1, 2) == 3
        with pytest.raises(ConnectFailed) as failed:
            async with open_websocket(there):
                pass
        assert isinstance(failed.value.__cause__, ssl.SSLError)


@run_by(run)
async def test_headers_and_the_erlmcp_subprotocol_are_sent() -> None:
    async def play(far: FarServer) -> None:
        await far.open(sec_websocket_protocol="mcp.v1")
        assert far.opened["sec-websocket-protocol"] == "mcp, mcp.v1"
        assert far.opened["authorization"] == "Bearer x"
        await far.frame()

    options = Options(profiles={Profile.ERLMCP})
    async with (
        far_server(play) as url,
        open_websocket(url, headers={"Authorization": "Bearer x"}, options=options, era="handshake") as client,
    ):
        assert client.connection.peer is not None
        assert client.connection.peer.info.name == "far"


@pytest.mark.parametrize(
    ("url", "options"),
    [
        ("http://localhost/mcp", {}),
        ("localhost:8000", {}),
        ("ws://", {}),
        ("ws://user:secret@localhost/", {}),
        ("ws://localhost/", {"headers": {"Sec-WebSocket-Key": "x"}}),
        ("ws://localhost/", {"headers": {"X": "a\r\nb"}}),
        ("ws://localhost/", {"connect_timeout": -1}),
    ],
)
@run_by(run)
async def test_invalid_arguments_raise(url: str, options: Any) -> None:
    with pytest.raises(ValueError, match=r"URL|header|number of seconds|line of") as failed:
        async with open_websocket(url, **options):
            pass
    assert "secret" not in str(failed.value)


@run_by(run)
async def test_unknown_option_raises() -> None:
    with pytest.raises(TypeError, match="unknown option 'websockets'"):
        async with open_websocket("ws://localhost/", websockets=1):  # type: ignore[call-arg]  # which is the point
            pass


# No connection


async def why(url: str, **options: Any) -> BaseException | None:
    """Return the cause of the one error that there is."""
    with pytest.raises(ConnectFailed) as failed:
        async with open_websocket(url, **options, era="handshake"):
            pass
    return failed.value.__cause__


@pytest.mark.req("XPORT-04")
@pytest.mark.parametrize(
    ("answer", "kind", "facts"),
    [
        (b"HTTP/1.1 401 No\r\nWWW-Authenticate: Bearer\r\n\r\n", AuthorizationRequired, {"challenges": ("Bearer",)}),
        (b"HTTP/1.1 403 No\r\nContent-Length: 2\r\n\r\nno", AuthorizationRequired, {"status": 403}),
        (b"HTTP/1.1 404 No\r\nContent-Length: 2\r\n\r\nno", UnexpectedResponse, {"status": 404, "text": "no"}),
        (b"HTTP/1.1 301 No\r\nLocation: /\r\nContent-Length: 0\r\n\r\n", UnexpectedResponse, {"status": 301}),
        (b"HTTP/1.1 101 No\r\nUpgrade: x\r\n\r\n", UnexpectedResponse, {"status": 101}),
        (b"SSH-2.0-nothing\r\n\r\n", RemoteProtocolError, {}),
        (b"", RemoteProtocolError, {}),
    ],
)
@run_by(run)
async def test_refused_opening_has_a_typed_cause(answer: bytes, kind: type[McpError], facts: dict[str, Any]) -> None:
    async def play(far: FarServer) -> None:
        await far.head()
        await far.send_bytes(answer)

    async with far_server(play) as url:
        cause = await why(url)
    assert type(cause) is kind
    assert {name: getattr(cause, name) for name in facts} == facts


@pytest.mark.parametrize("drips", [False, True])
@run_by(in_virtual_time)
async def test_refusal_with_an_incomplete_body_has_its_status(drips: bool) -> None:
    near, far = trio.testing.memory_stream_pair()

    async def refuse() -> None:
        server = FarServer(far)
        await server.head()
        await server.send_bytes(b"HTTP/1.1 503 No\r\nContent-Length: 1000\r\n\r\nbusy")
        while drips:
            await trio.sleep(0.3)
            await server.send_bytes(b".")

    async def dial(*_: Any) -> trio.abc.Stream:
        return near

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mcpio._drivers.websocket.connect_socket", dial)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(refuse)
            cause = await why("ws://localhost/")
            nursery.cancel_scope.cancel()
    assert isinstance(cause, UnexpectedResponse)
    assert (cause.status, cause.text) == (503, "busy." if drips else "busy")
    assert trio.current_time() < 1


@run_by(run)
async def test_unused_port_raises_connect_failed() -> None:
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = listener.socket.getsockname()[1]
    await listener.aclose()
    assert isinstance(await why(f"ws://127.0.0.1:{port}/"), OSError)


@run_by(run)
async def test_unanswered_opening_times_out() -> None:
    async def play(_: FarServer) -> None:
        await trio.sleep_forever()

    async with far_server(play) as url:
        with pytest.raises(ConnectFailed, match=r"within 0\.05 s") as failed:
            async with open_websocket(url, connect_timeout=0.05):
                pass
    assert isinstance(failed.value.__cause__, TimeoutError)


@pytest.mark.parametrize("last", [close(1008, "no"), None])
@run_by(run)
async def test_close_before_the_mcp_handshake_raises_connect_failed(last: Frame | None) -> None:
    async def play(far: FarServer) -> None:
        _, asked = await far.head()
        from rawframes import answer_to

        await far.send_bytes(answer_to(asked))
        await far.message()
        if last is not None:
            await far.send(last)

    async with far_server(play) as url:
        cause = await why(url)
    assert isinstance(cause, ConnectionLost)
    inner = cause.__cause__
    assert isinstance(inner, WebSocketClosed)
    assert inner.code == (1006 if last is None else 1008)


# The end of one


async def lost(url: str, **options: Any) -> BaseException | None:
    """Return the cause of what a call raises that never gets its answer."""
    async with open_websocket(url, **options, era="handshake") as client:
        with pytest.raises(ConnectionLost) as failed:
            await client.call_tool("add", timeout=None)
        with pytest.raises(NoBackChannel):
            await client.ping()
    return failed.value.__cause__


@pytest.mark.req("XPORT-04")
@pytest.mark.parametrize("code", [1000, 1001, None, 1002, 1003, 1007, 1008, 1009, 1011, 4000])
@run_by(run)
async def test_close_code_of_the_server_is_the_cause(code: int | None) -> None:
    async def play(far: FarServer) -> None:
        await far.open()
        await far.message()
        await far.send(close(code, "why" if code else ""))
        assert await far.frame() == close(code)

    async with far_server(play) as url:
        cause = await lost(url)
    if code in (1000, 1001, None):
        assert cause is None
    else:
        assert isinstance(cause, WebSocketClosed)
        assert (cause.code, cause.text) == (code, "why")


@pytest.mark.req("XPORT-04")
@pytest.mark.parametrize(
    ("frame", "code"), [(Frame(2, b"x"), 1003), (text(b"\xff"), 1007), (Frame(3), 1002), (text("x", rsv=4), 1002)]
)
@run_by(run)
async def test_protocol_violation_of_the_server_is_the_cause(frame: Frame, code: int) -> None:
    async def play(far: FarServer) -> None:
        await far.open()
        await far.message()
        await far.send(frame)
        assert (await far.frame()).code == code

    async with far_server(play) as url:
        assert type(await lost(url)) is RemoteProtocolError


@run_by(run)
async def test_connection_end_without_a_close_frame_is_1006() -> None:
    async def play(far: FarServer) -> None:
        await far.open()
        await far.message()

    async with far_server(play) as url:
        cause = await lost(url)
    assert isinstance(cause, WebSocketClosed)
    assert cause.code == 1006


@pytest.mark.req("XPORT-04")
@run_by(run)
async def test_missing_pong_ends_the_connection() -> None:
    async def play(far: FarServer) -> None:
        await far.open()
        await far.message()
        assert await far.frame() == Frame(PING)
        assert (await far.frame()).code == 1011

    async with far_server(play) as url:
        cause = await lost(url, websocket=WebSocketOptions(ping_interval=0.02, pong_timeout=0.02))
    assert type(cause) is RequestTimeout


@run_by(run)
async def test_closing_client_waits_briefly_for_the_close_frame() -> None:
    said: list[int | None] = []

    async def play(far: FarServer) -> None:
        await far.open()
        said.append((await far.frame()).code)
        await trio.sleep_forever()

    chosen = WebSocketOptions(close_timeout=0.05)
    async with far_server(play) as url, open_websocket(url, websocket=chosen, era="handshake"):
        pass
    assert said == [1000]


@run_by(run)
async def test_cancelled_client_sends_a_close_frame() -> None:
    said: list[Any] = []

    async def play(far: FarServer) -> None:
        await far.open()
        await far.message()
        scope.cancel()
        said.append((await far.message())["method"])
        said.append((await far.frame()).code)
        await far.send(close(1001))

    async with far_server(play) as url:
        with trio.CancelScope() as scope:
            async with open_websocket(url, era="handshake") as client:
                await client.call_tool("add")
        while len(said) < 2:  # noqa: ASYNC110  # the server is a task of its own
            await trio.sleep(0.001)
    assert said == ["notifications/cancelled", 1000]


@run_by(in_virtual_time)
async def test_close_frame_is_sent_for_a_session_that_never_began() -> None:
    """As after a Ctrl-C between the opening handshake and the session."""
    here, there = trio.testing.memory_stream_pair()
    loop = TrioEventLoop()
    opened = WebSocket(Role.CLIENT, WebSocketOptions(), max_bytes=1000, now=loop.now(), entropy=os.urandom)
    adapter = WebSocketAdapter(here, opened, b"", loop)
    async with FarServer(there) as far:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(adapter.aclose)
            assert (await far.frame()).code == 1001
            await far.send(close(1001))
        await far.ended()


# Again


@SERVING
@pytest.mark.parametrize("compression", [True, False])
@run_by(run)
async def test_lost_connection_is_reopened(serve: Any, compression: bool) -> None:
    server = make_server()
    options = WebSocketOptions(compression=compression)
    async with serving(serve, server) as url:
        gone = trio.Event()
        again = Backoff(base=0.01, tries=10)
        async with open_websocket(url, websocket=options, reconnect=again, on_session_lost=gone.set) as client:
            assert await added(client, 1, 1) == 2
            server.sessions[0].close()
            await gone.wait()
            assert await added(client, 2, 2) == 4


def test_refused_reconnection_ends_the_client() -> None:
    async def main() -> None:
        refusing = False

        async def play(far: FarServer) -> None:
            nonlocal refusing
            if refusing:
                await far.head()
                await far.send_bytes(b"HTTP/1.1 401 No\r\nContent-Length: 0\r\n\r\n")
                return
            refusing = True
            await far.open()
            await far.message()
            await far.send(close(1008, "expired"))

        async with far_server(play) as url:
            again = Backoff(base=0.01, tries=2)
            async with open_websocket(url, reconnect=again, on_session_lost=lambda: None, era="handshake") as client:
                with pytest.raises(ConnectionLost) as failed:
                    await client.call_tool("add")
                # As without ``reconnect``.
                assert isinstance(failed.value.__cause__, WebSocketClosed)
                assert failed.value.__cause__.code == 1008
                with pytest.raises((ConnectionLost, NoBackChannel)):
                    await client.ping()

    run(main)
