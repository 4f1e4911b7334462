"""A session of either role: calls out, handlers in."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Awaitable, Callable, Hashable, Mapping
from contextlib import suppress
from functools import partial
from itertools import count
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, TypeAlias, TypeVar

import attrs

from mcpio.app.contracts import Handler, InputRequired, ProgressCallback
from mcpio.app.reporting import (
    SLOW_STEP,
    STUBBORN,
    FaultReports,
    PeerFaults,
    describe_request,
    failed,
    intended_answer,
    internal_error,
    is_connection_end,
    unwrap_group,
)
from mcpio.app.runtime import (
    AWAITABLE,
    SLOW,
    Driver,
    OneShot,
    Spawned,
    ThreadPool,
    check_nothing_waits,
    checked_callback,
    failure_of,
    in_steps,
    is_awaitable,
    is_fault,
    is_stopping,
)
from mcpio.app.tasks.calls import TaskCalls
from mcpio.engine.connection import Connection
from mcpio.engine.limits import DEFAULT, Default, Held, Timeout, checked_timeout
from mcpio.engine.options import KEEP_ALIVE, Options
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
    SubscriptionAcknowledged,
    SubscriptionNotified,
)
from mcpio.framing.json import dumps
from mcpio.methods import METHODS, Kind
from mcpio.revisions import Era
from mcpio.types.base import (
    CustomNotification,
    CustomRequest,
    NotificationPayload,
    RawNotification,
    RawRequest,
    RequestPayload,
)

if TYPE_CHECKING:
    from mcpio.app.asking import UrlElicitations
    from mcpio.app.runtime import BroadcastEvent
    from mcpio.app.tasks.receiver import TaskReceiver
    from mcpio.revisions import Revision
    from mcpio.types.features import Tool

__all__ = ["Handler", "ProgressCallback", "checked_callback"]


# --------------------------------------------------------------------------------------------------------------- health
# The health of a session: its requests, its traffic, and the memory held for its peer.


@attrs.frozen(kw_only=True)
class SessionHealth:
    """The state of a session at one moment. Times are in seconds, sizes in bytes."""

    phase: Phase
    """The phase of the handshake session."""
    age: float
    """Seconds since this process began to serve the session."""
    silent_for: float | None
    """Seconds since the peer last sent anything; ``None`` if it never did."""
    asked: int
    """The number of our requests that wait for an answer."""
    serving: int
    """The number of the peer's requests that wait for an answer."""
    received_bytes: int
    """Input so far: bytes on a stream, characters on a channel of text."""
    sent_bytes: int
    """Output so far, without message separators."""
    queued_bytes: int
    """Output that waits to be sent; it grows when the peer reads slowly."""
    held: Mapping[str, int]
    """Memory held for the peer, in bytes by kind: ``input``, ``bodies``, ``requests``, ``output``, ``unwritten``,
    ``own``, ``replay``, ``subscriptions``. Kinds without memory are left out."""
    dropped_logs: int
    """The number of log messages dropped because the peer did not read them."""


def health_of(connection: Connection, now: float, began: float) -> SessionHealth:
    """Return the health of a connection's session, which began at ``began``."""
    last, pending, held = connection.last_received_at, connection.pending, connection.held
    return SessionHealth(
        phase=connection.phase,
        age=now - began,
        silent_for=None if last is None else now - last,
        asked=len(pending.outgoing),
        serving=len(pending.incoming),
        received_bytes=connection.stats.received_bytes,
        sent_bytes=connection.stats.sent_bytes,
        queued_bytes=connection.stats.queued_bytes,
        held={kind: size for kind in Held.__slots__ if (size := getattr(held, kind))},
        dropped_logs=connection.stats.dropped_logs,
    )


# ----------------------------------------------------------------------------------------------------- session snapshot
# A session as a value (P12): the engine's snapshot, and the state of the application layer.
# Running handlers and waiting callers cannot be part of it. The requests of those handlers are in the engine's part, so
# that they can be served again; our requests whose callers are gone are cancelled.

VERSION: Final = 1
"""The version of the layout that this library writes, and the newest that it reads."""

UnansweredPolicy: TypeAlias = Literal["again", "fail"]
"""How to continue the peer's unanswered requests: run their handlers ``again`` from the beginning, or ``fail`` them
with -32603 and ``data.reason`` "interrupted"."""

