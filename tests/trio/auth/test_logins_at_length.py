"""Logins over real sockets that take long, collide, or happen beside other traffic."""

from __future__ import annotations

import socket
from functools import partial
from typing import Any

import pytest
import trio
import trio.testing
from authsite import AuthSite, run
from rawsite import RawRequest, Wire

from mcpio import Options
from mcpio.auth import AskUser, MemoryCredentials, OAuth, ShowCode
from mcpio.engine.limits import Timeout
from mcpio.errors import ConnectFailed, McpError
from mcpio.trio import open_http


def stored_client(site: AuthSite, **more: Any) -> Any:
    return {"credentials": MemoryCredentials(), "ask_user": site.browse, "auth": OAuth(), **more}


@pytest.mark.req("AUTH-41")
def test_login_of_half_an_hour_times_no_request_out() -> None:
    """T7: the login happens in the middle of a call, whose limit is ten seconds."""
    clock = trio.testing.MockClock()

    async def play(site: AuthSite) -> None:
        async def ask(effect: AskUser | ShowCode) -> None:
            if site.opened_urls:
                clock.jump(1800)
            await site.browse(effect)

        site.needed["tools/call"] = frozenset({"mcp:write"})
        options = Options(request_timeout=Timeout(10))
        how = stored_client(site, ask_user=ask, auth=OAuth(login_timeout=3600), options=options)
        async with open_http(site.url, **how) as client:
            assert (await client.call_tool("x")).text == "done"
        assert len(site.opened_urls) == 2

    run(play, clock=clock)


@pytest.mark.req("AUTH-41")
def test_login_that_takes_too_long_fails_the_call_with_its_own_error() -> None:
    clock = trio.testing.MockClock()

    async def play(site: AuthSite) -> None:
        def ask(effect: AskUser | ShowCode) -> None:
            clock.jump(1800)

        with pytest.raises(ConnectFailed, match="the login was not completed in time"):
            async with open_http(site.url, **stored_client(site, ask_user=ask)):
                pass

    run(play, clock=clock)


@pytest.mark.req("AUTH-22", "AUTH-28")
def test_client_is_registered_again_if_its_port_is_taken() -> None:
    """T8: the port of the first login is taken at the second; what is advertised is what is bound."""

    async def play(site: AuthSite) -> None:
        site.server = type(site.server)(site.base, site.url, refreshes=False)
        how = stored_client(site)
        async with open_http(site.url, **how) as client:
            await client.call_tool("x")
        [port] = [_port(each["redirect_uri"]) for each in site.server.authorizations]
        site.server.expire_tokens()
        with socket.socket() as taken:
            taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            taken.bind(("127.0.0.1", port))
            taken.listen()
            async with open_http(site.url, **how) as client:
                await client.call_tool("x")
        uris = [each["redirect_uri"] for each in site.server.authorizations]
        assert _port(uris[1]) != port
        assert [each["redirect_uris"] for each in site.server.registered] == [[uri] for uri in uris]

    run(play)


def test_taken_port_of_a_client_that_was_registered_by_hand_is_named() -> None:
    async def play(site: AuthSite) -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            with pytest.raises(ConnectFailed, match=f"cannot listen at port {port}"):
                async with open_http(site.url, **stored_client(site, auth=OAuth(client_id="given", port=port))):
                    pass
        assert site.server.authorizations == []

    run(play, clients={"given": None})


def test_concurrent_logins_have_separate_ports_and_answers() -> None:
    """T8: neither takes the other's redirect, and both programs are served."""

    async def play(site: AuthSite) -> None:
        meeting: list[AskUser | ShowCode] = []
        both = trio.Event()

        async def ask(effect: AskUser | ShowCode) -> None:
            meeting.append(effect)
            if len(meeting) == 2:
                both.set()
            await both.wait()
            await site.browse(effect)

        async def use(account: str) -> None:
            how = stored_client(site, ask_user=ask, auth=OAuth(account=account))
            async with open_http(site.url, **how) as client:
                assert (await client.call_tool("x")).text == "done"

        async with trio.open_nursery() as nursery:
            nursery.start_soon(use, "a")
            nursery.start_soon(use, "b")
        ports = {_port(each["redirect_uri"]) for each in site.server.authorizations}
        assert (len(site.server.authorizations), len(ports)) == (2, 2)

    run(play)


@pytest.mark.req("AUTH-35")
def test_endless_step_ups_ask_the_user_twice() -> None:
    """T9: each challenge names another scope; the third refusal is final."""

    async def play(site: AuthSite) -> None:
        async with open_http(site.url, **stored_client(site)) as client:
            opened = len(site.opened_urls)

            async def ever_more(request: RawRequest, wire: Wire) -> None:
                if _tool(request) == "x":
                    scopes = {f"s{len(site.opened_urls)}"}
                    site.needed["tools/call"] = frozenset(scopes)
                await AuthSite.handle(site, request, wire)

            site.handler = ever_more
            with pytest.raises(McpError, match="too few scopes"):
                await client.call_tool("x")
        assert len(site.opened_urls) == opened + 2

    run(play)


@pytest.mark.req("AUTH-41")
def test_twenty_calls_share_a_renewal_while_a_call_is_answered_by_a_stream() -> None:
    """T10: the stream was begun with the old token, and its answer comes after all others."""

    async def play(site: AuthSite) -> None:
        release = trio.Event()
        begun = trio.Event()

        async def stream_first(request: RawRequest, wire: Wire) -> None:
            if _tool(request) == "slow":
                await wire.send(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n: begun\n\n")
                begun.set()
                await release.wait()
                result = '{"content":[{"type":"text","text":"slow"}]}'
                text = f'{{"jsonrpc":"2.0","id":{request.json["id"]},"result":{result}}}'
                await wire.send(f"data: {text}\n\n".encode())
                await wire.close()
            else:
                await AuthSite.handle(site, request, wire)

        site.handler = stream_first
        async with open_http(site.url, **stored_client(site)) as client:
            slow: list[str] = []

            async def call_slow() -> None:
                slow.append((await client.call_tool("slow")).text)

            async with trio.open_nursery() as nursery:
                nursery.start_soon(call_slow)
                await begun.wait()
                site.server.expire_tokens()
                async with trio.open_nursery() as calls:
                    for _ in range(20):
                        calls.start_soon(partial(client.call_tool, "x"))
                assert slow == []
                release.set()
        assert slow == ["slow"]
        assert (len(site.opened_urls), len(site.token_requests)) == (1, 2)

    run(play)


def _tool(request: RawRequest) -> str | None:
    is_call = request.target == "/mcp" and request.rpc_method == "tools/call"
    return request.json["params"]["name"] if is_call else None


def _port(uri: str) -> int:
    return int(uri.rpartition(":")[2].partition("/")[0])
