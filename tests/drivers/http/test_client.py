"""``open_http`` with a scripted server: lifetimes, and how a client may begin."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from functools import partial
from typing import Any

import pytest
import trio
from eachloop import EachLoop, Here
from rawsite import RawRequest, ServeSite, Site, Wire
from trio_thread import TrioThread

from mcpio import Server
from mcpio._drivers.http_client import HttpActor
from mcpio.errors import (
    ConnectionLost,
    LocalProtocolError,
    NoBackChannel,
)
from mcpio.http.client import HttpClientOptions
from mcpio.http.model import RequestHead
from mcpio.observe import Tap
from mcpio.trio import SocketPeer, serve_http

URL = "http://example.com/mcp"


# A whole conversation


def test_conversation_reuses_connections(serve_site: ServeSite) -> None:
    async def play(site: Site) -> None:
        async with site.open_http("http://example.com:8000/mcp?x=1", era="handshake") as client:
            for _ in range(5):
                assert (await client.call_tool("x")).text == "done"

    site = serve_site(play, session="s")
    assert site.methods() == ["initialize", "notifications/initialized", "GET", *["tools/call"] * 5, "DELETE"]
    assert site.opened == [("example.com", 8000)]
    assert {request.target for request in site.requests} == {"/mcp?x=1"}
    assert {request.headers["host"] for request in site.requests} == {"example.com:8000"}


def test_call_takes_a_turn_to_be_sent_and_one_for_its_answer(
    serve_site: ServeSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns: list[int] = []
    turn = HttpActor._turn

    def counted(self: HttpActor) -> None:
        turns.append(1)
        turn(self)

    monkeypatch.setattr(HttpActor, "_turn", counted)

    async def play(site: Site) -> None:
        async with site.open_http(URL, era="handshake", http=HttpClientOptions(listen=False)) as client:
            await client.call_tool("x")
            await site.sleep(1)
            turns.clear()
            await client.call_tool("x")
            await site.sleep(1)
            assert len(turns) <= 2

    serve_site(play)


def test_concurrent_calls_use_one_connection_each(serve_site: ServeSite) -> None:
    async def handler(site: Site, request: RawRequest, wire: Wire) -> None:
        if request.rpc_method == "tools/call":
            await site.sleep(1)
        await site.answer(request, wire)

    async def play(site: Site) -> None:
        async with site.open_http(URL, http=HttpClientOptions(max_requests=3)) as client:
            began = site.now()
            async with site.tasks() as tasks:
                for _ in range(6):
                    tasks.spawn(client.call_tool("x"))
            assert site.now() - began == pytest.approx(2)

    assert len(serve_site(play, handler).opened) == 3


def test_unused_connections_close_after_a_minute(serve_site: ServeSite) -> None:
    async def play(site: Site) -> None:
        async with site.open_http(URL) as client:
            await site.sleep(59)
            await client.call_tool("x")
            await site.sleep(61)
            await client.call_tool("x")

    assert len(serve_site(play).opened) == 2


def test_connected_client_outlives_the_calling_block(serve_site: ServeSite) -> None:
    async def play(site: Site) -> None:
        client = await site.connect_http(URL)
        await client.ping()
        client.close()
        client.close()
        await client.aclose()
        with pytest.raises(NoBackChannel):
            await client.ping()

    assert serve_site(play, session="s").methods()[-1] == "DELETE"


def test_close_works_from_any_task_and_thread(serve_site: ServeSite) -> None:
    async def handler(site: Site, request: RawRequest, wire: Wire) -> None:
        if request.rpc_method == "tools/call":
            await site.forever()
        await site.answer(request, wire)

    async def play(site: Site) -> None:
        ended: list[str] = []
        async with site.open_http(URL) as client:

            async def call() -> None:
                with pytest.raises(ConnectionLost):
                    await client.call_tool("x")
                ended.append("call")

            async with site.tasks() as tasks:
                for _ in range(3):
                    tasks.spawn(call())
                await site.sleep(1)
                thread = threading.Thread(target=client.close)
                thread.start()
                thread.join()
                tasks.spawn(client.aclose())
                tasks.spawn(client.aclose(0))
                client.close()
            client.close()
        await client.aclose()
        assert ended == ["call"] * 3

    assert serve_site(play, handler, "s").methods().count("DELETE") == 1


@pytest.mark.parametrize("session", ["s", None])
def test_cancelled_block_ends_the_session_on_the_server(serve_site: ServeSite, session: str | None) -> None:
    async def handler(site: Site, request: RawRequest, wire: Wire) -> None:
        if request.rpc_method == "tools/call":
            await site.forever()
        await site.answer(request, wire)

    async def play(site: Site) -> None:
        with site.scope(5) as scope:
            async with site.open_http(URL) as client:
                await client.call_tool("x", timeout=None)
        assert scope.cancelled_caught
        assert site.now() < 6

    last = ["notifications/cancelled", *(["DELETE"] if session else [])]
    assert serve_site(play, handler, session).methods()[-len(last) :] == last


@pytest.mark.parametrize("steps", range(8))
def test_cancellation_while_opening_leaves_nothing_behind(serve_site: ServeSite, steps: int) -> None:
    async def play(site: Site) -> None:
        async def cancel() -> None:
            for _ in range(steps):
                await site.checkpoint()
            scope.cancel()

        async with site.tasks() as tasks:
            with site.scope() as scope:
                if steps:
                    tasks.spawn(cancel())
                else:
                    scope.cancel()
                async with site.open_http(URL):
                    await site.forever()
            assert scope.cancelled_caught

    serve_site(play)


def test_vanished_server_does_not_delay_a_cancelled_block(serve_site: ServeSite) -> None:
    async def handler(site: Site, request: RawRequest, wire: Wire) -> None:
        if request.rpc_method in ("tools/call", "notifications/cancelled"):
            await site.forever()
        await site.answer(request, wire)

    async def play(site: Site) -> None:
        began = site.now()
        with site.scope(5):
            async with site.open_http(URL) as client:
                await client.call_tool("x", timeout=None)
        assert site.now() - began == pytest.approx(5.5)

    serve_site(play, handler, "s")


@pytest.mark.parametrize("grace", [5.0, 0.0])
def test_unanswered_session_delete_does_not_delay_the_end(serve_site: ServeSite, grace: float) -> None:
    async def handler(site: Site, request: RawRequest, wire: Wire) -> None:
        if request.method == "DELETE":
            await site.forever()
        await site.answer(request, wire)

    async def play(site: Site) -> None:
        client = await site.connect_http(URL)
        began = site.now()
        await client.aclose(grace)
        assert site.now() - began == pytest.approx(5)

    serve_site(play, handler, "s")


def test_body_error_propagates_unwrapped(serve_site: ServeSite) -> None:
    async def play(site: Site) -> None:
        with pytest.raises(ZeroDivisionError):
            async with site.open_http(URL):
                raise ZeroDivisionError

    serve_site(play)


def test_system_exit_of_a_handler_propagates_unwrapped(serve_site: ServeSite, each_virtual_loop: EachLoop) -> None:
    def stop(*_: Any) -> Any:
        raise SystemExit(3)

    async def handler(site: Site, request: RawRequest, wire: Wire) -> None:
        if request.rpc_method == "tools/call":
            await wire.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
            await wire.send(b'data: {"jsonrpc":"2.0","id":1,"method":"roots/list"}\n\n')
            await site.forever()
        await site.answer(request, wire)

    async def play(site: Site) -> None:
        with ends_block if site.is_trio else nullcontext():
            async with site.open_http(URL, roots=stop) as client:
                await client.call_tool("x")

    # asyncio raises it from the loop itself, past every block.
    ends_block = pytest.raises(SystemExit)
    with nullcontext() if each_virtual_loop.name == "trio" else ends_block:
        serve_site(play, handler)


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        ({"url": "ftp://x"}, ValueError),
        ({"nonsense": 1}, TypeError),
        ({"proxy": "socks5://localhost"}, ValueError),
        ({"on_session_lost": 5}, TypeError),
        ({"connection": 5}, TypeError),
    ],
)
def test_invalid_options_are_rejected_before_connecting(
    serve_site: ServeSite, given: dict[str, Any], kind: type[Exception]
) -> None:
    async def play(site: Site) -> None:
        with pytest.raises(kind):
            async with site.open_http(**{"url": URL, **given}):
                pass
        assert site.opened == []

    serve_site(play)


# How a client may begin


@pytest.mark.req("SESS-03")
def test_saved_session_continues_in_another_client(serve_site: ServeSite) -> None:
    saved: list[dict[str, Any]] = []

    async def play(site: Site) -> None:
        with site.scope() as scope:
            async with site.open_http(URL) as client:
                await client.call_tool("x")
                saved.append(json.loads(json.dumps(client.snapshot())))
                scope.cancel()
        before = len(site.requests)
        async with site.open_http(URL, snapshot=saved[0]) as client:
            assert client.server.info.name == "s"
            assert (await client.call_tool("x")).text == "done"
        assert site.methods()[before:] == ["GET", "tools/call", "DELETE"]
        assert {request.headers["mcp-session-id"] for request in site.requests[before:]} == {"s"}
        for id in (5, "", "a b"):
            broken = {**saved[0], "transport": {"session_id": id}}
            with pytest.raises(LocalProtocolError, match="no session id"):
                async with site.open_http(URL, snapshot=broken):
                    pass

    serve_site(play, session="s")


def test_tap_sees_all_messages(serve_site: ServeSite) -> None:
    heard: list[str] = []

    class Listening(Tap):
        def message_sent(self, text: bytes, via: Any, now: float) -> None:
            heard.append(json.loads(text)["method"])

    async def play(site: Site) -> None:
        async with site.open_http(URL, tap=Listening, era="handshake") as client:
            await client.ping()

    serve_site(play)
    assert heard == ["initialize", "notifications/initialized", "ping"]


# What goes wrong without anybody waiting


def test_refused_messages_are_reported(serve_site: ServeSite, caplog: pytest.LogCaptureFixture) -> None:
    async def handler(site: Site, request: RawRequest, wire: Wire) -> None:
        if request.rpc_method == "notifications/roots/list_changed":
            await wire.send(b"HTTP/1.1 500 Oh\r\nContent-Length: 0\r\n\r\n")
        elif request.method == "GET":
            await wire.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 0\r\n\r\n")
        else:
            await site.answer(request, wire)

    async def play(site: Site) -> None:
        async with site.open_http(URL, roots=list) as client:
            for _ in range(3):
                client.notify_roots_changed()
                await site.sleep(1)

    with caplog.at_level(logging.WARNING, "mcpio"):
        serve_site(play, handler)
    refused = [each for each in caplog.records if "the server did not take a message" in each.getMessage()]
    assert [each.exc_info is not None for each in refused] == [True, False, False]
    assert "messages outside of requests are no longer received" in caplog.text


def test_invalid_grace_is_rejected_by_close(serve_site: ServeSite) -> None:
    async def play(site: Site) -> None:
        async with site.open_http(URL) as client:
            with pytest.raises(LocalProtocolError):
                client.close(-1)
            await client.ping()

    serve_site(play)


@pytest.mark.req("HDR-07")
def test_arguments_of_listed_tools_are_repeated_in_header_fields(each_loop: EachLoop) -> None:
    schema = {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}
    server, fields = Server("s", "1"), []

    @server.tool(input_schema=schema)
    def buy(**arguments: Any) -> str:
        return str(arguments["region"])

    def principal(head: RequestHead, _: SocketPeer) -> None:
        fields.append(dict(head.headers).get(b"mcp-param-region"))

    @asynccontextmanager
    async def served() -> AsyncIterator[str]:
        async with trio.open_nursery() as nursery:
            listening: Any = await nursery.start(partial(serve_http, server, port=0, principal=principal))
            yield listening.url
            nursery.cancel_scope.cancel()

    async def main(here: Here, url: str) -> None:
        async with here.open_http(url) as client:
            assert [tool.name async for tool in client.tools()] == ["buy"]
            assert (await client.call_tool("buy", {"region": "eu"})).text == "eu"

    with TrioThread(served) as url:
        each_loop.run(lambda here: main(here, url))
    assert fields[-1] == b"eu"
