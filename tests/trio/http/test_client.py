"""``open_http`` with a scripted server: lifetimes, and how a client may begin."""

from __future__ import annotations

import json
import logging
import threading
from functools import partial
from typing import Any

import pytest
import trio
import trio.testing
from carriers import run
from rawsite import RawRequest, RawSite, Wire, serve_listeners

from mcpio import Server
from mcpio.errors import (
    ConnectionLost,
    LocalProtocolError,
    NoBackChannel,
)
from mcpio.http.client.options import HttpClientOptions
from mcpio.http.model import RequestHead
from mcpio.observe import Tap
from mcpio.trio import SocketPeer, connect_http, open_http, serve_http

URL = "http://example.com/mcp"


# A whole conversation


def test_conversation_reuses_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    async def play(site: RawSite) -> None:
        async with open_http("http://example.com:8000/mcp?x=1", era="handshake") as client:
            for _ in range(5):
                assert (await client.call_tool("x")).text == "done"

    site = serve_listeners(monkeypatch, play, session="s")
    assert site.methods() == ["initialize", "notifications/initialized", "GET", *["tools/call"] * 5, "DELETE"]
    assert site.opened == [("example.com", 8000)]
    assert {request.target for request in site.requests} == {"/mcp?x=1"}
    assert {request.headers["host"] for request in site.requests} == {"example.com:8000"}


def test_concurrent_calls_use_one_connection_each(monkeypatch: pytest.MonkeyPatch) -> None:
    async def handler(site: RawSite, request: RawRequest, wire: Wire) -> None:
        if request.rpc_method == "tools/call":
            await trio.sleep(1)
        await site.answer(request, wire)

    async def play(site: RawSite) -> None:
        async with open_http(URL, http=HttpClientOptions(max_requests=3)) as client:
            began = trio.current_time()
            async with trio.open_nursery() as nursery:
                for _ in range(6):
                    nursery.start_soon(client.call_tool, "x")
            assert trio.current_time() - began == pytest.approx(2)

    assert len(serve_listeners(monkeypatch, play, handler).opened) == 3


def test_unused_connections_close_after_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    async def play(site: RawSite) -> None:
        async with open_http(URL) as client:
            await trio.sleep(59)
            await client.call_tool("x")
            await trio.sleep(61)
            await client.call_tool("x")

    assert len(serve_listeners(monkeypatch, play).opened) == 2


def test_connected_client_outlives_the_calling_block(monkeypatch: pytest.MonkeyPatch) -> None:
    async def play(site: RawSite) -> None:
        async with trio.open_nursery() as nursery:
            client = await connect_http(URL, nursery=nursery)
            await client.ping()
            client.close()
            client.close()
            await client.aclose()
            with pytest.raises(NoBackChannel):
                await client.ping()

    assert serve_listeners(monkeypatch, play, session="s").methods()[-1] == "DELETE"


def test_close_works_from_any_task_and_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    async def handler(site: RawSite, request: RawRequest, wire: Wire) -> None:
        if request.rpc_method == "tools/call":
            await trio.sleep_forever()
        await site.answer(request, wire)

    async def play(site: RawSite) -> None:
        ended: list[str] = []
        async with open_http(URL) as client:

            async def call() -> None:
                with pytest.raises(ConnectionLost):
                    await client.call_tool("x")
                ended.append("call")

            async with trio.open_nursery() as nursery:
                for _ in range(3):
                    nursery.start_soon(call)
                await trio.sleep(1)
                thread = threading.Thread(target=client.close)
                thread.start()
                thread.join()
                nursery.start_soon(client.aclose)
                nursery.start_soon(client.aclose, 0)
                client.close()
            client.close()
        await client.aclose()
        assert ended == ["call"] * 3

    assert serve_listeners(monkeypatch, play, handler, "s").methods().count("DELETE") == 1


@pytest.mark.parametrize("session", ["s", None])
def test_cancelled_block_ends_the_session_on_the_server(monkeypatch: pytest.MonkeyPatch, session: str | None) -> None:
    async def handler(site: RawSite, request: RawRequest, wire: Wire) -> None:
        if request.rpc_method == "tools/call":
            await trio.sleep_forever()
        await site.answer(request, wire)

    async def play(site: RawSite) -> None:
        with trio.move_on_after(5) as scope:
            async with open_http(URL) as client:
                await client.call_tool("x", timeout=None)
        assert scope.cancelled_caught
        assert trio.current_time() < 6

    last = ["notifications/cancelled", *(["DELETE"] if session else [])]
    assert serve_listeners(monkeypatch, play, handler, session).methods()[-len(last) :] == last


@pytest.mark.parametrize("steps", range(8))
def test_cancellation_while_opening_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch, steps: int) -> None:
    async def play(site: RawSite) -> None:
        async def cancel() -> None:
            for _ in range(steps):
                await trio.lowlevel.checkpoint()
            scope.cancel()

        async with trio.open_nursery() as nursery:
            with trio.CancelScope() as scope:
                if steps:
                    nursery.start_soon(cancel)
                else:
                    scope.cancel()
                async with open_http(URL):
                    await trio.sleep_forever()
            assert scope.cancelled_caught

    serve_listeners(monkeypatch, play)


def test_vanished_server_does_not_delay_a_cancelled_block(monkeypatch: pytest.MonkeyPatch) -> None:
    async def handler(site: RawSite, request: RawRequest, wire: Wire) -> None:
        if request.rpc_method in ("tools/call", "notifications/cancelled"):
            await trio.sleep_forever()
        await site.answer(request, wire)

    async def play(site: RawSite) -> None:
        began = trio.current_time()
        with trio.move_on_after(5):
            async with open_http(URL) as client:
                await client.call_tool("x", timeout=None)
        assert trio.current_time() - began == pytest.approx(5.5)

    serve_listeners(monkeypatch, play, handler, "s")


