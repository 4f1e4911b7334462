"""``serve_http`` and ``serve_websocket`` over sockets, on each loop: carriers, both eras, and every kind of end."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from certificates import serving_as, trusting
from eachloop import EachLoop, Here, each_loop
from h2.connection import H2Connection
from h2.events import ResponseReceived, StreamEnded

from mcpio import ConnectionLost, Context, McpError, Server
from mcpio.http import HttpClientOptions
from mcpio.http.model import Denied
from mcpio.trio import HttpTimeouts
from mcpio.websocket import WebSocketOptions

__all__ = ["each_loop"]

HEAD = b"POST /mcp HTTP/1.1\r\nhost: localhost\r\n"


class Shop:
    """A server with a handler that waits, made inside the loop."""

    def __init__(self, here: Here, **options: Any) -> None:
        self.server = Server("shop", "1", **options)
        self.waits, self.go_on, self.ended = here.event(), here.event(), here.event()

        @self.server.tool
        def echo(text: str) -> str:
            return text

        @self.server.tool
        def whose(ctx: Context) -> str:
            return repr(ctx.peer.principal)

        @self.server.tool
        async def wait() -> str:
            self.waits.set()
            try:
                await self.go_on.wait()
            finally:
                self.ended.set()
            return "waited"


def text_of(result: Any) -> str:
    found: str = result.content[0].text
    return found


async def raw(here: Here, port: int, data: bytes) -> bytes:
    """Say something, and read to the end."""
    stream = await here.loop.open_stream("127.0.0.1", port, None)
    await stream.send_all(data)
    heard = b""
    with contextlib.suppress(*here.loop.broken):
        while more := bytes(await stream.receive_some()):
            heard += more
    await stream.aclose()
    return heard


@pytest.mark.parametrize("era", ["auto", "handshake"])
@pytest.mark.parametrize("kind", ["tcp", "tls", "unix"])
@pytest.mark.parametrize("carrier", ["http", "websocket"])
def test_a_call_over_each_carrier_is_answered(
    each_loop: EachLoop, carrier: str, kind: str, era: str, tmp_path: Path
) -> None:
    where: dict[str, Any] = {"unix": tmp_path / "s"} if kind == "unix" else {"port": 0}
    how: dict[str, Any] = {}
    if kind == "tls":
        where["ssl_context"], how["ssl_context"] = serving_as("localhost"), trusting()
        where["host"] = "localhost"

    async def main(here: Here) -> None:
        async with here.listening(carrier, Shop(here).server, **where) as (listening, _):
            open_client = getattr(here.drivers, f"open_{carrier}")
            async with open_client(listening.url, era=era, **how) as client:
                assert text_of(await client.call_tool("echo", {"text": "x" * 200_000})) == "x" * 200_000

    each_loop.run(main)


def test_concurrent_calls_over_few_connections_get_their_own_answers(each_loop: EachLoop) -> None:
    async def main(here: Here) -> None:
        answers: dict[int, str] = {}
        few = HttpClientOptions(max_requests=8)
        async with (
            here.listening("http", Shop(here).server, port=0) as (listening, _),
            here.open_http(listening.url, http=few) as client,
            here.tasks() as tasks,
        ):

            async def ask(number: int) -> None:
                answers[number] = text_of(await client.call_tool("echo", {"text": str(number) * 20_000}))

            for number in range(64):
                tasks.spawn(ask(number))
        assert answers == {number: str(number) * 20_000 for number in range(64)}

    each_loop.run(main)


@pytest.mark.parametrize("era", ["auto", "handshake"])
def test_cancelled_call_ends_its_handler_and_nothing_else(each_loop: EachLoop, era: str) -> None:
    async def main(here: Here) -> None:
        shop = Shop(here)
        async with (
            here.listening("http", shop.server, port=0) as (listening, _),
            here.open_http(listening.url, era=era) as client,
            here.tasks() as tasks,
        ):
            with here.scope() as scope:

                async def cancel() -> None:
                    await shop.waits.wait()
                    scope.cancel()

                tasks.spawn(cancel())
                await client.call_tool("wait")
            assert scope.cancelled_caught
            await shop.ended.wait()
            assert text_of(await client.call_tool("echo", {"text": "on"})) == "on"

    each_loop.run(main)


def test_one_port_serves_http_and_websocket(each_loop: EachLoop) -> None:
    async def main(here: Here) -> None:
        both = {"port": 0, "websocket": WebSocketOptions()}
        async with here.listening("http", Shop(here).server, **both) as (listening, _):
            url = listening.url
            async with here.open_http(url) as one, here.drivers.open_websocket(f"ws{url[4:]}") as two:
                assert [text_of(await each.call_tool("echo", {"text": "a"})) for each in (one, two)] == ["a", "a"]

    each_loop.run(main)


@pytest.mark.parametrize("tls", [False, True])
def test_http_2_is_served(each_loop: EachLoop, tls: bool) -> None:
    context = serving_as("localhost") if tls else None

    async def main(here: Here) -> None:
        options = {"port": 0, "http2": True, "ssl_context": context}
        async with here.listening("http", Shop(here).server, **options) as (listening, _):
            stream = await here.loop.open_stream("127.0.0.1", listening.port, None)
            if tls:
                offering = trusting()
                offering.set_alpn_protocols(["h2"])
                stream = await here.loop.start_tls(stream, offering, "localhost")
            client = H2Connection()
            client.initiate_connection()
            fields = {":method": "GET", ":scheme": "https", ":authority": "localhost", ":path": "/other"}
            for number in (1, 3):
                client.send_headers(number, list(fields.items()), end_stream=True)
            await stream.send_all(client.data_to_send())
            heard: list[Any] = []
            while sum(isinstance(event, StreamEnded) for event in heard) < 2:
                heard += client.receive_data(bytes(await stream.receive_some()))
            heads = [dict(event.headers) for event in heard if isinstance(event, ResponseReceived)]
            assert [head[b":status"] for head in heads] == [b"404", b"404"]
            await here.loop.abort(stream)

    each_loop.run(main)


@asynccontextmanager
async def waiting(here: Here, **options: Any) -> AsyncIterator[tuple[Shop, Any, Any, list[Any]]]:
    """Serve, with one call that waits; give the shop, the server's address and scope, and how the call ended."""
    shop, ends = Shop(here), list[Any]()
    async with here.listening("http", shop.server, port=0, **options) as (listening, scope):

        async def call() -> None:
            try:
                async with here.open_http(listening.url) as client:
                    ends.append(text_of(await client.call_tool("wait")))
            except McpError as error:
                ends.append(error)

        async with here.tasks() as tasks:
            tasks.spawn(call())
            await shop.waits.wait()
            yield shop, listening, scope, ends


