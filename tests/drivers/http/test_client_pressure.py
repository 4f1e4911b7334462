"""``open_http`` with servers that send more than they read."""

from __future__ import annotations

import json

import pytest
from rawsite import RawRequest, ServeSite, Site, Wire, result_of

from mcpio import Client, Limits, Options, RequestTimeout
from mcpio._drivers import http_client as pool

URL = "http://example.com/mcp"
PING = b'data: {"jsonrpc":"2.0","id":1,"method":"ping"}\n\n'
PINGS = 300


class Flooding:
    """Sends pings on the stream of each call, and then the result; takes the answers when it may."""

    def __init__(self) -> None:
        self.takes = False

    async def __call__(self, site: Site, request: RawRequest, wire: Wire) -> None:
        if request.rpc_method == "tools/call":
            await wire.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n")
            for _ in range(PINGS // 50):
                await wire.send(PING * 50)
            await wire.send(b"data: %b\n\n" % json.dumps(result_of(request, {"content": []})).encode())
            await wire.close()
            return
        if request.body and "method" not in request.json:
            while not self.takes:
                await site.sleep(1)
        await site.answer(request, wire)


def _heard(client: Client) -> int:
    return client.connection.stats.received_bytes


@pytest.mark.long
def test_paused_stream_resumes_when_answers_are_taken(serve_site: ServeSite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "RECEIVE_SIZE", 1000)
    flooding = Flooding()

    async def play(site: Site) -> None:
        options = Options(limits=Limits(high_water=20_000))
        async with site.open_http(URL, options=options) as client:
            before = _heard(client)
            with pytest.raises(RequestTimeout):
                await client.call_tool("x", timeout=5)
            assert 0 < _heard(client) - before < PINGS * 20
            # It costs nothing else.
            await client.ping()
            flooding.takes = True
            before = _heard(client)
            await client.call_tool("x")
            assert _heard(client) - before > PINGS * 40

    serve_site(play, flooding)
