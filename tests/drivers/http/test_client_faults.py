"""``open_http`` with servers that fail in every way, and connections that end (P10)."""

from __future__ import annotations

import socket
from typing import Any

import pytest
from eachloop import EachLoop, Here
from rawsite import RawRequest, ServeSite, Site, Wire, json_response, result_of

from mcpio import Client
from mcpio.asyncio import HttpClientTimeouts
from mcpio.errors import (
    AuthorizationRequired,
    ConnectFailed,
    ConnectionLost,
    RemoteProtocolError,
    RequestTimeout,
    UnexpectedResponse,
)

URL = "http://example.com/mcp"


# Faults (P10)


def answering(method: str, data: bytes) -> Any:
    """Return a handler that answers a method with bytes, and closes."""

    async def handler(site: Site, request: RawRequest, wire: Wire) -> None:
        if request.rpc_method == method:
            if data:
                await wire.send(data)
            await wire.close()
        else:
            await site.answer(request, wire)

    return handler


FAULTS = [
    (b"", ConnectionLost, "the server closed the connection"),
    (b"HTTP/1.1 200 OK\r\nConte", ConnectionLost, "the server closed the connection"),
    (
        b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n{",
        ConnectionLost,
        "the server closed the connection in the middle",
    ),
    (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{", ConnectionLost, "in the middle of its response"),
    (
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: {",
        ConnectionLost,
        "the response ended without the answer",
    ),
    (b"SSH-2.0-OpenSSH_9.2\r\n\r\n", RemoteProtocolError, "malformed HTTP"),
    (b"HTTP/1.1 200 OK\r\nX\r\n\r\n", RemoteProtocolError, "malformed HTTP"),
    (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", RemoteProtocolError, "malformed HTTP"),
    (b"HTTP/1.1 200 OK\r\nX: " + b"x" * 200_000, RemoteProtocolError, "malformed HTTP"),
    (b"HTTP/1.1 101 Switching Protocols\r\n\r\n", RemoteProtocolError, "malformed HTTP"),
    (b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n<html>", UnexpectedResponse, "text/html in answer"),
    (b"HTTP/1.1 500 Oh\r\nContent-Length: 0\r\n\r\n", UnexpectedResponse, "status 500"),
    (b"HTTP/1.1 401 No\r\nWWW-Authenticate: Bearer\r\nContent-Length: 0\r\n\r\n", AuthorizationRequired, "Bearer"),
]


@pytest.mark.parametrize(("data", "kind", "said"), FAULTS)
def test_each_server_fault_is_one_typed_error(
    serve_site: ServeSite, data: bytes, kind: type[Exception], said: str
) -> None:
    async def play(site: Site) -> None:
        async with site.open_http(URL) as client:
            with pytest.raises(kind, match=said):
                await client.call_tool("x")
            # It costs that request alone.
            await client.ping()

    serve_site(play, answering("tools/call", data))


@pytest.mark.parametrize(("data", "kind", "said"), FAULTS)
def test_each_fault_in_the_handshake_is_connect_failed(
    serve_site: ServeSite, data: bytes, kind: type[Exception], said: str
) -> None:
    async def play(site: Site) -> None:
        with pytest.raises(ConnectFailed, match=said) as caught:
            async with site.open_http(URL):
                pass
        assert type(caught.value.__cause__) is kind

    serve_site(play, answering("initialize", data))


def test_closed_port_is_connect_failed(each_loop: EachLoop) -> None:
    async def main(site: Here) -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            port = taken.getsockname()[1]
            with pytest.raises(ConnectFailed, match=f"cannot connect to 127.0.0.1:{port}: .*refused") as caught:
                async with site.open_http(f"http://127.0.0.1:{port}/mcp"):
                    pass
        assert isinstance(caught.value.__cause__, ConnectFailed)
        assert isinstance(caught.value.__cause__.__cause__, OSError)

    each_loop.run(main)


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (socket.gaierror(-2, "Name or service not known"), "Name or service not known"),
        (UnicodeError("label too long"), "label too long"),
        (ConnectionResetError(), "ConnectionResetError"),
    ],
)
def test_unknown_host_is_connect_failed(serve_site: ServeSite, fault: Exception, said: str) -> None:
    async def fail(*_: object) -> None:
        raise fault

    async def play(site: Site) -> None:
        site.dial = fail
        with pytest.raises(ConnectFailed, match=f"cannot connect to example.com: .*{said}"):
            async with site.open_http(URL):
                pass

    serve_site(play)


def test_unexpected_failure_of_one_exchange_spares_the_others(
    serve_site: ServeSite, caplog: pytest.LogCaptureFixture
) -> None:
    async def play(site: Site) -> None:
        async with site.open_http(URL) as client, site.tasks() as tasks:

            async def fail(*_: object) -> None:
                raise ZeroDivisionError("a bug of a library")

            tasks.spawn(client.call_tool("x"))
            await site.settle()
            site.dial = fail
            async with site.tasks() as others:
                for _ in range(3):
                    others.spawn(failing(client))
            site.dial = site.open
            await client.ping()
            released.append(True)

    async def failing(client: Client) -> None:
        with pytest.raises(ConnectionLost, match="a bug of a library"):
            await client.call_tool("y")

    released: list[bool] = []

    async def handler(site: Site, request: RawRequest, wire: Wire) -> None:
        if request.rpc_method == "tools/call":
            while not released:
                await site.sleep(1)
        await site.answer(request, wire)

    serve_site(play, handler)
    assert {record.getMessage() for record in caplog.records} == {"an HTTP exchange failed"}


def test_several_failed_addresses_are_named_in_one_line(serve_site: ServeSite) -> None:
    async def fail(*_: object) -> None:
        raise OSError("all attempts failed") from ExceptionGroup("x", [OSError("refused"), OSError("unreachable")])

    async def play(site: Site) -> None:
        site.dial = fail
        with pytest.raises(ConnectFailed, match="refused; unreachable"):
            async with site.open_http(URL):
                pass

    serve_site(play)


def test_silent_host_times_out_while_connecting(serve_site: ServeSite) -> None:
    async def play(site: Site) -> None:
        async def hang(*_: object) -> None:
            await site.forever()

        site.dial = hang
        with pytest.raises(ConnectFailed, match=r"cannot connect to example\.com within 10 s"):
            async with site.open_http(URL):
                pass
        timeouts = HttpClientTimeouts(connect=None)
        with pytest.raises(ConnectFailed, match="no answer within 30 s"):
            async with site.open_http(URL, timeouts=timeouts):
                pass

    serve_site(play)


@pytest.mark.parametrize("where", ["head", "idle"])
def test_head_timeout_may_precede_the_request_timeout(serve_site: ServeSite, where: str) -> None:
    async def handler(site: Site, request: RawRequest, wire: Wire) -> None:
        if request.rpc_method == "tools/call":
            if where == "idle":
                await wire.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
            await site.forever()
        await site.answer(request, wire)

    async def play(site: Site) -> None:
        async with site.open_http(URL, timeouts=HttpClientTimeouts(head=3, idle=7)) as client:
            began = site.now()
            with pytest.raises(ConnectionLost, match="the server sent nothing for"):
                await client.call_tool("x")
            assert site.now() - began == pytest.approx(3 if where == "head" else 7)
            with pytest.raises(RequestTimeout):
                await client.call_tool("x", timeout=1)

    serve_site(play, handler)


def test_informational_responses_are_skipped(serve_site: ServeSite) -> None:
    async def handler(site: Site, request: RawRequest, wire: Wire) -> None:
        await wire.send(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n")
        await site.answer(request, wire)

    async def play(site: Site) -> None:
        async with site.open_http(URL) as client:
            await client.ping()

    serve_site(play, handler)


def test_bodies_of_any_framing_are_read(serve_site: ServeSite) -> None:
    async def handler(site: Site, request: RawRequest, wire: Wire) -> None:
        if request.rpc_method != "tools/call":
            await site.answer(request, wire)
            return
        whole = json_response(result_of(request, {"content": [{"type": "text", "text": "bit by bit"}]}))
        head, _, body = whole.partition(b"\r\n\r\n")
        lines = [line for line in head.split(b"\r\n") if not line.startswith(b"Content-Length")]
        chunked = len(site.requests) % 2
        await wire.send(b"\r\n".join([*lines, b"Transfer-Encoding: chunked" if chunked else b"X: y", b"", b""]))
        for byte in body:
            await wire.send(b"1\r\n%c\r\n" % byte if chunked else b"%c" % byte)
        await wire.send(b"0\r\n\r\n" if chunked else b"")
        if not chunked:
            await wire.close()

    async def play(site: Site) -> None:
        async with site.open_http(URL) as client:
            for _ in range(3):
                assert (await client.call_tool("x")).text == "bit by bit"

    serve_site(play, handler)


# Connections that end on their own


def test_connection_closed_by_the_server_is_replaced(serve_site: ServeSite) -> None:
    async def play(site: Site) -> None:
        async with site.open_http(URL) as client:
            for _ in range(3):
                for wire in site.wires:
                    await wire.close()
                assert (await client.call_tool("x")).text == "done"

    assert len(serve_site(play).opened) == 4


def test_safe_request_is_repeated_after_its_connection_ends(serve_site: ServeSite) -> None:
    async def handler(site: Site, request: RawRequest, wire: Wire) -> None:
        if (request.method == "DELETE" and site.methods().count("DELETE") == 1) or request.rpc_method == "tools/call":
            await wire.close()
        else:
            await site.answer(request, wire)

    async def play(site: Site) -> None:
        async with site.open_http(URL) as client:
            # It may have been done: nobody knows.
            with pytest.raises(ConnectionLost):
                await client.call_tool("x")
            await client.ping()

    assert serve_site(play, handler, "s").methods()[-3:] == ["ping", "DELETE", "DELETE"]


def test_connection_close_opens_a_second_connection(serve_site: ServeSite) -> None:
    async def handler(site: Site, request: RawRequest, wire: Wire) -> None:
        if request.rpc_method == "tools/call":
            done = result_of(request, {"content": []})
            await wire.send(json_response(done, "Connection: close"))
            await wire.close()
        else:
            await site.answer(request, wire)

    async def play(site: Site) -> None:
        async with site.open_http(URL) as client:
            for _ in range(3):
                await client.call_tool("x")

    assert len(serve_site(play, handler).opened) == 3


def test_bytes_after_a_response_do_not_answer_the_next_request(serve_site: ServeSite) -> None:
    async def handler(site: Site, request: RawRequest, wire: Wire) -> None:
        if request.rpc_method == "tools/call":
            answer = result_of(request, {"content": []})
            guessed = result_of(request, {"content": [{"type": "text", "text": "no"}]}) | {"id": answer["id"] + 1}
            await wire.send(json_response(answer) + json_response(guessed))
        else:
            await site.answer(request, wire)

    async def play(site: Site) -> None:
        async with site.open_http(URL) as client:
            for _ in range(3):
                assert (await client.call_tool("x")).content == ()

    assert len(serve_site(play, handler).opened) == 3


@pytest.mark.parametrize("is_used", [True, False])
def test_early_answer_to_a_long_request_is_read(serve_site: ServeSite, is_used: bool) -> None:
    """It may close while a long body is still on its way; what it said before is there to be read."""
    answers = [b"HTTP/1.1 413 Too Large\r\nContent-Type: text/plain\r\nContent-Length: 3\r\n\r\nbig"]

    async def play(site: Site) -> None:
        async def open_deaf(host: str, port: int) -> Any:
            stream = await site.open(host, port)
            send_all = stream.send_all

            async def refuse(data: bytes | bytearray | memoryview) -> None:
                if b"tools/call" not in bytes(data):
                    await send_all(data)
                    return
                await site.settle()
                theirs = site.wires[-1].stream
                if answers:
                    await theirs.send_all(answers.pop())
                await theirs.send_eof()
                raise site.loop.broken[0]("the server is gone")

            stream.send_all = refuse
            return stream

        site.dial = open_deaf
        async with site.open_http(URL) as client:
            if not is_used:
                for wire in site.wires:
                    await wire.close()
            with pytest.raises(UnexpectedResponse, match=r"status 413: .*: 'big'"):
                await client.call_tool("x")
            with pytest.raises(ConnectionLost, match="the server is gone"):
                await client.call_tool("x")

    serve_site(play)