C = TypeVar("C", bound=Connection)


@attrs.frozen
class SavedSession:
    """The snapshot of a session, checked as far as the engine does not check it itself."""

    engine: Mapping[str, Any]
    """The snapshot of the connection."""
    state: Mapping[str, Any]
    """The state that the kind of session adds."""
    transport: Mapping[str, Any] = attrs.field(factory=dict)
    """The state that the transport adds, if it can resume."""

    @classmethod
    def read(cls, snapshot: Any) -> SavedSession:
        """Parse a snapshot. Raises LocalProtocolError for a newer version, and if it is not a snapshot."""
        values = snapshot if isinstance(snapshot, Mapping) else {}
        version = values.get("session")
        if version.__class__ is not int or version < 1:
            raise LocalProtocolError("not the snapshot of a session: it has no version")
        if version > VERSION:
            raise LocalProtocolError(f"the snapshot has version {version}; this library reads up to {VERSION}")
        for name in ("engine", "state"):
            if not isinstance(values.get(name), Mapping):
                raise LocalProtocolError(f"malformed snapshot: expected an object @ snapshot.{name}")
        transport = values.get("transport", {})
        if not isinstance(transport, Mapping):
            raise LocalProtocolError("malformed snapshot: expected an object @ snapshot.transport")
        return cls(values["engine"], values["state"], transport)

    def connection(self, cls: type[C], now: float, *, options: Options | None, principal: Hashable = None) -> C:
        """Return the restored connection. Raises as the engine's ``restore`` does."""
        return cls.restore(self.engine, now, options=options, principal=principal)


def check_unanswered(policy: UnansweredPolicy) -> None:
    """Raise ValueError if it is not a policy."""
    if policy not in ("again", "fail"):
        raise ValueError(f"unanswered must be 'again' or 'fail', not {policy!r:.100}")


# -------------------------------------------------------------------------------------------------------------- session
# A session: outgoing requests and their waiters, incoming requests and their handlers, over one connection.
# A driver feeds the connection, calls ``session._process()``, and writes the output. Everything here runs in the event
# loop's thread, between two waits.

# ruff: noqa: SLF001 - sessions and scopes have methods for one another that programs have no use for


_NUMBERS: Final = count()

PROBATION: Final = 1000
"""How many requests in a row must be quick before the answers to several that one read brought leave together.

Until then each leaves before the next handler runs, which may block. A write for each of many requests at once costs
half as much again (6 us of processor time beside 15), so it ends once it has proved needless.
"""


