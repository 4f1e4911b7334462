"""A client and a server session joined in virtual time, without an event loop: what tests of the sessions need."""

from __future__ import annotations

from collections.abc import Awaitable, Coroutine
from typing import Any, TypeVar, Unpack

from waits import Wait

from mcpio.app.client import Client, ClientOptions, client_connection
from mcpio.app.server import Server
from mcpio.app.server_session import ServerSession
from mcpio.engine.connection import Connection
from mcpio.engine.options import Options
from mcpio.events import ConnectionClosed, Event
from mcpio.revisions import Revision
from mcpio.testing import ManualRuntime, pair
from mcpio.types import CallToolResult, TextContent

T = TypeVar("T")


class Ask(Wait[T]):
    """A call over a link."""

    def __init__(self, link: Link, coroutine: Awaitable[T]) -> None:
        super().__init__(link.runtime, coroutine, link.run)


class Link:
    """One client of a server. ``reports`` are what either side's operator got to know."""

    def __init__(
        self,
        server: Server,
        *,
        state: Any = None,
        principal: Any = None,
        revision: Revision | None = None,
        shake_hands: bool = True,
        **options: Unpack[ClientOptions],
    ) -> None:
        if revision is not None:
            options["options"] = Options(revisions=(revision,))
        self.runtime = ManualRuntime()
        self.runtime.stalls.clock = lambda: self.pair.now
        self.reports: list[str] = []
        self.errors: list[BaseException | None] = []
        self.pair = pair(client_connection(**options), server.connection(principal=principal), on_event=self._on_event)
        self.client = Client(self.pair.client, _Driver(self, self.pair.client), **options)
        self.session: ServerSession = server.session(self.pair.server, _Driver(self, self.pair.server), state)
        if shake_hands:
            self.do(self.client.initialize())

    def run(self) -> None:
        """Let everything happen that happens by itself, at this time."""
        before = None
        while before != (before := self._size()):
            self.runtime.run()
            self.pair.run()

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.run()
        until = self.pair.now + seconds
        while (due := self._next_deadline()) is not None and due <= until:
            self._advance_to(due)
        self._advance_to(until)

    def start(self, coroutine: Awaitable[T]) -> Ask[T]:
        """Begin a call, and let happen what it causes."""
        return Ask(self, coroutine)

    def do(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Make a call to its end, and return what it returns."""
        ask = self.start(coroutine)
        assert ask.state in ("returned", "failed"), "the call still waits, and nothing is left to happen"
        return ask.result

    def call(self, name: str, **arguments: Any) -> CallToolResult:
        """Call a tool."""
        return self.do(self.client.call_tool(name, arguments))

    def text(self, name: str, **arguments: Any) -> str:
        """Call a tool and return the text of its result, a failure marked."""
        result = self.call(name, **arguments)
        text = "\n".join(block.text for block in result.content if isinstance(block, TextContent))
        return f"failed: {text}" if result.is_error else text

    def _on_event(self, connection: Connection, event: Event) -> None:
        session = self.client if connection is self.pair.client else self.session
        session._handle(event)
        if isinstance(event, ConnectionClosed):
            session.driver.over.set(None)  # type: ignore[attr-defined]  # the driver below

    def _next_deadline(self) -> float | None:
        due = [time for each in (self.pair, self.runtime) if (time := each.next_deadline()) is not None]
        return min(due, default=None)

    def _advance_to(self, when: float) -> None:
        self.pair.advance_to(when)
        self.runtime.advance_to(when)
        self.run()

    def _size(self) -> tuple[int, int, int]:
        return len(self.pair.tap), len(self.pair.client_events), len(self.pair.server_events)


class _Driver:
    def __init__(self, link: Link, connection: Connection) -> None:
        self._link = link
        self._connection = connection
        self.runtime = link.runtime
        self.over = link.runtime.one_shot()

    def now(self) -> float:
        return self._link.pair.now

    def wake(self) -> None:
        pass  # the link looks at its connections by itself

    def close(self, grace: float) -> None:
        self._connection.close(self.now(), grace=grace)

    async def wait_closed(self) -> None:
        await self.over.wait()

    def report(self, message: str, error: BaseException | None) -> None:
        self._link.reports.append(message)
        self._link.errors.append(error)
