"""Requests and streams of the HTTP machine under an ASGI server."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Hashable, Mapping, MutableMapping
from contextvars import ContextVar
from functools import lru_cache
from math import inf
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

import attrs

from mcpio._drivers import LookupTimeout, TapSource, attach_tap, denied_in_time, in_time, report
from mcpio._drivers.actor import TaskHost, hosted_tasks, name_stubborn_handlers
from mcpio._drivers.event_loop import STORE_TIMEOUT, EventLoop, Flag
from mcpio.app.http_host import HttpHost
from mcpio.app.runtime import OneShot, Runtime, Spawned, StallDetector, is_awaitable
from mcpio.asgi._event_loop import running_loop
from mcpio.engine.channel import Timers
from mcpio.http.lifecycle import LINGER, SHORT_BODY, Action, Input, Lifecycle, State, announces_short_body
from mcpio.http.model import (
    Answer,
    Body,
    End,
    Headers,
    HostPolicy,
    RequestHead,
    RequestItem,
    Reset,
    ResponseHead,
    ResponseItem,
)

if TYPE_CHECKING:
    from mcpio.app.server import Server
    from mcpio.app.session import UnansweredPolicy
    from mcpio.app.session_store import SessionStore
    from mcpio.asgi._websockets import WebSockets
    from mcpio.auth.resource_server import ResourceServer
    from mcpio.engine.server import ServerConnection
    from mcpio.http.model import HttpOptions
    from mcpio.websocket.frames import WebSocketOptions


# ------------------------------------------------------------------------------------------------------------- requests
# Requests of an ASGI application, and what lives in them: tasks, and the timer that watches all deadlines.


class _NoTimeouts:
    """The ASGI server limits how long its clients may take."""

    head = body = idle = None
    rate = inf


_NO_TIMEOUTS = _NoTimeouts()


class AsgiRequest:
    """One call of the application, or the lifespan around all of them: tasks that begin in it live in it.

    Tasks need a task group of the event loop. Requests that are answered at once begin none, so a request has no group
    until ``open`` gives it one.
    """

    __slots__ = (
        "_is_woken",
        "_life",
        "_woken",
        "exchange",
        "has_begun",
        "has_short_body",
        "is_head",
        "is_whole",
        "queue",
        "running",
        "runtime",
        "unread_status",
    )

    exchange: int
    """The machine's name for its exchange."""
    has_begun: bool
    """Whether the ASGI server got the head of the response."""
    has_short_body: bool
    """Whether a short body follows the head, unasked."""
    is_head: bool
    """Whether the response has no body, as for HEAD."""
    is_whole: bool
    """Whether the machine got all of it in one call."""
    queue: list[RequestTask]
    """The tasks that wait for ``open``."""
    running: dict[RequestTask, None]
    """The tasks that are not over."""
    runtime: Runtime | None
    """The event loop, with the request's own task group."""
    unread_status: int | None
    """The status of the response for a client that has left; ``None`` while it has not."""

    def __init__(self, exchange: int, *, is_head: bool = False) -> None:
        self.exchange = exchange
        self.is_head = is_head
        self.has_begun = self.has_short_body = self.is_whole = False
        self.unread_status = None
        self._life: Lifecycle | None = None
        self.queue = []
        self.running = {}
        self.runtime = None
        self._is_woken = False
        self._woken: Flag | None = None

    @property
    def life(self) -> Lifecycle:
        """The state of the exchange. ``SEND_HEAD`` is applied when the machine has output of the response."""
        # A request that is answered within the call that brings it has none.
        if self._life is None:
            state = State.ANSWER if self.is_whole else State.BODY
            self._life = Lifecycle(_NO_TIMEOUTS, 0.0, state=state, is_last=True)
        return self._life

    def add(self, task: RequestTask) -> None:
        """Run a task in this request."""
        if self.runtime is None:
            self.queue.append(task)
        else:
            task.start(self, self.runtime)

    def open(self, runtime: Runtime, woken: Flag) -> None:
        """Start the tasks that wait, in the group of ``runtime``, and later ones at once; ``wake`` raises ``woken``."""
        self.runtime = runtime
        self._woken = woken
        if self._is_woken:
            woken.set()
        queue, self.queue = self.queue, []
        for task in queue:
            task.start(self, runtime)

    def wake(self) -> None:
        """Raise the flag that ``open`` was given, or is given later."""
        if self._woken is None:
            self._is_woken = True
        else:
            self._woken.set()


