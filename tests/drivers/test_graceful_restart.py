"""A server that ends gracefully while a call runs, and its successor: what a client does meanwhile is done there."""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
from eachloop import EachLoop, Here

from mcpio import Server
from mcpio.app.listening import Missed
from mcpio.backoff import Backoff
from mcpio.engine.table import Phase
from mcpio.types import ResourceUpdatedNotification, ToolListChangedNotification

POLICY = Backoff(base=0.01, factor=1, tries=1000)


def make_server(name: str, held: Any = None) -> Server:
    server = Server(name)

    @server.tool
    async def hold() -> str:
        await held.wait()
        return "held"

    server.tool(lambda: name, name="who")
    server.resource("r://1", name="one")(lambda: "one")
    return server


class Restarting:
    """A server that ends while a call runs, a client of it, and a second server at the same address."""

    def __init__(self, here: Here, tasks: Any) -> None:
        self._here, self._tasks = here, tasks
        self._held = here.event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.setblocking(False)
        self.second = make_server("second")

    def _serve(self, server: Server) -> Any:
        listener: Any = self._listener.dup()
        if self._here.is_trio:
            listener = trio.SocketListener(trio.socket.from_stdlib_socket(listener))
        return self._tasks.spawn(self._here.drivers.serve_tcp(server, listeners=[listener], grace=10))

    async def run(self, era: str, before: Callable[[Any], Awaitable[Any]], use: Callable[..., Awaitable[None]]) -> None:
        """Call ``before`` with a client, and ``use`` with it while its server is closing."""
        server = make_server("first", self._held)
        first = self._serve(server)
        port = self._listener.getsockname()[1]
        async with self._here.drivers.open_tcp("127.0.0.1", port, era=era, reconnect=POLICY) as client:
            await before(client)
            outcomes: list[Any] = []
            self._tasks.spawn(self._hold(client, outcomes))
            await client.list_tools()  # after it, the call is being served
            (session,) = server.sessions
            first.cancel()
            while session.connection.phase is not Phase.CLOSING:
                await self._here.sleep(0.001)
            await use(client, self, self._here)
            assert [result.content[0].text for result in outcomes] == ["held"]
        self._serving.cancel()
        self._listener.close()

    async def _hold(self, client: Any, outcomes: list[Any]) -> None:
        outcomes.append(await client.call_tool("hold"))

    def go_on(self) -> None:
        """Let the first server end, and begin the second."""
        self._held.set()
        self._serving = self._serve(self.second)


eras = pytest.mark.parametrize("era", ["handshake", "stateless"])


def run(each_loop: EachLoop, era: str, before: Callable[[Any], Awaitable[Any]], use: Callable[..., Any]) -> None:
    async def main(here: Here) -> None:
        async with here.tasks() as tasks:
            await Restarting(here, tasks).run(era, before, use)

    each_loop.run(main)


async def nothing(_: Any) -> None:
    """Nothing happens before."""


@eras
def test_requests_made_while_the_server_closes_are_sent_to_its_successor(era: str, each_loop: EachLoop) -> None:
    async def use(client: Any, place: Restarting, here: Here) -> None:
        found: list[Any] = []

        async def call() -> None:
            found.append((await client.call_tool("who")).content[0].text)

        async def ask() -> None:
            found.append(len((await client.list_tools()).tools))

        async with here.tasks() as tasks:
            # The first is refused; what follows waits at once.
            for function in (call, call, ask):
                tasks.spawn(function())
                await here.sleep(0.02)
            abandoned = tasks.spawn(call())
            await here.sleep(0)
            abandoned.cancel()
            assert not found
            place.go_on()
        assert sorted(map(str, found)) == ["2", "second", "second"]
        assert not client._reconnector._opened._waiting

    run(each_loop, era, nothing, use)


@eras
def test_listener_that_is_kept_goes_on_at_the_successor(
    era: str, each_loop: EachLoop, caplog: pytest.LogCaptureFixture
) -> None:
    kept: list[Any] = []

    async def before(client: Any) -> None:
        kept.append(client.listen(tools=True, keep=True))
        await kept[0].__aenter__()

    async def use(client: Any, place: Restarting, here: Here) -> None:
        # It asks anew during the grace, more than once.
        await here.sleep(0.5)
        place.go_on()
        assert await anext(kept[0]) == Missed()
        for name in ("new", "newer"):
            place.second.tool(lambda: "new", name=name)
            assert isinstance(await anext(kept[0]), ToolListChangedNotification)
        kept[0].close()
        assert kept[0].ended == "here"
        assert not client._reconnector._opened._waiting

    run(each_loop, era, before, use)
    assert not [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]


@eras
def test_listener_that_begins_while_the_server_closes_begins_at_its_successor(era: str, each_loop: EachLoop) -> None:
    async def use(client: Any, place: Restarting, here: Here) -> None:
        async with here.tasks() as tasks:
            began = here.event()

            async def listen() -> None:
                async with client.listen(uris=["r://1"], keep=True) as changes:
                    began.set()
                    assert isinstance(await anext(changes), ResourceUpdatedNotification)

            tasks.spawn(listen())
            await here.sleep(0.05)
            place.go_on()
            await began.wait()
            place.second.notify_resource_updated("r://1")

    run(each_loop, era, nothing, use)
