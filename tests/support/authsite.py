"""A protected server of MCP and its authorization server, on one loopback port, and a person with a browser."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from types import ModuleType
from typing import Any

import attrs
import pytest
import trio
from rawsite import PLAIN, RawRequest, RawSite, Wire, json_response, result_of

import mcpio.asyncio
import mcpio.trio
from mcpio._drivers.fetch import fetch
from mcpio.asyncio._event_loop import AsyncioEventLoop
from mcpio.auth import (
    AskUser,
    Challenge,
    Credentials,
    Fetch,
    OAuth,
    Reach,
    Response,
    Secret,
    ShowCode,
    from_text,
    to_text,
)
from mcpio.stores import FileCredentials
from mcpio.testing import AuthorizationServer
from mcpio.trio._event_loop import TrioEventLoop

__all__ = ["AuthSite", "run"]


STATELESS: dict[str, Any] = {
    **PLAIN,
    "resultType": "complete",
    "supportedVersions": ["2026-07-28"],
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "s", "version": "1"},
    "ttlMs": 0,
    "cacheScope": "private",
}
"""The result of any request in the stateless era."""


class AuthSite(RawSite):
    """Serves both; ``needed`` are the scopes that a method of MCP needs."""

    def __init__(self, nursery: trio.Nursery, **server: Any) -> None:
        super().__init__(nursery, self.handle, session="s")
        self.server_options = server
        self.nursery = nursery
        self.token: Any = None
        """What calls Trio from the thread of a test on asyncio."""
        self.needed: dict[str, frozenset[str]] = {}
        self.opened_urls: list[str] = []
        self.requests_with: list[tuple[str | None, str | None]] = []
        self.is_open = self.is_stateless = False
        self.headers: list[dict[str, str]] = []
        self.bodies: list[bytes] = []

    async def listen(self, nursery: trio.Nursery) -> None:
        (listener,) = await nursery.start(partial(trio.serve_tcp, self.serve, 0, host="127.0.0.1"))
        self.base = f"http://127.0.0.1:{listener.socket.getsockname()[1]}"
        self.url = self.base + "/mcp"
        self.server = AuthorizationServer(self.base, self.url, **self.server_options)

    async def handle(self, request: RawRequest, wire: Wire) -> None:
        if request.target.startswith("/authorize?"):
            location = self.server.approve(self.base + request.target, time.time())
            await wire.send(encoded(Response(302, (("location", location),))))
        elif request.target != "/mcp":
            method: Any = request.method
            headers = tuple(request.headers.items())
            effect = Fetch(method=method, url=self.base + request.target, headers=headers, body=request.body)
            await wire.send(encoded(self.server.respond(effect, time.time())))
        else:
            self.requests_with.append((request.rpc_method, request.headers.get("authorization")))
            self.headers.append(request.headers)
            self.bodies.append(request.body)
            needed = self.needed.get(request.rpc_method or "", frozenset())
            found = self.server.accepts(tuple(request.headers.items()), time.time(), needed)
            if isinstance(found, Challenge) and not self.is_open:
                status = 403 if found.params.get("error") == "insufficient_scope" else 401
                await wire.send(encoded(Response(status, (("www-authenticate", str(found)),))))
            elif self.is_stateless and request.rpc_method is not None:
                await wire.send(json_response(result_of(request, STATELESS)))
            else:
                await self.answer(request, wire)

    async def browse(self, effect: AskUser | ShowCode) -> None:
        """Log in as a person does: open the URL, and follow the redirect to the program."""
        if isinstance(effect, ShowCode):
            self.server.approve_device(effect.user_code)
            return
        self.opened_urls.append(effect.url)
        location = await self.redirected(effect.url)
        page = await get(location)
        assert page.status == 200
        assert b"You can close this window" in page.body

    async def paste(self, effect: AskUser | ShowCode) -> str:
        """Log in, and return the URL to which the browser is redirected."""
        assert isinstance(effect, AskUser)
        self.opened_urls.append(effect.url)
        return await self.redirected(effect.url)

    async def redirected(self, url: str) -> str:
        return dict((await get(url)).headers)["location"]

    @property
    def token_requests(self) -> list[str]:
        return [str(request.body) for request in self.server.requests if request.url == self.base + "/token"]


async def store_expired(site: AuthSite, loop: Any, path: Path) -> str:
    """Store credentials whose token has expired, and return their key."""
    store = FileCredentials(path)
    async with loop.open_http(site.url, era="handshake", auth=OAuth(), credentials=store, ask_user=site.browse):
        pass
    [key] = store.keys()
    found = store.load(key)
    assert found is not None
    credentials = from_text(Credentials, found.record)
    assert credentials.token is not None
    expired = attrs.evolve(credentials, token=attrs.evolve(credentials.token, expires_at=time.time() - 1))
    store.swap(key, to_text(expired), found.version)
    return key


async def get(url: str, **headers: str) -> Response:
    effect = Fetch(method="GET", url=url, headers=tuple(headers.items()), reach=Reach.LOOPBACK)
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return await fetch(effect, TrioEventLoop())
    return await fetch(effect, AsyncioEventLoop())


def encoded(response: Response) -> bytes:
    lines = [f"HTTP/1.1 {response.status} X", *(f"{name}: {value}" for name, value in response.headers)]
    lines += [f"Content-Length: {len(response.body)}", "", ""]
    return "\r\n".join(lines).encode() + response.body


def run(
    play: Callable[[AuthSite], Awaitable[None]], *, loop: ModuleType = mcpio.trio, clock: Any = None, **server: Any
) -> None:
    """Run a test with a site, on the event loop of ``mcpio.trio`` or ``mcpio.asyncio``."""
    if loop is mcpio.asyncio:
        _run_on_asyncio(play, server)
        return

    async def main() -> None:
        with trio.fail_after(120 if clock is None else 3600):
            async with trio.open_nursery() as nursery:
                site = AuthSite(nursery, **server)
                await site.listen(nursery)
                await play(site)
                nursery.cancel_scope.cancel()

    trio.run(main, clock=clock)


def _run_on_asyncio(play: Callable[[AuthSite], Awaitable[None]], server: dict[str, Any]) -> None:
    """Run a test on asyncio; its site is in a thread."""
    listening: SimpleQueue[tuple[AuthSite, trio.CancelScope]] = SimpleQueue()

    async def serve() -> None:
        async with trio.open_nursery() as nursery:
            site = AuthSite(nursery, **server)
            await site.listen(nursery)
            site.token = trio.lowlevel.current_trio_token()
            listening.put((site, nursery.cancel_scope))

    async def main() -> None:
        async with asyncio.timeout(20):
            await play(site)

    thread = Thread(target=trio.run, args=[serve])
    thread.start()
    site, scope = listening.get(timeout=10)
    try:
        asyncio.run(main())
    finally:
        trio.from_thread.run_sync(scope.cancel, trio_token=site.token)
        thread.join(10)


each_loop = pytest.mark.parametrize("loop", [mcpio.trio, mcpio.asyncio], ids=["trio", "asyncio"])

__all__ += ["Secret", "each_loop", "encoded", "get", "store_expired"]
