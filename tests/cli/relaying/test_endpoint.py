"""The relay before a server at a URL: requests and responses pass unchanged, and are seen."""

from __future__ import annotations

import gzip
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial, wraps
from typing import Any

import pytest
import trio
import trio.testing
from certificates import serving_as, trusting

from mcpio import Client, ConnectFailed, Context, Server
from mcpio.cli.relaying import endpoint
from mcpio.cli.relaying.chaos import parse_chaos
from mcpio.cli.relaying.endpoint import HttpRelay
from mcpio.cli.relaying.traffic import Traffic, small_ladder
from mcpio.errors import AuthorizationRequired
from mcpio.http.client import HttpClientOptions, Location
from mcpio.observe.relayed import RelayRecorder
from mcpio.observe.tap import Redactor
from mcpio.trio import open_http, serve_http

POST = (
    b"POST /mcp?x=1 HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Odd-CASE: v\xe4lue \r\nAuthorization: Bearer of-the-host-12\r\n"
    b"Connection: keep-alive\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
)
PING = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
JSON = b"HTTP/1.1 200 Fine\r\nContent-Type: application/json\r\nX-From: Server\r\nContent-Length: 36\r\n\r\n"
PONG = b'{"jsonrpc":"2.0","id":1,"result":{}}'


def in_trio(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Run a test in Trio."""

    @wraps(test)
    def run(**given: Any) -> None:
        trio.run(partial(test, **given))

    return run


class Relay:
    """A relay that listens, and what it has shown and recorded."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.recorded: list[str] = []
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    def said(self) -> list[str]:
        """Return the lines without their times, with single spaces."""
        return [" ".join(line.split()[1:]) for line in self.lines]

    async def connect(self) -> trio.SocketStream:
        """Return a connection of a host."""
        return await trio.open_tcp_stream("127.0.0.1", self.port)


@asynccontextmanager
async def _relay(url: str, chaos: str = "seed=0", **options: Any) -> AsyncIterator[Relay]:
    relay = Relay()
    recorder = RelayRecorder(relay.recorded.append, url, trio.current_time(), redactor=Redactor())
    traffic = Traffic(relay.lines.append, small_ladder(trio.current_time), recorder, clock=trio.current_time)
    async with trio.open_nursery() as nursery:
        serving = HttpRelay(Location.parse(url), traffic, parse_chaos(chaos), **options)
        relay.port = await nursery.start(serving.serve, 0)
        yield relay
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def _raw_server(answer: Callable[[trio.SocketStream], Awaitable[None]]) -> AsyncIterator[str]:
    """Yield the URL of a server that does with each connection what ``answer`` does."""
    async with trio.open_nursery() as nursery:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, answer, listeners)
        yield f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}/mcp"
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def _server(**options: Any) -> AsyncIterator[str]:
    server = Server("upstream", "1")

    @server.tool
    async def echo(text: str, ctx: Context) -> str:
        ctx.progress(1)
        return text

    async with trio.open_nursery() as nursery:
        listening = await nursery.start(lambda **given: serve_http(server, 0, **options, **given))
        yield f"http{'s' if options else ''}://localhost:{listening.port}/mcp"
        nursery.cancel_scope.cancel()


async def _read_until(stream: trio.SocketStream, end: bytes) -> bytes:
    data = b""
    while not data.endswith(end):
        piece = await stream.receive_some()
        if not piece:
            return data
        data += piece
    return data


async def _once(url: str, chaos: str = "seed=0", request: bytes = PING) -> tuple[bytes, Relay]:
    """Return everything that a host reads after one request, and the relay."""
    async with _relay(url, chaos) as relay, await relay.connect() as host:
        await host.send_all(POST % (len(request), request))
        await host.send_eof()
        return await _read_until(host, b"never"), relay


