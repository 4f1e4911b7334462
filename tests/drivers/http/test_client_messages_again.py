"""``open_http``: an answer to the server whose request breaks off is sent again."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from rawsite import PLAIN, RawRequest, ServeSite, Site, Wire, result_of

from mcpio.errors import ConnectionLost

URL = "http://example.com/mcp"


class Asking:
    """A server that asks during a call, and answers the call when its question is answered."""

    def __init__(self, *replies: bytes | None, refuse: int = 0) -> None:
        self.replies = [*replies]
        """The bytes that it sends in reply to the first answers before it closes the connection; ``None`` for none."""
        self.refuse = refuse
        """How many connections are refused after the first answer."""
        self.tries: list[tuple[float, bytes]] = []
        self._calls: list[tuple[RawRequest, Wire]] = []

    async def __call__(self, site: Site, request: RawRequest, wire: Wire) -> None:
        if request.rpc_method == "tools/call":
            self._calls.append((request, wire))
            await wire.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
            await wire.send(b'data: {"jsonrpc":"2.0","id":7,"method":"roots/list"}\n\n')
        elif request.body and "method" not in request.json:
            await self._take(site, request, wire)
        else:
            await site.answer(request, wire)

    async def _take(self, site: Site, request: RawRequest, wire: Wire) -> None:
        self.tries.append((site.now(), request.body))
        if not self.replies:
            await site.answer(request, wire)
            ((call, waiting),) = self._calls
            await waiting.send(b"data: " + json.dumps(result_of(call, PLAIN)).encode() + b"\n\n")
        elif (reply := self.replies.pop(0)) is None:
            await site.forever()
        else:
            if self.refuse:
                site.dial = lambda *_: self._refuse(site)
            if reply:
                await wire.send(reply)
            await wire.close()

    async def _refuse(self, site: Site) -> Any:
        self.refuse -= 1
        if not self.refuse:
            site.dial = site.open
        raise ConnectionRefusedError("refused")


@pytest.mark.parametrize(
    "replies",
    [
        (b"",),
        (b"HTTP/1.1 20",),
        (b"HTTP/1.1 202 Accepted\r\nContent-",),
        (b"HTTP/1.1 503 Later\r\nContent-Length: 0\r\n\r\n",),
        (b"SSH-2.0-OpenSSH_9.2\r\n\r\n",),
        (b"", b"HTTP/1.1 20", b""),
    ],
)
def test_answer_that_breaks_off_is_sent_again(
    replies: tuple[bytes, ...], serve_site: ServeSite, caplog: pytest.LogCaptureFixture
) -> None:
    asking = Asking(*replies)

    async def play(site: Site) -> None:
        async with site.open_http(URL, roots=()) as client:
            assert (await client.call_tool("x")).text == "done"

    with caplog.at_level(logging.ERROR, "mcpio"):
        serve_site(play, asking, "s")
    assert len({body for _, body in asking.tries}) == 1
    assert len(asking.tries) <= len(replies) + 1
    assert caplog.text == ""


def test_answer_is_sent_to_a_server_that_comes_back(serve_site: ServeSite) -> None:
    asking = Asking(b"", refuse=3)

    async def play(site: Site) -> None:
        async with site.open_http(URL, roots=()) as client:
            assert (await client.call_tool("x")).text == "done"

    serve_site(play, asking, "s")
    (first, body), (second, again) = asking.tries
    assert body == again
    assert second - first == pytest.approx(1 + 2 + 4 + 8)


def test_answer_of_a_lost_session_fails_the_call_and_is_not_repeated(serve_site: ServeSite) -> None:
    asking = Asking(b"", b"HTTP/1.1 404 Gone\r\nContent-Length: 0\r\n\r\n")

    async def play(site: Site) -> None:
        async with site.open_http(URL, roots=()) as client:
            with pytest.raises(ConnectionLost):
                await client.call_tool("x")
            await site.sleep(100)

    serve_site(play, asking, "s")
    assert len(asking.tries) == 2


@pytest.mark.parametrize("second", [b"", None])
@pytest.mark.parametrize("wait", [0.5, 1.5])
def test_block_ends_while_an_answer_is_sent_again(wait: float, second: bytes | None, serve_site: ServeSite) -> None:
    # The driver repeats an answer at once where its connection was used before.
    asking = Asking(b"HTTP/1.1 20", second, b"", b"", None)

    async def play(site: Site) -> None:
        began = site.now()
        with site.scope(wait):
            async with site.open_http(URL, roots=()) as client:
                await client.call_tool("x")
        assert wait <= site.now() - began <= wait + 0.6

    serve_site(play, asking, "s")


def test_closing_client_sends_an_answer_once_more(serve_site: ServeSite) -> None:
    asking = Asking(b"HTTP/1.1 20", b"HTTP/1.1 20")

    async def play(site: Site) -> None:
        async with site.open_http(URL, roots=()) as client, site.tasks() as tasks:

            async def call() -> None:
                with pytest.raises(ConnectionLost):
                    await client.call_tool("x")

            tasks.spawn(call())
            await site.sleep(0.5)
            client.close(0)

    site = serve_site(play, asking, "s")
    assert len(asking.tries) == 2
    assert site.methods()[-1] == "DELETE"
