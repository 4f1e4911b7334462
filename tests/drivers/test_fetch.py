"""Fetches over real sockets: what they send, what bounds them, and which addresses they reach."""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest
import trio
from certificates import serving_as, trusting
from rawsite import RawRequest, RawSite, Wire
from runners import run_by

from mcpio._drivers.fetch import fetch as fetch_on
from mcpio.auth import EffectFailed, Fetch, Reach, Response
from mcpio.trio._event_loop import TrioEventLoop


async def fetch(effect: Fetch, **options: Any) -> Response:
    return await fetch_on(effect, TrioEventLoop(), **options)


Play = Callable[[RawSite, str], Awaitable[None]]


def served(
    play: Play, *answers: bytes, context: ssl.SSLContext | None = None, name: str = "127.0.0.1"
) -> list[RawRequest]:
    """Run a test against a server that gives these answers, one to each request, and then closes."""
    sites: list[RawSite] = []

    async def main() -> None:
        with trio.fail_after(10):
            async with trio.open_nursery() as nursery:
                rest = list(answers)

                async def answer(request: RawRequest, wire: Wire) -> None:
                    await wire.send(rest.pop(0))
                    if not rest or b"ontent-length" not in answers[0].lower():
                        await wire.close()

                site = RawSite(nursery, answer)
                sites.append(site)

                async def serve(stream: trio.abc.Stream) -> None:
                    if context is not None:
                        stream = trio.SSLStream(stream, context, server_side=True, https_compatible=True)
                    await site.serve(stream)

                (listener,) = await nursery.start(partial(trio.serve_tcp, serve, 0, host="127.0.0.1"))
                scheme = "http" if context is None else "https"
                await play(site, f"{scheme}://{name}:{listener.socket.getsockname()[1]}")
                nursery.cancel_scope.cancel()

    trio.run(main)
    return sites[0].requests


def reply(body: bytes = b"{}", *headers: bytes, status: bytes = b"200 OK") -> bytes:
    lines = [b"HTTP/1.1 " + status, b"Content-Length: %d" % len(body), *headers, b"", body]
    return b"\r\n".join(lines)


def get(url: str, **more: Any) -> Fetch:
    return Fetch(method="GET", url=url, **{"reach": Reach.LOOPBACK, **more})


def test_get_returns_status_headers_and_body() -> None:
    async def play(site: RawSite, base: str) -> None:
        found = await fetch(get(f"{base}/a?b=c", headers=(("accept", "x/y"),)))
        assert (found.status, found.body) == (404, b"none")
        assert ("x-y", "Z") in found.headers

    (request,) = served(play, reply(b"none", b"X-Y: Z", status=b"404 No"))
    assert (request.method, request.target, request.headers["accept"]) == ("GET", "/a?b=c", "x/y")
    assert request.headers["accept-encoding"] == "identity"


@pytest.mark.parametrize("body", [b"grant_type=x", b""])
def test_post_sends_its_body(body: bytes) -> None:
    async def play(site: RawSite, base: str) -> None:
        effect = Fetch(method="POST", url=f"{base}/token", body=body, reach=Reach.LOOPBACK)
        assert (await fetch(effect)).body == b"{}"

    (request,) = served(play, b"HTTP/1.1 100 Continue\r\n\r\n" + reply())
    assert (request.method, request.body) == ("POST", body)


def test_https_verifies_the_certificate() -> None:
    async def play(site: RawSite, base: str) -> None:
        assert (await fetch(get(base), ssl_context=trusting())).status == 200
        with pytest.raises(EffectFailed, match="certificate verify failed"):
            await fetch(get(base))

    served(play, reply(), context=serving_as("localhost"), name="localhost")


@pytest.mark.req("SEC-03")
def test_redirects_within_the_origin_are_followed_up_to_the_limit() -> None:
    async def play(site: RawSite, base: str) -> None:
        assert (await fetch(get(f"{base}/a", redirects=1))).body == b"here"
        assert (await fetch(get(f"{base}/a", redirects=1))).status == 302

    moved = reply(b"", b"Location: /b", status=b"302 Moved")
    requests = served(play, moved, reply(b"here"), moved, moved, reply())
    assert [request.target for request in requests] == ["/a", "/b", "/a", "/b"]


@pytest.mark.req("SEC-03")
@pytest.mark.parametrize("location", [b"http://evil.example.com/b", b"http://[", b"file:///etc/passwd"])
def test_redirect_to_another_origin_is_not_followed(location: bytes) -> None:
    async def play(site: RawSite, base: str) -> None:
        assert (await fetch(get(base, redirects=3))).status == 302

    assert len(served(play, reply(b"", b"Location: " + location, status=b"302 Moved"))) == 1