@pytest.mark.parametrize("era", ["handshake", "stateless"])
@in_trio
async def test_client_and_server_of_both_eras_talk_through_it(era: Any) -> None:
    async with _server() as url, _relay(url) as relay:
        reported: list[float] = []
        async with open_http(relay.url, era=era) as client:
            for text in ("one", "two"):
                result = await client.call_tool("echo", {"text": text}, on_progress=lambda *p: reported.append(p[0]))
                assert result.text == text
    assert reported == [1, 1]
    said = relay.said()
    assert sum("tools/call echo: result, " in line for line in said) == 2
    assert sum(line.startswith("<-- notifications/progress") for line in said) == 2
    assert any(line.startswith("--> DELETE /mcp") for line in said) is (era == "handshake")


@in_trio
async def test_client_talks_to_a_server_over_tls_through_it() -> None:
    async with _server(ssl_context=serving_as("localhost")) as url:
        context = trusting()
        async with _relay(url, ssl_context=context) as relay, open_http(relay.url) as client:
            assert (await client.call_tool("echo", {"text": "hello"})).text == "hello"


@in_trio
async def test_fields_pass_except_host_and_those_of_the_connection() -> None:
    got: list[bytes] = []

    async def answer(stream: trio.SocketStream) -> None:
        got.append(await _read_until(stream, PING))
        await stream.send_all(JSON + PONG)
        await stream.aclose()

    async with _raw_server(answer) as url:
        response, relay = await _once(url)
    authority = url.removeprefix("http://").removesuffix("/mcp").encode()
    wanted = POST % (len(PING), PING)
    assert got == [wanted.replace(b"Connection: keep-alive\r\n", b"").replace(b"127.0.0.1", authority, 1).replace(
        b"lue \r\n", b"lue\r\n"
    )]  # fmt: skip
    assert response == JSON + PONG
    heads = [json.loads(line) for line in relay.recorded[1:] if '"http"' in line]
    assert heads[0]["http"]["headers"]["authorization"] == "[redacted]"
    assert heads[1]["http"]["status"] == 200
    assert "of-the-host-12" not in "".join(relay.recorded) + "".join(relay.lines)


@in_trio
async def test_length_beside_chunks_and_fields_that_connection_names_do_not_pass() -> None:
    got: list[bytes] = []
    fields = (
        b"Content-Length: 20\r\nTransfer-Encoding: chunked\r\nConnection: x-hop, HOST,transfer-encoding\r\nX-Hop: 1\r\n"
    )

    async def answer(stream: trio.SocketStream) -> None:
        got.append(await _read_until(stream, b"0\r\n\r\n"))
        await stream.send_all(b"HTTP/1.1 200 OK\r\n" + fields + b"X-End: 1\r\n\r\n2\r\nhi\r\n0\r\n\r\n")

    async with _raw_server(answer) as url, _relay(url) as relay, await relay.connect() as host:
        body = b"14\r\n%b\r\n14\r\n%b\r\n0\r\n\r\n" % (PING[:20], PING[20:])
        await host.send_all(b"POST /mcp HTTP/1.1\r\nHost: localhost:%d\r\n%b\r\n%b" % (relay.port, fields, body))
        read = await _read_until(host, b"never")  # the relay closes the connection
    authority = url.split("/")[2].encode()
    wanted = b"POST /mcp HTTP/1.1\r\nHost: %b\r\nTransfer-Encoding: chunked\r\n\r\n%b" % (authority, body)
    assert got == [wanted]
    assert read == b"HTTP/1.1 200 OK\r\nX-End: 1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n"
    assert relay.said() == ["--> #1 ping 40 B"]  # all of it