def test_a_cancelled_server_answers_what_runs(each_loop: EachLoop) -> None:
    async def main(here: Here) -> None:
        async with waiting(here, grace=10) as (shop, _, scope, ends):
            scope.cancel()
            for _turn in range(10):
                await here.checkpoint()
            shop.go_on.set()
        assert ends == ["waited"]

    each_loop.run(main)


def test_handlers_beyond_the_grace_are_cancelled(each_loop: EachLoop) -> None:
    async def main(here: Here) -> None:
        async with waiting(here, grace=0.05) as (shop, _, scope, ends):
            scope.cancel()
            await shop.ended.wait()
        assert isinstance(ends[0], McpError)

    each_loop.run(main)


@pytest.mark.parametrize("era", ["handshake", "stateless"])
def test_call_with_progress_beyond_the_grace_fails_with_an_error_and_is_not_resumed(
    each_loop: EachLoop, era: str
) -> None:
    async def main(here: Here) -> None:
        server, begun, ends = Server("slow", "1"), here.event(), list[BaseException]()

        @server.tool
        async def hold(ctx: Context) -> None:
            ctx.progress(1)
            await here.forever()

        async def call(url: str) -> None:
            # An attempt to resume the stream would find nothing that listens, and end as a lost connection.
            async with here.open_http(url, era=era, http=HttpClientOptions(reconnect_tries=0)) as client:
                with pytest.raises(McpError) as failed:
                    await client.call_tool("hold", on_progress=lambda *_: begun.set())
                ends.append(failed.value)

        async with here.listening("http", server, port=0, grace=0.05) as (listening, scope), here.tasks() as tasks:
            tasks.spawn(call(listening.url))
            await begun.wait()
            scope.cancel()
        assert [str(end) for end in ends] == ["Service unavailable: the server is closing (-32603)"]

    each_loop.run(main)