current_request: ContextVar[AsgiRequest | None] = ContextVar("mcpio.asgi.current_request", default=None)
"""The request in which the present code runs."""


class RequestTask:
    """A coroutine that runs in a request, as soon as the request has a task group."""

    __slots__ = ("_coroutine", "_is_cancelled", "_task", "request")

    def __init__(self, coroutine: Coroutine[Any, Any, None]) -> None:
        self._coroutine = coroutine
        self._is_cancelled = False
        self._task: Spawned | None = None
        self.request: AsgiRequest | None = None

    def cancel(self) -> None:
        """Cancel the coroutine at its next wait."""
        self._is_cancelled = True
        if self._task is not None:
            self._task.cancel()

    def start(self, request: AsgiRequest, runtime: Runtime) -> None:
        """Run the coroutine in a request."""
        self.request = request
        request.running[self] = None
        self._task = runtime.spawn(self._run(request))
        if self._is_cancelled:
            self._task.cancel()

    async def _run(self, request: AsgiRequest) -> None:
        # The context was copied from the task that spawned this one, which may belong to another request.
        current_request.set(request)
        try:
            await self._coroutine
        finally:
            del request.running[self]
            if not request.running:
                request.wake()


class DeadlineWatch:
    """The deadlines of an application. One open request runs the timer for all.

    An application without a lifespan has no task between requests: with no request open, deadlines are checked when
    the next one comes.
    """

    def __init__(self, now: Callable[[], float], expire: Callable[[], None]) -> None:
        """``now`` returns the time; ``expire`` lets the deadlines of the host expire."""
        self._now = now
        self._expire = expire
        self.earliest = inf
        """When ``check`` is due, or earlier."""
        self._watching: dict[AsgiRequest, None] = {}
        self._deadline: float | None = None
        self._timers: Timers[int] = Timers()
        self._calls: dict[int, Callable[[], None]] = {}
        self._last = 0
        # The request that runs the timer, the time that it sleeps until, and the task that sleeps.
        self._sleeper: tuple[AsgiRequest, float, Spawned] | None = None

    @property
    def any_request(self) -> AsgiRequest | None:
        """A request that runs the timer, or could."""
        return next(iter(self._watching), None)

    def begin(self, request: AsgiRequest) -> None:
        """Run the timer in an open request, unless another runs it."""
        self._watching[request] = None
        self._arm()

    def end(self, request: AsgiRequest) -> None:
        """Hand the timer over to another open request."""
        del self._watching[request]
        if self._sleeper is not None and self._sleeper[0] is request:
            self._sleeper[2].cancel()
            self._sleeper = None
            self._arm()

    def check(self) -> None:
        """Handle the expired deadlines."""
        self._deadline = None  # the host reports its next one, if it has any
        self._expire()
        for number in self._timers.pop_expired(self._now()):
            function = self._calls.pop(number, None)
            if function is not None:
                function()
        self._arm()

    def set_host_deadline(self, deadline: float | None) -> None:
        """Replace the deadline of the host."""
        self._deadline = deadline
        self._arm()

    def call_at(self, when: float, function: Callable[[], None]) -> ScheduledCall:
        """Call a function at a time, unless the returned handle is cancelled before."""
        self._last += 1
        self._timers.set(self._last, when)
        self._calls[self._last] = function
        self._arm()
        return ScheduledCall(self, self._last)

    def cancel(self, number: int) -> None:
        """Cancel a scheduled call."""
        self._timers.clear(number)
        self._calls.pop(number, None)

    def _arm(self) -> None:
        deadline, scheduled = self._deadline, self._timers.next()
        if deadline is None or (scheduled is not None and scheduled < deadline):
            deadline = scheduled
        self.earliest = inf if deadline is None else deadline
        # A task that sleeps until an earlier time wakes up for nothing, which costs less than to replace it.
        if deadline is None or (self._sleeper is not None and self._sleeper[1] <= deadline):
            return
        if self._sleeper is not None:
            self._sleeper[2].cancel()
            self._sleeper = None
        request = self.any_request
        if request is not None and request.runtime is not None:
            sleeper = request.runtime.spawn(self._sleep(request.runtime, deadline))
            self._sleeper = (request, deadline, sleeper)

    async def _sleep(self, runtime: Runtime, until: float) -> None:
        # A microsecond more: rounding could wake it just before the deadline, to sleep once more.
        await runtime.sleep(until - self._now() + 1e-6)
        self._sleeper = None  # before ``check`` arms the next one, which would cancel this task
        self.check()