@in_trio
async def test_events_pass_as_they_come() -> None:
    go_on = trio.Event()

    async def answer(stream: trio.SocketStream) -> None:
        await _read_until(stream, PING)
        await stream.send_all(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        await stream.send_all(b"7\r\ndata: {\r\n")
        await go_on.wait()
        await stream.send_all(b"3\r\n}\n\n\r\n0\r\n\r\n")

    async with _raw_server(answer) as url, _relay(url) as relay, await relay.connect() as host:
        await host.send_all(POST % (len(PING), PING))
        assert (await _read_until(host, b"data: {\r\n")).endswith(b"\r\n\r\n7\r\ndata: {\r\n")
        go_on.set()
        assert await _read_until(host, b"0\r\n\r\n") == b"3\r\n}\n\n\r\n0\r\n\r\n"
        assert relay.said()[-1].startswith("<-- not a message")


@in_trio
async def test_compressed_answer_is_read_for_the_log() -> None:
    packed = gzip.compress(PONG)

    async def answer(stream: trio.SocketStream) -> None:
        await _read_until(stream, PING)
        head = (
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Encoding: %b\r\nContent-Length: %d\r\n\r\n"
        )
        await stream.send_all(head % (b"gzip", len(packed)) + packed)
        await _read_until(stream, PING)
        await stream.send_all(head % (b"gzip", 4) + b"junk")

    async with _raw_server(answer) as url, _relay(url) as relay, await relay.connect() as host:
        await host.send_all(POST % (len(PING), PING))
        assert (await _read_until(host, packed)).endswith(packed)
        await host.send_all(POST % (len(PING), PING))
        assert (await _read_until(host, b"junk")).endswith(b"junk")
    assert [line.partition(",")[0] for line in relay.said()] == [
        "--> #1 ping 40 B",
        "<-- #1 ping: result",
        "--> #1 ping 40 B",
    ]


@in_trio
async def test_host_that_leaves_ends_the_stream_of_the_server() -> None:
    ended = trio.Event()

    async def answer(stream: trio.SocketStream) -> None:
        await _read_until(stream, b"\r\n\r\n")
        await stream.send_all(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n:\n")
        assert await stream.receive_some() == b""
        ended.set()

    async with _raw_server(answer) as url, _relay(url) as relay:
        async with await relay.connect() as host:
            await host.send_all(b"GET /mcp HTTP/1.1\r\nHost: localhost\r\n\r\n")
            await _read_until(host, b":\n\r\n")
        await ended.wait()
    assert relay.said() == ["--> GET /mcp (request 1)", "<-- HTTP 200 OK text/event-stream (request 1)"]


@pytest.mark.parametrize("announced", [b"", b"Connection: close\r\n"])
@in_trio
async def test_server_that_closes_its_connections_is_connected_anew(announced: bytes) -> None:
    async def answer(stream: trio.SocketStream) -> None:
        await _read_until(stream, PING)
        await stream.send_all(JSON[:-2] + announced + b"\r\n" + PONG)
        await stream.aclose()

    async with _raw_server(answer) as url, _relay(url) as relay, await relay.connect() as host:
        for _ in range(3):
            await host.send_all(POST % (len(PING), PING))
            assert await _read_until(host, PONG) == JSON + PONG
            await trio.testing.wait_all_tasks_blocked()


@in_trio
async def test_broken_response_breaks_that_of_the_relay() -> None:
    async def answer(stream: trio.SocketStream) -> None:
        await _read_until(stream, PING)
        await stream.send_all(JSON + PONG[:10])
        await stream.aclose()

    async with _raw_server(answer) as url:
        response, relay = await _once(url)
    assert response == JSON + PONG[:10]
    assert relay.said()[-1].startswith("--- the relay cannot read the response of 127.0.0.1:")


@in_trio
async def test_response_before_the_end_of_the_request_passes() -> None:
    async def answer(stream: trio.SocketStream) -> None:
        await _read_until(stream, b"\r\n\r\n")
        await stream.send_all(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")
        await stream.aclose()

    async with _raw_server(answer) as url, _relay(url) as relay, await relay.connect() as host:
        await host.send_all((POST % (1000, b""))[:-2] + b"Expect: 100-continue\r\n\r\n")
        assert (await _read_until(host, b"never")).startswith(b"HTTP/1.1 413 Too Large\r\n")


@in_trio
async def test_fault_of_one_connection_leaves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    async with _server() as url, _relay(url) as relay:
        monkeypatch.setattr(endpoint, "responses", None)
        async with await relay.connect() as host:
            await host.send_all(b"GET /mcp HTTP/1.1\r\nHost: evil.example\r\n\r\n")
            assert await _read_until(host, b"never") == b""
        assert relay.said()[-1].startswith("--- a connection failed: AttributeError(")
        async with open_http(relay.url) as client:
            assert (await client.call_tool("echo", {"text": "hello"})).text == "hello"


@in_trio
async def test_unreachable_server_is_answered_by_the_relay() -> None:
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = listeners[0].socket.getsockname()[1]
    for listener in listeners:
        await listener.aclose()
    response, relay = await _once(f"http://127.0.0.1:{port}/mcp")
    assert response.startswith(b"HTTP/1.1 502 Bad Gateway\r\n")
    assert f"the relay cannot connect to 127.0.0.1:{port}: ".encode() in response
    assert relay.said()[-1] == "<-- HTTP 502 Bad Gateway by the relay (request 1)"


@pytest.mark.parametrize("host", [b"evil.example", b"127.0.0.1:1", b"127.0.0.1\r\nHost: localhost"])
@in_trio
async def test_foreign_host_is_refused(host: bytes) -> None:
    async with _server() as url, _relay(url) as relay, await relay.connect() as stream:
        await stream.send_all(b"GET /mcp HTTP/1.1\r\nHost: %b\r\n\r\n" % host)
        data = await _read_until(stream, b"\n")
        assert data.startswith((b"HTTP/1.1 421 ", b"HTTP/1.1 400 "))


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"\x00\x01 nonsense\r\n\r\n", b"400 Bad Request"),
        (b"GET /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nX Y: z\r\n\r\n", b"400 Bad Request"),
        (b"GET /mcp HTTP/1.1\r\n\r\n", b"400 Bad Request"),
        (POST.replace(b"Content-Length: %d", b"Transfer-Encoding: gzip")[:-2], b"501 Not Implemented"),
        (POST.replace(b"Content-Length: %d", b"Transfer-Encoding: chunked")[:-2] + b"no size\r\n", b"400 Bad Request"),
        (b"GET /mcp HTTP/1.1\r\nX: " + b"y" * 300_000, b"431 Request Header Fields Too Large"),
    ],
)
@in_trio
async def test_request_that_is_no_http_is_answered_and_noted(request_: bytes, status: bytes) -> None:
    async def say_nothing(_: trio.SocketStream) -> None:
        await trio.sleep_forever()

    async with _raw_server(say_nothing) as url, _relay(url) as relay, await relay.connect() as host:
        await host.send_all(request_)
        answer = await _read_until(host, b"never")
        assert answer.startswith(b"HTTP/1.1 " + status)
        assert b"the relay cannot read the request: " in answer
        assert relay.said()[-1].startswith("--- the relay cannot read the request: ")


