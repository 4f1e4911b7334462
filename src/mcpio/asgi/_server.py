"""The sessions of an ASGI application, the calls that are open, and the deadlines of all."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Hashable, MutableMapping
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import attrs

from mcpio._drivers import TapSource, attach_tap, report
from mcpio._drivers.task_host import LAST_STORED, TaskHost, hosted_tasks
from mcpio.app.http_host import HttpHost
from mcpio.app.runtime import OneShot, Spawned
from mcpio.asgi._deadlines import DeadlineWatch
from mcpio.asgi._event_loop import EventLoop, loop_identity, running_loop
from mcpio.asgi._requests import AsgiRequest, RequestTask, current_request
from mcpio.http.model import Body, End, RequestHead, Reset, ResponseHead, ResponseItem

if TYPE_CHECKING:
    from mcpio.app.server import Server
    from mcpio.app.session_snapshot import UnansweredPolicy
    from mcpio.app.session_store import SessionStore
    from mcpio.engine.server import ServerConnection
    from mcpio.http.options import HostPolicy, HttpOptions

__all__ = ["AsgiConfig", "AsgiServer", "Receive", "Scope", "Send"]

T = TypeVar("T")

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]


@attrs.frozen
class AsgiConfig:
    """How a server is served."""

    http: HttpOptions
    tap: TapSource | None
    store: SessionStore | None
    unanswered: UnansweredPolicy


class AsgiServer:
    """Serves one ``Server``, in one event loop at a time.

    Sessions outlive an event loop in which nothing is open any more, and go on in the next one.
    """

    def __init__(self, server: Server, options: AsgiConfig, state: Any) -> None:
        """``state`` is what the server's lifespan gave."""
        self._server = server
        self._tap = options.tap
        self._state = state
        self._loop: EventLoop | None = None
        self._now = self._offset = 0.0
        self._calls: dict[Hashable, AsgiRequest] = {}
        self._last = 0
        self._home: AsgiRequest | None = None
        self._queue: list[RequestTask] = []
        self._watch = DeadlineWatch(self.now, self._expire)
        self._host = HttpHost(
            server,
            AsgiRuntime(self),
            clock=self.now,
            on_ready=self._wake,
            on_deadline=self._watch.take_deadline,
            report=report,
            options=options.http,
            state=state,
            on_connection=None if options.tap is None else self._put_tap,
            store=options.store,
            unanswered=options.unanswered,
        )

    # Calls

    async def serve(
        self,
        scope: Scope,
        target: str,
        principal: Hashable,
        policy: HostPolicy | None,
        receive: Receive,
        send: Send,
    ) -> None:
        """Serve one request; return when everything that it began is done, whether its client is there or not."""
        self._enter()
        self._last += 1
        call = self._calls[self._last] = AsgiRequest(self._last, is_head=scope["method"] == "HEAD")
        token = current_request.set(call)
        try:
            call.queue, self._queue = self._queue, []
            self._watch.look()
            headers = tuple((name.lower(), value) for name, value in scope["headers"])
            self._host.receive(RequestHead(call.exchange, scope["method"], target, headers, principal, policy))
            await self._read(call, receive)
            if call.is_read and not call.queue:
                await self._send_ready(call, send)
            if call.queue or not call.is_over:
                await self._drain(call, receive, send)
        except BaseException:
            call.is_done = True  # nothing can run in it any more, but in others
            self._cut_off(call)
            raise
        finally:
            current_request.reset(token)
            self._finish(call)

    async def _read(self, call: AsgiRequest, receive: Receive) -> None:
        """Read the request, as far as nothing wants to run. One that is answered before is not read any further."""
        while not (call.is_read or call.has_response or call.is_over or call.queue):
            message = await receive()
            if message["type"] == "http.disconnect":
                self._lose(call)
                return
            if message.get("body"):
                self._host.receive(Body(call.exchange, message["body"]))
            if not message.get("more_body", False):
                call.is_read = True
                self._host.receive(End(call.exchange))

    async def _drain(self, call: AsgiRequest, receive: Receive, send: Send) -> None:
        """Run what the request began, and send the response as it comes."""
        loop = self.loop
        async with loop.group() as runtime:
            call.open(runtime)
            listener: Spawned | None = None
            self._watch.begin(call)
            try:
                await self._read(call, receive)
                listener = runtime.spawn(self._listen(call, receive))
                while call.running or not call.is_over:
                    await self._send_ready(call, send)
                    if call.running or not call.is_over:
                        await call.wait(loop.runtime)
            finally:
                self._watch.end(call)
                if listener is not None:
                    listener.cancel()

    async def _listen(self, call: AsgiRequest, receive: Receive) -> None:
        """Notice a client that goes away. What else it sends was answered already, and is passed over."""
        while (await receive())["type"] != "http.disconnect":
            pass
        self._lose(call)
        call.wake()

    def _lose(self, call: AsgiRequest) -> None:
        if not call.is_over:
            call.is_over = True
            self._host.receive(Reset(call.exchange))

    async def _send_ready(self, call: AsgiRequest, send: Send) -> None:
        """Send what there is of the response, about 64 KiB at a time: ``send`` waits until the server takes more."""
        while not call.is_over and (items := self._host.responses_to_send(call.exchange)):
            call.is_over = isinstance(items[-1], End)
            if isinstance(items[-1], Reset):
                raise ConnectionAbortedError("the response broke off")  # how an application says so
            try:
                await _send(items, send, is_head=call.is_head)
            except OSError:
                # So some servers say that the client is gone.
                self._lose(call)
                call.is_over = True

    def _cut_off(self, call: AsgiRequest) -> None:
        """Take note that a call was cancelled, or failed: what ran in it was cut off, and its sessions go on."""
        self._lose(call)
        self._host.fail_abandoned()
        if self._server.tasks is not None:
            self._server.tasks.abandon(lambda handle: isinstance(handle, RequestTask) and handle.call is call)

    def _finish(self, call: AsgiRequest) -> None:
        call.is_done = True
        del self._calls[call.exchange]
        self._queue += call.queue

    def _put_tap(self, connection: ServerConnection) -> None:
        try:
            attach_tap(connection, self._tap, self.now())
        except Exception as error:
            report("a tap cannot hear of a session", error)

    def _wake(self, exchange: Hashable) -> None:
        call = self._calls.get(exchange)
        if call is not None:
            call.has_response = True
            call.wake()

    def close(self, grace: float | None) -> None:
        """End in order, at the loop's next turn."""
        if self._loop is None:
            self._host.close(grace)
        else:
            self._loop.runtime.call_soon(lambda: self._host.close(grace))

    # The life around the calls

    @contextlib.asynccontextmanager
    async def living(self) -> AsyncIterator[None]:
        """Have a place, for the length of a block, for what outlives its calls; at the end, end all sessions."""
        self._enter()
        async with self.loop.group() as runtime:
            self._home = home = AsgiRequest(0)
            home.open(runtime)
            self._watch.begin(home)
            try:
                async with self._with_tasks(home):
                    try:
                        yield
                    finally:
                        self._host.close(0)
            finally:
                async with self.loop.last_moment(LAST_STORED):
                    while home.running:
                        await home.wait(self.loop.runtime)
                self._home = None
                home.is_done = True
                self._watch.end(home)
                for task in tuple(home.running):
                    task.cancel()

    def _with_tasks(self, home: AsgiRequest) -> contextlib.AbstractAsyncContextManager[None]:
        """Let tasks that outlive their requests run, for a block, in the lifespan."""
        tasks = self._server.tasks
        if tasks is None:
            return contextlib.nullcontext()
        return hosted_tasks(tasks, TaskHost(AsgiRuntime(self, home), self.now), self._state, self.loop.last_moment)

    # The event loop

    @property
    def loop(self) -> EventLoop:
        """The event loop. ``RuntimeError`` before the first call."""
        if self._loop is None:
            raise RuntimeError("no request has come yet: there is no event loop")
        return self._loop

    def now(self) -> float:
        """Return the time, in seconds. It stands still between two event loops."""
        if self._loop is not None:
            self._now = self._loop.clock() + self._offset
        return self._now

    def _enter(self) -> None:
        """See that the event loop is the one in which all others are."""
        if self._loop is not None and self._loop.identity is loop_identity():
            return
        if self._calls or self._home is not None:
            raise RuntimeError("this application is being served in another event loop")
        self._loop = running_loop()
        self._offset = self._now - self._loop.clock()

    def spawn(self, coroutine: Coroutine[Any, Any, None], call: AsgiRequest | None = None) -> RequestTask:
        """Run a coroutine in a call, or in the one that is current_request.

        What nobody acts for runs in the lifespan, or in a call that is open, or in the next one.
        """
        task = RequestTask(coroutine)
        chosen = call or self._acting()
        if chosen is None:
            self._queue.append(task)
        else:
            chosen.add(task)
        return task

    def _acting(self) -> AsgiRequest | None:
        call = current_request.get()
        if call is not None and not call.is_done and self._calls.get(call.exchange) is call:
            return call
        return self._home or self._watch.somebody

    # Time

    def call_later(self, seconds: float, function: Callable[[], None]) -> Spawned:
        """Run a function after so many seconds, or when the next call comes where none is open by then."""
        return self._watch.set(self.now() + seconds, function)

    def _expire(self) -> None:
        self._host.handle_timeout()


