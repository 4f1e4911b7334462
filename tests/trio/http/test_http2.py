"""``serve_http`` over HTTP/2: concurrent requests on one connection, and how connections begin and end."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
import trio
import trio.testing
from certificates import serving_as, trusting
from http2frames import GOAWAY, frame
from http2wire import POST, PSEUDO, Http2Client, Shop, http2_client, http2_site, message, session, text_of
from runners import run_by
from triowire import RawHttp, in_virtual_time, memory_site

from mcpio.http.model import Denied, HostPolicy, HttpOptions, RequestHead
from mcpio.trio import SocketPeer, open_http, open_websocket, serve_http
from mcpio.websocket import WebSocketOptions

# Requests


@pytest.mark.req("RPC-07")
@run_by(in_virtual_time)
async def test_requests_run_concurrently_on_one_connection() -> None:
    shop = Shop()
    async with http2_client(shop.server, options=HttpOptions(sse_after=None)) as client:
        headers = await session(client)
        slow = [await client.ask("POST", "/mcp", headers, message("wait", name=f"{n}")) for n in range(50)]
        quick = await client.ask("POST", "/mcp", headers, message("echo", text="x"))
        await client.settle()
        assert (text_of(quick), slow[0].status) == ("x", 0)
        shop.go_on.set()
        await client.settle()
        assert [text_of(asked) for asked in slow] == ["waited"] * 50
        assert quick.headers["date"].endswith("GMT")


def short(size: int, **more: str) -> dict[str, str]:
    """Return the header fields of a request that announces its body."""
    return {**POST, "content-length": str(size), **more}


@pytest.mark.parametrize("is_last_alone", [False, True])
def test_refused_request_with_a_short_body_is_not_reset(is_last_alone: bool) -> None:
    async def main() -> None:
        async with http2_site(Shop().server) as (site, nursery):
            client = await Http2Client(site.listener.connect()).begin(nursery)
            asked = await client.ask("POST", "/elsewhere", short(65535), ends=False)
            await client.settle()
            assert (asked.status, asked.is_over) == (404, True)  # at once
            client.http.send_data(asked.number, b"y" * 16384)
            if is_last_alone:
                client.http.send_data(asked.number, b"y" * 16384)
                client.http.send_data(asked.number, b"y" * 16384)
                client.http.send_data(asked.number, b"y" * 16383, end_stream=True)
            await client.flush()
            await trio.sleep(0.9)
            if is_last_alone:
                await trio.sleep(5)
            assert asked.code is None
            again = await client.ask("POST", "/mcp", await session(client), message("echo", text="x"))
            await client.settle()
            assert text_of(again) == "x"
            if not is_last_alone:  # the client does not hold the stream open for long
                await trio.sleep(0.2)
                assert asked.code == 0
            assert not client.is_closed

    in_virtual_time(main)


@pytest.mark.parametrize("headers", [short(65536), short(10, expect="100-continue"), POST])
def test_refused_request_with_a_long_or_unknown_body_is_reset_at_once(headers: dict[str, str]) -> None:
    async def main() -> None:
        async with http2_site(Shop().server) as (site, nursery):
            client = await Http2Client(site.listener.connect()).begin(nursery)
            asked = await client.ask("POST", "/elsewhere", headers, ends=False)
            await client.settle()
            assert (asked.status, asked.is_over, asked.code) == (404, True, 0)

    in_virtual_time(main)


def test_rest_of_a_refused_body_takes_no_memory_and_may_be_given_up() -> None:
    async def main() -> None:
        shop = Shop(message_bytes=1000)
        async with http2_site(shop.server) as (site, nursery):
            client = await Http2Client(site.listener.connect()).begin(nursery)
            refused = [await client.ask("POST", "/elsewhere", short(60000), ends=False) for _ in range(40)]
            await client.settle()
            assert [asked.is_over for asked in refused] == [True] * 40
            for asked in refused[:20]:
                client.http.send_data(asked.number, b"y" * 16000)
                await client.flush()
                await client.settle()
            assert shop.server.ledger.total == 0
            for asked in refused:
                await client.reset(asked)
            await client.settle()
            assert text_of(await client.ask("POST", "/mcp", await session(client), message("echo", text="x"))) == "x"
            await trio.sleep(2)
            assert not client.is_closed

    in_virtual_time(main)


def test_closing_connection_waits_for_the_short_body_of_a_refused_request() -> None:
    async def main() -> None:
        async with http2_site(Shop().server) as (site, nursery):
            client = await Http2Client(site.listener.connect()).begin(nursery)
            asked = await client.ask("POST", "/elsewhere", short(10), ends=False)
            await client.settle()
            assert asked.is_over
            await client.say(frame(GOAWAY, 0, bytes(8)))
            await client.settle()
            was_closed = [client.is_closed]
            await trio.sleep(1.1)
            assert [*was_closed, client.is_closed] == [False, True]
            assert client.farewells in ([0], [0, 0])

    in_virtual_time(main)


@pytest.mark.req("HTTP-24", "RESUME-03")
@run_by(in_virtual_time)
async def test_reset_request_counts_as_disconnect() -> None:
    shop = Shop()
    async with http2_client(shop.server, options=HttpOptions(answers="sse")) as client:
        headers = await session(client)
        call = await client.ask("POST", "/mcp", headers, message("wait", id=7, name="a"))
        await client.settle()
        (first,) = call.new_events()
        await client.reset(call)
        shop.go_on.set()
        await client.settle()
        assert shop.ended == ["a"]
        rest = await client.ask("GET", "/mcp", {**headers, "last-event-id": first.id or ""})
        await client.settle()
        assert [each["id"] for each in rest.new_messages()] == [7]
        assert not client.is_closed


@run_by(in_virtual_time)
async def test_principal_lookup_delays_only_its_own_request() -> None:
    gate = trio.Event()

    async def principal(head: RequestHead, _: SocketPeer) -> Any:
        fields = dict(head.headers)
        if b"x-slow" in fields:
            await gate.wait()
        if b"x-bad" in fields:
            raise KeyError("x")
        return Denied(401, "Who?") if b"x-denied" in fields else fields.get(b"x-user", b"").decode()

    how: dict[str, Any] = {"principal": principal, "options": HttpOptions(sessions=False)}
    async with http2_client(Shop().server, **how) as client:
        slow = await client.ask("POST", "/mcp", {**POST, "x-slow": "1", "x-user": "s"}, message("whose"))
        left = await client.ask("POST", "/mcp", {**POST, "x-slow": "1"}, message("whose"))
        quick = await client.ask("POST", "/mcp", {**POST, "x-user": "q"}, message("whose"))
        denied = await client.ask("POST", "/mcp", {**POST, "x-denied": "1"}, message("whose"))
        failed = await client.ask("POST", "/mcp", {**POST, "x-bad": "1"}, message("whose"))
        await client.settle()
        assert (text_of(quick), denied.status, failed.status) == ("'q'", 401, 500)
        await client.reset(left)
        await client.settle()
        gate.set()
        await client.settle()
        assert (text_of(slow), left.status) == ("'s'", 0)


@run_by(in_virtual_time)
async def test_authority_becomes_the_host_header() -> None:
    heads: list[RequestHead] = []

    def principal(head: RequestHead, _: SocketPeer) -> None:
        heads.append(head)

    async with http2_client(Shop().server, principal=principal) as client:
        name, host = (":authority", "a.example"), ("host", "a.example")
        for fields in ([name], [host], [name, host]):
            await client.ask("GET", "/elsewhere?x=1", {**dict(fields), "cookie": "a=b"})
        await client.head([*PSEUDO, (":authority", "b"), ("cookie", "c=d"), ("cookie", "e=f")], ends=True)
        await client.settle()
        assert [head.target for head in heads] == ["/elsewhere?x=1"] * 3 + ["/mcp"]
        assert [head.headers for head in heads[:3]] == [[(b"host", b"a.example"), (b"cookie", b"a=b")]] * 3
        assert heads[3].headers == [(b"host", b"b"), (b"cookie", b"c=d; e=f")]


@pytest.mark.req("HTTP-04")
@run_by(in_virtual_time)
async def test_hosts_outside_the_policy_are_rejected() -> None:
    policy = HostPolicy.for_address("127.0.0.1", 80)
    async with http2_client(Shop().server, options=HttpOptions(policy=policy)) as client:
        asked = [await client.ask("GET", "/mcp", {":authority": name}) for name in ("evil.example", "localhost")]
        await client.settle()
        assert [each.status for each in asked] == [403, 406]


@run_by(in_virtual_time)
async def test_head_response_has_no_body() -> None:
    async with http2_client(Shop().server, options=HttpOptions(health="/health")) as client:
        asked = [await client.ask(method, "/health", {}) for method in ("HEAD", "GET")]
        refused = await client.ask("HEAD", "/mcp", {})
        await client.settle()
        assert [(each.status, each.data) for each in asked] == [(200, b""), (200, b'{"status":"ok"}')]
        assert asked[0].headers["content-length"] == asked[1].headers["content-length"] == "15"
        assert (refused.status, refused.data, refused.is_over) == (405, b"", True)


@pytest.mark.req("HTTP-14")
@run_by(in_virtual_time)
async def test_continue_is_sent_only_to_admitted_requests() -> None:
    async with http2_client(Shop().server, options=HttpOptions(sessions=False)) as client:
        good = await client.ask("POST", "/mcp", {**POST, "expect": "100-continue"}, ends=False)
        bad = await client.ask("POST", "/elsewhere", {**POST, "expect": "100-continue"}, ends=False)
        await client.settle()
        assert [(each.informed, each.status) for each in (good, bad)] == [(1, 0), (0, 404)]
        client.http.send_data(good.number, message("echo", text="x"), end_stream=True)
        await client.flush()
        await client.settle()
        assert (good.informed, text_of(good), bad.is_over, bad.code) == (1, "x", True, 0)


@asynccontextmanager
async def gated() -> AsyncIterator[tuple[Http2Client, Shop, trio.Event]]:
    """Serve a client whose principals are looked up only when the event is set."""
    gate, shop = trio.Event(), Shop()

    async def principal(_: RequestHead, peer: SocketPeer) -> None:
        await gate.wait()

    async with http2_client(shop.server, principal=principal, options=HttpOptions(sessions=False)) as client:
        yield client, shop, gate


@run_by(in_virtual_time)
async def test_bodies_during_lookups_share_one_window_of_their_connection() -> None:
    async with gated() as (client, shop, gate):
        asked = [await client.ask("POST", "/mcp", POST, ends=False) for _ in range(5)]
        sent = sum([await client.pour(each, b" " * 30000) for each in asked])
        assert 65535 - 16384 <= sent <= 65535
        assert shop.server.ledger.total > sent + 5 * 2048
        gate.set()
        await client.settle()
        for each in asked:
            assert await client.pour(each, b" " * 60000)
            await client.pour(each, message("echo", text="x"), ends=True)
        await client.settle()
        assert [text_of(each) for each in asked] == ["x"] * 5
        assert shop.server.ledger.total == 0


def test_reset_ends_the_lookup_and_returns_its_window() -> None:
    async def main() -> None:
        ended, shop = 0, Shop()

        async def principal(_: RequestHead, peer: SocketPeer) -> None:
            nonlocal ended
            try:
                await trio.sleep_forever()
            finally:
                ended += 1

        async with http2_client(shop.server, principal=principal) as client:
            for _ in range(3):
                asked = await client.ask("POST", "/mcp", POST, ends=False)
                assert await client.pour(asked, b" " * 40000) == 40000
                await client.reset(asked)
                await client.settle()
                assert shop.server.ledger.total == 0
            assert ended == 3

    in_virtual_time(main)


@run_by(in_virtual_time)
async def test_lookup_that_holds_most_is_refused_when_memory_is_short() -> None:
    async with gated() as (client, shop, gate):
        shop.server.ledger.limit = 30000
        small = await client.ask("POST", "/mcp", POST, message("echo", text="x"))
        large = await client.ask("POST", "/mcp", {**POST, "x-much": "y" * 2000}, b" " * 40000)
        long = await client.ask("POST", "/mcp", {**POST, "x-much": "y" * 28000})
        await client.settle()
        assert (large.code, long.code) == (7, 7)
        assert 2048 < shop.server.ledger.total < 8000
        gate.set()
        await client.settle()
        assert text_of(small) == "x"


@run_by(in_virtual_time)
async def test_look_up_that_does_not_end_is_answered_with_503_and_holds_nothing() -> None:
    shop = Shop()

    async def principal(head: RequestHead, peer: SocketPeer) -> None:
        if head.target == "/mcp":
            await trio.sleep_forever()

    async with http2_site(shop.server, principal=principal) as (site, nursery):
        client = await Http2Client(site.listener.connect()).begin(nursery)
        call = await client.ask("POST", "/mcp", POST, message("echo", text="x"))
        await trio.sleep(29)
        assert call.status == 0
        assert shop.server.ledger.total > 0
        await trio.sleep(2)
        assert (call.status, call.headers["retry-after"], shop.server.ledger.total) == (503, "5", 0)
        other = await client.ask("GET", "/other", {})
        await client.settle()
        assert other.status == 404


@run_by(in_virtual_time)
async def test_continue_waits_for_the_principal() -> None:
    gate = trio.Event()

    async def principal(_: RequestHead, peer: SocketPeer) -> None:
        await gate.wait()

    async with http2_client(Shop().server, principal=principal) as client:
        asked = await client.ask("POST", "/mcp", {**POST, "expect": "100-continue"}, ends=False)
        other = await client.ask("GET", "/mcp", {})
        await client.settle()
        assert asked.informed == 0
        gate.set()
        await client.settle()
        assert (asked.informed, other.status) == (1, 406)


@run_by(in_virtual_time)
async def test_trailers_are_ignored() -> None:
    async with http2_client(Shop().server, options=HttpOptions(sessions=False)) as client:
        asked = await client.ask("POST", "/mcp", POST, message("echo", text="x"), ends=False)
        client.http.send_headers(asked.number, [("x-trailer", "y")], end_stream=True)
        await client.flush()
        await client.settle()
        assert text_of(asked) == "x"


@run_by(in_virtual_time)
async def test_connect_requests_are_rejected() -> None:
    async with http2_client(Shop().server) as client:
        tunnel = await client.head([(":method", "CONNECT"), (":authority", "localhost:80")])
        socket = await client.ask("CONNECT", "/mcp", {":protocol": "websocket"}, ends=False)
        elsewhere = await client.ask("GET", "nowhere", {})
        await client.settle()
        assert (tunnel.status, socket.status) == (404, 405)
        assert (elsewhere.status, elsewhere.is_broken) == (0, True)
        assert not client.is_closed


@pytest.mark.req("HTTP-14", "SEC-10")
@run_by(in_virtual_time)
async def test_body_over_the_limit_is_rejected_and_a_long_one_served() -> None:
    shop = Shop(message_bytes=300_000)
    async with http2_client(shop.server, options=HttpOptions(sessions=False)) as client:
        for size, status in ((250_000, 200), (350_000, 413)):
            asked = await client.ask("POST", "/mcp", POST, ends=False)
            body = message("echo", text="x" * size)
            assert await client.pour(asked, body, ends=True) == (len(body) if status == 200 else 311_296)
            assert asked.status == status
            assert asked.is_over


# The connection


@run_by(in_virtual_time)
async def test_both_versions_are_recognised_without_tls() -> None:
    async with http2_site(Shop().server) as (site, nursery):
        old = site.connect()
        assert (await old.initialize()).status == 200
        slow = RawHttp(site.listener.connect())
        for piece in (b"P", b"RI", b" /mcp HTTP/1.1\r\nhost: localhost\r\n\r\n"):
            await slow.say(piece)
            await trio.testing.wait_all_tasks_blocked()
        assert (await slow.hear()).status == 501
        client = Http2Client(site.listener.connect())
        client.http.initiate_connection()
        for byte in client.http.data_to_send():
            await client.say(bytes([byte]))
        nursery.start_soon(client.read)
        await session(client)


@run_by(in_virtual_time)
async def test_http2_is_off_by_default() -> None:
    async with memory_site(Shop().server) as site:
        client = site.connect()
        await client.say(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        assert (await client.hear()).status == 505


@run_by(in_virtual_time)
async def test_closing_server_sends_goaway_and_answers_open_requests() -> None:
    shop = Shop()
    async with http2_site(shop.server, grace=5, options=HttpOptions(sse_after=None)) as (site, nursery):
        client = await Http2Client(site.listener.connect()).begin(nursery)
        idle = await Http2Client(site.listener.connect()).begin(nursery)
        headers = await session(client)
        call = await client.ask("POST", "/mcp", headers, message("wait"))
        await client.settle()
        site.scope.cancel()
        with trio.CancelScope(shield=True):
            await client.settle()
            assert (client.farewells, idle.farewells, idle.is_closed) == ([0], [0], True)
            late = await client.ask("POST", "/mcp", headers, message("echo", text="x"))
            await client.settle()
            assert (late.is_broken, late.code) == (True, 7)
            shop.go_on.set()
            await client.settle()
            assert (text_of(call), client.is_closed) == ("waited", True)


@run_by(in_virtual_time)
async def test_goaway_of_the_client_lets_open_requests_finish() -> None:
    shop = Shop()
    async with http2_client(shop.server, options=HttpOptions(sse_after=None)) as client:
        headers = await session(client)
        call = await client.ask("POST", "/mcp", headers, message("wait"))
        await client.say(bytes.fromhex("0000080700000000000000000000000000"))
        await client.settle()
        assert not client.is_closed
        shop.go_on.set()
        await client.settle()
        assert (text_of(call), client.is_closed) == ("waited", True)


@run_by(in_virtual_time)
async def test_idle_connection_is_closed_to_make_room() -> None:
    async with http2_site(Shop().server, max_connections=1) as (site, nursery):
        resting = await Http2Client(site.listener.connect()).begin(nursery)
        await session(resting)
        assert not resting.is_closed
        busy = await Http2Client(site.listener.connect()).begin(nursery)
        await busy.ask("POST", "/mcp", await session(busy), message("wait"))
        waiting = await Http2Client(site.listener.connect()).begin(nursery)
        await waiting.settle()
        assert (resting.is_closed, busy.is_closed) == (True, False)


@pytest.mark.parametrize("in_session", [True, False])
@run_by(in_virtual_time)
async def test_stream_beyond_the_grace_ends_with_an_error(in_session: bool) -> None:
    options = HttpOptions(sse_after=0.1, sessions=in_session)
    async with http2_site(Shop().server, grace=5, options=options) as (site, nursery):
        async with trio.open_nursery() as clients:
            client = await Http2Client(site.listener.connect()).begin(clients)
            headers = await session(client) if in_session else POST
            call = await client.ask("POST", "/mcp", headers, message("wait"))
            await trio.sleep(1)
            assert call.headers["content-type"] == "text/event-stream"
            began = trio.current_time()
            nursery.cancel_scope.cancel()
        assert (call.is_over, call.code, client.farewells, client.is_closed) == (True, None, [0], True)
        assert b'"error":{"code":-32603,"message":"Service unavailable: the server is closing"}' in call.data
        assert trio.current_time() - began <= 5.4


@run_by(in_virtual_time)
async def test_unrecognised_connection_is_closed_at_shutdown() -> None:
    async with http2_site(Shop().server, grace=5) as (site, nursery):
        silent = RawHttp(site.listener.connect())
        late = RawHttp(site.listener.connect())
        busy = await Http2Client(site.listener.connect()).begin(nursery)
        await busy.ask("POST", "/mcp", await session(busy), message("wait"))
        await busy.settle()
        site.scope.cancel()
        with trio.CancelScope(shield=True):
            await busy.settle()
            await late.say(late.head("GET"))
            assert await late.rest() == b""
            assert await silent.rest() == b""


@run_by(in_virtual_time)
async def test_silent_client_that_disconnects_is_forgotten() -> None:
    async with http2_site(Shop().server, max_connections=1) as (site, nursery):
        for said in (b"", b"PRI"):
            stream = site.listener.connect()
            await stream.send_all(said)
            await stream.aclose()
        await session(await Http2Client(site.listener.connect()).begin(nursery))


def test_unwritable_response_ends_the_connection_and_is_reported(caplog: Any) -> None:
    def principal(head: RequestHead, _: SocketPeer) -> Denied:
        denied = Denied(401, "Who?")
        object.__setattr__(denied, "headers", ((b"www-authenticate", b"Bearer\r\nx: y"),))  # past its own check
        return denied

    async def main() -> None:
        async with http2_client(Shop().server, principal=principal) as client:
            asked = await client.ask("GET", "/mcp", {})
            await client.settle()
            assert (asked.status, client.farewells) == (0, [2])

    in_virtual_time(main)
    assert [record.message for record in caplog.records] == ["a response could not be written"]


def test_failure_while_reading_ends_the_connection_and_is_reported(
    caplog: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise KeyError("x")

    async def main() -> None:
        async with http2_client(Shop().server) as client:
            monkeypatch.setattr("mcpio._drivers.http2.request_head", fail)
            await client.ask("GET", "/mcp", {})
            await client.settle()
            assert client.farewells == [2]

    in_virtual_time(main)
    assert [record.message for record in caplog.records] == ["HTTP/2 could not be read"]


@run_by(trio.run)
async def test_websockets_share_the_port() -> None:
    async with trio.open_nursery() as nursery:
        serve = partial(serve_http, Shop().server, port=0, http2=True, websocket=WebSocketOptions())
        listening = await nursery.start(serve)
        async with open_websocket(listening.url.replace("http", "ws", 1)) as client:
            assert (await client.call_tool("echo", {"text": "x"})).text == "x"
        async with open_http(listening.url) as client:
            assert (await client.call_tool("echo", {"text": "x"})).text == "x"
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("offers", [["h2", "http/1.1"], ["http/1.1"], []])
def test_alpn_selects_the_version(offers: list[str]) -> None:
    context = trusting()
    if offers:
        context.set_alpn_protocols(offers)

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            serve = partial(serve_http, Shop().server, port=0, http2=True, ssl_context=serving_as("localhost"))
            listening = await nursery.start(serve)
            assert listening.url.startswith("https://")
            host = f"localhost:{listening.port}"
            async with await trio.open_ssl_over_tcp_stream("localhost", listening.port, ssl_context=context) as stream:
                await stream.do_handshake()
                assert stream.selected_alpn_protocol() == (offers[0] if offers else None)
                if offers[:1] == ["h2"]:
                    client = await Http2Client(stream).begin(nursery)
                    asked = await client.ask("GET", "/mcp", {":authority": host})
                    await asked.ended.wait()
                    assert asked.status == 406
                else:
                    old = RawHttp(stream)
                    await old.say(old.head("GET", host=host, accept="x"))
                    assert (await old.hear()).status == 406
            nursery.cancel_scope.cancel()

    trio.run(main)


def test_missing_h2_names_the_extra_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "mcpio._drivers.http2", raising=False)
    for name in [name for name in sys.modules if name.startswith(("mcpio._drivers.http2", "h2."))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "h2", None)
    with pytest.raises(ImportError, match=r"http2=True needs h2: install mcpio\[http2\]"):
        trio.run(partial(serve_http, Shop().server, port=0, http2=True))