@in_trio
async def test_host_that_leaves_within_its_request_is_not_noted() -> None:
    async with _server() as url, _relay(url) as relay:
        async with await relay.connect() as host:
            await host.send_all(b"GET /mcp HTT")
            await host.send_eof()
            assert await _read_until(host, b"never") == b""
        assert relay.said() == []


@pytest.mark.parametrize("sent", [b"", JSON.replace(b"Fine", b"Fine\0"), b"SSH-2.0\r\n\r\n", JSON.replace(b"36", b"x")])
@in_trio
async def test_response_that_is_no_http_is_noted_and_answered_in_its_place(sent: bytes) -> None:
    async def answer(stream: trio.SocketStream) -> None:
        await _read_until(stream, PING)
        await stream.send_all(sent)
        if sent:
            await trio.sleep_forever()
        await stream.aclose()

    async with _raw_server(answer) as url, _relay(url) as relay, await relay.connect() as host:
        await host.send_all(POST % (len(PING), PING))
        response = await _read_until(host, b"never")
        # A server that closes the connection is passed on as what it is.
        assert response.startswith(b"HTTP/1.1 502 Bad Gateway\r\n") == bool(sent)
        assert bool(response) == bool(sent)
        assert relay.said()[-1].startswith(f"--- the relay cannot read the response of {url[7:-4]}: ")


