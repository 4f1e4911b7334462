"""The connections of HTTP clients: over sockets, with TLS, and through proxies."""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest
import trio
import trio.testing
from certificates import serving_as, trusting
from rawsite import RawSite

from mcpio._drivers.http.pool import HttpClientTimeouts, HttpPool
from mcpio.errors import ConnectFailed, ConnectionLost, LocalProtocolError
from mcpio.http.location import Location
from mcpio.http.model import End, RequestHead, Reset, ResponseItem
from mcpio.trio import open_http
from mcpio.trio._event_loop import TrioEventLoop


async def listen(site: RawSite, nursery: trio.Nursery, context: ssl.SSLContext | None = None) -> int:
    """Serve a site on a socket; return the port."""

    async def serve(stream: trio.abc.Stream) -> None:
        if context is not None:
            stream = trio.SSLStream(stream, context, server_side=True, https_compatible=True)
        await site.serve(stream)

    open_listeners = partial(trio.serve_tcp, serve, 0, host="127.0.0.1")
    (listener,) = await nursery.start(open_listeners)
    port: int = listener.socket.getsockname()[1]
    return port


def run(play: Callable[[trio.Nursery], Awaitable[None]]) -> None:
    async def main() -> None:
        with trio.fail_after(10):
            async with trio.open_nursery() as nursery:
                await play(nursery)
                nursery.cancel_scope.cancel()

    trio.run(main)


# TLS


def test_https_with_trusted_certificate_connects() -> None:
    async def play(nursery: trio.Nursery) -> None:
        site = RawSite(nursery, session="s")
        port = await listen(site, nursery, serving_as("localhost"))
        async with open_http(f"https://localhost:{port}/mcp", ssl_context=trusting()) as client:
            for _ in range(3):
                assert (await client.call_tool("x")).text == "done"
        assert len(site.wires) == 1
        assert site.methods()[-1] == "DELETE"

    run(play)


@pytest.mark.parametrize(
    ("trusts", "name", "said"),
    [
        (False, "localhost", "certificate verify failed"),
        (True, "example.com", "[Hh]ostname mismatch"),
    ],
)
def test_https_with_untrusted_certificate_fails(trusts: bool, name: str, said: str) -> None:
    async def play(nursery: trio.Nursery) -> None:
        site = RawSite(nursery)
        port = await listen(site, nursery, serving_as(name))
        context = trusting() if trusts else None
        with pytest.raises(ConnectFailed, match=f"cannot connect to localhost:{port}: .*{said}") as caught:
            async with open_http(f"https://localhost:{port}/mcp", ssl_context=context):
                pass
        assert isinstance(caught.value.__cause__, ConnectFailed)
        assert site.requests == []

    async def forgiving(nursery: trio.Nursery) -> None:
        # The server's end of a handshake that failed is none of ours.
        try:
            await play(nursery)
        finally:
            nursery.cancel_scope.cancel()

    run(forgiving)


def test_https_to_a_plain_http_server_fails() -> None:
    async def play(nursery: trio.Nursery) -> None:
        async def hang_up(stream: trio.SocketStream) -> None:
            await stream.receive_some()
            await stream.send_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        (listener,) = await nursery.start(partial(trio.serve_tcp, hang_up, 0, host="127.0.0.1"))
        port = listener.socket.getsockname()[1]
        with pytest.raises(ConnectFailed, match="cannot connect"):
            async with open_http(f"https://127.0.0.1:{port}/mcp"):
                pass

    run(play)


def test_ssl_context_is_ignored_for_plain_http() -> None:
    async def play(nursery: trio.Nursery) -> None:
        port = await listen(RawSite(nursery), nursery)
        async with open_http(f"http://127.0.0.1:{port}/", ssl_context=ssl.create_default_context()) as client:
            await client.ping()

    run(play)


# Proxies


class PlayedProxy:
    """A proxy that leads everything to one site, and what it was asked."""

    def __init__(self, site: RawSite, answer: bytes = b"HTTP/1.1 200 Connected\r\n\r\n") -> None:
        self.heads: list[bytes] = []
        self._site = site
        self._answer = answer
        self.context: ssl.SSLContext | None = None

    async def serve(self, stream: trio.SocketStream) -> None:
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += await stream.receive_some(1)
        self.heads.append(head)
        await stream.send_all(self._answer)
        if b" 200 " in self._answer and self.context is not None:
            await self._site.serve(trio.SSLStream(stream, self.context, server_side=True, https_compatible=True))

    async def listen(self, nursery: trio.Nursery) -> int:
        (listener,) = await nursery.start(partial(trio.serve_tcp, self.serve, 0, host="127.0.0.1"))
        port: int = listener.socket.getsockname()[1]
        return port


def test_https_through_a_proxy_uses_a_tunnel() -> None:
    async def play(nursery: trio.Nursery) -> None:
        site = RawSite(nursery)
        proxy = PlayedProxy(site, b"HTTP/1.1 103 Early\r\n\r\nHTTP/1.1 200 Connected\r\n\r\n")
        proxy.context = serving_as("far.example")
        port = await proxy.listen(nursery)
        options: Any = {"proxy": f"http://u%40x:p@127.0.0.1:{port}", "ssl_context": trusting()}
        async with open_http("https://far.example/mcp", **options) as client:
            assert (await client.call_tool("x")).text == "done"
        (head,) = proxy.heads
        first, *lines = head.decode().split("\r\n")
        assert first == "CONNECT far.example:443 HTTP/1.1"
        assert [line for line in lines if line] == ["host: far.example:443", "proxy-authorization: Basic dUB4OnA="]
        assert all(request.target == "/mcp" for request in site.requests)
        assert all("proxy-authorization" not in request.headers for request in site.requests)

    run(play)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (
            b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n",
            "the proxy answered with status 407",
        ),
        (b"HTTP/1.1 ", "peer unexpectedly closed|the proxy closed|can't handle event"),
        (b"nonsense\r\n\r\n", "illegal status line"),
    ],
)
def test_refusing_proxy_is_connect_failed(answer: bytes, said: str) -> None:
    async def play(nursery: trio.Nursery) -> None:
        port = await PlayedProxy(RawSite(nursery), answer).listen(nursery)
        with pytest.raises(ConnectFailed, match=said):
            async with open_http("https://[2001:db8::1]/mcp", proxy=f"127.0.0.1:{port}"):
                pass

    run(play)


