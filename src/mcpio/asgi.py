"""A server as an ASGI application: mounted in a web framework, or run by any ASGI server, on asyncio or Trio.

It needs no lifespan and no task that runs all the time: whatever is under way lives in the calls that brought it.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Hashable, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import attrs

from mcpio.app.hosting import HttpHost
from mcpio.app.runtime import OneShot, Runtime, Task
from mcpio.http.model import Body, End, RequestHead, Reset, ResponseHead
from mcpio.http.options import HostPolicy, HttpOptions

if TYPE_CHECKING:
    from mcpio.app.server import Server

__all__ = ["AsgiApp", "app"]

T = TypeVar("T")

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]


def app(
    server: Server,
    *,
    options: HttpOptions | None = None,
    principal: Callable[[Mapping[str, Any]], Hashable] | None = None,
) -> AsgiApp:
    """Return the ASGI application that serves a server.

    Mount it wherever its endpoint is to be. ``principal`` takes the scope of a request and returns whoever was
    authenticated, for instance ``lambda scope: scope["user"].id``. Where the options have no policy of hosts, it
    follows from the address that the first request came to: on loopback, only names of this machine are served.

    A server with a ``lifespan`` needs the lifespan of the application, which frameworks do not pass on to what is
    mounted: enter ``app.lifespan()`` in the framework's own then.
    """
    return AsgiApp(server, options or HttpOptions(), principal)


class AsgiApp:
    """An ASGI 3 application. Made by ``app``."""

    def __init__(
        self, server: Server, options: HttpOptions, principal: Callable[[Mapping[str, Any]], Hashable] | None
    ) -> None:
        self._server = server
        self._options = options
        self._principal = principal
        self._site: _Site | None = None
        self._state: Any = None
        self._is_alive = server.lifespan is None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or the life of the application."""
        if scope["type"] == "http":
            await self._serve(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._live(receive, send)
        else:
            raise NotImplementedError(f"this application serves http, not {scope['type']}")

    @contextlib.asynccontextmanager
    async def lifespan(self, *_: Any) -> AsyncIterator[None]:
        """Enter the server's lifespan; at the end, end all sessions in order. For frameworks that mount this."""
        manager = contextlib.nullcontext() if self._server.lifespan is None else self._server.lifespan(self._server)
        async with manager as self._state:
            self._is_alive = True
            try:
                yield
            finally:
                self._is_alive = self._server.lifespan is None
                if self._site is not None:
                    self._site.host.close(0)
                    self._site = None

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        async with contextlib.AsyncExitStack() as stack:
            try:
                await stack.enter_async_context(self.lifespan())
            except Exception as error:
                await send({"type": "lifespan.startup.failed", "message": f"{type(error).__name__}: {error}"})
                return
            await send({"type": "lifespan.startup.complete"})
            await receive()
        await send({"type": "lifespan.shutdown.complete"})

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not self._is_alive:
            raise RuntimeError("the server's lifespan was not entered: enter app.lifespan() in the framework's own")
        loop = _running_loop()
        if self._site is None or self._site.loop.identity != loop.identity:
            self._site = _Site(self._server, self._policed(scope), loop, self._state)
        principal = None if self._principal is None else self._principal(scope)
        await self._site.serve(scope, self._target(scope), principal, receive, send)

    def _policed(self, scope: Scope) -> HttpOptions:
        options, address = self._options, scope.get("server")
        if options.policy != HostPolicy(None, None) or not address or address[1] is None:
            return options
        return attrs.evolve(options, policy=HostPolicy.for_address(*address))

    def _target(self, scope: Scope) -> str:
        """Return the target as the machine is to see it: where this is mounted, there is its endpoint."""
        path: str = scope["path"].removeprefix(scope.get("root_path", ""))
        if path in ("", "/"):
            path = self._options.path
        query = scope.get("query_string", b"").decode("latin-1")
        return f"{path}?{query}" if query else path


class _Site:
    """The sessions of one application in one event loop, and the calls that are open."""

    def __init__(self, server: Server, options: HttpOptions, loop: _Loop, state: Any) -> None:
        self.loop = loop
        self._runtime = _CurrentRuntime()
        self._calls: dict[int, _Call] = {}
        self._last = 0
        self._keeper: _Call | None = None
        self._deadline: float | None = None
        self.host = HttpHost(
            server,
            self._runtime,
            clock=loop.clock,
            on_ready=self._wake,
            on_deadline=self._take_deadline,
            report=_report,
            options=options,
            state=state,
        )

    async def serve(self, scope: Scope, target: str, principal: Hashable, receive: Receive, send: Send) -> None:
        """Serve one request; return when its handlers are done, disconnected or not."""
        self._last += 1
        exchange = self._last
        async with self.loop.group() as runtime:
            call = self._calls[exchange] = _Call(runtime)
            try:
                self.entering(call)
                self.host.handle_timeout()
                headers = tuple(scope["headers"])
                self.host.receive(RequestHead(exchange, scope["method"], target, headers, principal))
                if await self._read(exchange, call, receive):
                    await self._write(exchange, call, receive, send)
            finally:
                self._leave(exchange, call)

    def entering(self, call: _Call) -> None:
        """Have the handlers that begin from here on live in a call."""
        self._runtime.current = call.runtime

    async def _read(self, exchange: int, call: _Call, receive: Receive) -> bool:
        """Read the request, unless it is refused before; return whether the client is still there."""
        while not call.is_ready:
            message = await receive()
            self.entering(call)
            if message["type"] == "http.disconnect":
                self.host.receive(Reset(exchange))
                return False
            if message.get("body"):
                self.host.receive(Body(exchange, message["body"]))
            if not message.get("more_body", False):
                self.host.receive(End(exchange))
                break
        return True

    async def _write(self, exchange: int, call: _Call, receive: Receive, send: Send) -> None:
        watcher: Task | None = None
        try:
            while True:
                call.is_ready = False
                for item in self.host.responses_to_send(exchange):
                    if isinstance(item, ResponseHead):
                        await send({"type": "http.response.start", "status": item.status, "headers": [*item.headers]})
                    elif isinstance(item, Body):
                        await send({"type": "http.response.body", "body": item.data, "more_body": True})
                    else:
                        await send({"type": "http.response.body", "body": b"", "more_body": False})
                        return
                if call.is_gone:
                    return
                if not call.is_ready:
                    if watcher is None:
                        watcher = call.runtime.spawn(self._watch(exchange, call, receive))
                    await self._wait(call)
        finally:
            if watcher is not None:
                watcher.cancel()

    async def _watch(self, exchange: int, call: _Call, receive: Receive) -> None:
        """Notice a client that goes away while it waits."""
        while (await receive())["type"] != "http.disconnect":
            pass
        self.entering(call)
        call.is_gone = True
        self.host.receive(Reset(exchange))
        call.wake()

    async def _wait(self, call: _Call) -> None:
        call.waiting = call.runtime.one_shot()
        if self._keeper is None:
            self._keep(call)
        try:
            await call.waiting.wait()
        finally:
            call.waiting = None

    def _leave(self, exchange: int, call: _Call) -> None:
        del self._calls[exchange]
        self.host.receive(Reset(exchange))
        if self._keeper is call:
            self._keep(next((other for other in self._calls.values() if other.waiting is not None), None))

    # Time: one of the calls that wait watches the deadlines of all

    def _take_deadline(self, deadline: float | None) -> None:
        self._deadline = deadline
        if self._keeper is not None:
            self._keep(self._keeper)

    def _keep(self, call: _Call | None) -> None:
        """Have a call watch the deadlines from here on, or none."""
        if self._keeper is not None and self._keeper.sleeper is not None:
            self._keeper.sleeper.cancel()
            self._keeper.sleeper = None
        self._keeper = call
        if call is not None and self._deadline is not None:
            call.sleeper = call.runtime.spawn(self._sleep(call, self._deadline))

    async def _sleep(self, call: _Call, deadline: float) -> None:
        await call.runtime.sleep(deadline - self.loop.clock())
        call.sleeper = None
        self.entering(call)
        self.host.handle_timeout()

    def _wake(self, exchange: Hashable) -> None:
        call = self._calls.get(exchange)  # type: ignore[call-overload]  # the exchanges are named here
        if call is not None:
            call.wake()


class _Call:
    """One call of the application."""

    __slots__ = ("is_gone", "is_ready", "runtime", "sleeper", "waiting")

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.is_ready = self.is_gone = False
        self.waiting: OneShot | None = None
        self.sleeper: Task | None = None

    def wake(self) -> None:
        """Take note that there is something to send."""
        self.is_ready = True
        if self.waiting is not None:
            self.waiting.set(None)


class _CurrentRuntime:
    """The runtime of whichever call is acting: a handler lives in the call that brought its request."""

    current: Runtime

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> Task:
        return self.current.spawn(coroutine)

    def one_shot(self) -> OneShot:
        return self.current.one_shot()

    def sleep(self, seconds: float) -> Awaitable[None]:
        return self.current.sleep(seconds)

    def entropy(self, size: int) -> bytes:
        return self.current.entropy(size)

    def wall_clock(self) -> float:
        return self.current.wall_clock()

    def to_thread(self, function: Callable[[], T]) -> Awaitable[T]:
        return self.current.to_thread(function)

    def from_thread(self, function: Callable[[], T]) -> T:
        return self.current.from_thread(function)

    def call_soon(self, function: Callable[[], None]) -> None:
        self.current.call_soon(function)


@attrs.frozen
class _Loop:
    """What is different between event loops."""

    identity: object
    clock: Callable[[], float]
    group: Callable[[], contextlib.AbstractAsyncContextManager[Runtime]]


def _running_loop() -> _Loop:
    trio = sys.modules.get("trio")
    if trio is not None and trio.lowlevel.in_trio_run():
        return _Loop(trio.lowlevel.current_trio_token(), trio.current_time, _nursery)
    import asyncio

    loop = asyncio.get_running_loop()
    return _Loop(loop, loop.time, _task_group)


@contextlib.asynccontextmanager
async def _nursery() -> AsyncIterator[Runtime]:
    import trio

    from mcpio.trio._runtime import TrioRuntime

    async with trio.open_nursery() as nursery:
        yield TrioRuntime(nursery)


@contextlib.asynccontextmanager
async def _task_group() -> AsyncIterator[Runtime]:
    import asyncio

    from mcpio.asyncio._runtime import AsyncioRuntime

    async with asyncio.TaskGroup() as group:
        yield AsyncioRuntime(group)


def _report(message: str, error: BaseException | None) -> None:
    import logging

    logging.getLogger("mcpio").log(logging.WARNING if error is None else logging.ERROR, "%s", message, exc_info=error)