@pytest.mark.long
def test_a_draining_server_serves_an_open_connection_once_more(each_loop: EachLoop) -> None:
    async def main(here: Here) -> None:
        async with here.listening("http", Shop(here).server, port=0, drain=10) as (listening, scope):
            stream = await here.loop.open_stream("127.0.0.1", listening.port, None)
            await stream.send_all(b"GET /other HTTP/1.1\r\nhost: localhost\r\n\r\n")
            heard = bytes(await stream.receive_some())
            assert b"404" in heard
            assert b"connection: close" not in heard.lower()
            scope.cancel()
            while not await _refuses(here, listening.port):
                await here.checkpoint()
            await _ask_for_the_last_time(stream)

    each_loop.run(main)


def test_a_draining_server_answers_listen_requests_and_serves_their_connections_once_more(each_loop: EachLoop) -> None:
    async def main(here: Here) -> None:
        server = Shop(here).server
        server.resource("r://1", name="one")(lambda: "one")
        async with here.listening("http", server, port=0, drain=60) as (listening, scope):
            stream = await here.loop.open_stream("127.0.0.1", listening.port, None)
            await stream.send_all(listen_request())
            await _hear_until(stream, b"acknowledged")
            scope.cancel()
            assert b'"resultType":"complete"' in await _hear_until(stream, b"0\r\n\r\n")
            while not await _refuses(here, listening.port):
                await here.checkpoint()
            await _ask_for_the_last_time(stream)

    each_loop.run(main)


async def _ask_for_the_last_time(stream: Any) -> None:
    """Check that a connection serves one more request, says that it is the last, and ends."""
    await stream.send_all(b"GET /other HTTP/1.1\r\nhost: localhost\r\n\r\n")
    heard = b""
    while more := bytes(await stream.receive_some()):
        heard += more
    assert heard.startswith(b"HTTP/1.1 404")
    assert b"connection: close" in heard.lower()
    await stream.aclose()


def listen_request() -> bytes:
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "raw", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    params = {"notifications": {"resourceSubscriptions": ["r://1"]}, "_meta": meta}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": params}).encode()
    fields = (
        "accept: application/json, text/event-stream",
        "content-type: application/json",
        "mcp-protocol-version: 2026-07-28",
        "mcp-method: subscriptions/listen",
        f"content-length: {len(body)}",
    )
    return HEAD + "\r\n".join(fields).encode() + b"\r\n\r\n" + body


async def _hear_until(stream: Any, end: bytes) -> bytes:
    heard = b""
    while end not in heard:
        more = bytes(await stream.receive_some())
        assert more, heard
        heard += more
    return heard


@pytest.mark.long
def test_a_draining_server_serves_a_connection_that_has_sent_nothing_yet(each_loop: EachLoop) -> None:
    async def main(here: Here) -> None:
        # Until the first bytes have come, the version of HTTP is not known.
        async with here.listening("http", Shop(here).server, port=0, drain=60, http2=True) as (listening, scope):
            stream = await here.loop.open_stream("127.0.0.1", listening.port, None)
            scope.cancel()
            while not await _refuses(here, listening.port):
                await here.checkpoint()
            for _ in range(20):
                await here.checkpoint()
            await stream.send_all(b"GET /other HTTP/1.1\r\nhost: localhost\r\n\r\n")
            assert (await _hear_until(stream, b"\r\n\r\n")).startswith(b"HTTP/1.1 404")
            await stream.aclose()

    each_loop.run(main)


