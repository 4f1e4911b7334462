"""The connections of HTTP clients: over sockets, with TLS, and through proxies."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

import pytest
import trio
from certificates import serving_as, trusting
from eachloop import EachLoop, Here
from rawsite import RawRequest, RawSite, ServeSite, Site, Wire
from trio_thread import TrioThread

from mcpio._drivers.http_client import HttpClientTimeouts, HttpPool
from mcpio.errors import ConnectFailed, ConnectionLost, LocalProtocolError
from mcpio.http.client import Location
from mcpio.http.model import End, RequestHead, Reset, ResponseItem

# The servers are Trio's, in a thread.


@asynccontextmanager
async def serving(serve: Callable[[Any], Any]) -> AsyncIterator[int]:
    """Serve connections for a block; give the port."""

    async def forgiving(stream: trio.SocketStream) -> None:
        # The server's end of a handshake that failed is none of ours.
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError, ssl.SSLError):
            await serve(stream)

    async with trio.open_nursery() as nursery:
        (listener,) = await nursery.start(partial(trio.serve_tcp, forgiving, 0, host="127.0.0.1"))
        yield listener.socket.getsockname()[1]
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def serving_site(
    context: ssl.SSLContext | None = None, session: str | None = None
) -> AsyncIterator[tuple[RawSite, int]]:
    """Serve a site; give that, and the port."""
    async with trio.open_nursery() as nursery:
        site = RawSite(nursery, session=session)

        async def serve(stream: Any) -> None:
            await site.serve(stream if context is None else over_tls(stream, context))

        async with serving(serve) as port:
            yield site, port
        nursery.cancel_scope.cancel()


def over_tls(stream: Any, context: ssl.SSLContext) -> Any:
    return trio.SSLStream(stream, context, server_side=True, https_compatible=True)


# TLS


def test_https_with_trusted_certificate_connects(each_loop: EachLoop) -> None:
    with TrioThread(partial(serving_site, serving_as("localhost"), "s")) as (site, port):

        async def main(here: Here) -> None:
            async with here.open_http(f"https://localhost:{port}/mcp", ssl_context=trusting()) as client:
                for _ in range(3):
                    assert (await client.call_tool("x")).text == "done"

        each_loop.run(main)
        assert len(site.wires) == 1
        assert site.methods()[-1] == "DELETE"


@pytest.mark.parametrize(
    ("trusts", "name", "said"),
    [
        (False, "localhost", "certificate verify failed"),
        (True, "example.com", "[Hh]ostname mismatch"),
    ],
)
def test_https_with_untrusted_certificate_fails(each_loop: EachLoop, trusts: bool, name: str, said: str) -> None:
    with TrioThread(partial(serving_site, serving_as(name))) as (site, port):

        async def main(here: Here) -> None:
            context = trusting() if trusts else None
            with pytest.raises(ConnectFailed, match=f"cannot connect to localhost:{port}: .*{said}") as caught:
                async with here.open_http(f"https://localhost:{port}/mcp", ssl_context=context):
                    pass
            assert isinstance(caught.value.__cause__, ConnectFailed)

        each_loop.run(main)
        assert site.requests == []


def test_https_to_a_plain_http_server_fails(each_loop: EachLoop) -> None:
    async def hang_up(stream: trio.SocketStream) -> None:
        await stream.receive_some()
        await stream.send_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with TrioThread(partial(serving, hang_up)) as port:

        async def main(here: Here) -> None:
            with pytest.raises(ConnectFailed, match="cannot connect"):
                async with here.open_http(f"https://127.0.0.1:{port}/mcp"):
                    pass

        each_loop.run(main)


def test_ssl_context_is_ignored_for_plain_http(each_loop: EachLoop) -> None:
    with TrioThread(serving_site) as (_, port):

        async def main(here: Here) -> None:
            context = ssl.create_default_context()
            async with here.open_http(f"http://127.0.0.1:{port}/", ssl_context=context) as client:
                await client.ping()

        each_loop.run(main)


# Proxies


class PlayedProxy:
    """A proxy that leads everything to one site, and what it was asked."""

    def __init__(self, answer: bytes, context: ssl.SSLContext | None = None) -> None:
        self.heads: list[bytes] = []
        self._answer = answer
        self._context = context

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[tuple[RawSite, int]]:
        """Serve connections; give the site behind, and the port."""
        async with trio.open_nursery() as nursery:
            site = RawSite(nursery)

            async def serve(stream: trio.SocketStream) -> None:
                head = b""
                while not head.endswith(b"\r\n\r\n"):
                    head += await stream.receive_some(1)
                self.heads.append(head)
                await stream.send_all(self._answer)
                if b" 200 " in self._answer and self._context is not None:
                    await site.serve(over_tls(stream, self._context))

            async with serving(serve) as port:
                yield site, port
            nursery.cancel_scope.cancel()


def test_https_through_a_proxy_uses_a_tunnel(each_loop: EachLoop) -> None:
    answer = b"HTTP/1.1 103 Early\r\n\r\nHTTP/1.1 200 Connected\r\n\r\n"
    proxy = PlayedProxy(answer, serving_as("far.example"))
    with TrioThread(proxy.serving) as (site, port):

        async def main(here: Here) -> None:
            options: Any = {"proxy": f"http://u%40x:p@127.0.0.1:{port}", "ssl_context": trusting()}
            async with here.open_http("https://far.example/mcp", **options) as client:
                assert (await client.call_tool("x")).text == "done"

        each_loop.run(main)
    (head,) = proxy.heads
    first, *lines = head.decode().split("\r\n")
    assert first == "CONNECT far.example:443 HTTP/1.1"
    assert [line for line in lines if line] == ["host: far.example:443", "proxy-authorization: Basic dUB4OnA="]
    assert all(request.target == "/mcp" for request in site.requests)
    assert all("proxy-authorization" not in request.headers for request in site.requests)


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
def test_refusing_proxy_is_connect_failed(each_loop: EachLoop, answer: bytes, said: str) -> None:
    with TrioThread(PlayedProxy(answer).serving) as (_, port):

        async def main(here: Here) -> None:
            with pytest.raises(ConnectFailed, match=said):
                async with here.open_http("https://[2001:db8::1]/mcp", proxy=f"127.0.0.1:{port}"):
                    pass

        each_loop.run(main)


def test_http_through_a_proxy_sends_absolute_urls(each_loop: EachLoop) -> None:
    with TrioThread(serving_site) as (site, port):

        async def main(here: Here) -> None:
            proxy = f"http://u:p@127.0.0.1:{port}"
            async with here.open_http("http://far.example:8000/mcp?x=1", proxy=proxy) as client:
                await client.ping()

        each_loop.run(main)
        for request in site.requests:
            assert request.target == "http://far.example:8000/mcp?x=1"
            assert request.headers["host"] == "far.example:8000"
            assert request.headers["proxy-authorization"] == "Basic dTpw"


@pytest.mark.parametrize(("trust", "goes"), [(True, True), (False, False)])
def test_environment_proxy_is_used_only_with_trust_env(
    each_loop: EachLoop, monkeypatch: pytest.MonkeyPatch, trust: bool, goes: bool
) -> None:
    with TrioThread(serving_site) as (proxy, proxy_port), TrioThread(serving_site) as (direct, port):
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{proxy_port}")
        monkeypatch.delenv("no_proxy", raising=False)

        async def main(here: Here) -> None:
            async with here.open_http(f"http://127.0.0.1:{port}/", trust_env=trust) as client:
                await client.ping()

        each_loop.run(main)
        assert bool(proxy.requests) is goes
        assert bool(direct.requests) is not goes


# Connections that end


def test_stale_socket_connection_is_detected_before_use(each_loop: EachLoop) -> None:
    with TrioThread(serving_site) as (site, port):

        async def handler(request: RawRequest, wire: Wire) -> None:
            await site.answer(request, wire)
            if request.rpc_method == "tools/call":
                await wire.close()

        async def main(here: Here) -> None:
            site.handler = handler
            async with here.open_http(f"http://127.0.0.1:{port}/") as client:
                for _ in range(3):
                    assert (await client.call_tool("x")).text == "done"
                    await here.sleep(0.02)  # the end is under way

        each_loop.run(main)
        assert len(site.wires) == 3


def test_end_of_server_is_connection_lost_for_waiting_callers(each_loop: EachLoop) -> None:
    with TrioThread(serving_site) as (site, port):

        async def handler(request: RawRequest, wire: Wire) -> None:
            if request.rpc_method == "tools/call":
                await wire.close()
            else:
                await site.answer(request, wire)

        async def main(here: Here) -> None:
            site.handler = handler
            async with here.open_http(f"http://127.0.0.1:{port}/") as client:
                with pytest.raises(ConnectionLost):
                    await client.call_tool("x")

        each_loop.run(main)


# The pool by itself


class Pooled:
    """A pool, and what came back."""

    def __init__(self, site: Site, url: str = "http://example.com/") -> None:
        self.items: list[ResponseItem] = []
        self.woken = site.event()
        self.pool = HttpPool(
            Location.parse(url),
            loop=site.loop,
            start=lambda task: site.start_soon(lambda: task),
            fail=lambda _: None,
            receive=self._receive,
            wants_read=lambda _: True,
            ssl_context=None,
            timeouts=HttpClientTimeouts(),
        )

    def _receive(self, items: Sequence[ResponseItem]) -> None:
        self.items += items
        if self.items:
            self.woken.set()

    def send(self, exchange: int, *headers: tuple[bytes, bytes], method: str = "GET") -> None:
        self.pool.send(RequestHead(exchange, method, "/", headers), b"")


@pytest.mark.parametrize("field", [(b"x", b"a\r\nb: c"), (b"a b", b"c"), (b"x\r\ny", b"z")])
def test_header_value_with_line_end_is_not_sent(serve_site: ServeSite, field: tuple[bytes, bytes]) -> None:
    async def play(site: Site) -> None:
        pooled = Pooled(site)
        pooled.send(1, field)
        await pooled.woken.wait()
        (reset,) = pooled.items
        assert isinstance(reset, Reset)
        assert isinstance(reset.cause, LocalProtocolError)
        assert site.requests == []

    serve_site(play)


def test_cancelled_exchange_closes_its_connection(serve_site: ServeSite) -> None:
    async def play(site: Site) -> None:
        async def never(*_: object) -> None:
            await site.forever()

        site.handler = never
        pooled = Pooled(site)
        pooled.send(1)
        await site.settle()
        pooled.pool.cancel(1)
        pooled.pool.cancel(1)
        pooled.pool.cancel(2)
        site.handler = site.answer
        await site.settle()
        pooled.send(3)
        await pooled.woken.wait()
        await site.settle()
        assert pooled.items[-1] == End(3)
        assert {item.exchange for item in pooled.items} == {3}
        assert len(site.opened) == 2

    serve_site(play)


def test_exchange_cancelled_while_connecting_leaves_nothing_behind(serve_site: ServeSite) -> None:
    async def play(site: Site) -> None:
        async def hang(*_: object) -> None:
            await site.forever()

        site.dial = hang
        pooled = Pooled(site)
        pooled.send(1)
        await site.settle()
        pooled.pool.cancel(1)
        await site.settle()
        assert pooled.items == []

    serve_site(play)
