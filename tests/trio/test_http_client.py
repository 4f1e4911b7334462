"""``open_http`` and ``connect_http`` with a server that is played by hand: faults, sessions, lifetimes."""

from __future__ import annotations

import logging
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
import trio.testing
from rawsite import RawRequest, RawSite, Wire, json_response, result_of

from mcpio import Backoff, Client
from mcpio.errors import (
    AuthorizationRequired,
    ConnectFailed,
    ConnectionLost,
    LocalProtocolError,
    NoBackChannel,
    RemoteProtocolError,
    RequestTimeout,
    UnexpectedResponse,
)
from mcpio.http.client_options import HttpClientOptions
from mcpio.trio import HttpClientTimeouts, connect_http, open_http
from mcpio.types import SubscribeRequest, UnsubscribeRequest

URL = "http://example.com/mcp"
Play = Callable[[RawSite, Client], Awaitable[None]]


def run(
    monkeypatch: pytest.MonkeyPatch,
    play: Callable[[RawSite], Awaitable[None]],
    handler: Callable[[RawSite, RawRequest, Wire], Awaitable[None]] | None = None,
    session: str | None = None,
) -> RawSite:
    """Play a server until ``play`` returns. Time passes by itself where nothing else happens."""
    sites: list[RawSite] = []

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            site = RawSite(nursery, session=session).install(monkeypatch)
            sites.append(site)
            if handler is not None:
                site.handler = lambda request, wire: handler(site, request, wire)
            with trio.fail_after(1000):
                await play(site)
            nursery.cancel_scope.cancel()

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0), strict_exception_groups=True)
    return sites[0]


# A whole conversation


def test_a_conversation_goes_over_connections_that_are_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def play(site: RawSite) -> None:
        async with open_http("http://example.com:8000/mcp?x=1") as client:
            for _ in range(5):
                assert (await client.call_tool("x")).text == "done"

    site = run(monkeypatch, play, session="s")
    assert site.methods() == ["initialize", "notifications/initialized", "GET", *["tools/call"] * 5, "DELETE"]
    assert site.opened == [("example.com", 8000)]
    assert {request.target for request in site.requests} == {"/mcp?x=1"}
    assert {request.headers["host"] for request in site.requests} == {"example.com:8000"}


def test_calls_at_once_each_have_a_connection(monkeypatch: pytest.MonkeyPatch) -> None:
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

    assert len(run(monkeypatch, play, handler).opened) == 3


def test_connections_that_nobody_uses_are_closed_after_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    async def play(site: RawSite) -> None:
        async with open_http(URL) as client:
            await trio.sleep(59)
            await client.call_tool("x")
            await trio.sleep(61)
            await client.call_tool("x")

    assert len(run(monkeypatch, play).opened) == 2


def test_a_client_that_is_tied_to_no_block(monkeypatch: pytest.MonkeyPatch) -> None:
    async def play(site: RawSite) -> None:
        async with trio.open_nursery() as nursery:
            client = await connect_http(URL, nursery=nursery)
            await client.ping()
            client.close()
            client.close()
            await client.aclose()
            with pytest.raises(NoBackChannel):
                await client.ping()

    assert run(monkeypatch, play, session="s").methods()[-1] == "DELETE"


@pytest.mark.parametrize("session", ["s", None])
def test_a_block_that_is_cancelled_tells_the_server(monkeypatch: pytest.MonkeyPatch, session: str | None) -> None:
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
    assert run(monkeypatch, play, handler, session).methods()[-len(last) :] == last


def test_a_server_that_is_gone_does_not_hold_up_a_cancelled_block(monkeypatch: pytest.MonkeyPatch) -> None:
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

    run(monkeypatch, play, handler, "s")


@pytest.mark.parametrize("grace", [5.0, 0.0])
def test_a_server_that_does_not_answer_the_farewell_is_left(monkeypatch: pytest.MonkeyPatch, grace: float) -> None:
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

    run(monkeypatch, play, handler, "s")


def test_what_a_body_raises_leaves_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    async def play(site: RawSite) -> None:
        with pytest.raises(ZeroDivisionError):
            async with open_http(URL):
                raise ZeroDivisionError

    run(monkeypatch, play)


def test_what_a_handler_ends_the_program_with_leaves_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
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

    run(monkeypatch, play, handler)


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
def test_options_that_make_no_sense_open_nothing(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, Any], kind: type[Exception]
) -> None:
    async def play(site: RawSite) -> None:
        with pytest.raises(kind):
            async with open_http(given.pop("url", URL), **given):
                pass
        assert site.opened == []

    run(monkeypatch, play)