@in_trio
async def test_request_of_http_1_0_passes_without_host() -> None:
    async def answer(stream: trio.SocketStream) -> None:
        assert await _read_until(stream, b"\r\n\r\n") == b"GET /mcp HTTP/1.1\r\nHost: %b\r\n\r\n" % place
        await stream.send_all(JSON + PONG)

    async with _raw_server(answer) as url, _relay(url) as relay, await relay.connect() as host:
        place = url[7:-4].encode()
        await host.send_all(b"GET /mcp HTTP/1.0\r\n\r\n")
        assert (await _read_until(host, PONG)).endswith(PONG)


@pytest.mark.parametrize(
    ("chaos", "response", "note"),
    [
        ("status=401@1", b"HTTP/1.1 401 Unauthorized", "chaos status=401@1: request 1: the relay answers"),
        ("cut=1", JSON + PONG[:18], "chaos cut=1: request 1: the connection ends within its answer"),
        ("drop=1", b"", "chaos drop=1: request 1: its answer is not passed on"),
        ("slow=1ms", JSON + PONG, "chaos slow=1ms: request 1: delayed by 1 ms"),
        ("split=1", JSON + PONG, ""),
        ("twice=1", JSON + PONG, "chaos twice=1: request 1: sent twice"),
    ],
)
@in_trio
async def test_fault_is_injected_and_noted(chaos: str, response: bytes, note: str) -> None:
    arrived = 0

    async def answer(stream: trio.SocketStream) -> None:
        nonlocal arrived
        await _read_until(stream, PING)
        arrived += 1
        await stream.send_all(JSON + PONG)
        await stream.aclose()

    async with _raw_server(answer) as url, _relay(url, chaos) as relay:
        async with await relay.connect() as host:
            await host.send_all(POST % (len(PING), PING))
            await host.send_eof()
            data = await _read_until(host, b"never")
        while arrived < {"twice=1": 2, "status=401@1": 0}.get(chaos, 1):
            await trio.testing.wait_all_tasks_blocked()
    assert data.startswith(response)
    assert note == "" or f"--- {note}" in relay.said()


@in_trio
async def test_stalled_answer_waits_until_the_host_leaves() -> None:
    ended = trio.Event()

    async def answer(stream: trio.SocketStream) -> None:
        await _read_until(stream, PING)
        await stream.send_all(JSON + PONG)
        while await stream.receive_some():
            pass
        ended.set()

    async with _raw_server(answer) as url, _relay(url, "stall=1") as relay:
        async with await relay.connect() as host:
            await host.send_all(POST % (len(PING), PING))
            while not any("its answer is held" in line for line in relay.lines):
                await trio.testing.wait_all_tasks_blocked(0.001)
            with trio.move_on_after(0.01) as scope:
                await host.receive_some()
            assert scope.cancelled_caught
        await ended.wait()


@in_trio
async def test_client_of_mcpio_meets_an_injected_status() -> None:
    async with _server() as url, _relay(url, "status=401@1") as relay:
        with pytest.raises(ConnectFailed) as raised:
            async with open_http(relay.url):
                pass
    assert isinstance(raised.value.__cause__, AuthorizationRequired)


@in_trio
async def test_credentials_pass() -> None:
    got: list[bytes] = []

    async def answer(stream: trio.SocketStream) -> None:
        got.append(await _read_until(stream, b"}"))
        await stream.aclose()

    async with _raw_server(answer) as url, _relay(url) as relay:
        http = HttpClientOptions(headers={"Authorization": "Bearer of-the-host"})
        with pytest.raises(ConnectFailed):
            async with open_http(relay.url, http=http) as client:
                assert isinstance(client, Client)
    assert b"authorization: bearer of-the-host\r\n" in got[0].lower()