def test_http_through_a_proxy_sends_absolute_urls() -> None:
    async def play(nursery: trio.Nursery) -> None:
        site = RawSite(nursery)
        port = await listen(site, nursery)
        async with open_http("http://far.example:8000/mcp?x=1", proxy=f"http://u:p@127.0.0.1:{port}") as client:
            await client.ping()
        for request in site.requests:
            assert request.target == "http://far.example:8000/mcp?x=1"
            assert request.headers["host"] == "far.example:8000"
            assert request.headers["proxy-authorization"] == "Basic dTpw"

    run(play)


@pytest.mark.parametrize(("trust", "goes"), [(True, True), (False, False)])
def test_environment_proxy_is_used_only_with_trust_env(
    monkeypatch: pytest.MonkeyPatch, trust: bool, goes: bool
) -> None:
    async def play(nursery: trio.Nursery) -> None:
        proxy, direct = RawSite(nursery), RawSite(nursery)
        port = await listen(proxy, nursery)
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{port}")
        monkeypatch.delenv("no_proxy", raising=False)
        async with open_http(f"http://127.0.0.1:{await listen(direct, nursery)}/", trust_env=trust) as client:
            await client.ping()
        assert bool(proxy.requests) is goes
        assert bool(direct.requests) is not goes

    run(play)


# The pool by itself


class Pooled:
    """A pool, and what came back."""

    def __init__(self, nursery: trio.Nursery, url: str = "http://example.com/") -> None:
        self.items: list[ResponseItem] = []
        self.woken = trio.Event()
        self.pool = HttpPool(
            Location.parse(url),
            loop=TrioEventLoop(),
            start=nursery.start_soon,
            receive=self.items.append,
            on_input=lambda: self.woken.set() if self.items else None,
            wants_read=lambda _: True,
            ssl_context=None,
            timeouts=HttpClientTimeouts(),
        )

    def send(self, exchange: int, *headers: tuple[bytes, bytes], method: str = "GET") -> None:
        self.pool.add(RequestHead(exchange, method, "/", headers))
        self.pool.run(exchange)


@pytest.mark.parametrize("field", [(b"x", b"a\r\nb: c"), (b"a b", b"c"), (b"x\r\ny", b"z")])
def test_header_value_with_line_end_is_not_sent(monkeypatch: pytest.MonkeyPatch, field: tuple[bytes, bytes]) -> None:
    async def play(nursery: trio.Nursery) -> None:
        site = RawSite(nursery).install(monkeypatch)
        pooled = Pooled(nursery)
        pooled.send(1, field)
        await pooled.woken.wait()
        (reset,) = pooled.items
        assert isinstance(reset, Reset)
        assert isinstance(reset.cause, LocalProtocolError)
        assert site.requests == []

    run(play)


def test_cancelled_exchange_closes_its_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def play(nursery: trio.Nursery) -> None:
        site = RawSite(nursery).install(monkeypatch)

        async def never(*_: object) -> None:
            await trio.sleep_forever()

        site.handler = never
        pooled = Pooled(nursery)
        pooled.send(1)
        await trio.testing.wait_all_tasks_blocked()
        pooled.pool.cancel(1)
        pooled.pool.cancel(1)
        pooled.pool.cancel(2)
        site.handler = site.answer
        await trio.testing.wait_all_tasks_blocked()
        pooled.send(3)
        await pooled.woken.wait()
        assert pooled.items[-1] == End(3)
        assert {item.exchange for item in pooled.items} == {3}
        assert len(site.opened) == 2

    run(play)


def test_exchange_cancelled_while_connecting_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    async def hang(*_: object) -> None:
        await trio.sleep_forever()

    async def play(nursery: trio.Nursery) -> None:
        monkeypatch.setattr(trio, "open_tcp_stream", hang)
        pooled = Pooled(nursery)
        pooled.send(1)
        await trio.testing.wait_all_tasks_blocked()
        pooled.pool.cancel(1)
        await trio.testing.wait_all_tasks_blocked()
        assert pooled.items == []

    run(play)


def test_stale_socket_connection_is_detected_before_use() -> None:
    async def play(nursery: trio.Nursery) -> None:
        site = RawSite(nursery)
        port = await listen(site, nursery)
        async with open_http(f"http://127.0.0.1:{port}/") as client:
            for _ in range(3):
                for wire in site.wires:
                    await wire.close()
                await trio.testing.wait_all_tasks_blocked(0.01)
                assert (await client.call_tool("x")).text == "done"
        assert len(site.wires) == 4

    run(play)


def test_end_of_server_is_connection_lost_for_waiting_callers() -> None:
    async def play(nursery: trio.Nursery) -> None:
        site = RawSite(nursery)

        async def handler(request: Any, wire: Any) -> None:
            if request.rpc_method == "tools/call":
                await wire.close()
            else:
                await site.answer(request, wire)

        site.handler = handler
        port = await listen(site, nursery)
        async with open_http(f"http://127.0.0.1:{port}/") as client:
            with pytest.raises(ConnectionLost):
                await client.call_tool("x")

    run(play)