async def _refuses(here: Here, port: int) -> bool:
    try:
        stream = await here.loop.open_stream("127.0.0.1", port, None)
    except OSError:
        return True
    await here.loop.abort(stream)
    return False


@pytest.mark.parametrize("carrier", ["http", "websocket"])
def test_a_server_cancelled_at_any_step_of_its_start_ends_and_tells(each_loop: EachLoop, carrier: str) -> None:
    async def main(here: Here) -> None:
        serve = getattr(here.drivers, f"serve_{carrier}")
        for steps in range(12):
            done = here.event()
            scope, how = here.scope(), {}
            if not here.is_trio:
                how["started"] = asyncio.get_running_loop().create_future()

            async def run(scope: Any = scope, how: Any = how, done: Any = done) -> None:
                try:
                    with scope:
                        await serve(Server("s"), port=0, **how)
                finally:
                    done.set()

            async with here.tasks() as tasks:
                tasks.spawn(run())
                for _ in range(steps):
                    await here.checkpoint()
                scope.cancel()
                await done.wait()
            assert all(future.done() for future in how.values())

    each_loop.run(main)


@pytest.mark.parametrize("principal", [True, False])
def test_the_principal_of_a_request_is_looked_up(each_loop: EachLoop, principal: bool) -> None:
    async def main(here: Here) -> None:
        async def find(head: Any, peer: Any) -> Any:
            await here.checkpoint()
            return "ann" if (b"x-name", b"ann") in head.headers else Denied(403, "who?")

        def find_now(head: Any, peer: Any) -> Any:
            return "ann" if (b"x-name", b"ann") in head.headers else Denied(403, "who?")

        options = {"port": 0, "principal": find if principal else find_now}
        async with here.listening("http", Shop(here).server, **options) as (listening, _):
            named = HttpClientOptions(headers={"x-name": "ann"})
            async with here.open_http(listening.url, http=named) as client:
                assert text_of(await client.call_tool("whose")) == "'ann'"
            with pytest.raises(McpError):
                async with here.open_http(listening.url):
                    pass

    each_loop.run(main)


@pytest.mark.parametrize("later", [True, False])
def test_traceback_of_a_failing_principal_function_is_logged_once(
    each_loop: EachLoop, later: bool, caplog: pytest.LogCaptureFixture
) -> None:
    def find(head: Any, peer: Any) -> Any:
        raise ValueError(head.target)

    async def find_later(head: Any, peer: Any) -> Any:
        raise ValueError(head.target)

    async def main(here: Here) -> None:
        options = {"port": 0, "principal": find_later if later else find}
        async with here.listening("http", Shop(here).server, **options) as (listening, _):
            for _ in range(20):
                with pytest.raises(McpError):
                    async with here.open_http(listening.url):
                        pass

    each_loop.run(main)
    of_principal = [each for each in caplog.records if each.getMessage().startswith("the principal of a request")]
    assert len(of_principal) == 11
    assert [each.exc_info is not None for each in of_principal] == [True] + [False] * 10