class ScheduledCall:
    """A function that ``DeadlineWatch.call_at`` is to call."""

    __slots__ = ("_number", "_watch")

    def __init__(self, watch: DeadlineWatch, number: int) -> None:
        self._watch = watch
        self._number = number

    def cancel(self) -> None:
        """Cancel the call, unless it was made."""
        self._watch.cancel(self._number)


# --------------------------------------------------------------------------------------------------------------- server
# The HTTP machine under any ASGI server: its sessions, the requests that are open, and the event loop around them.

T = TypeVar("T")

Scope: TypeAlias = MutableMapping[str, Any]
_INCOMPLETE: Final = 400
"""The status of a request whose client left before its end."""
_UNREAD: Final = 204
"""The status of a request whose client left before the response began: the response is empty."""
_UVICORN_TICK: Final = 0.1
"""Seconds between two looks at uvicorn, which looks at its own flags as often."""

IdentifyRequest: TypeAlias = "Callable[[Scope, str, str], Any]"
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]


@attrs.frozen
class AsgiConfig:
    """The arguments of ``app``."""

    http: HttpOptions
    tap: TapSource | None
    store: SessionStore | None
    unanswered: UnansweredPolicy
    auth: ResourceServer | None = None
    websocket: WebSocketOptions | None = None
    identify: IdentifyRequest | None = None
    """Takes the scope of a request, its method and its target, and returns its principal or an awaitable of it."""