def test_post_follows_no_redirect() -> None:
    async def play(site: RawSite, base: str) -> None:
        assert (await fetch(Fetch(method="POST", url=base, redirects=3, reach=Reach.LOOPBACK))).status == 307

    assert len(served(play, reply(b"", b"Location: /b", status=b"307 Moved"))) == 1


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (reply(b"x" * 101), "longer than 100 bytes"),
        (b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 101, "longer than 100 bytes"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nx", "no answer from http://127.0.0.1"),
        (b"nonsense\r\n\r\n", "no answer from http://127.0.0.1"),
        (b"", "no answer from http://127.0.0.1"),
    ],
)
def test_unusable_response_fails_the_effect(answer: bytes, message: str) -> None:
    async def play(site: RawSite, base: str) -> None:
        with pytest.raises(EffectFailed, match=message) as caught:
            await fetch(get(f"{base}/?code=secret", max_bytes=100))
        assert "secret" not in str(caught.value)

    served(play, answer)


@run_by(trio.run)
async def test_server_that_never_answers_fails_the_effect() -> None:
    async with trio.open_nursery() as nursery:

        async def keep_silent(stream: trio.SocketStream) -> None:
            await trio.sleep_forever()

        (listener,) = await nursery.start(partial(trio.serve_tcp, keep_silent, 0, host="127.0.0.1"))
        port = listener.socket.getsockname()[1]
        with pytest.raises(EffectFailed, match=r"does not answer within 0.05 s"):
            await fetch(get(f"http://127.0.0.1:{port}/", timeout=0.05))
        nursery.cancel_scope.cancel()


@pytest.mark.req("SEC-03")
@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "0.0.0.0", "2130706433", "0x7f.1", "169.254.169.254"],
)
def test_address_out_of_reach_is_not_connected_to(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(*args: object) -> None:
        raise AssertionError("a connection was opened")

    monkeypatch.setattr(trio, "open_tcp_stream", never)
    with pytest.raises(EffectFailed):
        trio.run(fetch, get(f"http://{host}:1/", reach=Reach.PUBLIC))


@pytest.mark.req("SEC-03")
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "10.0.0.1", "2130706433", "0x7f000001"])
def test_address_out_of_reach_is_not_requested_from_a_proxy(host: str) -> None:
    with pytest.raises(EffectFailed, match="may lead to"):
        trio.run(partial(fetch, get(f"http://{host}:1/", reach=Reach.PUBLIC), proxy="http://127.0.0.1:1"))


@pytest.mark.req("SEC-03")
def test_only_judged_addresses_are_connected_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """Resolve once: a name that resolves differently at the second look-up leads nowhere else."""
    lookups = []
    opened = []

    async def getaddrinfo(host: str, port: int, **more: Any) -> list[Any]:
        lookups.append(host)
        return [(0, 0, 0, "", (address, port)) for address in ("127.0.0.1", "203.0.113.1", "192.0.2.1", "8.8.8.8")]

    async def open_tcp_stream(host: str, port: int) -> trio.abc.Stream:
        opened.append(host)
        raise OSError("no route")

    monkeypatch.setattr(trio.socket, "getaddrinfo", getaddrinfo)
    monkeypatch.setattr(trio, "open_tcp_stream", open_tcp_stream)
    with pytest.raises(EffectFailed, match="no route"):
        trio.run(fetch, get("http://mixed.example.com/", reach=Reach.PUBLIC))
    with pytest.raises(EffectFailed, match="no route"):
        trio.run(partial(fetch, get("http://mixed.example.com/"), reach=Reach.PRIVATE))
    assert lookups == ["mixed.example.com"] * 2
    assert opened == ["8.8.8.8", "203.0.113.1", "192.0.2.1", "8.8.8.8"]


@pytest.mark.parametrize("url", ["http+unix://%2Frun%2Fx.sock/a", "ftp://x/", "http://u:p@127.0.0.1/"])
def test_url_of_another_kind_fails_the_effect(url: str) -> None:
    with pytest.raises(EffectFailed):
        trio.run(fetch, get(url))


def test_fetch_goes_through_a_proxy() -> None:
    async def play(site: RawSite, base: str) -> None:
        proxy = base.replace("http://", "http://me:pw@")
        found: Response = await fetch(get("http://far.example.com/x", reach=Reach.PUBLIC), proxy=proxy)
        assert found.body == b"through"

    (request,) = served(play, reply(b"through"))
    assert (request.target, request.headers["host"]) == ("http://far.example.com/x", "far.example.com")
    assert request.headers["proxy-authorization"] == "Basic bWU6cHc="


def test_https_through_a_proxy_asks_for_a_tunnel() -> None:
    async def play(site: RawSite, base: str) -> None:
        with pytest.raises(EffectFailed, match="status 403"):
            await fetch(get("https://far.example.com/x", reach=Reach.PUBLIC), proxy=base)

    (request,) = served(play, reply(status=b"403 No"))
    assert (request.method, request.target) == ("CONNECT", "far.example.com:443")
