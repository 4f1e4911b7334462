"""One connection as the application has it: requests are awaited, and what the peer asks runs a handler.

A driver feeds the connection, calls ``process``, and writes what there is to write. Everything here happens in the
loop's own thread, between two waits.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeAlias

import attrs

from mcpio.app.awaitables import (
    ProgressCallback,
    cancellation_of,
    check_nothing_waits,
    checked_callback,
    is_awaitable,
    is_stopping,
)
from mcpio.app.context import RequestScope
from mcpio.app.reporting import (
    SLOW,
    FaultReports,
    PeerFaults,
    alone,
    internal_error,
    is_only_the_end,
    named,
    said_by_author,
)
from mcpio.app.runtime import Driver, OneShot, Spawned
from mcpio.app.tasks.calls import TaskCalls
from mcpio.app.thread_pool import ThreadPool
from mcpio.engine.connection import DEFAULT, Connection, Default
from mcpio.engine.keep_alive import KEEP_ALIVE
from mcpio.engine.limits import Timeout
from mcpio.engine.payloads import method_to_send
from mcpio.engine.table import Phase
from mcpio.errors import (
    ConnectionLost,
    ErrorCode,
    LocalProtocolError,
    MessageTooLarge,
    NoBackChannel,
    OutputFull,
    RequestError,
    RequestTimeout,
    URLElicitationRequired,
)
from mcpio.events import (
    Answered,
    CancelReceived,
    CloseReason,
    ConnectionClosed,
    Event,
    IncomingId,
    Initialized,
    Negotiated,
    NoiseReceived,
    NotificationReceived,
    OutgoingId,
    ProgressReceived,
    ProtocolViolated,
    RequestFailed,
    RequestReceived,
    ResponseReceived,
)
from mcpio.methods import Kind
from mcpio.types.custom import CustomNotification, CustomRequest, RawNotification, RawRequest
from mcpio.types.messages import NotificationPayload, RequestPayload

if TYPE_CHECKING:
    from mcpio.app.broadcast import BroadcastEvent
    from mcpio.app.elicitation import UrlElicitations
    from mcpio.app.health import SessionHealth
    from mcpio.app.middleware import Middleware
    from mcpio.app.session_snapshot import SavedSession, UnansweredPolicy

__all__ = ["Handler", "ProgressCallback", "Session", "Waiter", "checked_callback"]

Handler: TypeAlias = Callable[[Any, Any], Any]
"""Takes the scope and the typed request; returns the typed result, or a coroutine that does."""

_NUMBERS: Final = count()


class Session(TaskCalls):
    """What a client and a server session share. Subclasses say which handler serves which request."""

    connection: Connection
    """The engine. Look at it as you like; what is sent goes out at the next ``driver.wake()``."""
    driver: Driver
    """What carries the session."""
    ended: ConnectionClosed | None
    """How the session ended, ``None`` before that."""

    _SLOW_FIX: ClassVar[str] = "make its function async"
    """What to do about a handler that takes too long."""

    def __init__(self, connection: Connection, driver: Driver) -> None:
        self.connection = connection
        self.driver = driver
        self.ended = None
        self._began = driver.now()
        self._number = next(_NUMBERS)
        self._thread_pool: ThreadPool | None = None
        self._running: dict[IncomingId, tuple[RequestScope, Spawned]] = {}
        self._visits: UrlElicitations | None = None
        self._faults: PeerFaults | None = None
        self._room: BroadcastEvent | None = None
        self._fault_reports = FaultReports()

    # For the driver

    def process(self) -> None:
        """Act on every event that the connection has.

        It raises nothing for what the peer or a handler does, but for what is no ``Exception`` of a plain handler, such
        as a ``SystemExit`` or ``KeyboardInterrupt``.
        """
        next_event, handle = self.connection.next_event, self.handle
        while (event := next_event()) is not None:
            handle(event)

    def settle(self) -> None:
        """Account for what is held for the peer. Drivers call it when that may have changed."""
        self.note_room()

    def note_room(self) -> None:
        """Let go on what waits for room for its output, if there is some now."""
        if self._room is not None and self.connection.has_room:
            # One at a time: what it sends may be all that there is room for.
            self._room.ring_for_one()

    def handle(self, event: Event) -> None:
        """Act on one event of the connection, for drivers that want to see them."""
        kind = event.__class__
        if kind is RequestReceived:
            self._serve(event)  # type: ignore[arg-type]  # the class was just compared
        elif kind is ResponseReceived or kind is RequestFailed or kind is Negotiated:
            cookie = event.cookie  # type: ignore[union-attr]  # as above
            if cookie.__class__ is Waiter:
                cookie.outcome.set(event)
            elif isinstance(event, RequestFailed) and cookie == KEEP_ALIVE and isinstance(event.error, RequestTimeout):
                self.driver.report(f"no answer to a keep-alive {event.error}", None)
        elif isinstance(event, ProgressReceived):
            self._tell_progress(event)
        elif isinstance(event, NotificationReceived | Initialized):
            if self._task_watch is not None and isinstance(event, NotificationReceived):
                self._task_watch.tell(event.notification)
            self._handle_notification(event)
        elif isinstance(event, CancelReceived):
            self._cancel(event)
        elif isinstance(event, Answered):
            self._note_answer(event)
        elif isinstance(event, ProtocolViolated | NoiseReceived):
            self._peer_faults.note(event)
        elif isinstance(event, ConnectionClosed):
            self._handle_end(event)

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

        ``timeout`` is in seconds, or a ``Timeout``; ``None`` waits for ever. ``on_progress`` asks for progress, and
        hears of it: what it raises is reported, and costs nothing else. ``related_to`` is the peer's request on whose
        behalf this one is sent.

        Raises ``RequestError`` when the peer answers with an error, ``RequestTimeout``, ``ConnectionLost``,
        ``InvalidMessage`` for a result that makes no sense, ``NoBackChannel`` on a connection that is closed, and
        ``LocalProtocolError`` for what must not be asked. Cancelling the wait cancels the request.
        """
        self.check_open()
        if timeout.__class__ is not Default:
            timeout = _checked_timeout(timeout)
        waiter = Waiter(self.driver.runtime.one_shot(), checked_callback("on_progress", on_progress))
        id: OutgoingId | None = None
        while id is None:
            try:
                id = self.connection.send_request(
                    request,
                    now=self.driver.now(),
                    timeout=timeout,
                    cookie=waiter,
                    related_to=related_to,
                    progress=on_progress is not None,
                )
            except OutputFull:
                timeout = await self._wait_to_send(request, timeout)
                self.check_open()
            except LocalProtocolError:
                _check_sendable("request", request, RequestPayload | CustomRequest | RawRequest)
                raise
        self.driver.wake()
        try:
            outcome = await waiter.outcome.wait()
        except BaseException:
            # The wait was cancelled, in whatever way this event loop says so.
            self.connection.cancel_request(id, "the caller gave up")
            self.driver.wake()
            raise
        # The outcome refers to the waiter as its cookie: a result would stay in memory until garbage is collected.
        del waiter.outcome
        if outcome.__class__ is ResponseReceived:
            return outcome.result
        self._note_visits(outcome.error)
        raise outcome.error

    async def _wait_to_send(self, request: Any, timeout: Timeout | float | None | Default) -> Timeout:
        """Wait for room for a request, and return how long its answer may still take."""
        if isinstance(timeout, Default):
            timeout = self.connection.options.request_timeout
        limit = timeout if isinstance(timeout, Timeout) else Timeout(timeout)
        began = self.driver.now()
        if not await self._wait_for_room(limit.total):
            method = method_to_send(request, Kind.REQUEST)
            raise RequestTimeout(request.method if method is None else method.name, limit.total or 0.0, "total")
        if limit.total is None:
            return limit
        return attrs.evolve(limit, total=max(0.0, limit.total - (self.driver.now() - began)))

    async def _wait_for_room(self, seconds: float | None) -> bool:
        """Wait for the peer to read, at most so many seconds; return whether it did, or the connection ended."""
        if self._room is None:
            from mcpio.app.broadcast import BroadcastEvent  # few sessions ever hold that much

            self._room = BroadcastEvent(self.driver.runtime)
        try:
            return await self._room.wait(seconds)
        except BaseException:
            # If it was this one's turn, it is the next one's now.
            self.driver.wake()
            raise

    def notify(self, notification: Any, *, related_to: IncomingId | None = None) -> None:
        """Tell the peer something, without waiting. ``related_to`` is the peer's request that it belongs to.

        Raises ``LocalProtocolError`` for what must not be told, and ``NoBackChannel`` on a connection that is closed.
        """
        self.check_open()
        try:
            self.connection.send_notification(notification, related_to=related_to)
        except LocalProtocolError:
            _check_sendable("notification", notification, NotificationPayload | CustomNotification | RawNotification)
            raise
        self.driver.wake()

    def send_progress(
        self, id: IncomingId, progress: float, total: float | None = None, message: str | None = None
    ) -> None:
        """Report progress on a request of the peer's.

        A report that does not increase, or comes when the request is over, is left out (PROG-03, PROG-04). Raises
        ``LocalProtocolError`` for what is no number, or no text.
        """
        try:
            self.connection.send_progress(id, progress, total, message)
        except LocalProtocolError as error:
            if error.__cause__ is not None:  # it cannot be said at all
                raise
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

    def _begin_visit(self, id: str) -> bool:
        """Remember an elicitation at a web address by its id; return whether it is news."""
        if self._visits is None:
            from mcpio.app.elicitation import UrlElicitations

            self._visits = UrlElicitations()
        return self._visits.begin(id)

    def _note_visits(self, error: Exception) -> None:
        """Remember the addresses that an error sends the user to (ELIC-17)."""
        if isinstance(error, URLElicitationRequired):
            for each in error.elicitations:
                self._begin_visit(str(each.elicitation_id))

    def report(self, message: str, error: BaseException | None, *, kind: Hashable | None = None) -> None:
        """Tell the operator of a failure: whole the first time, then in a line. ``kind``: see ``FaultReports``."""
        self._fault_reports.report(self.driver, message, error, kind)

    @property
    def thread_pool(self) -> ThreadPool:
        """Where blocking handlers run."""
        if self._thread_pool is None:
            self._thread_pool = ThreadPool(self.connection.options.limits)
        return self._thread_pool

    @property
    def account(self) -> Hashable:
        """What the peer's work is counted for: its principal, or without one this session."""
        principal: Hashable = getattr(self.connection, "principal", None)
        return ("session", self._number) if principal is None else ("principal", principal)

    def health(self) -> SessionHealth:
        """Return how the session is doing now: its phase, its age, what runs, what passed, and when it last heard."""
        from mcpio.app.health import health_of

        return health_of(self.connection, self.driver.now(), self._began)

    # The session as a value

    def snapshot(self) -> dict[str, Any]:
        """Return the session as a value that JSON can hold (P12): see ``mcpio.app.SavedSession``.

        This session is not to be used afterwards, nor its transport by anybody but the one that goes on. The peer's
        requests that are being served are in it; whoever waits here for an answer of the peer's is not.
        ``LocalProtocolError`` while events or output are undrained, and after the end.
        """
        from mcpio.app.session_snapshot import save

        return save(self, {id: scope.raw for id, (scope, _) in self._running.items()}, self._save_state())

    def resume(self, saved: SavedSession | None = None, unanswered: UnansweredPolicy = "again") -> None:
        """Go on where a restored connection left off; drivers call it, before anything is fed.

        ``saved`` is what the connection was restored from, ``None`` for a connection that was restored by itself: then
        nobody knows what the peer's requests were, and all of them fail. See ``UnansweredPolicy`` for the others. Our
        own requests, for which nobody waits any more, are cancelled. ``LocalProtocolError`` for a malformed snapshot.
        """
        from mcpio.app.session_snapshot import resume

        self._load_state({} if saved is None else saved.state)
        resume(self, {} if saved is None else saved.running, unanswered)
        self.driver.wake()

    def fail_abandoned(self) -> None:
        """Answer that they failed to the requests that nobody serves any more: what served them was cut off.

        For drivers whose sessions outlive that.
        """
        for id in self.connection.pending.incoming:
            if id not in self._running:
                with suppress(LocalProtocolError):
                    self.connection.send_error(id, internal_error())

    # What subclasses say

    def _save_state(self) -> dict[str, Any]:
        """Return what this kind of session remembers of its peer, as JSON can hold it."""
        return {}

    def _load_state(self, state: Mapping[str, Any]) -> None:
        """Remember what ``_save_state`` returned; members may be missing. ``LocalProtocolError`` for wrong ones."""
        del state

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
        if event.reason is CloseReason.SLOW_CONSUMER:
            limit = self.connection.options.limits.queued_bytes
            self.driver.report(f"a session was ended: its peer left more than {limit:,} bytes of output unread", None)
        elif event.reason is CloseReason.OVERLOADED:
            self.driver.report("a session was ended: most was held for it when all sessions held too much", None)
        if self._visits is not None:
            self._visits.give_up(ConnectionLost(f"the connection ended ({event.reason.value})"))
        if self._faults is not None:
            self._faults.end()
        if self._room is not None:
            self._room.ring()
        for scope, task in tuple(self._running.values()):
            scope.give_up()
            task.cancel()

    # Events

    @property
    def _peer_faults(self) -> PeerFaults:
        """Where to report what the peer does wrong: a flood of it does not become a flood in the log."""
        if self._faults is None:
            self._faults = PeerFaults(self.driver)
        return self._faults

    def _tell_progress(self, event: ProgressReceived) -> None:
        callback = event.cookie.on_progress if event.cookie.__class__ is Waiter else None
        if callback is not None:
            self._call_back("a progress callback", callback, event.progress, event.total, event.message)

    def _call_back(self, noun: str, callback: Callable[..., Any], *arguments: Any) -> None:
        """Call what wants to hear of something. Whatever it does, it costs nothing but a report."""
        try:
            check_nothing_waits(callback(*arguments))
        except Exception as error:
            self.report(f"{noun} failed", alone(error))
        except cancellation_of(self.driver.runtime) as error:
            self.report(f"{noun} failed", error)

    def _note_answer(self, event: Answered) -> None:
        """Report a fault of this side that the engine answered for, such as capabilities that cannot be said."""
        if event.error is not None and event.error.__cause__ is not None:
            self.report(f"{event.method} cannot be answered", event.error.__cause__)

    def _cancel(self, event: CancelReceived) -> None:
        running = self._running.get(event.id)
        if running is not None:
            scope, task = running
            scope.give_up()
            task.cancel()

    # Handlers

    def _serve(self, event: RequestReceived) -> None:
        """Run the handler: a plain function here and now, a coroutine as a task of its own."""
        scope = self._scope_for(event)
        failure: Exception | None = None
        result: Any = None
        began = self.driver.now()
        try:
            result = self._handler_for(event)(scope, event.request)
        except Exception as error:
            failure = error
        except cancellation_of(self.driver.runtime) as error:
            # It is not this task that was cancelled, but what a plain function asked for its result.
            self._break_off(event, error)
            return
        took = self.driver.now() - began
        if failure is not None:
            self._fail(event, scope, failure)
        elif is_awaitable(result):
            task = self.driver.runtime.spawn(self._finish(event, scope, result))
            self._running[event.id] = (scope, task)
        else:
            self._answer(event, result)
        if took > SLOW:
            self._report_slow(event, took)

    def _wrapped(self, event: RequestReceived, handler: Handler, layers: Sequence[Middleware]) -> Handler:
        """Return a request's handler with what stands around it. A plain function is timed by itself."""
        from mcpio.app.middleware import wrapped

        def timed(scope: RequestScope, request: Any) -> Any:
            began = self.driver.now()
            try:
                return handler(scope, request)
            finally:
                took = self.driver.now() - began
                if took > SLOW:
                    self._report_slow(event, took)

        return wrapped(timed, layers)

    def _report_slow(self, event: RequestReceived, took: float) -> None:
        held = f"{{}} held up everything else for {took * 1000:.0f} ms: {self._SLOW_FIX}"
        self._report(event, held, None, kind="slow")

    def _report(
        self, event: RequestReceived, message: str, error: BaseException | None, *, kind: str | None = None
    ) -> None:
        """Report something about a request, which ``{}`` in the message stands for."""
        # The name or URI in it is the peer's to choose.
        self.report(message.replace("{}", named(event.raw), 1), error, kind=(kind or message, event.raw.get("method")))

    async def _finish(self, event: RequestReceived, scope: RequestScope, result: Awaitable[Any]) -> None:
        """Wait for a handler's result and send it. Whatever the handler does, its request gets one answer."""
        try:
            value = await result
            while not self.connection.has_room:
                await self._wait_for_room(None)
            self._answer(event, value)
        except Exception as error:
            self._fail(event, scope, error)
        except (SystemExit, KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:
            # Nobody cancelled it here. Either everything around it ends, or just what it waited for was cancelled:
            # some event loops say both in the same way.
            if not scope.cancelled and not await is_stopping(self.driver.runtime):
                self._break_off(event, error)
            raise
        finally:
            del self._running[event.id]
            self.driver.wake()

    def _answer(self, event: RequestReceived, result: Any) -> None:
        try:
            self.connection.send_result(event.id, result)
        except MessageTooLarge as error:
            self._answer_too_large(event, error)
        except Exception as error:
            # It is of the wrong type, or the peer's revision has no word for it.
            self._report(event, "the result of {} cannot be sent", error)
            self._give_up(event)

    def _answer_too_large(self, event: RequestReceived, error: MessageTooLarge) -> None:
        """Answer in place of a result that is too long to be sent."""
        from mcpio.types.content import TextContent
        from mcpio.types.tools import CallToolResult

        said = f"The result is too large: {error.size:,} bytes, where at most {error.limit:,} can be sent."
        self._report(event, f"the result of {{}} cannot be sent: {error}", None, kind="too large")
        try:
            if event.raw.get("method") == "tools/call":
                self.connection.send_result(event.id, CallToolResult((TextContent(said),), is_error=True))
            else:
                self.connection.send_error(event.id, RequestError(ErrorCode.INTERNAL_ERROR, said))
        except LocalProtocolError:
            self._give_up(event)

    def _fail(self, event: RequestReceived, scope: RequestScope, error: Exception) -> None:
        found = alone(error)
        answer = None if scope.has_from_peer(found) else said_by_author(found)
        if answer is None:
            if not is_only_the_end(found, self.connection):
                self._report(event, "the handler of {} failed", found)
            self._give_up(event)
            return
        try:
            self.connection.send_error(event.id, answer)
            self._note_visits(answer)
        except LocalProtocolError as fault:
            self._report(event, "the error for {} cannot be sent", fault)
            self._give_up(event)

    def _break_off(self, event: RequestReceived, error: BaseException) -> None:
        self._report(event, "the handler of {} was cancelled from inside", error)
        self._give_up(event)

    def _give_up(self, event: RequestReceived) -> None:
        """Answer that it failed, unless it was answered before."""
        with suppress(LocalProtocolError):
            self.connection.send_error(event.id, internal_error())


def _check_sendable(name: str, value: Any, kinds: Any) -> None:
    """Raise ``TypeError`` for what is not a request, or not a notification, at all."""
    if not isinstance(value, kinds):
        raise TypeError(f"{name}= takes a {name} of mcpio.types, not {value!r:.60}")


def _checked_timeout(timeout: Any) -> Timeout:
    if isinstance(timeout, Timeout):
        return timeout
    if timeout is not None and (isinstance(timeout, bool) or not isinstance(timeout, int | float)):
        raise TypeError(f"timeout= takes a number of seconds, a Timeout, or None to wait for ever, not {timeout!r:.60}")
    try:
        return Timeout(timeout)
    except ValueError as error:
        raise ValueError(f"timeout: {error}") from None


class Waiter:
    """The cookie of a request: who waits for it."""

    __slots__ = ("on_progress", "outcome")

    def __init__(self, outcome: OneShot, on_progress: ProgressCallback | None) -> None:
        self.outcome: OneShot = outcome
        self.on_progress: ProgressCallback | None = on_progress