class AsgiServer:
    """Serves one ``Server``, in one event loop at a time.

    Sessions outlive an event loop in which no request is open any more, and continue in the next one.
    """

    def __init__(self, server: Server, config: AsgiConfig, state: Any) -> None:
        """``state`` is the value of the server's lifespan."""
        self._server = server
        self._tap = config.tap
        self._state = state
        self._loop: EventLoop | None = None
        self._now = self._offset = 0.0
        self._requests: dict[Hashable, AsgiRequest] = {}
        self._last = 0
        # Stands for the lifespan, in which tasks may outlive their requests.
        self._lifespan: AsgiRequest | None = None
        # Tasks that no open request took: they run in the next one.
        self._queue: list[RequestTask] = []
        self._watch = DeadlineWatch(self.now, self._expire)
        self._host = HttpHost(
            server,
            AsgiRuntime(self),
            clock=self.now,
            on_ready=self._wake,
            on_deadline=self._watch.set_host_deadline,
            report=report,
            options=config.http,
            state=state,
            on_connection=None if config.tap is None else self._attach_tap,
            store=config.store,
            unanswered=config.unanswered,
            protected=config.auth,
        )
        self._identify = config.identify
        self._path = config.http.path
        self._has_policy = config.http.policy != HostPolicy(None, None)
        # The head of a request waits for a body that is no longer than this.
        self._most_at_once = min(SHORT_BODY, server.options.limits.message_bytes)
        self._websockets = None if config.websocket is None else _websockets(server, config, config.websocket, state)

    # Requests

    async def serve(self, scope: Scope, receive: Receive, send: Send, target: str | None = None) -> None:
        """Serve one request; return when everything that it began is done, even if its client has disconnected.

        ``target`` takes the place of the path in the scope.
        """
        if self._loop is None or not self._loop.is_current():
            self._enter_loop()
        method, headers = scope["method"], headers_of(scope)
        target, policy = target or self._target(scope), self._policy(scope)
        principal: Any = None
        if self._identify is not None and is_awaitable(principal := self._identify(scope, method, target)):
            principal = await self._found(principal)
        self._last += 1
        head = RequestHead(self._last, method, target, headers, principal, policy)
        request = self._requests[self._last] = AsgiRequest(self._last, is_head=method == "HEAD")
        token = current_request.set(request)
        try:
            # Together they cost the machine half as much as one after the other.
            request.has_short_body = self._comes_at_once(head.fields)
            message = await receive() if request.has_short_body else None
            if message is not None and message["type"] == "http.disconnect":
                request.unread_status = _INCOMPLETE
                await _send_unread(request, send)
                return
            request.queue, self._queue = self._queue, []
            now = self.now()
            if self._watch.earliest <= now:
                self._watch.check()  # deadlines that passed while no request was open to watch them
            if message is None:
                self._host.receive(head)
            elif message.get("more_body", False):
                self._take(request, message, head)
            else:
                request.is_whole = True
                answer = self._host.serve(head, message.get("body", b""), now)
                if answer is not None:
                    await _send_answer(answer, send, is_head=request.is_head)
                    if request.queue:
                        # The handler has begun tasks, which live in this call.
                        self._step(request, Input.SEND_END)
                        await self._drain(request, receive, send)
                    return
            del head, headers, message  # a handler may wait for long, and nothing reads them
            await self._read(request, receive)
            if request.life.state is State.ANSWER and not request.queue:
                # Answered at once, as by plain functions: a task group would cost more than the request.
                await self._send_ready(request, send)
            if request.queue or request.life.is_open:
                await self._drain(request, receive, send)
            await _send_unread(request, send)
        except BaseException:
            # Cancelled, or the ASGI server failed: no task can begin in it any more, so it is out of the list first.
            del self._requests[request.exchange]
            self._abandon(request)
            raise
        finally:
            current_request.reset(token)
            self._requests.pop(request.exchange, None)
            self._queue += request.queue  # those that it took over or began, and never started

    async def serve_websocket(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one WebSocket until its session has ended."""
        self._enter_loop()
        assert self._websockets is not None
        target = self._target(scope)
        principal: Any = None
        if self._identify is not None and is_awaitable(principal := self._identify(scope, "GET", target)):
            principal = await self._found(principal)
        head = RequestHead(None, "GET", target, headers_of(scope), principal, self._policy(scope))
        await self._websockets.serve(head, scope, receive, send)

    async def _found(self, lookup: Awaitable[Hashable]) -> Hashable:
        """Return the principal of a request, or ``Denied`` if that takes too long."""
        try:
            return await in_time(lookup, self.loop)
        except LookupTimeout as timeout:
            return denied_in_time(timeout, self._host.report_fault)

    def _target(self, scope: Scope) -> str:
        """Return the target for the machine, whose endpoint is the path that the application is mounted at."""
        path, root = scope["path"], scope.get("root_path", "").rstrip("/")
        # Newer ASGI servers and frameworks include root_path in path; older ones leave it out.
        if root and (path == root or path.startswith(f"{root}/")):
            path = path[len(root) :]
        # The path is decoded: a question mark in it would begin the query.
        path = path.rstrip("/").replace("?", "%3F") or self._path
        query = scope.get("query_string", b"").decode("latin-1")
        return f"{path}?{query}" if query else path

    def _policy(self, scope: Scope) -> HostPolicy | None:
        """Return the host policy for the address that a request came to; ``None`` to use the policy of the options."""
        address = scope.get("server")
        if self._has_policy or not address or address[1] is None:
            return None
        return _policy_for(address[0], address[1])

    def _comes_at_once(self, fields: Mapping[bytes, bytes]) -> bool:
        """Whether a short body follows, which the client sends with the head.

        Any other head is looked at first, and may be refused before its body is read.
        """
        return announces_short_body(fields) and int(fields[b"content-length"]) <= self._most_at_once

    async def _read(self, request: AsgiRequest, receive: Receive) -> None:
        """Read the request until a task wants to run, or until it is answered before its end."""
        # A task that waits can run only in the group that ``_drain`` opens, which then reads on.
        while request.life.state is State.BODY and not request.queue:
            message = await receive()
            if message["type"] == "http.disconnect":
                self._disconnect(request)
                return
            self._take(request, message)

    def _take(self, request: AsgiRequest, message: Message, *before: RequestHead) -> None:
        """Pass on a piece of the body, with the head if that comes before it."""
        items: list[RequestItem] = [*before]
        if message.get("body"):
            items.append(Body(request.exchange, message["body"]))
        if not message.get("more_body", False):
            self._step(request, Input.RECV_END)
            items.append(End(request.exchange))
        if items:
            self._host.receive(*items)

    async def _drain(self, request: AsgiRequest, receive: Receive, send: Send) -> None:
        """Run the work that the request started, and send the response as it becomes ready."""
        loop, life = self.loop, request.life
        woken = loop.signal()
        async with loop.group() as runtime:
            request.open(runtime, woken)
            listener: Spawned | None = None
            self._watch.begin(request)
            try:
                await self._read(request, receive)
                if life.state is State.EARLY and not request.has_short_body:
                    # Before it listens: a call of receive has the ASGI server ask for a body that the client withholds.
                    await self._send_ready(request, send)
                if life.is_open:
                    listener = runtime.spawn(self._listen(request, receive))
                if life.state is State.EARLY:
                    # hypercorn ends an HTTP/2 connection when a body comes after the response.
                    with loop.scope(LINGER):
                        while life.state is State.EARLY:
                            await woken.wait()
                    await self._send_ready(request, send)
                while request.running or life.is_open:
                    await woken.wait()
                    await self._send_ready(request, send)
            finally:
                self._watch.end(request)
                if listener is not None:
                    listener.cancel()

    async def _listen(self, request: AsgiRequest, receive: Receive) -> None:
        """Notice a client that disconnects. A body that still comes was answered already, and is dropped."""
        while (message := await receive())["type"] != "http.disconnect":
            if request.life.state is State.EARLY and not message.get("more_body", False):
                self._step(request, Input.RECV_END)
                request.wake()
        self._disconnect(request)
        request.wake()

    def _disconnect(self, request: AsgiRequest) -> None:
        if request.life.is_open:
            request.unread_status = _UNREAD if request.life.state is State.ANSWER else _INCOMPLETE
        if self._step(request, Input.RECV_LOSS) is Action.RESET:
            self._host.receive(Reset(request.exchange))

    async def _send_ready(self, request: AsgiRequest, send: Send) -> None:
        """Send the host's output of the response, about 64 KiB at a time: ``send`` waits while the server is full."""
        life = request.life
        while life.is_open and (items := self._host.responses_to_send(request.exchange)):
            if isinstance(items[-1], Reset):
                self._step(request, Input.SEND_RESET)
                raise ConnectionAbortedError("the response was aborted")  # tells the ASGI server to disconnect
            if isinstance(items[-1], End):
                # Before the wait: the machine has given all of it, and need not hear of a client that leaves now.
                self._step(request, Input.SEND_END)
            request.has_begun = True
            try:
                await _send(items, send, is_head=request.is_head)
            except OSError:
                # ASGI servers may say so that the client has disconnected.
                self._disconnect(request)

    def _abandon(self, request: AsgiRequest) -> None:
        """Answer for the handlers of a request that was cancelled or failed. Its session continues."""
        self._disconnect(request)
        self._host.fail_abandoned()
        if self._server.tasks is not None:
            self._server.tasks.abandon(lambda task: isinstance(task, RequestTask) and task.request is request)

    def _wake(self, exchange: Hashable) -> None:
        request = self._requests.get(exchange)
        if request is not None:
            if request.life.state is State.BODY:
                self._step(request, Input.SEND_HEAD)
            request.wake()

    def _step(self, request: AsgiRequest, event: Input) -> Action:
        return request.life.step(event, 0.0)  # without timeouts, the time does not matter

    def _attach_tap(self, connection: ServerConnection) -> None:
        try:
            attach_tap(connection, self._tap, self.now())
        except Exception as error:
            self._host.report_fault("a tap cannot be attached to a session", error)

    def close(self, grace: float | None) -> None:
        """End all sessions gracefully, at the loop's next turn."""
        if self._loop is None:
            self._close_all(grace)
        else:
            self._loop.runtime.call_soon(lambda: self._close_all(grace))

    def _close_all(self, grace: float | None) -> None:
        self._host.close(grace)
        if self._websockets is not None:
            self._websockets.close(inf if grace is None else grace)

    # The lifespan

    @contextlib.asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        """Keep tasks beyond their requests for the length of a block; at its end, end all sessions."""
        self._enter_loop()
        woken = self.loop.signal()
        async with self.loop.group() as runtime:
            self._lifespan = lifespan = AsgiRequest(0)
            lifespan.open(runtime, woken)
            self._watch.begin(lifespan)
            follower = runtime.spawn(self._follow_uvicorn(runtime))
            try:
                host = TaskHost(AsgiRuntime(self, lifespan), self.now)
                async with hosted_tasks(self._server, host, self._state, self.loop.last_moment):
                    try:
                        yield
                    finally:
                        self._close_all(0)
            finally:
                follower.cancel()
                async with self.loop.last_moment(STORE_TIMEOUT):
                    while lifespan.running:
                        await woken.wait()
                self._lifespan = None
                self._watch.end(lifespan)
                await name_stubborn_handlers(self.loop, *self._host.take_sessions())
                for task in tuple(lifespan.running):
                    task.cancel()

    async def _follow_uvicorn(self, runtime: Runtime) -> None:
        """Close when uvicorn shuts down; do nothing under other servers.

        uvicorn waits for open requests before it ends the lifespan, and a listening client is an open request. Running
        handlers get the time that uvicorn gives them, less what it takes to write their answers.
        """
        server = _uvicorn()
        if server is None:
            return
        while not server.should_exit:
            await runtime.sleep(_UVICORN_TICK)
        limit = server.config.timeout_graceful_shutdown
        self._close_all(None if limit is None else max(limit - 0.5, limit / 2))

    # The event loop

    @property
    def loop(self) -> EventLoop:
        """The event loop. Raises RuntimeError before the first request."""
        if self._loop is None:
            raise RuntimeError("no request has come yet: there is no event loop")
        return self._loop

    def now(self) -> float:
        """Return the time in seconds. It stands still between two event loops."""
        if self._loop is not None:
            self._now = self._loop.now() + self._offset
        return self._now

    def _enter_loop(self) -> None:
        """Use the running event loop. Raises RuntimeError if requests are open in another one."""
        if self._loop is not None and self._loop.is_current():
            return
        if self._requests or self._lifespan is not None or self._websockets:  # false while no WebSocket is open
            raise RuntimeError("this application is being served in another event loop")
        self._loop = running_loop()
        # Loops count from different origins: the time of the sessions goes on from where it stood.
        self._offset = self._now - self._loop.now()

    def spawn(self, coroutine: Coroutine[Any, Any, None], request: AsgiRequest | None = None) -> RequestTask:
        """Run a coroutine in a request, by default the current one.

        Outside of requests it runs in the lifespan; without one in any open request, or in the next.
        """
        task = RequestTask(coroutine)
        chosen = request or self._current_request()
        if chosen is None:
            self._queue.append(task)
        else:
            chosen.add(task)
        return task

    def _current_request(self) -> AsgiRequest | None:
        request = current_request.get()
        if request is not None and self._requests.get(request.exchange) is request:
            return request
        return self._lifespan or self._watch.any_request

    # Time

    def call_later(self, seconds: float, function: Callable[[], None]) -> Spawned:
        """Call a function after ``seconds``; with no request open by then, when the next one comes."""
        return self._watch.call_at(self.now() + seconds, function)

    def _expire(self) -> None:
        self._host.handle_timeout()


class AsgiRuntime:
    """The ``Runtime`` of the running event loop: tasks live in the current request, or in a given one."""

    def __init__(self, server: AsgiServer, request: AsgiRequest | None = None) -> None:
        self._server = server
        self._request = request

    @property
    def cancellation(self) -> type[BaseException]:
        """The exception of a cancelled task."""
        return self._server.loop.runtime.cancellation

    @property
    def stalls(self) -> StallDetector:
        """The judge of steps that held the loop's thread for long."""
        return self._server.loop.runtime.stalls

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> RequestTask:
        """Run a coroutine as a task."""
        return self._server.spawn(coroutine, self._request)

    def call_later(self, seconds: float, function: Callable[[], None]) -> Spawned:
        """Call a function after ``seconds``."""
        return self._server.call_later(seconds, function)

    def one_shot(self) -> OneShot:
        """Return a value to wait for."""
        return self._server.loop.runtime.one_shot()

    def sleep(self, seconds: float) -> Awaitable[None]:
        """Wait for ``seconds``."""
        return self._server.loop.runtime.sleep(seconds)

    def entropy(self, size: int) -> bytes:
        """Return unguessable bytes."""
        return os.urandom(size)

    def wall_clock(self) -> float:
        """Return Unix time."""
        return time.time()

    def to_thread(self, function: Callable[[], T]) -> Awaitable[T]:
        """Run a blocking function in a thread; a cancelled wait abandons it."""
        return self._server.loop.runtime.to_thread(function)

    def from_thread(self, function: Callable[[], T]) -> T:
        """Run a function in the loop's thread, from any thread."""
        return self._server.loop.runtime.from_thread(function)

    def call_soon(self, function: Callable[[], None]) -> None:
        """Call a function at the loop's next turn."""
        self._server.loop.runtime.call_soon(function)


async def _send_answer(answer: Answer, send: Send, *, is_head: bool) -> None:
    """Send a whole response."""
    status, fields, body = answer
    try:
        await send({"type": "http.response.start", "status": status, "headers": [*fields]})
        await send({"type": "http.response.body", "body": b"" if is_head else body, "more_body": False})
    except OSError:
        return  # ASGI servers may say so that the client has disconnected


async def _send_unread(request: AsgiRequest, send: Send) -> None:
    """Send an empty response if the client left before one began: frameworks count a call without one as a failure."""
    status = request.unread_status
    if status is None or request.has_begun:
        return
    with contextlib.suppress(OSError):
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


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


def _websockets(server: Server, config: AsgiConfig, options: WebSocketOptions, state: Any) -> WebSockets:
    from mcpio.asgi._websockets import WebSockets  # only applications with WebSocket pay for it

    ends_with_token = config.auth is not None and not config.auth.outlive_token
    return WebSockets(server, state, config.http, options, config.tap, ends_with_token=ends_with_token)


def _uvicorn() -> Any:
    """Return the ``uvicorn.Server`` that handles the signals of this process; ``None`` if there is none."""
    uvicorn = sys.modules.get("uvicorn")
    owner = getattr(signal.getsignal(signal.SIGTERM), "__self__", None)
    return owner if uvicorn is not None and isinstance(owner, uvicorn.Server) else None


# Bounded: some ASGI servers take the address from the client's Host header.
_policy_for = lru_cache(maxsize=64)(HostPolicy.for_address)


def headers_of(scope: Scope) -> Headers:
    """Return the header fields of a scope, with names in lower case."""
    return tuple([(name.lower(), value) for name, value in scope["headers"]])
