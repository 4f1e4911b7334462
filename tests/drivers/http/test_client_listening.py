"""``Client.listen`` over HTTP in a session, when the stream for messages outside of requests is given up."""

from __future__ import annotations

from typing import Any

import pytest
from rawsite import RawRequest, ServeSite, Site, Wire, json_response, result_of

from mcpio.app.listening import Missed
from mcpio.errors import ConnectFailed, McpError
from mcpio.http.client import HttpClientOptions
from mcpio.types import ToolListChangedNotification

URL = "http://example.com/mcp"
QUICK = HttpClientOptions(reconnect_after=1.0, reconnect_tries=2)
STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
CHANGED = b'data: {"jsonrpc":"2.0","method":"notifications/tools/list_changed"}\n\n'
INFO = {
    "protocolVersion": "2025-11-25",
    "capabilities": {"tools": {"listChanged": True}},
    "serverInfo": {"name": "s", "version": "1"},
}


class Outage:
    """A server with a listening stream, that can be gone for a while."""

    def __init__(self) -> None:
        self.streams: list[Wire] = []
        self.listening = STREAM
        """The answer to a GET."""

    async def __call__(self, site: Site, request: RawRequest, wire: Wire) -> None:
        if "mcp-session-id" in request.headers and request.headers["mcp-session-id"] != site.session:
            await wire.send(b"HTTP/1.1 404 Gone\r\nContent-Length: 0\r\n\r\n")
        elif request.method == "GET":
            await wire.send(self.listening)
            if self.listening is STREAM:
                self.streams.append(wire)
                await site.forever()
        elif request.rpc_method == "initialize":
            await wire.send(json_response(result_of(request, INFO), f"Mcp-Session-Id: {site.session}"))
        else:
            await site.answer(request, wire)

    async def begin(self, site: Site) -> None:
        await site.settle()

        async def refuse(host: str, port: int) -> Any:
            raise ConnectionRefusedError("no server listens")

        site.dial = refuse
        for wire in site.wires:
            await wire.close()
        await site.settle()

    def end(self, site: Site) -> None:
        site.dial = site.open


@pytest.fixture
def outage() -> Outage:
    return Outage()


async def ends_within(site: Site, seconds: float, changes: Any) -> list[Any]:
    """Return the changes up to the end of an iteration, which has to come in time."""
    seen: list[Any] = []
    with site.scope(seconds):
        seen.extend([change async for change in changes])
        return seen
    raise AssertionError("the iteration still waits")


async def next_within(site: Site, seconds: float, changes: Any) -> Any:
    with site.scope(seconds):
        return await anext(changes)
    raise AssertionError("the iteration still waits")


def test_iterations_end_as_lost_when_the_server_is_gone(
    serve_site: ServeSite, outage: Outage, caplog: pytest.LogCaptureFixture
) -> None:
    async def play(site: Site) -> None:
        async with site.open_http(URL, era="handshake", http=QUICK) as client:
            async with client.listen(tools=True) as changes, client.listen(prompts=True, tools=True) as others:
                await site.settle()
                await outage.streams[0].send(CHANGED)
                assert isinstance(await anext(changes), ToolListChangedNotification)
                await outage.begin(site)
                assert await ends_within(site, 10, changes) == []
                assert [type(each) for each in await ends_within(site, 1, others)] == [ToolListChangedNotification]
                assert (changes.ended, others.ended) == ("lost", "lost")
            for _ in range(2):
                with pytest.raises(ConnectFailed):
                    await client.listen(tools=True).__aenter__()
            outage.end(site)
            async with client.listen(tools=True) as again:
                # The stream is open before the block begins: this change cannot be missed.
                await outage.streams[-1].send(CHANGED)
                assert isinstance(await next_within(site, 1, again), ToolListChangedNotification)
            assert len(outage.streams) == 2

    serve_site(play, outage, "s")
    assert "messages outside of requests are no longer received" in caplog.text