# Faults (P10)


def answering(method: str, data: bytes) -> Any:
    """Return a handler that answers a method with bytes, and closes."""

    async def handler(site: RawSite, request: RawRequest, wire: Wire) -> None:
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
    (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n{", ConnectionLost, "the server closed the connection"),
    (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{", ConnectionLost, "the server closed"),
    (
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: {",
        ConnectionLost,
        "the response ended without the answer",
    ),
    (b"SSH-2.0-OpenSSH_9.2\r\n\r\n", RemoteProtocolError, "is no HTTP"),
    (b"HTTP/1.1 200 OK\r\nX\r\n\r\n", RemoteProtocolError, "is no HTTP"),
    (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", RemoteProtocolError, "is no HTTP"),
    (b"HTTP/1.1 200 OK\r\nX: " + b"x" * 200_000, RemoteProtocolError, "is no HTTP"),
    (b"HTTP/1.1 101 Switching Protocols\r\n\r\n", RemoteProtocolError, "is no HTTP"),
    (b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n<html>", UnexpectedResponse, "text/html in answer"),
    (b"HTTP/1.1 500 Oh\r\nContent-Length: 0\r\n\r\n", UnexpectedResponse, "status 500"),
    (b"HTTP/1.1 401 No\r\nWWW-Authenticate: Bearer\r\nContent-Length: 0\r\n\r\n", AuthorizationRequired, "Bearer"),
]


@pytest.mark.parametrize(("data", "kind", "said"), FAULTS)
def test_each_fault_of_a_server_is_one_error(
    monkeypatch: pytest.MonkeyPatch, data: bytes, kind: type[Exception], said: str
) -> None:
    async def play(site: RawSite) -> None:
        async with open_http(URL) as client:
            with pytest.raises(kind, match=said):
                await client.call_tool("x")
            # It costs that request alone.
            await client.ping()

    run(monkeypatch, play, answering("tools/call", data))


@pytest.mark.parametrize(("data", "kind", "said"), FAULTS)
def test_each_fault_in_the_handshake_is_a_connect_failed(
    monkeypatch: pytest.MonkeyPatch, data: bytes, kind: type[Exception], said: str
) -> None:
    async def play(site: RawSite) -> None:
        with pytest.raises(ConnectFailed, match=said) as caught:
            async with open_http(URL):
                pass
        assert type(caught.value.__cause__) is kind

    run(monkeypatch, play, answering("initialize", data))


def test_where_nothing_listens_there_is_a_connect_failed() -> None:
    async def main() -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            port = taken.getsockname()[1]
            with pytest.raises(ConnectFailed, match=f"cannot connect to 127.0.0.1:{port}: .*refused") as caught:
                async with open_http(f"http://127.0.0.1:{port}/mcp"):
                    pass
        assert isinstance(caught.value.__cause__, ConnectFailed)
        assert isinstance(caught.value.__cause__.__cause__, OSError)

    trio.run(main)


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (socket.gaierror(-2, "Name or service not known"), "Name or service not known"),
        (UnicodeError("label too long"), "label too long"),
        (trio.BrokenResourceError(), "BrokenResourceError"),
    ],
)
def test_a_host_that_is_not_there_is_a_connect_failed(
    monkeypatch: pytest.MonkeyPatch, fault: Exception, said: str
) -> None:
    async def fail(*_: object) -> None:
        raise fault

    async def main() -> None:
        monkeypatch.setattr(trio, "open_tcp_stream", fail)
        with pytest.raises(ConnectFailed, match=f"cannot connect to example.com: .*{said}"):
            async with open_http(URL):
                pass

    trio.run(main)


def test_several_addresses_that_all_fail_are_told_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*_: object) -> None:
        raise OSError("all attempts failed") from ExceptionGroup("x", [OSError("refused"), OSError("unreachable")])

    async def main() -> None:
        monkeypatch.setattr(trio, "open_tcp_stream", fail)
        with pytest.raises(ConnectFailed, match="refused; unreachable"):
            async with open_http(URL):
                pass

    trio.run(main)


def test_a_host_that_does_not_answer_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    async def hang(*_: object) -> None:
        await trio.sleep_forever()

    async def main() -> None:
        monkeypatch.setattr(trio, "open_tcp_stream", hang)
        with pytest.raises(ConnectFailed, match=r"cannot connect to example\.com: nothing came of it within 10 s"):
            async with open_http(URL):
                pass
        timeouts = HttpClientTimeouts(connect=None)
        with pytest.raises(ConnectFailed, match="no answer within 30 s"):
            async with open_http(URL, timeouts=timeouts):
                pass

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


@pytest.mark.parametrize("where", ["head", "idle"])
def test_a_server_that_says_nothing_may_be_given_up_before_the_request_is(
    monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    async def handler(site: RawSite, request: RawRequest, wire: Wire) -> None:
        if request.rpc_method == "tools/call":
            if where == "idle":
                await wire.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
            await trio.sleep_forever()
        await site.answer(request, wire)

    async def play(site: RawSite) -> None:
        async with open_http(URL, timeouts=HttpClientTimeouts(head=3, idle=7)) as client:
            began = trio.current_time()
            with pytest.raises(ConnectionLost, match="nothing came from the server for"):
                await client.call_tool("x")
            assert trio.current_time() - began == pytest.approx(3 if where == "head" else 7)
            with pytest.raises(RequestTimeout):
                await client.call_tool("x", timeout=1)

    run(monkeypatch, play, handler)


def test_informational_responses_are_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    async def handler(site: RawSite, request: RawRequest, wire: Wire) -> None:
        await wire.send(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n")
        await site.answer(request, wire)

    async def play(site: RawSite) -> None:
        async with open_http(URL) as client:
            await client.ping()

    run(monkeypatch, play, handler)


def test_a_body_byte_by_byte_without_a_length_and_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    async def handler(site: RawSite, request: RawRequest, wire: Wire) -> None:
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

    async def play(site: RawSite) -> None:
        async with open_http(URL) as client:
            for _ in range(3):
                assert (await client.call_tool("x")).text == "bit by bit"

    run(monkeypatch, play, handler)


# Connections that end on their own


def test_a_connection_that_the_server_closed_meanwhile_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    async def play(site: RawSite) -> None:
        async with open_http(URL) as client:
            for _ in range(3):
                for wire in site.wires:
                    await wire.close()
                assert (await client.call_tool("x")).text == "done"

    assert len(run(monkeypatch, play).opened) == 4


def test_what_may_be_repeated_is_where_the_connection_ends_at_that_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    async def handler(site: RawSite, request: RawRequest, wire: Wire) -> None:
        if (request.method == "DELETE" and site.methods().count("DELETE") == 1) or request.rpc_method == "tools/call":
            await wire.close()
        else:
            await site.answer(request, wire)

    async def play(site: RawSite) -> None:
        async with open_http(URL) as client:
            # It may have been done: nobody knows.
            with pytest.raises(ConnectionLost):
                await client.call_tool("x")
            await client.ping()

    assert run(monkeypatch, play, handler, "s").methods()[-3:] == ["ping", "DELETE", "DELETE"]


def test_a_server_that_wants_no_second_request_gets_a_second_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    async def handler(site: RawSite, request: RawRequest, wire: Wire) -> None:
        if request.rpc_method == "tools/call":
            done = result_of(request, {"content": []})
            await wire.send(json_response(done, "Connection: close"))
            await wire.close()
        else:
            await site.answer(request, wire)

    async def play(site: RawSite) -> None:
        async with open_http(URL) as client:
            for _ in range(3):
                await client.call_tool("x")

    assert len(run(monkeypatch, play, handler).opened) == 3


# Sessions that the server forgets (SESS-06)


def forgetful(times: int) -> Any:
    """Return a handler that does not know the session of the first calls of a tool."""
    left = [times]

    async def handler(site: RawSite, request: RawRequest, wire: Wire) -> None:
        if request.rpc_method == "tools/call" and left[0]:
            left[0] -= 1
            site.session = f"s-{left[0]}"
            await wire.send(b"HTTP/1.1 404 Gone\r\nContent-Length: 0\r\n\r\n")
        elif request.rpc_method == "initialize" and "mcp-session-id" not in request.headers and len(site.requests) > 1:
            await trio.sleep(5)
            await site.answer(request, wire)
        else:
            await site.answer(request, wire)

    return handler


@pytest.mark.req("SESS-06")
def test_a_session_is_opened_anew_inside_the_same_client(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    lost: list[float] = []

    async def play(site: RawSite) -> None:
        async with open_http(URL, on_session_lost=lambda: lost.append(trio.current_time())) as client:
            await client.subscribe_resource("a://b")
            await client.subscribe_resource("c://d")
            await client.unsubscribe_resource("c://d")
            await client.set_log_level("error")
            await client.tool("x")
            began = trio.current_time()
            with pytest.raises(ConnectionLost):
                await client.call_tool("x")
            # It waits for the new session.
            assert (await client.call_tool("x")).text == "done"
            assert trio.current_time() - began == pytest.approx(5)
            await client.tool("x")
            assert client.server.info.name == "s"

    site = run(monkeypatch, play, forgetful(1), "old")
    assert len(lost) == 1
    second = site.methods().index("initialize", 1)
    assert sorted(site.methods()[second + 1 :]) == sorted(
        [
            "notifications/initialized",
            "GET",
            "tools/call",
            "resources/subscribe",
            "logging/setLevel",
            "tools/list",
            "DELETE",
        ]
    )
    assert {request.headers.get("mcp-session-id") for request in site.requests[second + 1 :]} == {"s-0"}
    assert "does not know the session any more" in caplog.text


@pytest.mark.req("SESS-06")
def test_what_is_safe_is_repeated_in_the_new_session(monkeypatch: pytest.MonkeyPatch) -> None:
    async def play(site: RawSite) -> None:
        async with open_http(URL, retry=Backoff(also=(ConnectionLost,))) as client:
            with pytest.raises(ConnectionLost):
                await client.call_tool("x")
            assert (await client.call_tool("x", retry=True)).text == "done"

    assert run(monkeypatch, play, forgetful(2), "old").methods().count("initialize") == 3


def test_a_client_may_be_told_only(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    lost: list[int] = []

    async def play(site: RawSite) -> None:
        options = HttpClientOptions(reinitialize=False)
        async with open_http(URL, http=options, on_session_lost=lambda: lost.append(1)) as client:
            with pytest.raises(ConnectionLost):
                await client.call_tool("x")
            with pytest.raises(NoBackChannel):
                await client.call_tool("x")

    run(monkeypatch, play, forgetful(1), "old")
    assert lost == [1]


def test_a_server_that_will_not_open_another_session_ends_the_client(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def handler(site: RawSite, request: RawRequest, wire: Wire) -> None:
        if request.rpc_method == "tools/call":
            await wire.send(b"HTTP/1.1 404 Gone\r\nContent-Length: 0\r\n\r\n")
        elif request.rpc_method == "initialize" and len(site.requests) > 1:
            await trio.sleep(1)
            await wire.send(b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n")
        else:
            await site.answer(request, wire)

    async def play(site: RawSite) -> None:
        async with open_http(URL) as client:
            with pytest.raises(ConnectionLost):
                await client.call_tool("x")
            with pytest.raises(NoBackChannel):
                await client.call_tool("x")

    run(monkeypatch, play, handler, "old")
    assert "cannot be opened anew" in caplog.text


def test_what_the_callback_does_and_what_the_server_refuses_is_reported(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    forget = forgetful(1)

    async def handler(site: RawSite, request: RawRequest, wire: Wire) -> None:
        if request.rpc_method == "resources/subscribe" and request.headers["mcp-session-id"] != "old":
            error = {"jsonrpc": "2.0", "id": request.json["id"], "error": {"code": -5, "message": "no more"}}
            await wire.send(json_response(error))
        else:
            await forget(site, request, wire)

    def fail() -> None:
        raise ZeroDivisionError

    async def play(site: RawSite) -> None:
        async with open_http(URL, on_session_lost=fail) as client:
            await client.request(SubscribeRequest("a://b"))
            await client.request(UnsubscribeRequest("never"))
            with pytest.raises(ConnectionLost):
                await client.call_tool("x")
            await client.ping()
            await trio.sleep(1)

    run(monkeypatch, play, handler, "old")
    assert "the callback for a lost session failed" in caplog.text
    assert "what it was asked for" in caplog.text


# What goes wrong without anybody waiting


def test_messages_that_the_server_does_not_take_are_reported(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
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
        run(monkeypatch, play, handler)
    assert "the server did not take a message" in caplog.text
    assert "what belongs to no request is not heard any more" in caplog.text


def test_a_close_that_makes_no_sense_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    async def play(site: RawSite) -> None:
        async with open_http(URL) as client:
            with pytest.raises(LocalProtocolError):
                client.close(-1)
            await client.ping()

    run(monkeypatch, play)
