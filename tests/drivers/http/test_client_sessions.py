"""``open_http`` with servers that forget the session (SESS-06)."""

from __future__ import annotations

from typing import Any

import pytest
from rawsite import RawRequest, ServeSite, Site, Wire, json_response

from mcpio.backoff import Backoff
from mcpio.errors import (
    ConnectionLost,
    NoBackChannel,
)
from mcpio.http.client import HttpClientOptions
from mcpio.types import SubscribeRequest, UnsubscribeRequest

URL = "http://example.com/mcp"


# Sessions that the server forgets (SESS-06)


def forgetful(times: int) -> Any:
    """Return a handler that does not know the session of the first calls of a tool."""
    left = [times]

    async def handler(site: Site, request: RawRequest, wire: Wire) -> None:
        if request.rpc_method == "tools/call" and left[0]:
            left[0] -= 1
            site.session = f"s-{left[0]}"
            await wire.send(b"HTTP/1.1 404 Gone\r\nContent-Length: 0\r\n\r\n")
        elif request.rpc_method == "initialize" and "mcp-session-id" not in request.headers and len(site.requests) > 1:
            await site.sleep(5)
            await site.answer(request, wire)
        else:
            await site.answer(request, wire)

    return handler


@pytest.mark.req("SESS-06")
def test_lost_session_is_reopened_in_the_same_client(serve_site: ServeSite, caplog: pytest.LogCaptureFixture) -> None:
    lost: list[float] = []

    async def play(site: Site) -> None:
        async with site.open_http(URL, on_session_lost=lambda: lost.append(site.now()), era="handshake") as client:
            await client.subscribe_resource("a://b")
            await client.subscribe_resource("c://d")
            await client.unsubscribe_resource("c://d")
            await client.set_log_level("error")
            await client.tool("x")
            began = site.now()
            # It waits for the new session: the server has refused it, so it has not run.
            assert (await client.call_tool("x")).text == "done"
            assert site.now() - began == pytest.approx(5)
            await client.tool("x")
            assert client.server.info.name == "s"

    site = serve_site(play, forgetful(1), "old")
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
def test_call_that_meets_an_unknown_session_is_sent_once_more(serve_site: ServeSite) -> None:
    async def play(site: Site) -> None:
        async with site.open_http(URL, era="handshake") as client:
            with pytest.raises(ConnectionLost) as caught:
                await client.call_tool("x")
            assert caught.value.unprocessed

    assert serve_site(play, forgetful(2), "old").methods().count("tools/call") == 2


@pytest.mark.req("SESS-06")
def test_calls_that_may_have_run_are_not_sent_again(serve_site: ServeSite) -> None:
    outcomes: list[Any] = []

    async def handler(site: Site, request: RawRequest, wire: Wire) -> None:
        if request.rpc_method != "tools/call" or request.headers["mcp-session-id"] != "old":
            await site.answer(request, wire)
        elif site.methods().count("tools/call") == 2:
            site.session = "new"
            await wire.send(b"HTTP/1.1 404 Gone\r\nContent-Length: 0\r\n\r\n")
        else:
            await site.forever()

    async def play(site: Site) -> None:
        async with site.open_http(URL, era="handshake") as client:

            async def call() -> None:
                try:
                    outcomes.append((await client.call_tool("x")).text)
                except ConnectionLost as error:
                    outcomes.append(error.unprocessed)

            async with site.tasks() as tasks:
                tasks.spawn(call())
                await site.settle()
                tasks.spawn(call())

    assert serve_site(play, handler, "old").methods().count("tools/call") == 3
    assert sorted(outcomes, key=str) == [False, "done"]


@pytest.mark.req("SESS-06")
def test_safe_requests_are_repeated_in_the_new_session(serve_site: ServeSite) -> None:
    async def play(site: Site) -> None:
        async with site.open_http(URL, retry=Backoff(also=(ConnectionLost,))) as client:
            with pytest.raises(ConnectionLost):
                await client.call_tool("x")
            assert (await client.call_tool("x", retry=True)).text == "done"

    assert serve_site(play, forgetful(2), "old").methods().count("initialize") == 3


def test_unreopened_session_is_only_reported(serve_site: ServeSite, caplog: pytest.LogCaptureFixture) -> None:
    lost: list[int] = []

    async def play(site: Site) -> None:
        options = HttpClientOptions(reinitialize=False)
        async with site.open_http(URL, http=options, on_session_lost=lambda: lost.append(1)) as client:
            with pytest.raises(ConnectionLost):
                await client.call_tool("x")
            with pytest.raises(NoBackChannel):
                await client.call_tool("x")

    serve_site(play, forgetful(1), "old")
    assert lost == [1]


def test_refused_new_session_ends_the_client(serve_site: ServeSite, caplog: pytest.LogCaptureFixture) -> None:
    async def handler(site: Site, request: RawRequest, wire: Wire) -> None:
        if request.rpc_method == "tools/call":
            await wire.send(b"HTTP/1.1 404 Gone\r\nContent-Length: 0\r\n\r\n")
        elif request.rpc_method == "initialize" and len(site.requests) > 1:
            await site.sleep(1)
            await wire.send(b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n")
        else:
            await site.answer(request, wire)

    async def play(site: Site) -> None:
        async with site.open_http(URL, era="handshake") as client:
            for _ in range(2):
                with pytest.raises(NoBackChannel):
                    await client.call_tool("x")

    serve_site(play, handler, "old")
    assert "cannot be opened anew" in caplog.text


def test_failing_callback_and_refused_session_are_reported(
    serve_site: ServeSite, caplog: pytest.LogCaptureFixture
) -> None:
    forget = forgetful(1)

    async def handler(site: Site, request: RawRequest, wire: Wire) -> None:
        if request.rpc_method == "resources/subscribe" and request.headers["mcp-session-id"] != "old":
            error = {"jsonrpc": "2.0", "id": request.json["id"], "error": {"code": -5, "message": "no more"}}
            await wire.send(json_response(error))
        else:
            await forget(site, request, wire)

    def fail() -> None:
        raise ZeroDivisionError

    async def play(site: Site) -> None:
        async with site.open_http(URL, on_session_lost=fail) as client:
            await client.request(SubscribeRequest("a://b"))
            await client.request(UnsubscribeRequest("never"))
            await client.call_tool("x")
            await client.ping()
            await site.sleep(1)

    serve_site(play, handler, "old")
    assert "the callback for a lost session failed" in caplog.text
    assert "what it was asked for" in caplog.text