@pytest.mark.parametrize("grace", [5.0, 0.0])
def test_unanswered_session_delete_does_not_delay_the_end(monkeypatch: pytest.MonkeyPatch, grace: float) -> None:
    async def handler(site: RawSite, request: RawRequest, wire: Wire) -> None:
        if request.method == "DELETE":
            await trio.sleep_forever()
        await site.answer(request, wire)

    async def play(site: RawSite) -> None:
        async with trio.open_nursery() as nursery:
            client = await connect_http(URL, nursery=nursery)
            began = trio.current_time()
            await client.aclose(grace)
            assert trio.current_time() - began == pytest.approx(5)

    serve_listeners(monkeypatch, play, handler, "s")


def test_body_error_propagates_unwrapped(monkeypatch: pytest.MonkeyPatch) -> None:
    async def play(site: RawSite) -> None:
        with pytest.raises(ZeroDivisionError):
            async with open_http(URL):
                raise ZeroDivisionError

    serve_listeners(monkeypatch, play)


def test_system_exit_of_a_handler_propagates_unwrapped(monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: Any) -> Any:
        raise SystemExit(3)

    async def handler(site: RawSite, request: RawRequest, wire: Wire) -> None:
        if request.rpc_method == "tools/call":
            await wire.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
            await wire.send(b'data: {"jsonrpc":"2.0","id":1,"method":"roots/list"}\n\n')
            await trio.sleep_forever()
        await site.answer(request, wire)

    async def play(site: RawSite) -> None:
        with pytest.raises(SystemExit):
            async with open_http(URL, roots=stop) as client:
                await client.call_tool("x")

    serve_listeners(monkeypatch, play, handler)


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
    monkeypatch: pytest.MonkeyPatch, given: dict[str, Any], kind: type[Exception]
) -> None:
    async def play(site: RawSite) -> None:
        with pytest.raises(kind):
            async with open_http(given.pop("url", URL), **given):
                pass
        assert site.opened == []

    serve_listeners(monkeypatch, play)


# How a client may begin


@pytest.mark.req("SESS-03")
def test_saved_session_continues_in_another_client(monkeypatch: pytest.MonkeyPatch) -> None:
    saved: list[dict[str, Any]] = []

    async def play(site: RawSite) -> None:
        with trio.CancelScope() as scope:
            async with open_http(URL) as client:
                await client.call_tool("x")
                saved.append(json.loads(json.dumps(client.snapshot())))
                scope.cancel()
        before = len(site.requests)
        async with open_http(URL, snapshot=saved[0]) as client:
            assert client.server.info.name == "s"
            assert (await client.call_tool("x")).text == "done"
        assert site.methods()[before:] == ["GET", "tools/call", "DELETE"]
        assert {request.headers["mcp-session-id"] for request in site.requests[before:]} == {"s"}
        for id in (5, "", "a b"):
            broken = {**saved[0], "transport": {"session_id": id}}
            with pytest.raises(LocalProtocolError, match="no session id"):
                async with open_http(URL, snapshot=broken):
                    pass

    serve_listeners(monkeypatch, play, session="s")


def test_tap_sees_all_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[str] = []

    class Listening(Tap):
        def message_sent(self, text: bytes, via: Any, now: float) -> None:
            heard.append(json.loads(text)["method"])

    async def play(site: RawSite) -> None:
        async with open_http(URL, tap=Listening, era="handshake") as client:
            await client.ping()

    serve_listeners(monkeypatch, play)
    assert heard == ["initialize", "notifications/initialized", "ping"]


# What goes wrong without anybody waiting


def test_refused_messages_are_reported(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    async def handler(site: RawSite, request: RawRequest, wire: Wire) -> None:
        if request.rpc_method == "notifications/roots/list_changed":
            await wire.send(b"HTTP/1.1 500 Oh\r\nContent-Length: 0\r\n\r\n")
        elif request.method == "GET":
            await wire.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 0\r\n\r\n")
        else:
            await site.answer(request, wire)

    async def play(site: RawSite) -> None:
        async with open_http(URL, roots=list) as client:
            client.notify_roots_changed()
            await trio.sleep(1)

    with caplog.at_level(logging.ERROR, "mcpio"):
        serve_listeners(monkeypatch, play, handler)
    assert "the server did not take a message" in caplog.text
    assert "messages outside of requests are no longer received" in caplog.text


def test_invalid_grace_is_rejected_by_close(monkeypatch: pytest.MonkeyPatch) -> None:
    async def play(site: RawSite) -> None:
        async with open_http(URL) as client:
            with pytest.raises(LocalProtocolError):
                client.close(-1)
            await client.ping()

    serve_listeners(monkeypatch, play)


@pytest.mark.req("HDR-07")
def test_arguments_of_listed_tools_are_repeated_in_header_fields() -> None:
    schema = {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}
    server, fields = Server("s", "1"), []

    @server.tool(input_schema=schema)
    def buy(**arguments: Any) -> str:
        return str(arguments["region"])

    def principal(head: RequestHead, _: SocketPeer) -> None:
        fields.append(dict(head.headers).get(b"mcp-param-region"))

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            listening = await nursery.start(partial(serve_http, server, port=0, principal=principal))
            async with open_http(listening.url) as client:
                assert [tool.name async for tool in client.tools()] == ["buy"]
                assert (await client.call_tool("buy", {"region": "eu"})).text == "eu"
            nursery.cancel_scope.cancel()

    run(main)
    assert fields[-1] == b"eu"