@pytest.mark.parametrize("upgrades", [False, True])
def test_look_up_of_a_principal_that_does_not_end_is_cancelled_and_answered_with_503(
    each_loop: EachLoop, upgrades: bool, caplog: pytest.LogCaptureFixture
) -> None:
    ended: list[str] = []

    async def main(here: Here) -> None:
        async def find(head: Any, peer: Any) -> None:
            try:
                await here.forever()
            finally:
                ended.append(head.target)

        options = {"port": 0, "timeouts": HttpTimeouts(lookup=0.05), "principal": find, "websocket": WebSocketOptions()}
        async with here.listening("http", Shop(here).server, **options) as (listening, _):
            if upgrades:
                fields = b"upgrade: websocket\r\nconnection: upgrade\r\nsec-websocket-version: 13\r\n"
                head = b"GET /mcp HTTP/1.1\r\nhost: localhost\r\nsec-websocket-key: " + b"A" * 22 + b"==\r\n" + fields
            else:
                head = b"GET /mcp HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n"
            heard = await raw(here, listening.port, head + b"\r\n")
            assert heard.startswith(b"HTTP/1.1 503 ")
            assert b"retry-after: 5\r\n" in heard.lower()
            assert b"it took too long to find out whose request it is" in heard

    each_loop.run(main)
    assert ended == ["/mcp"]
    assert [each.getMessage() for each in caplog.records] == [
        "the principal of a client was not found within 0.05 seconds"
    ]


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"nonsense\r\n\r\n", b"400"),
        (HEAD, b"408"),
        (HEAD + b"content-type: application/json\r\naccept: application/json, text/event-stream\r\n", b"408"),
    ],
)
def test_a_request_that_is_wrong_or_slow_is_answered_and_ends_its_connection(
    each_loop: EachLoop, data: bytes, status: bytes
) -> None:
    async def main(here: Here) -> None:
        options = {"port": 0, "timeouts": HttpTimeouts(head=0.05)}
        async with here.listening("http", Shop(here).server, **options) as (listening, _):
            assert status in (await raw(here, listening.port, data)).split(b"\r\n")[0]

    each_loop.run(main)


def test_an_idle_connection_makes_room_for_another(each_loop: EachLoop) -> None:
    async def main(here: Here) -> None:
        async with here.listening("http", Shop(here).server, port=0, max_connections=1) as (listening, _):
            opened = []
            for _ in range(3):
                stream = await here.loop.open_stream("127.0.0.1", listening.port, None)
                opened.append(stream)
                await stream.send_all(b"GET /other HTTP/1.1\r\nhost: localhost\r\n\r\n")
                assert b"404" in bytes(await stream.receive_some())
            for stream in opened:
                await here.loop.abort(stream)

    each_loop.run(main)


def test_a_client_that_reads_nothing_holds_up_no_other(each_loop: EachLoop) -> None:
    async def main(here: Here) -> None:
        async with here.listening("http", Shop(here).server, port=0) as (listening, _):
            stream = await here.loop.open_stream("127.0.0.1", listening.port, None)
            request = b"GET /other HTTP/1.1\r\nhost: localhost\r\n\r\n"
            await stream.send_all(request * 500)
            async with here.open_http(listening.url) as client:
                assert text_of(await client.call_tool("echo", {"text": "a"})) == "a"
            heard = b""
            while heard.count(b" 404 ") < 500:
                heard += bytes(await stream.receive_some())
            await stream.aclose()

    each_loop.run(main)


def test_an_address_in_use_is_named(each_loop: EachLoop) -> None:
    async def main(here: Here) -> None:
        async with here.listening("http", Shop(here).server, port=0) as (listening, _):
            with pytest.raises(OSError, match=rf"127\.0\.0\.1 port {listening.port}"):
                await here.drivers.serve_http(Server("s"), port=listening.port)

    each_loop.run(main)


def test_a_websocket_that_the_server_ends_ends_its_calls(each_loop: EachLoop) -> None:
    async def main(here: Here) -> None:
        shop, ends = Shop(here), list[BaseException]()
        async with here.listening("websocket", shop.server, port=0, grace=0) as (listening, scope):

            async def call() -> None:
                async with here.drivers.open_websocket(listening.url) as client:
                    try:
                        await client.call_tool("wait")
                    except McpError as error:
                        ends.append(error)

            async with here.tasks() as tasks:
                tasks.spawn(call())
                await shop.waits.wait()
                scope.cancel()
                await shop.ended.wait()
        assert isinstance(ends[0], ConnectionLost)

    each_loop.run(main)
