"""HTTP as the cases of ``tests/http/test_cases.py`` ask for it, and the adapter that needs no event loop.

A case is a coroutine that gets a ``Serve``. Each adapter runs all of them: see ``ADAPTERS`` in
``tests/http/conftest.py``. An adapter serves a ``Server``, and fills one ``Exchange`` for each request of a case. The
principal of a request is the value of its ``x-user`` field, ``None`` without one.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

import attrs

from mcpio.app.http_host import HttpHost
from mcpio.app.server import Server
from mcpio.auth import Guard, Refused, ResourceServer
from mcpio.framing.sse import ServerSentEvent, SseParser
from mcpio.http.model import (
    Body,
    Denied,
    End,
    HttpOptions,
    RequestHead,
    Reset,
    ResponseHead,
    ResponseItem,
    header_fields,
)
from mcpio.testing import ManualRuntime


class Exchange:
    """One request, and what has come of the response so far."""

    def __init__(self) -> None:
        self.status = 0
        """0 until the head is there."""
        self.headers: dict[str, str] = {}
        """By names in lower case."""
        self.data = b""
        """What came of the body."""
        self.is_over = False
        """Whether the response is complete."""
        self.is_broken = False
        """Whether it broke off before that."""
        self._parser = SseParser()
        self._parsed = 0

    def new_events(self) -> list[ServerSentEvent]:
        """Return the events that came since the last call."""
        data, self._parsed = self.data[self._parsed :], len(self.data)
        return self._parser.receive(data)

    def new_messages(self) -> list[Any]:
        """Return the messages in the events that came since the last call; those without one are passed over."""
        return [json.loads(event.data) for event in self.new_events() if event.data]

    @property
    def last_event_id(self) -> str | None:
        """The id of the last event that ``new_events`` gave."""
        return self._parser.last_id

    @property
    def json(self) -> Any:
        """The body, which is complete."""
        assert self.is_over, "the response is not complete"
        return json.loads(self.data)

    # For adapters

    def take(self, item: ResponseItem) -> None:
        """Take in what came."""
        assert not self.is_over, f"more than one response: {item}"
        if isinstance(item, ResponseHead):
            assert not self.status, f"more than one response: {item}"
            self.status = item.status
            self.headers = {name.decode(): value.decode("latin-1") for name, value in item.headers}
        elif isinstance(item, Body):
            self.data += item.data
        else:
            self.is_over, self.is_broken = isinstance(item, End), isinstance(item, Reset)


def not_blaming(reports: Iterable[str]) -> list[str]:
    """Return what an operator was told that is no fault of a peer's."""
    blames = ("the peer ", "a token is refused ", "the Origin ", "the Host ")
    return [said for said in reports if not said.startswith(blames)]


class Wire(Protocol):
    """A server that answers requests. Everything is done, as far as no time need pass, when a call returns."""

    async def ask(self, method: str, path: str, headers: dict[str, str], body: bytes) -> Exchange:
        """Make a request. Its response may go on after this returns."""

    async def leave(self, exchange: Exchange) -> None:
        """Break a request off: the client goes away."""

    async def pass_time(self, seconds: float) -> None:
        """Let time pass."""

    async def settle(self) -> None:
        """Let happen what needs no time, after a handler was let go on."""

    async def close(self, grace: float) -> None:
        """Begin to end the server."""


class Serve(Protocol):
    """Serves a server until the end of the block: with the principals of ``x-user``, or protected by ``auth``."""

    def __call__(
        self, server: Server, options: HttpOptions, *, auth: ResourceServer | None = None
    ) -> AbstractAsyncContextManager[Wire]: ...


Case = Callable[[Serve], Coroutine[Any, Any, None]]


class Adapter(Protocol):
    """A way to run cases."""

    def run(self, case: Case) -> None:
        """Run one."""


def everywhere(case: Case) -> Callable[[Adapter], None]:
    """Make a test of a case: pytest runs it by each adapter."""

    def test(adapter: Adapter) -> None:
        adapter.run(case)

    test.__name__, test.__doc__ = case.__name__, case.__doc__
    return test


# Without an event loop


class InMemory:
    """Runs cases in virtual time, without an event loop."""

    def __init__(self, store: Callable[[], Any] = lambda: None) -> None:
        """``store`` makes the store of sessions of each server that can have one."""
        self._store = store

    def run(self, case: Case) -> None:
        """Run a case: nothing in it ever waits."""
        try:
            case(self._serve).send(None)
        except StopIteration:
            return
        raise AssertionError("a case waits for what an event loop must give")

    def _serve(
        self, server: Server, options: HttpOptions, *, auth: ResourceServer | None = None
    ) -> AbstractAsyncContextManager[Wire]:
        return serve_in_memory(server, options, self._store() if options.resumes else None, auth)


@contextlib.asynccontextmanager
async def serve_in_memory(
    server: Server, options: HttpOptions, store: Any = None, auth: ResourceServer | None = None
) -> AsyncIterator[Wire]:
    """Serve a server in virtual time."""
    wire = MemoryWire(server, options, store=store, auth=auth)
    yield wire
    wire.host.close(0)
    wire.run()
    assert wire.host.machine.closed
    assert not_blaming(wire.reports) == []