class AsgiRuntime:
    """The seam to the event loop, whichever it is: tasks live in the current request, or in a given one."""

    def __init__(self, site: AsgiServer, call: AsgiRequest | None = None) -> None:
        self._site = site
        self._call = call

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> RequestTask:
        """Run a coroutine as a task of its own."""
        return self._site.spawn(coroutine, self._call)

    def call_later(self, seconds: float, function: Callable[[], None]) -> Spawned:
        """Run a function after so many seconds."""
        return self._site.call_later(seconds, function)

    def one_shot(self) -> OneShot:
        """Return a value to wait for."""
        return self._site.loop.runtime.one_shot()

    def sleep(self, seconds: float) -> Awaitable[None]:
        """Wait for so long."""
        return self._site.loop.runtime.sleep(seconds)

    def entropy(self, size: int) -> bytes:
        """Return bytes that nobody can guess."""
        return os.urandom(size)

    def wall_clock(self) -> float:
        """Return the time of day."""
        return time.time()

    def to_thread(self, function: Callable[[], T]) -> Awaitable[T]:
        """Run a blocking function in a thread; a cancelled wait abandons it."""
        return self._site.loop.runtime.to_thread(function)

    def from_thread(self, function: Callable[[], T]) -> T:
        """Run a function in the loop's thread, from any other."""
        return self._site.loop.runtime.from_thread(function)

    def call_soon(self, function: Callable[[], None]) -> None:
        """Run a function at the loop's next turn."""
        self._site.loop.runtime.call_soon(function)


async def _send(items: list[ResponseItem], send: Send, *, is_head: bool) -> None:
    """Send a part of a response, its body in one piece."""
    data: list[bytes] = []
    for item in items:
        if isinstance(item, ResponseHead):
            await send({"type": "http.response.start", "status": item.status, "headers": [*item.headers]})
        elif isinstance(item, Body):
            data.append(item.data)
    is_last = isinstance(items[-1], End)
    if data or is_last:
        body = b"" if is_head else b"".join(data)
        await send({"type": "http.response.body", "body": body, "more_body": not is_last})
