"""``serve_http`` with hostile clients: garbage, endless heads and bodies, slowness, injections."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
import trio
import trio.testing
from triowire import RawHttp, each_parser, in_virtual_time, memory_site

from mcpio import Context, Limits, Options, Server
from mcpio._drivers.http_parsers import ResponseWriter
from mcpio.http.model import Cors, HttpOptions
from mcpio.trio import HttpTimeouts


def small_server(**limits: Any) -> Server:
    server = Server("small", "1", options=Options(limits=Limits(**limits)))

    @server.tool
    def echo(text: str) -> str:
        return text

    @server.tool
    async def flood(ctx: Context, count: int) -> str:
        for step in range(count):
            ctx.progress(step, message="x" * 100)
            await trio.lowlevel.checkpoint()
        return "done"

    return server


HEAD = b"POST /mcp HTTP/1.1\r\nHost: localhost\r\n"

GARBAGE = {
    "no HTTP": (b"hello there\r\n\r\n", 400),
    "TLS": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
    "HTTP/2": (b"PRI * HTTP/2.0\r\nHost: localhost\r\n\r\nSM\r\n\r\n", 505),
    "no host": (b"POST /mcp HTTP/1.1\r\n\r\n", 400),
    "two hosts": (HEAD + b"Host: other\r\n\r\n", 400),
    "a name with a space": (HEAD + b"A : b\r\n\r\n", 400),
    "a NUL": (HEAD + b"A: b\0c\r\n\r\n", 400),
    "lengths that differ": (HEAD + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd", 400),
    "a negative length": (HEAD + b"Content-Length: -1\r\n\r\n", 400),
    "another encoding": (HEAD + b"Transfer-Encoding: gzip, chunked\r\n\r\n", 501),
    "no size of a chunk": (
        HEAD
        + b"Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"
        + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n",
        400,
    ),
}


@each_parser
@pytest.mark.parametrize("kind", GARBAGE)
@pytest.mark.parametrize("principal", [None, lambda head, peer: "ada"], ids=["", "principal"])
def test_malformed_request_is_answered_once_and_ends_the_connection(parser: str, kind: str, principal: Any) -> None:
    data, status = GARBAGE[kind]

    async def main() -> None:
        async with memory_site(small_server(), parser=parser, principal=principal) as site:
            client = site.connect()
            await client.say(data)
            heard = await client.hear()
            assert heard.headers["connection"].lower() == "close"
            assert heard.status == status
            assert await client.rest() == b""
            other = site.connect()
            assert (await other.initialize()).status == 200

    in_virtual_time(main)


@each_parser
def test_fault_while_continue_is_being_written_is_answered(parser: str) -> None:
    async def main() -> None:
        async with memory_site(small_server(), parser=parser) as site:
            # What is written waits until it is read.
            client = RawHttp(site.listener.connect(trio.testing.lockstep_stream_pair))
            usual = {"content_type": "application/json", "transfer_encoding": "chunked", "expect": "100-continue"}
            await client.say(client.head("POST", **usual))
            await client.say(b"xyz\r\n")
            await trio.testing.wait_all_tasks_blocked()
            assert [(await client.hear()).status, (await client.hear()).status] == [100, 400]
            assert await client.rest() == b""

    in_virtual_time(main)


@each_parser
def test_pipelined_request_does_not_put_the_answer_before_it_under_a_deadline(parser: str) -> None:
    server = small_server()

    @server.tool
    async def late() -> str:
        await trio.sleep(300)
        return "late"

    async def main() -> None:
        async with memory_site(server, parser=parser) as site:
            client = site.connect()
            await client.initialize()
            ping = client.posted({"jsonrpc": "2.0", "id": 2, "method": "ping"})
            await client.say(client.posted(client.call("late"), accept="application/json, text/event-stream") + ping)
            assert b"late" in (await client.hear()).body
            assert (await client.hear()).json["id"] == 2

    in_virtual_time(main)


@each_parser
def test_nothing_is_written_after_a_write_that_took_too_long(parser: str, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with memory_site(small_server(), parser=parser, timeouts=HttpTimeouts(write=5, rate=1e9)) as site:
            opened = site.connect()
            await opened.initialize()
            # What is written waits until it is read.
            client = RawHttp(site.listener.connect(trio.testing.lockstep_stream_pair))
            client.session = opened.session
            await client.say(client.posted(client.call("echo", text="x" * 300_000)))
            await trio.sleep(60)
            assert len(await client.rest()) < 100_000

    in_virtual_time(main)
    assert caplog.records == []


@each_parser
def test_body_that_ends_in_the_turn_of_its_deadline_ends_the_connection_quietly(
    parser: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with memory_site(small_server(), parser=parser, timeouts=HttpTimeouts(body=5)) as site:
            opened = site.connect()
            await opened.initialize()
            client = site.connect()
            client.session = opened.session
            request = client.posted({"jsonrpc": "2.0", "id": 1, "method": "ping"})
            await client.say(request[:-1])
            await trio.testing.wait_all_tasks_blocked()
            clock: Any = trio.lowlevel.current_clock()
            stream: Any = client.stream
            put = stream.send_stream.send_all_hook

            async def put_late() -> None:
                await put()
                clock.jump(60)

            stream.send_stream.send_all_hook = put_late
            await client.say(request[-1:])
            await client.rest()
            assert (await opened.post({"jsonrpc": "2.0", "id": 2, "method": "ping"})).status == 200

    in_virtual_time(main)
    assert caplog.records == []


@each_parser
@pytest.mark.parametrize("kind", ["no HTTP", "another encoding"])
def test_malformed_second_request_is_answered(parser: str, kind: str) -> None:
    data, status = GARBAGE[kind]

    async def main() -> None:
        async with memory_site(small_server(), parser=parser) as site:
            client = site.connect()
            assert (await client.initialize()).status == 200
            await client.say(data)
            assert (await client.hear()).status == status
            assert await client.rest() == b""

    in_virtual_time(main)


@each_parser
def test_length_and_chunks_together_are_rejected(parser: str) -> None:
    """Where a proxy and a server choose differently, a request is smuggled past the proxy (RFC 9112 section 6.1)."""

    async def main() -> None:
        async with memory_site(small_server(), parser=parser) as site:
            for both in (
                b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
                b"Transfer-Encoding: Chunked\r\nContent-Length: 5\r\n",
            ):
                client = site.connect()
                smuggled = b"GET /mcp HTTP/1.1\r\nHost: localhost\r\n\r\n"
                await client.say(HEAD + both + b"\r\n0\r\n\r\n" + smuggled)
                assert (await client.hear()).status == 400
                assert await client.rest() == b""

    in_virtual_time(main)


@each_parser
def test_truncated_request_ends_the_connection(parser: str) -> None:
    async def main() -> None:
        async with memory_site(small_server(), parser=parser) as site:
            for data in (b"POST /mcp HT", HEAD + b"Content-Length: 5\r\n", b""):
                client = site.connect()
                await client.say(data)
                assert isinstance(client.stream, trio.StapledStream)
                await client.stream.send_eof()
                assert (await client.rest())[:12] in (b"HTTP/1.1 400", b"")

    in_virtual_time(main)


@each_parser
@pytest.mark.req("SEC-10")
def test_endless_head_is_rejected(parser: str) -> None:
    async def main() -> None:
        async with memory_site(small_server(), parser=parser, head_bytes=8192) as site:
            client = site.connect()
            await client.say(HEAD)
            for _ in range(20):
                await client.say(b"x: %b\r\n" % (b"y" * 1000))
                await trio.testing.wait_all_tasks_blocked()
            assert (await client.hear()).status == 431
            assert await client.rest() == b""

    in_virtual_time(main)


@each_parser
@pytest.mark.req("HTTP-14", "SEC-10")
@pytest.mark.parametrize("announced", [True, False])
def test_body_over_the_limit_is_rejected_before_it_is_read(parser: str, announced: bool) -> None:
    async def main() -> None:
        async with memory_site(small_server(message_bytes=4096), parser=parser) as site:
            client = site.connect()
            length = {"content_length": "5000"} if announced else {"transfer_encoding": "chunked"}
            await client.say(client.head("POST", content_type="application/json", **length))
            if not announced:
                await client.say(b"1388\r\n" + b" " * 4999)
            heard = await client.hear()
            assert (heard.status, heard.headers["connection"].lower()) == (413, "close")
            # It has time to read the answer while it goes on with the body.
            await trio.sleep(0.5)
            await client.say(b" ")
            assert await client.rest() == b""

    in_virtual_time(main)


async def drip(client: RawHttp, data: bytes, pause: float) -> None:
    with contextlib.suppress(trio.BrokenResourceError):
        for byte in data:
            await client.say(bytes([byte]))
            await trio.sleep(pause)


@each_parser
@pytest.mark.req("SEC-10")
def test_head_timeout_covers_the_whole_head(parser: str) -> None:
    async def main() -> None:
        async with memory_site(small_server(), parser=parser) as site, trio.open_nursery() as nursery:
            client, silent = site.connect(), site.connect()
            began = trio.current_time()
            nursery.start_soon(drip, client, HEAD * 10, 9)
            assert await silent.rest() == b""
            assert trio.current_time() == pytest.approx(began + 10)
            heard = await client.hear()
            assert (heard.status, heard.body) == (408, b"the head of the request took too long")
            nursery.cancel_scope.cancel()

    in_virtual_time(main)


@each_parser
@pytest.mark.req("HTTP-14", "SEC-10")
def test_body_timeout_grows_with_the_bytes_received(parser: str) -> None:
    async def main() -> None:
        timeouts = HttpTimeouts(body=5, rate=10)
        async with (
            memory_site(small_server(), parser=parser, timeouts=timeouts) as site,
            trio.open_nursery() as nursery,
        ):
            client = site.connect()
            await client.initialize()
            ping = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
            await client.say(client.head("POST", content_type="application/json", content_length=f"{len(ping)}"))
            await drip(client, ping, 0.2)
            assert (await client.hear()).status == 200
            await client.say(client.head("POST", content_type="application/json", content_length=f"{len(ping)}"))
            nursery.start_soon(drip, client, ping, 1)
            heard = await client.hear()
            assert (heard.status, heard.body) == (408, b"the body of the request took too long")
            nursery.cancel_scope.cancel()

    in_virtual_time(main)


@each_parser
def test_idle_timeout_closes_the_connection(parser: str) -> None:
    async def main() -> None:
        async with memory_site(small_server(), parser=parser) as site:
            client = site.connect()
            await client.initialize()
            await trio.sleep(70)
            assert (await client.post(client.call("echo", text="x"))).status == 200
            began = trio.current_time()
            assert await client.rest() == b""
            assert trio.current_time() == pytest.approx(began + 75)

    in_virtual_time(main)


@pytest.mark.long
@each_parser
def test_stalled_reader_is_disconnected_and_delays_no_other(parser: str) -> None:
    async def main() -> None:
        async with memory_site(small_server(), parser=parser) as site:
            client, other = site.connect(), site.connect(trio.testing.lockstep_stream_pair)
            await client.initialize()
            other.session = client.session
            flood = {**client.call("flood", count=10_000)["params"], "_meta": {"progressToken": "p"}}
            await other.say(other.posted({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": flood}))
            began = trio.current_time()
            for number in range(100):
                assert (await client.post(client.call("echo", id=number, text="x"))).status == 200
            assert trio.current_time() == began
            await trio.sleep(60)
            with pytest.raises(trio.BrokenResourceError):
                await other.say(b"GET /")

    in_virtual_time(main)


@each_parser
@pytest.mark.req("RPC-07")
def test_concurrent_posts_with_equal_ids_get_their_own_answers(parser: str) -> None:
    async def main() -> None:
        server = small_server()
        gate = trio.Event()

        @server.tool
        async def slow(text: str) -> str:
            await gate.wait()
            return text

        async with memory_site(server, parser=parser) as site:
            clients = [site.connect() for _ in range(12)]
            await clients[0].initialize()
            for number, client in enumerate(clients):
                client.session = clients[0].session
                await client.say(client.posted(client.call("slow", id=1, text=f"{number}")))
            await trio.testing.wait_all_tasks_blocked()
            gate.set()
            for number, client in enumerate(clients):
                answer = (await client.hear()).json
                assert (answer["id"], answer["result"]["content"][0]["text"]) == (1, f"{number}")

    in_virtual_time(main)


@each_parser
def test_text_with_line_ends_stays_one_event(parser: str) -> None:
    evil = "a\n\nid: 9-9\nevent: message\ndata: {}\r\n\r\n0\r\n\r\nHTTP/1.1 200 OK\r\n\r\n"

    async def main() -> None:
        async with memory_site(small_server(), parser=parser, options=HttpOptions(answers="sse")) as site:
            client = site.connect()
            await client.initialize()
            heard = await client.post(client.call("echo", text=evil))
            events = heard.body.decode().strip().split("\n\n")
            assert [event.partition("\n")[0] for event in events] == ["id: 3-1", "id: 3-2"]
            data = events[-1].partition("data: ")[2]
            assert json.loads(data)["result"]["content"][0]["text"] == evil

    in_virtual_time(main)


@each_parser
def test_client_input_cannot_add_header_fields(parser: str) -> None:
    async def main() -> None:
        options = HttpOptions(cors=Cors(), health="/health")
        async with memory_site(small_server(), parser=parser, options=options) as site:
            for evil in ("http://a\r\nset-cookie: b=c", "http://a\rset-cookie: b=c", "http://a\0"):
                client = site.connect()
                await client.say(client.head("OPTIONS", origin=evil, access_control_request_method=evil))
                heard = await client.hear()
                assert "set-cookie" not in heard.headers
                assert "\r" not in "".join(heard.headers.values())
            client = site.connect()
            await client.say(b"GET /%0d%0aset-cookie:%20b=c HTTP/1.1\r\nhost: localhost\r\n\r\n")
            heard = await client.hear()
            assert (heard.status, "set-cookie" in heard.headers) == (404, False)

    in_virtual_time(main)


@pytest.mark.parametrize("value", [b"a\r\nset-cookie: b", b"a\nb", b"a\rb", b"a\0b"])
def test_header_value_with_line_end_is_rejected(value: bytes) -> None:
    for fields in (((b"x", value),), ((value, b"x"),)):
        with pytest.raises(ValueError, match="contains a line end"):
            ResponseWriter().head(None, 200, fields, closes=False)
