"""One connection as the application has it: requests are awaited, and what the peer asks runs a handler.

A driver feeds the connection, calls ``process``, and writes what there is to write. Everything here happens in the
loop's own thread, between two waits.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

from mcpio.app.context import RequestScope
from mcpio.app.runtime import Driver, OneShot, Task
from mcpio.engine.connection import DEFAULT, Connection, Default
from mcpio.engine.limits import Timeout
from mcpio.engine.table import Phase
from mcpio.errors import ErrorCode, InvalidMessage, LocalProtocolError, NoBackChannel, Refusal, RequestError
from mcpio.events import (
    CancelReceived,
    ConnectionClosed,
    Event,
    IncomingId,
    Initialized,
    NotificationReceived,
    ProgressReceived,
    RequestFailed,
    RequestReceived,
    ResponseReceived,
)

__all__ = ["Handler", "ProgressCallback", "Session", "Waiter"]

Handler: TypeAlias = Callable[[Any, Any], Any]
"""Takes the scope and the typed request; returns the typed result, or a coroutine that does."""

ProgressCallback: TypeAlias = Callable[[float, float | None, str | None], None]
"""Takes progress, total and message."""

SLOW = 0.05
"""Seconds that a plain function may take in the loop's thread before it is reported."""


class Session(ABC):
    """What a client and a server session share. Subclasses say which handler serves which request."""

    def __init__(self, connection: Connection, driver: Driver) -> None:
        self.connection = connection
        self.driver = driver
        self.ended: ConnectionClosed | None = None
        self._running: dict[IncomingId, tuple[RequestScope, Task]] = {}

    # For the driver

    def process(self) -> None:
        """Act on every event that the connection has."""
        next_event = self.connection.next_event
        while (event := next_event()) is not None:
            self._handle(event)

    # For the application

    async def request(
        self,
        request: Any,
        *,
        timeout: Timeout | float | None | Default = DEFAULT,
        on_progress: ProgressCallback | None = None,
        related_to: IncomingId | None = None,
    ) -> Any:
        """Ask the peer and return its typed result.

        ``timeout`` is in seconds; see ``Connection.send_request``. Raises ``RequestError`` when the peer answers with
        an error, ``RequestTimeout``, ``ConnectionLost``, ``InvalidMessage`` for a result that makes no sense,
        ``NoBackChannel`` on a connection that is closed, and ``LocalProtocolError`` for what must not be asked.
        Cancelling the wait cancels the request.
        """
        self.check_open()
        waiter = Waiter(self.driver.runtime.one_shot(), on_progress)
        id = self.connection.send_request(
            request,
            now=self.driver.now(),
            timeout=timeout,
            cookie=waiter,
            related_to=related_to,
            progress=on_progress is not None,
        )
        self.driver.wake()
        try:
            outcome = await waiter.outcome.wait()
        except BaseException:
            # The wait was cancelled, in whatever way this event loop says so.
            self.connection.cancel_request(id, "the caller gave up")
            self.driver.wake()
            raise
        if outcome.__class__ is ResponseReceived:
            return outcome.result
        raise outcome.error

    def notify(self, notification: Any, *, related_to: IncomingId | None = None) -> None:
        """Tell the peer something, without waiting. Raises as ``request`` does."""
        self.check_open()
        self.connection.send_notification(notification, related_to=related_to)
        self.driver.wake()

    def send_progress(self, id: IncomingId, progress: float, total: float | None, message: str | None) -> None:
        """Report progress on a request of the peer's; a report that does not increase is left out (PROG-04)."""
        try:
            self.connection.send_progress(id, progress, total, message)
        except LocalProtocolError:
            return
        self.driver.wake()

    def check_open(self) -> None:
        """Raise ``NoBackChannel`` when nothing can be sent any more."""
        if self.connection.phase in (Phase.CLOSING, Phase.CLOSED):
            raise NoBackChannel("the connection is closed")

    def close(self, grace: float = 5.0) -> None:
        """Close the connection in order, giving answers that are due at most ``grace`` seconds.

        Returns at once. Legal from any task, any thread and any signal handler, in any order, any number of times.
        """
        self.driver.close(grace)

    async def aclose(self, grace: float = 5.0) -> None:
        """Close the connection and wait until it has ended and its transport is closed."""
        self.driver.close(grace)
        await self.driver.wait_closed()

    # Events

    def _handle(self, event: Event) -> None:
        kind = event.__class__
        if kind is RequestReceived:
            self._serve(event)  # type: ignore[arg-type]  # the class was just compared
        elif kind is ResponseReceived or kind is RequestFailed:
            event.cookie.outcome.set(event)  # type: ignore[union-attr]  # as above
        elif isinstance(event, ProgressReceived):
            self._tell_progress(event)
        elif isinstance(event, NotificationReceived | Initialized):
            self._handle_notification(event)
        elif isinstance(event, CancelReceived):
            self._cancel(event)
        elif isinstance(event, ConnectionClosed):
            self._handle_end(event)

    @abstractmethod
    def _handler_for(self, event: RequestReceived) -> Handler:
        """Return what serves a request. The engine lets through only what the capabilities promise."""

    def _scope_for(self, event: RequestReceived) -> RequestScope:
        """Return what a handler gets to see of its request."""
        return RequestScope(self, event)

    @abstractmethod
    def _handle_notification(self, event: NotificationReceived | Initialized) -> None:
        """Act on what the peer tells."""

    def _handle_end(self, event: ConnectionClosed) -> None:
        self.ended = event
        for scope, task in self._running.values():
            scope.cancelled = True
            task.cancel()

    def _tell_progress(self, event: ProgressReceived) -> None:
        try:
            event.cookie.on_progress(event.progress, event.total, event.message)
        except Exception as error:
            self.driver.report("a progress callback failed", error)

    def _cancel(self, event: CancelReceived) -> None:
        running = self._running.get(event.id)
        if running is not None:
            scope, task = running
            scope.cancelled = True
            task.cancel()

    # Handlers

    def _serve(self, event: RequestReceived) -> None:
        """Run the handler: a plain function here and now, a coroutine as a task of its own."""
        scope = self._scope_for(event)
        began = self.driver.now()
        try:
            result = self._handler_for(event)(scope, event.request)
        except Exception as error:
            self._fail(event, error)
            return
        if inspect.isawaitable(result):
            self._running[event.id] = (scope, self.driver.runtime.spawn(self._finish(event, result)))
            return
        self._answer(event, result)
        if self.driver.now() - began > SLOW:
            self._report_slow(event, self.driver.now() - began)

    async def _finish(self, event: RequestReceived, result: Awaitable[Any]) -> None:
        try:
            self._answer(event, await result)
        except Exception as error:
            self._fail(event, error)
        finally:
            del self._running[event.id]
            self.driver.wake()

    def _answer(self, event: RequestReceived, result: Any) -> None:
        try:
            self.connection.send_result(event.id, result)
        except LocalProtocolError as error:
            self._fail(event, error)

    def _fail(self, event: RequestReceived, error: Exception) -> None:
        self.connection.send_error(event.id, self._wire_error(event, error))

    def _wire_error(self, event: RequestReceived, error: Exception) -> RequestError:
        """Return what the peer gets to know of a failure: nothing that the author did not say (RPC-19)."""
        if isinstance(error, RequestError):
            return error
        if isinstance(error, Refusal):
            data = {"retryable": error.retryable, **(error.data if isinstance(error.data, Mapping) else {})}
            return RequestError(error.code, str(error.args[0]), data)
        if isinstance(error, InvalidMessage):
            return RequestError(ErrorCode.INVALID_PARAMS, f"Invalid params: {error}", {"path": error.path})
        self.driver.report(f"the handler of {event.raw['method']} failed", error)
        return RequestError(ErrorCode.INTERNAL_ERROR, "Internal error")

    def _report_slow(self, event: RequestReceived, seconds: float) -> None:
        self.driver.report(
            f"a handler of {event.raw['method']} held up everything else for {seconds * 1000:.0f} ms: "
            "make it async, or register it with blocking=True to run it in a thread",
            None,
        )


class Waiter:
    """The cookie of a request: who waits for it."""

    __slots__ = ("on_progress", "outcome")

    def __init__(self, outcome: OneShot, on_progress: ProgressCallback | None) -> None:
        self.outcome = outcome
        self.on_progress = on_progress