class Session(TaskCalls):
    """Base of client and server sessions. Subclasses choose the handler of each incoming request."""

    connection: Connection
    """The engine. Its state may be read at any time; output queued on it leaves at the next ``driver.wake()``."""
    driver: Driver
    """The driver that carries the session."""
    ended: ConnectionClosed | None
    """How the session ended; ``None`` until then."""

    _kept: Mapping[int, dict[Any, bytes]] = MappingProxyType({})
    """The JSON texts of results that are sent again and again, by the id of the result."""

    _SLOW_ADVICE: ClassVar[str] = "make its function async"
    """Advice about a slow handler, for its report."""

    def __init__(
        self, connection: Connection, driver: Driver, new_scope: Callable[[Any, RequestReceived], Any]
    ) -> None:
        """``new_scope`` makes the scope of a request, from the session and the event."""
        self.connection = connection
        self.driver = driver
        self.ended = None
        self._new_scope = new_scope
        self._now = driver.now
        self._stalls = driver.runtime.stalls
        self._started_at = driver.now()
        self._number = next(_NUMBERS)
        self._thread_pool: ThreadPool | None = None
        # By id; the callbacks that answer a server's questions in the stateless era, by their scopes.
        self._running: dict[Any, tuple[Any, Spawned]] = {}
        self._all_ended: OneShot | None = None
        self._probation = PROBATION
        # Made when they are first needed: most of many thousand idle sessions never need them.
        self._url_elicitations: UrlElicitations | None = None
        self._reported_peer_faults: PeerFaults | None = None
        self._room: BroadcastEvent | None = None
        self._fault_reports = FaultReports()
        # Set by drivers: what makes of the error of a failed request one that says more about its cause, and a text for
        # the NoBackChannel that sending on the closed connection raises.
        self._explain: Callable[[Exception], Awaitable[Exception]] | None = None
        self._closed_because = ""

    @abstractmethod
    def _task_receiver(self) -> TaskReceiver | None:
        """Return what runs the peer's tasks, if this side takes any."""

    # Requests and notifications

    async def request(
        self,
        request: Any,
        *,
        timeout: Timeout | float | None | Default = DEFAULT,
        on_progress: ProgressCallback | None = None,
        related_to: IncomingId | None = None,
    ) -> Any:
        """Send a request to the peer and return its typed result.

        Cancelling the wait cancels the request.

        Args:
            request: A request of ``mcpio.types``.
            timeout: Seconds, or a ``Timeout``. ``None`` waits without limit.
            on_progress: Asks for progress, and is called with it. Its exceptions are only reported.
            related_to: The peer's request on whose behalf this one is sent.

        Raises:
            RequestError: The peer answered with an error.
            RequestTimeout: No answer came in time.
            ConnectionLost: The connection ended before the answer came.
            InvalidMessage: The result is malformed.
            NoBackChannel: The connection is closed.
            LocalProtocolError: The request must not be sent in this session.

        """
        if self.connection.phase in _ENDING:
            self.check_open()
        # The identity of classes instead of isinstance, here and below: this runs for each request.
        if timeout.__class__ is not Default:
            timeout = checked_timeout(timeout)
        if on_progress is not None:
            checked_callback("on_progress", on_progress, "(progress, total, message)")
        waiter = Waiter(self.driver.runtime.one_shot(), on_progress)
        id: OutgoingId | None = None
        while id is None:
            try:
                id = self.connection.send_request(
                    request,
                    now=self._now(),
                    timeout=timeout,
                    cookie=waiter,
                    related_to=related_to,
                    progress=on_progress is not None,
                )
            except OutputFull:
                # The request has no id yet, so cancelling this wait sends nothing.
                timeout = await self._wait_to_send(request, timeout)
                self.check_open()
            except LocalProtocolError:
                _check_sendable("request", request, RequestPayload | CustomRequest | RawRequest)
                raise
        self.driver.wake()
        try:
            outcome = await waiter.outcome.wait()
        except BaseException:
            # The wait was cancelled. Event loops have different exceptions for that, so all are caught.
            self.connection.cancel_request(id, "the caller gave up")
            self.driver.wake()
            raise
        # The outcome refers to the waiter as its cookie: without this, that circle would keep a large result in memory
        # until the garbage collector runs.
        del waiter.outcome
        if outcome.__class__ is ResponseReceived:
            return outcome.result
        self._record_url_elicitations(outcome.error)
        raise outcome.error if self._explain is None else await self._explain(outcome.error)

    async def _wait_to_send(self, request: Any, timeout: Timeout | float | None | Default) -> Timeout:
        """Wait until the output has room for a request; return the time that is left for its answer."""
        if isinstance(timeout, Default):
            timeout = self.connection.options.request_timeout
        limit = timeout if isinstance(timeout, Timeout) else Timeout(timeout)
        began = self._now()
        if not await self._wait_for_room(limit.total):
            method = method_to_send(request, Kind.REQUEST)
            raise RequestTimeout(request.method if method is None else method.name, limit.total or 0.0, "total")
        if limit.total is None:
            return limit
        return attrs.evolve(limit, total=max(0.0, limit.total - (self._now() - began)))

    async def _wait_for_room(self, seconds: float | None) -> bool:
        """Wait at most ``seconds`` until the peer has read, or the connection ended; return False after that time."""
        if self._room is None:
            from mcpio.app.runtime import BroadcastEvent  # few sessions ever hold that much

            self._room = BroadcastEvent(self.driver.runtime)
        try:
            return await self._room.wait(seconds)
        except BaseException:
            # The room that this task was woken for goes to the next one that waits.
            self.driver.wake()
            raise

    def notify(self, notification: Any, *, related_to: IncomingId | None = None) -> None:
        """Send a notification, without waiting. ``related_to`` is the peer's request that it belongs to.

        Raises LocalProtocolError if it must not be sent in this session, and NoBackChannel if the connection is closed.
        """
        self.check_open()
        try:
            self.connection.send_notification(notification, related_to=related_to)
        except LocalProtocolError:
            _check_sendable("notification", notification, NotificationPayload | CustomNotification | RawNotification)
            raise
        self.driver.wake()

    def check_open(self) -> None:
        """Raise NoBackChannel if the connection is closing or closed."""
        if self.connection.phase in _ENDING:
            raise NoBackChannel(": ".join(filter(None, ("the connection is closed", self._closed_because))))

    def close(self, grace: float = 5.0) -> None:
        """Close the connection gracefully: answers that are due have at most ``grace`` seconds.

        Returns at once. May be called any number of times, from any task, thread or signal handler.
        """
        self.driver.close(grace)

    async def aclose(self, grace: float = 5.0) -> None:
        """Close the connection and wait until it has ended and its transport is closed."""
        self.driver.runtime.one_shot()  # raises in another event loop, where the wait would not end
        self.driver.close(grace)
        await self.driver.wait_closed()

    @property
    def thread_pool(self) -> ThreadPool:
        """The threads of blocking handlers."""
        if self._thread_pool is None:
            self._thread_pool = ThreadPool(self.connection.options.limits)
        return self._thread_pool

    @property
    def account(self) -> Hashable:
        """The key that the peer's work is counted under: its principal, or this session if it has none."""
        principal: Hashable = getattr(self.connection, "principal", None)
        return ("session", self._number) if principal is None else ("principal", principal)

    def account_of(self, event: RequestReceived) -> Hashable:
        """Return the key that the work of one request is counted under."""
        del event
        return self.account

    def thread_account_of(self, event: RequestReceived) -> Hashable:
        """Return the key that the threads of one request are counted under."""
        return self.account_of(event)

    def health(self) -> SessionHealth:
        """Return the state of the session now: its phase, its age, what runs, what passed, when the peer last sent."""
        return health_of(self.connection, self._now(), self._started_at)

    def snapshot(self) -> dict[str, Any]:
        """Return the session as a value that JSON can hold (P12): see ``mcpio.app.SavedSession``.

        Do not use this session afterwards; its transport belongs to the session that is restored. The snapshot has the
        peer's requests that are being served; it does not have the tasks here that wait for the peer's answers.

        Raises LocalProtocolError while events or output are undrained, and after the end.
        """
        engine = self.connection.snapshot(self.driver.now(), cookies=lambda _: None)
        saved = {"session": VERSION, "engine": engine, "state": dict(self._save_state())}
        # Few transports have state: most are gone when their session moves.
        save_transport = getattr(self.driver, "save_transport", None)
        return saved if save_transport is None else {**saved, "transport": save_transport()}

    # Methods for subclasses

    def _save_state(self) -> dict[str, Any]:
        """Return what this kind of session knows of its peer, as plain JSON."""
        return {}

    def _load_state(self, state: Mapping[str, Any]) -> None:
        """Restore what ``_save_state`` returned; members may be missing. Raises LocalProtocolError if malformed."""
        del state

    @abstractmethod
    def _handler_for(self, event: RequestReceived) -> Handler:
        """Return the handler of a request. The engine has checked that its method was declared."""

    @abstractmethod
    def _handle_notification(self, event: NotificationReceived | Initialized) -> None:
        """Handle a notification of the peer."""

    def _handle_subscription(self, event: SubscriptionAcknowledged | SubscriptionNotified) -> None:
        """Handle what belongs to a subscription; only clients have any."""

    def _handle_end(self, event: ConnectionClosed) -> None:
        """Report an enforced end, and stop all that waits or runs."""
        self.ended = event
        if event.reason is CloseReason.SLOW_CONSUMER:
            limit = self.connection.options.limits.queued_bytes
            self.driver.report(f"a session was ended: its peer left more than {limit:,} bytes of output unread", None)
        elif event.reason is CloseReason.OVERLOADED:
            self.driver.report("a session was ended: most was held for it when all sessions held too much", None)
        if self._url_elicitations is not None:
            self._url_elicitations.fail_waiters(ConnectionLost(f"the connection ended ({event.reason.value})"))
        if self._reported_peer_faults is not None:
            self._reported_peer_faults.end()
        if self._room is not None:
            self._room.notify_all()
        if self._task_watch is not None:
            self._task_watch.end()
        # The scope is marked before its task is cancelled: by that, ``_finish`` knows that the cancellation is ours.
        for scope, task in tuple(self._running.values()):
            scope._abandon()
            task.cancel()

    # Events

    def _handle(self, event: Event) -> bool:
        """Handle an event, also for drivers that pull the events themselves.

        Return whether the handler of the next one may block, so that output should leave before.
        """
        # Nearly all events are requests and outcomes, so those do not go through the table.
        kind = event.__class__
        if kind is RequestReceived:
            return self._serve(event)  # type: ignore[arg-type]  # the class was just compared
        if kind is ResponseReceived or kind is RequestFailed or kind is Negotiated:
            cookie = event.cookie  # type: ignore[union-attr]  # as above
            if cookie.__class__ is Waiter:
                cookie.outcome.set(event)
            elif cookie == KEEP_ALIVE and isinstance(event, RequestFailed) and isinstance(event.error, RequestTimeout):
                self.driver.report(f"no answer to a keep-alive {event.error}", None)
        elif (name := _HANDLED_BY.get(kind)) is not None:
            getattr(self, name)(event)
        return False

    def _handle_progress(self, event: ProgressReceived) -> None:
        callback = event.cookie.on_progress if event.cookie.__class__ is Waiter else None
        if callback is not None:
            self._call_back("a progress callback", callback, event.progress, event.total, event.message)

    def _receive_notification(self, event: NotificationReceived) -> None:
        if self._task_watch is not None:
            self._task_watch.tell(event.notification)
        self._handle_notification(event)

    def _handle_cancellation(self, event: CancelReceived) -> None:
        running = self._running.get(event.id)
        if running is not None:
            scope, task = running
            scope._abandon()
            task.cancel()

    def _handle_engine_answer(self, event: Answered) -> None:
        # A cause is a fault of this side, such as malformed capabilities.
        if event.error is not None and event.error.__cause__ is not None:
            self._report(f"{event.method} cannot be answered", event.error.__cause__)

    def _handle_peer_fault(self, event: ProtocolViolated | NoiseReceived) -> None:
        self._peer_faults.note(event)

    @property
    def _peer_faults(self) -> PeerFaults:
        """The throttled reports of the peer's faults."""
        if self._reported_peer_faults is None:
            self._reported_peer_faults = PeerFaults(self.driver)
        return self._reported_peer_faults

    def _known_url_elicitations(self) -> UrlElicitations:
        if self._url_elicitations is None:
            from mcpio.app.asking import UrlElicitations

            self._url_elicitations = UrlElicitations()
        return self._url_elicitations

    def _record_url_elicitations(self, error: Exception) -> None:
        """Record the elicitations that an error sends the user to (ELIC-17)."""
        if isinstance(error, URLElicitationRequired):
            for each in error.elicitations:
                self._known_url_elicitations().begin(str(each.elicitation_id))

    def _call_back(self, noun: str, callback: Callable[..., Any], *arguments: Any) -> None:
        """Call a program's callback. An exception is reported, and has no other effect."""
        try:
            check_nothing_waits(callback(*arguments))
        except BaseException as error:
            self._report(f"{noun} failed", unwrap_group(failure_of(error)))

    # Handlers

    def _serve(self, event: RequestReceived) -> bool:
        """Run the handler of a request: a plain function now, a coroutine as a task.

        Return whether the next handler may block, so that the answer should leave before: see ``PROBATION``.
        """
        scope = self._new_scope(self, event)
        failure: BaseException | None = None
        result: Any = None
        stalls = self._stalls
        began = stalls.clock()
        if began > stalls.look_after:
            stalls.look(began)
        try:
            result = self._handler_for(event)(scope, event.request)
        except BaseException as error:
            failure = failure_of(error)
        blocked = stalls.clock() - began
        if blocked > SLOW:
            blocked = stalls.held(blocked)  # now: the answer may take long too
        if failure is not None:
            self._fail(event, scope, failure)
        elif result.__class__ is InputRequired or (AWAITABLE.get(result.__class__, True) and is_awaitable(result)):
            # ``_finish`` removes the entry made here: ``spawn`` never starts a task at once.
            task = self.driver.runtime.spawn(self._finish(event, scope, result))
            self._running[event.id] = (scope, task)
        else:
            self._answer(event, result)
        if blocked > SLOW:
            self._report_slow(event, self._SLOW_ADVICE, blocked)
            self._probation = PROBATION
        elif self._probation:
            self._probation -= 1
        else:
            return False
        return True

    async def _finish(self, event: RequestReceived, scope: Any, result: Any) -> None:
        """Await the result of a handler and send it. Every request gets exactly one answer (P4)."""
        try:
            report = partial(self._report_slow, event, SLOW_STEP)
            value = result
            if value.__class__ is not InputRequired:
                value = await in_steps(value, self._stalls, report)
            if value.__class__ is InputRequired:
                value = await in_steps(self._ask_first(event, scope, value), self._stalls, report)
            # Plain functions answer without this wait: the engine defers requests while much output waits
            # (``Channel.is_full``). That does not stop tasks that run already, so they wait here.
            while not self.connection.has_room:
                await self._wait_for_room(None)
            self._answer(event, value)
        except BaseException as error:
            if not await self._is_fault(scope, error):
                raise
            self._fail(event, scope, error)
        finally:
            self._forget_handler(event.id)
            self.driver.wake()

    def _forget_handler(self, key: Hashable) -> None:
        del self._running[key]
        if self._all_ended is not None and not self._running:
            self._all_ended.set(None)

    async def _ask_first(self, event: RequestReceived, scope: Any, questions: InputRequired) -> Any:
        """Return the result for a handler that asks first. Only servers ask."""
        raise TypeError("only the handlers of a server return InputRequired")

    def _answer(self, event: RequestReceived, result: Any) -> None:
        try:
            self.connection.send_result(event.id, result, kept=self._kept.get(id(result)))
        except MessageTooLarge as error:
            self._answer_too_large(event, error)
        except Exception as error:
            expressible = _as_known(result, event.context.revision)
            if expressible is not result:
                self._answer(event, expressible)
                return
            # The result has the wrong type, or the peer's revision cannot express it.
            self._report_request(event, "the result of {} cannot be sent", error)
            self._answer_internal_error(event)

    def _answer_too_large(self, event: RequestReceived, error: MessageTooLarge) -> None:
        """Answer in place of a result that is too large to be sent."""
        text = f"The result is too large: {error.size:,} bytes, where at most {error.limit:,} can be sent."
        self._report_request(event, f"the result of {{}} cannot be sent: {error}", None, kind="too large")
        try:
            if event.raw.get("method") == "tools/call":
                # The model can ask for less, so it is told rather than the program.
                self.connection.send_result(event.id, failed(text))
            else:
                self.connection.send_error(event.id, RequestError(ErrorCode.INTERNAL_ERROR, text))
        except LocalProtocolError:
            self._answer_internal_error(event)

    async def _is_fault(self, scope: Any, error: BaseException) -> bool:
        """Whether what an async handler raised is its failure, and not the end of its task or of the program."""
        runtime = self.driver.runtime
        if is_fault(error, runtime):
            return True
        if scope.cancelled or not isinstance(error, runtime.cancellation):
            return False
        # Not cancelled by ``_handle``. Either everything around this task is being cancelled, or only what the handler
        # awaited was; asyncio raises the same exception for both.
        return not await is_stopping(runtime)

    def _fail(self, event: RequestReceived, scope: Any, error: BaseException) -> None:
        failure = unwrap_group(error)
        # An error that the peer itself answered with is not sent back to it: the handler failed to handle it.
        answer = None if scope._is_from_peer(failure) else intended_answer(failure, event.context)
        if answer is None:
            if isinstance(failure, self.driver.runtime.cancellation):
                self._report_request(event, "the handler of {} was cancelled from inside", failure)
            elif not is_connection_end(failure, self.connection):
                self._report_request(event, "the handler of {} failed", failure)
            self._answer_internal_error(event)
            return
        try:
            self.connection.send_error(event.id, answer)
            self._record_url_elicitations(answer)
        except LocalProtocolError as fault:
            self._report_request(event, "the error for {} cannot be sent", fault)
            self._answer_internal_error(event)

    def _answer_internal_error(self, event: RequestReceived) -> None:
        """Answer that the request failed, unless it was answered before."""
        with suppress(LocalProtocolError):
            self.connection.send_error(event.id, self._unexpected(event))

    def _unexpected(self, event: RequestReceived) -> RequestError:
        """Return the answer to a request whose handler failed in a way that is only for the operator (RPC-19)."""
        del event
        return internal_error()

    # Reports

    def _report(self, message: str, error: BaseException | None, *, kind: Hashable | None = None) -> None:
        """Report a failure to the operator, with its traceback the first time. ``kind``: see ``FaultReports``."""
        self._fault_reports.report(self.driver, message, error, kind)

    def _report_slow(self, event: RequestReceived, advice: str, blocked: float) -> None:
        """Report a request that held the loop, with advice if it is the program's function that did."""
        text = f"{{}} held up everything else for {blocked * 1000:.0f} ms"
        method = event.raw["method"]
        if method in _RUN_FUNCTIONS or method not in METHODS:
            text += f": {advice}"
        self._report_request(event, text, None, kind="slow")

    def _report_request(
        self, event: RequestReceived, message: str, error: BaseException | None, *, kind: str | None = None
    ) -> None:
        """Report something about a request, whose name replaces ``{}`` in the message."""
        # The name is the peer's to choose, so it must not make a new kind of report each time.
        self._report(
            message.replace("{}", describe_request(event.raw), 1),
            error,
            kind=(kind or message, event.raw.get("method")),
        )

    # For drivers

    def _process(self) -> None:
        """Handle every event that the connection has.

        Failures of the peer and of handlers raise nothing here. SystemExit and KeyboardInterrupt of a plain handler do.
        """
        next_event, handle = self.connection.next_event, self._handle
        while (event := next_event()) is not None:
            handle(event)

    def _settle(self) -> None:
        """Update the accounts of held memory, and wake a task that waits for room. Call it after output was pulled."""
        if self._room is not None:
            self._note_room()

    async def _wait_until_read(self, id: IncomingId) -> None:
        """Wait until no more than ``Limits.high_water`` of the output for a request waits, or it has ended."""
        connection = self.connection
        high_water = connection.options.limits.high_water
        while (held := connection.held_for(id)).output + held.unwritten > high_water and not connection.closed:
            await self._wait_for_room(None)

    def _note_room(self) -> None:
        """Wake one of the tasks that wait for room for their output, if there is room now."""
        if self._room is not None and self.connection.has_room:
            # One at a time: the output of the first may take all the room.
            self._room.notify_one()

    def _send_progress(self, id: IncomingId, progress: float, total: float | None, message: str | None) -> None:
        """Report progress on a request of the peer.

        A report that does not increase, or comes after the answer, is left out (PROG-03, PROG-04). Raises
        LocalProtocolError if a value is not a number, or the message not a str.
        """
        try:
            self.connection.send_progress(id, progress, total, message)
        except LocalProtocolError as error:
            if error.__cause__ is not None:  # malformed, rather than too late
                raise
            return
        self.driver.wake()

    def _resume(self, saved: SavedSession | None = None, unanswered: UnansweredPolicy = "again") -> None:
        """Continue where a restored connection left off. Call it before anything is fed.

        ``saved`` is what the connection was restored from. Without it the state of their handlers is unknown, and all
        of the peer's requests fail; otherwise ``unanswered`` decides. Our own requests are cancelled, since their
        callers are gone.

        Raises LocalProtocolError if the snapshot is malformed.
        """
        self._load_state({} if saved is None else saved.state)
        check_unanswered(unanswered)
        connection = self.connection
        # Their callers were in the process that made the snapshot.
        for id in connection.pending.outgoing:
            connection.cancel_request(id, "nobody waits for it any more")
        for request in connection.unanswered:
            event = None if saved is None or unanswered == "fail" else request.event
            if event is not None:
                self._handle(event)
                continue
            interrupted = RequestError(ErrorCode.INTERNAL_ERROR, "Interrupted: ask again", {"reason": "interrupted"})
            connection.send_error(request.id, interrupted)
        self.driver.wake()

    def _fail_abandoned(self) -> None:
        """Answer the requests whose handlers were cut off with an internal error (P4).

        For drivers whose sessions outlive the tasks of their handlers.
        """
        for id in self.connection.pending.incoming:
            if id not in self._running:
                with suppress(LocalProtocolError):
                    self.connection.send_error(id, internal_error())

    async def _wait_for_handlers(self) -> None:
        """Wait until no handler and no task runs here any more. For the one driver that ends the session."""
        if self._running:
            self._all_ended = self.driver.runtime.one_shot()
            await self._all_ended.wait()
        if (tasks := self._task_receiver()) is not None:
            await tasks.wait_for_work(self.driver)

    def _report_handlers(self) -> None:
        """Tell the operator which handlers still run although the session has ended, which cancelled them."""
        for scope, _ in self._running.values():
            self._report_request(scope._event, f"the handler of {{}} {STUBBORN}", None, kind="stubborn")
        if (tasks := self._task_receiver()) is not None:
            tasks.report_work(self.driver)


