"""HTTP through the ASGI application, under either event loop, in virtual time and without an ASGI server."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import selectors
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from typing import Any, Protocol

import attrs
import trio
import trio.testing
from httpwire import Case, Exchange, Wire, not_blaming

from mcpio.app.server import Server
from mcpio.asgi import AsgiApp, app
from mcpio.auth import ResourceServer
from mcpio.http.model import Body, End, HttpOptions, ResponseHead

Main = Callable[[], Coroutine[Any, Any, None]]


# Event loops


class EventLoop(Protocol):
    """What a test needs of an event loop, whose time is virtual."""

    name: str

    def run(self, main: Main) -> None:
        """Run until it returns."""

    async def sleep(self, seconds: float) -> None:
        """Let time pass."""

    async def settle(self) -> None:
        """Wait until nothing moves any more without time or input."""

    def event(self) -> Any:
        """Return something with ``set`` and ``wait``."""

    def now(self) -> float:
        """Return the time."""

    def start(self, call: Main) -> Callable[[], None]:
        """Run a coroutine as an ASGI server does, whatever it raises; return what cancels it."""


class OnTrio:
    """Trio, with a clock that jumps as soon as nothing moves."""

    name = "trio"

    def run(self, main: Main) -> None:
        async def run() -> None:
            async with trio.open_nursery() as self._nursery:
                await main()
                self._nursery.cancel_scope.cancel()

        trio.run(run, clock=trio.testing.MockClock(autojump_threshold=0))

    async def sleep(self, seconds: float) -> None:
        await trio.sleep(seconds)

    async def settle(self) -> None:
        await trio.testing.wait_all_tasks_blocked()

    def event(self) -> trio.Event:
        return trio.Event()

    def now(self) -> float:
        return trio.current_time()

    def start(self, call: Main) -> Callable[[], None]:
        scope = trio.CancelScope()

        async def run() -> None:
            with scope:
                await call()

        self._nursery.start_soon(run)
        return scope.cancel


class OnAsyncio:
    """asyncio, with a clock that jumps as soon as nothing moves."""

    name = "asyncio"

    def run(self, main: Main) -> None:
        with self.runner() as runner:
            runner.run(main())

    def runner(self) -> asyncio.Runner:
        return asyncio.Runner(loop_factory=_JumpingLoop)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def settle(self) -> None:
        # The clock jumps when nothing else moves.
        await asyncio.sleep(1e-9)

    def event(self) -> asyncio.Event:
        return asyncio.Event()

    def now(self) -> float:
        return asyncio.get_running_loop().time()

    def start(self, call: Main) -> Callable[[], None]:
        task = asyncio.Task(call())  # not by the task factory, which may be eager

        def cancel() -> None:
            task.cancel()

        return cancel


class _JumpingSelector(selectors.SelectSelector):
    """Waits for nothing that only takes time, unless input may come."""

    now = 0.0

    def select(self, timeout: float | None = None) -> Any:
        if timeout is None:
            return super().select(None)
        ready = super().select(0)
        if not ready:
            self.now += max(0, timeout)
        return ready


class _JumpingLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now


LOOPS: tuple[EventLoop, ...] = (OnTrio(), OnAsyncio())


# Calls


@attrs.define(eq=False, slots=False)
class Called(Exchange):
    """One call of the application: the part of the ASGI server in it."""

    loop: EventLoop
    scope: dict[str, Any]
    body: list[bytes]
    """The pieces of the body, of which the last is said to be it."""
    is_slow: bool = False
    """Whether no more of the body comes by itself than there is."""
    refuses: BaseException | None = None
    """What ``send`` raises."""

    def __attrs_post_init__(self) -> None:
        super().__init__()
        self.messages: list[dict[str, Any]] = []
        self.raised: BaseException | None = None
        self._has_returned = False
        self.receives = 0
        """How often the application asked for input."""
        self._pieces = deque(self.body)
        self.answered, self.finished = self.loop.event(), self.loop.event()
        self._gone, self._has_more = self.loop.event(), self.loop.event()
        self._may_send = self.loop.event()
        self._may_send.set()

    def run_in(self, application: Callable[..., Awaitable[None]]) -> None:
        """Call the application."""

        async def call() -> None:
            try:
                await application(self.scope, self._receive, self._send)
            except Exception as error:
                self.raised = error
            except BaseException as error:
                self.raised = error
                raise
            finally:
                self._has_returned = True
                self.finished.set()

        self.cancel = self.loop.start(call)

    def returned(self) -> bool:
        """Tell whether the application is done with the call."""
        return self._has_returned

    def over(self) -> bool:
        """Tell whether the response is complete."""
        return self.is_over

    def leave(self) -> None:
        """Be a client that goes away."""
        self._gone.set()
        self._has_more.set()
        self._may_send.set()

    def stop_reading(self) -> None:
        """Be a client that reads nothing any more."""
        self._may_send = self.loop.event()

    def read_on(self) -> None:
        """Be a client that reads again."""
        self._may_send.set()

    async def send_more(self, *pieces: bytes) -> None:
        """Be a client that sends the rest of its body."""
        self.is_slow = False
        self._pieces.extend(pieces)
        self._has_more.set()
        await self.loop.settle()

    async def _receive(self) -> dict[str, Any]:
        self.receives += 1
        if not self._pieces and self.is_slow:
            await self._has_more.wait()
        if self._pieces:
            piece = self._pieces.popleft()
            return {"type": "http.request", "body": piece, "more_body": self.is_slow or bool(self._pieces)}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: dict[str, Any]) -> None:
        await self._may_send.wait()
        if self.refuses is not None:
            raise self.refuses
        self.messages.append(message)
        if self._gone.is_set():
            return
        if message["type"] == "http.response.start":
            self.take(ResponseHead(0, message["status"], message["headers"]))
            return
        assert message["type"] == "http.response.body"
        assert self.status
        assert not self.is_over
        self.take(Body(0, message["body"]))
        if not message["more_body"]:
            self.take(End(0))
            self.answered.set()


def as_call(exchange: Exchange) -> Called:
    """Return what an ``AsgiWire`` gave for a request, as what it is."""
    assert isinstance(exchange, Called)
    return exchange


@attrs.define(eq=False)
class AsgiWire:
    """A ``Wire`` whose requests are calls of an application."""

    application: AsgiApp
    loop: EventLoop
    calls: list[Called] = attrs.field(factory=list)
    server: tuple[str, int | None] | None = ("203.0.113.1", 80)

    async def ask(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> Called:
        """Make a request. Its body comes whole and in two pieces by turns, as servers give it."""
        half = len(body) // 2
        pieces = [body] if len(self.calls) % 2 else [body[:half], body[half:]]
        return await self.begin(method, path, headers, pieces)

    async def begin(
        self, method: str, path: str, headers: Mapping[str, str], pieces: list[bytes], **how: Any
    ) -> Called:
        """Make a request as ``Called`` has it; ``scope`` among ``how`` adds to the scope."""
        path, _, query = path.partition("?")
        if len(pieces) == 1 and pieces[0] and not how.get("is_slow"):
            # As clients do that have all of it: what is announced may be served in one call.
            headers = {"content-length": str(len(pieces[0])), **headers}
        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "query_string": query.encode(),
            "root_path": "",
            "headers": [[name.encode(), value.encode("latin-1")] for name, value in headers.items()],
            "server": self.server,
            "client": ("203.0.113.9", 4711),
        } | how.pop("scope", {})
        call = Called(self.loop, scope, pieces, **how)
        self.calls.append(call)
        call.run_in(self.application)
        await self.loop.settle()
        return call

    async def leave(self, exchange: Exchange) -> None:
        """Break a request off."""
        as_call(exchange).leave()
        await self.loop.settle()

    async def pass_time(self, seconds: float) -> None:
        """Let time pass."""
        await self.loop.sleep(seconds)
        await self.loop.settle()

    async def settle(self) -> None:
        """Let happen what needs no time."""
        await self.loop.settle()

    async def close(self, grace: float) -> None:
        """Begin to end the server."""
        self.application.close(grace)
        await self.loop.settle()


@attrs.frozen
class Asgi:
    """Runs cases through the application, under one event loop, with or without a lifespan."""

    loop: EventLoop
    with_lifespan: bool = False

    def run(self, case: Case) -> None:
        """Run one."""
        self.loop.run(lambda: case(self.serve))

    @contextlib.asynccontextmanager
    async def serve(
        self, server: Server, options: HttpOptions, *, auth: ResourceServer | None = None
    ) -> AsyncIterator[Wire]:
        """Serve a server. Nothing may be reported, no call may raise, and all must return when their clients leave."""
        how: Any = {"principal": _user} if auth is None else {"auth": auth}
        application = app(server, options=options, **how)
        wire = AsgiWire(application, self.loop)
        lines: list[str] = []
        handler = logging.Handler()
        handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]  # it is all it does
        logging.getLogger("mcpio").addHandler(handler)
        try:
            async with application.lifespan() if self.with_lifespan else contextlib.nullcontext():
                yield wire
                for call in wire.calls:
                    await wire.leave(call)
        finally:
            logging.getLogger("mcpio").removeHandler(handler)
        await wire.close(0)
        assert not_blaming(lines) == []
        assert [call.raised for call in wire.calls if call.raised is not None] == []
        assert [call for call in wire.calls if not call.returned()] == []


def _user(scope: Mapping[str, Any]) -> str | None:
    found = [value.decode("latin-1") for name, value in scope["headers"] if name == b"x-user"]
    return found[0] if found else None
