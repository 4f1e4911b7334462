"""A server with a tool for each way to take time, as an ASGI application in virtual time."""

from __future__ import annotations

from typing import Any

from asgiwire import AsgiWire, EventLoop
from httpwire import RawClient

from mcpio import Context, Server
from mcpio.asgi import app
from mcpio.asgi._server import AsgiServer
from mcpio.errors import RequestTimeout
from mcpio.http.model import HttpOptions
from mcpio.types import PingRequest


class Served:
    """A server with a tool for each way to take time, its application, and what happened."""

    def __init__(self, loop: EventLoop, *, http: HttpOptions | None = None, **options: Any) -> None:
        self.seen: list[str] = []
        self.server = Server("served", "1", **options)
        self.application = app(self.server, options=http)
        self.wire = AsgiWire(self.application, loop)
        self.client = RawClient(self.wire)
        self.go_on = loop.event()
        self._add_tools(loop)

    def _add_tools(self, loop: EventLoop) -> None:
        @self.server.tool
        def echo(text: str) -> str:
            return text

        @self.server.tool
        async def wait(ctx: Context) -> str:
            self.seen.append("begun")
            try:
                await self.go_on.wait()
            except BaseException:
                self.seen.append("cancelled")
                raise
            self.seen.append("done")
            return "waited"

        @self.server.tool
        async def flood(ctx: Context, pieces: int) -> str:
            for number in range(pieces):
                ctx.info("x" * 1000, str(number))
                await loop.sleep(0)
            self.seen.append("flooded")
            return "done"

        @self.server.tool
        async def ask(ctx: Context) -> str:
            try:
                await ctx.session.request(PingRequest(), timeout=5, related_to=ctx.id)
            except RequestTimeout:
                self.seen.append(f"asked until {loop.now() - self.began:.0f}")
            return "asked"

        self.began = 0.0

    @property
    def asgi_server(self) -> AsgiServer:
        site = self.application._asgi_server
        assert site is not None
        return site

    def assert_nothing_is_left(self) -> None:
        """Require that no call is open, and that nobody watches deadlines."""
        assert self.asgi_server._requests == {}
        assert self.asgi_server._queue == []
        assert self.asgi_server._watch._watching == {}
        assert self.asgi_server._watch._sleeper is None


def raw(headers: dict[str, str]) -> list[tuple[bytes, bytes]]:
    """Return header fields as ASGI has them."""
    return [(name.encode(), value.encode()) for name, value in headers.items()]