_HANDLED_BY: Final[dict[type, str]] = {
    ProgressReceived: "_handle_progress",
    NotificationReceived: "_receive_notification",
    Initialized: "_handle_notification",
    CancelReceived: "_handle_cancellation",
    Answered: "_handle_engine_answer",
    ProtocolViolated: "_handle_peer_fault",
    NoiseReceived: "_handle_peer_fault",
    SubscriptionAcknowledged: "_handle_subscription",
    SubscriptionNotified: "_handle_subscription",
    ConnectionClosed: "_handle_end",
}
"""The method of ``Session`` for each event that is neither a request nor an outcome. Others need no action."""

HANDLER_CANCEL_TIMEOUT: Final = 2.0
"""Seconds for the cancelled handlers of an ended session to end, before the log names those that have not."""

_RUN_FUNCTIONS: Final = frozenset(
    [
        "tools/call",
        "resources/read",
        "prompts/get",
        "completion/complete",
        "sampling/createMessage",
        "elicitation/create",
        "roots/list",
    ]
)
"""The protocol's methods whose handlers run a function of the program. The library serves the others itself."""

_ENDING: Final = (Phase.CLOSING, Phase.CLOSED)


def _check_sendable(name: str, value: Any, kinds: Any) -> None:
    """Raise TypeError if a value is not a request, or not a notification, at all."""
    if not isinstance(value, kinds):
        raise TypeError(f"{name} must be a {name} of mcpio.types, not {value!r:.60}")