def test_iteration_goes_on_when_the_server_is_back_before_the_last_attempt(
    serve_site: ServeSite, outage: Outage
) -> None:
    async def play(site: Site) -> None:
        async with site.open_http(URL, era="handshake", http=QUICK) as client, client.listen(tools=True) as changes:
            await outage.begin(site)
            await site.sleep(1.5)
            outage.end(site)
            await site.sleep(5)
            await outage.streams[-1].send(CHANGED)
            assert isinstance(await next_within(site, 1, changes), ToolListChangedNotification)
            assert changes.ended is None

    serve_site(play, outage, "s")


@pytest.mark.parametrize("forgets", [False, True])
def test_kept_iteration_reports_missed_changes_when_the_server_is_back(
    serve_site: ServeSite, outage: Outage, forgets: bool
) -> None:
    async def play(site: Site) -> None:
        async with (
            site.open_http(URL, era="handshake", http=QUICK) as client,
            client.listen(tools=True, keep=True) as changes,
            client.listen(tools=True, keep=True) as others,
        ):
            await outage.begin(site)
            await site.sleep(100)
            if forgets:
                site.session = "t"
            outage.end(site)
            assert await next_within(site, 60, changes) == Missed()
            assert await next_within(site, 60, others) == Missed()
            await outage.streams[-1].send(CHANGED)
            assert isinstance(await next_within(site, 1, changes), ToolListChangedNotification)
            assert isinstance(await next_within(site, 1, others), ToolListChangedNotification)

    site = serve_site(play, outage, "s")
    assert site.methods().count("initialize") == 1 + forgets
    assert len(outage.streams) == 2


def test_new_iteration_in_a_forgotten_session_opens_the_next_one(serve_site: ServeSite, outage: Outage) -> None:
    async def play(site: Site) -> None:
        async with site.open_http(URL, era="handshake", http=QUICK) as client:
            await client.ping()
            await outage.begin(site)
            await site.sleep(10)
            site.session = "t"
            outage.end(site)
            async with client.listen(tools=True) as changes:
                await site.settle()
                await outage.streams[-1].send(CHANGED)
                assert isinstance(await next_within(site, 1, changes), ToolListChangedNotification)

    serve_site(play, outage, "s")


def test_stream_that_was_never_open_is_lost_with_its_server(serve_site: ServeSite, outage: Outage) -> None:
    async def slow(site: Site, request: RawRequest, wire: Wire) -> None:
        if request.method == "GET":
            await site.forever()
        await outage(site, request, wire)

    async def play(site: Site) -> None:
        async with site.open_http(URL, era="handshake", http=QUICK) as client, client.listen(tools=True) as changes:
            await outage.begin(site)
            assert await ends_within(site, 10, changes) == []
            assert changes.ended == "lost"

    serve_site(play, slow, "s")


@pytest.mark.parametrize("status", [b"405 No", b"500 Oh"])
def test_server_that_offers_no_stream_any_more_is_listened_to_without_one(
    serve_site: ServeSite, outage: Outage, status: bytes
) -> None:
    async def play(site: Site) -> None:
        async with site.open_http(URL, era="handshake", http=QUICK) as client:
            await client.ping()
            await outage.begin(site)
            await site.sleep(10)
            outage.listening = b"HTTP/1.1 " + status + b"\r\nContent-Length: 0\r\n\r\n"
            outage.end(site)
            if status.startswith(b"5"):  # which may pass, so it is tried again, and then given up
                with pytest.raises(McpError, match="not received any more"):
                    await client.listen(tools=True).__aenter__()
                return
            async with client.listen(tools=True) as changes:
                with site.scope(100) as scope:
                    await anext(changes)
                assert scope.cancelled_caught
                assert changes.ended is None

    serve_site(play, outage, "s")


def test_cancelled_entry_leaves_nothing_behind(serve_site: ServeSite, outage: Outage) -> None:
    async def play(site: Site) -> None:
        async with site.open_http(URL, era="handshake", http=QUICK) as client:
            await client.ping()
            await outage.begin(site)
            await site.sleep(10)
            outage.end(site)
            outage.listening = b""  # the stream is tried, and not answered
            for _ in range(2):
                with site.scope(0.5) as scope:
                    await client.listen(tools=True).__aenter__()
                assert scope.cancelled_caught
            await client.ping()
            assert site.methods().count("GET") == 2  # one is enough for all who wait

    serve_site(play, outage, "s")