@attrs.define(eq=False, slots=False)
class MemoryWire:
    """``HttpHost`` under ``ManualRuntime``. Each exchange reads at once what it has, unless it is ``stalled``."""

    server: Server
    options: HttpOptions
    runtime: ManualRuntime = attrs.field(factory=ManualRuntime)
    reports: list[str] = attrs.field(factory=list)
    stalled: set[int] = attrs.field(factory=set)
    store: Any = None
    unanswered: Any = "fail"
    auth: ResourceServer | None = None

    def __attrs_post_init__(self) -> None:
        self.guard: Guard | None = None
        if self.auth is not None:
            # Tokens of tests are from today.
            self.guard = guard = Guard(self.auth, epoch=time.time() - self.runtime.now)
            self.runtime.wall_clock = lambda: guard.epoch + self.runtime.now  # type: ignore[method-assign]  # of this one
        self.exchanges: dict[int, Exchange] = {}
        self._deadline: float | None = None
        self._ready: list[Any] = []
        self._asked = 0
        self.host = HttpHost(
            self.server,
            self.runtime,
            clock=lambda: self.runtime.now,
            on_ready=self._ready.append,
            on_deadline=self._take_deadline,
            report=lambda message, _: self.reports.append(message),
            options=self.options,
            store=self.store,
            unanswered=self.unanswered,
            protected=self.auth,
        )

    async def ask(self, method: str, path: str, headers: dict[str, str], body: bytes) -> Exchange:
        """Make a request."""
        self._asked += 1
        number, exchange = self._asked, Exchange()
        self.exchanges[number] = exchange
        fields = [(name.lower().encode(), value.encode("latin-1")) for name, value in headers.items()]
        principal: Any = headers.get("x-user")
        if self.guard is not None:
            named = [(name.lower(), value) for name, value in headers.items()]
            principal = self.guard.admit(number, named, path, self.runtime.now, method=method)
            if isinstance(principal, Refused):
                principal = Denied(principal.status, principal.message, header_fields(principal.headers))
        self.host.receive(RequestHead(number, method, path, fields, principal))
        for piece in (body[: len(body) // 2], body[len(body) // 2 :]):
            if piece:
                self.host.receive(Body(number, piece))
        self.host.receive(End(number))
        self.run()
        return exchange

    async def leave(self, exchange: Exchange) -> None:
        """Break a request off."""
        (number,) = [number for number, each in self.exchanges.items() if each is exchange]
        self.host.receive(Reset(number))
        self.run()

    async def pass_time(self, seconds: float) -> None:
        """Let time pass."""
        until = self.runtime.now + seconds
        while True:
            due = min(
                (when for when in (self._deadline, self.runtime.next_deadline()) if when is not None), default=None
            )
            if due is None or due > until:
                break
            self.runtime.advance_to(due)
            if self._deadline is not None and self._deadline <= due:
                self.host.handle_timeout()
            self.run()
        self.runtime.advance_to(until)
        self.run()

    async def settle(self) -> None:
        """Let happen what needs no time."""
        self.run()

    async def close(self, grace: float) -> None:
        """Begin to end the server."""
        self.host.close(grace)
        self.run()

    def run(self) -> None:
        """Do everything that there is to do now."""
        self.runtime.run()
        while ready := [number for number in dict.fromkeys(self._ready) if number not in self.stalled]:
            self._ready[:] = [number for number in self._ready if number in self.stalled]
            for number in ready:
                for item in self.host.responses_to_send(number):
                    self.exchanges[number].take(item)
            self.runtime.run()

    def _take_deadline(self, deadline: float | None) -> None:
        self._deadline = deadline


# What clients say


@attrs.define(eq=False)
class RawClient:
    """A client that says just what it is told to."""

    wire: Wire
    path: str = "/mcp"
    headers: dict[str, str] = attrs.field(factory=dict)
    """Of every request, beside those that its method needs."""

    async def initialize(self, revision: str = "2025-11-25", **capabilities: Any) -> Exchange:
        """Shake hands; take over the name of the session, where there is one."""
        hello = {"protocolVersion": revision, "capabilities": capabilities, "clientInfo": {"name": "c", "version": "1"}}
        exchange = await self.post({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello})
        if "mcp-session-id" in exchange.headers:
            self.headers["mcp-session-id"] = exchange.headers["mcp-session-id"]
            self.headers["mcp-protocol-version"] = revision
            await self.post({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return exchange

    async def post(self, message: Any, **headers: str) -> Exchange:
        """POST a message: bytes as they are, anything else as JSON. Header fields by their names with ``_``."""
        body = message if isinstance(message, bytes) else json.dumps(message).encode()
        usual = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
        return await self.wire.ask("POST", self.path, usual | self.headers | _fields(headers.items()), body)

    async def call(self, tool: str, id: Any = 1, *, progress: Any = None, **arguments: Any) -> Exchange:
        """Call a tool."""
        meta = {} if progress is None else {"_meta": {"progressToken": progress}}
        params = {"name": tool, "arguments": arguments, **meta}
        return await self.post({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params})

    async def listen(self, **headers: str) -> Exchange:
        """GET the endpoint."""
        usual = {"accept": "text/event-stream"}
        return await self.wire.ask("GET", self.path, usual | self.headers | _fields(headers.items()), b"")

    async def end(self, **headers: str) -> Exchange:
        """DELETE the session."""
        return await self.wire.ask("DELETE", self.path, self.headers | _fields(headers.items()), b"")


def _fields(given: Iterable[tuple[str, str]]) -> dict[str, str]:
    return {name.replace("_", "-"): value for name, value in given}