class Waiter:
    """The cookie of an outgoing request: its caller's one-shot and progress callback."""

    __slots__ = ("on_progress", "outcome")

    def __init__(self, outcome: OneShot, on_progress: ProgressCallback | None) -> None:
        self.outcome: OneShot = outcome
        self.on_progress: ProgressCallback | None = on_progress


def _as_known(result: Any, revision: Revision) -> Any:
    """Return a result that a revision can express, such as texts in place of audio; else the same one."""
    from mcpio.types.asking import CreateMessageResult
    from mcpio.types.content import ResourceLink, TextContent
    from mcpio.types.features import CallToolResult, GetPromptResult, ListToolsResult

    def known(block: Any) -> Any:
        if getattr(block, "SINCE", revision) <= revision:
            return block
        if isinstance(block, ResourceLink):
            return TextContent(f"{block.title or block.name}: {block.uri}")
        return TextContent(f"[{getattr(block, 'mime_type', block.type)}, which revision {revision} lacks]")

    def each(content: Any) -> Any:
        return tuple(map(known, content)) if isinstance(content, (tuple, list)) else known(content)

    converted = result
    if isinstance(result, (CallToolResult, CreateMessageResult)):
        content = each(result.content)
        converted = result if content == result.content else attrs.evolve(result, content=content)
    elif isinstance(result, GetPromptResult):
        messages = tuple(attrs.evolve(message, content=known(message.content)) for message in result.messages)
        converted = attrs.evolve(result, messages=messages)
    if revision.era is Era.STATELESS:
        return converted if converted != result else result
    # In a session the output of a tool is an object.
    output = getattr(converted, "structured_content", None)
    if isinstance(converted, CallToolResult) and converted.has_structured_content and not isinstance(output, Mapping):
        content = converted.content or (TextContent(dumps(output).decode()),)
        converted = attrs.evolve(converted, content=content, structured_content=None, given=())
    elif isinstance(converted, ListToolsResult):
        converted = attrs.evolve(converted, tools=tuple(map(_of_object, converted.tools)))
    return converted if converted != result else result


def _of_object(tool: Tool) -> Tool:
    """Return the tool without an output schema that is not one of an object."""
    schema = tool.output_schema
    return tool if schema is None or schema.get("type") == "object" else attrs.evolve(tool, output_schema=None)
