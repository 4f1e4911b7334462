# ruff: noqa: SLF001 - the library uses sessions from inside
"""A server behind HTTP: the sessions of the HTTP machine, each with its handlers, for the adapter of any event loop.

An adapter passes what it reads, and writes what an exchange has to send. Callbacks that do not wait tell it when an
exchange is ready and when the next deadline is. Everything here happens in the loop's own thread.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from mcpio.app.reporting import internal_error
from mcpio.app.runtime import OneShot, Runtime, Spawned, checked_grace, failure_of
from mcpio.app.session import HANDLER_CANCEL_TIMEOUT
from mcpio.engine.stateless_engine import StatelessEngine
from mcpio.engine.table import Phase
from mcpio.http.calls import Calls
from mcpio.http.model import End, whole_request
from mcpio.http.server import HttpServer
from mcpio.http.sessions import HttpSession, SessionClosed, SessionOpened

if TYPE_CHECKING:
    from mcpio.app.server import Server
    from mcpio.app.server_session import ServerSession
    from mcpio.app.session import UnansweredPolicy
    from mcpio.app.session_store import SessionStore
    from mcpio.app.store_writer import StoreWriter
    from mcpio.auth.resource_server import ResourceServer
    from mcpio.engine.server import ServerConnection
    from mcpio.events import IncomingId
    from mcpio.http.durable import DurableHooks, DurableSessions
    from mcpio.http.model import Answer, HttpOptions, RequestHead, RequestItem, ResponseItem
    from mcpio.http.server import HttpEvent
    from mcpio.http.sessions import SessionEffect

__all__ = ["HttpHost"]


class HttpHost:
    """Serves one ``Server`` to any number of HTTP clients.

    Each call marks what it changed and ends with one drain, which acts on everything that follows: events go to the
    handlers, effects to the store, and exchanges with something to send to ``on_ready``, which may pull and write at
    once. What handlers and adapters do while it runs is marked too, and the same drain sees it; so ``on_ready`` is
    never called from within itself.
    """

    may_block: bool
    """Whether the next handler may block, so that output which is ready should leave before."""

    def __init__(
        self,
        server: Server,
        runtime: Runtime,
        *,
        clock: Callable[[], float],
        on_ready: Callable[[Hashable], None],
        on_deadline: Callable[[float | None], None],
        report: Callable[[str, BaseException | None], None],
        options: HttpOptions | None = None,
        state: Any = None,
        on_connection: Callable[[Any], None] | None = None,
        store: SessionStore | None = None,
        unanswered: UnansweredPolicy = "fail",
        protected: ResourceServer | None = None,
    ) -> None:
        """Serve a server.

        Args:
            server: Its handlers and options.
            runtime: The event loop.
            clock: Gives the time in seconds.
            on_ready: Takes an exchange that has something to send.
            on_deadline: Takes the time when to call ``handle_timeout``, ``None`` for never.
            report: Tells the operator of a fault.
            options: Choices of HTTP.
            state: The result of the server's lifespan.
            on_connection: Takes the connection of each session before anything passes it, to put a tap on it, and the
                engine of the stateless requests.
            store: Makes sessions outlive the process.
            unanswered: What becomes of requests whose handlers died with an earlier process.
            protected: What clients have to be authorized by: see ``HttpServer``.

        Raises:
            ValueError: If the options do not go with a store.

        """
        self.server = server
        self.runtime = runtime
        self.clock = clock
        self.report = report
        self.state = state
        self.may_block = False
        self._on_connection = on_connection
        self._engine: StatelessEngine | None = None
        self._offer = server.offer()
        # The session of the stateless requests, from the first of them on, and its driver.
        self._stateless: tuple[ServerSession, HostedCalls] | None = None
        hooks = None if store is None else self._new_hooks(unanswered)
        self.machine: HttpServer = HttpServer(
            self._connect,
            entropy=runtime.entropy,
            options=options,
            limits=server.options.limits,
            ledger=server.ledger,
            on_given_up=lambda: runtime.call_soon(self._drain),
            on_room=self._note_room,
            on_advice=lambda advice: self.server.advice.give(advice, report),
            durable=None if hooks is None else self._durable(hooks),
            protected=protected,
            revisions=server.options.revisions,
            param_headers=server.tools.param_headers,
            stateless=self._new_engine,
        )
        self._store = None if store is None or hooks is None else self._new_writer(store, hooks)
        self._store_fault: BaseException | None = None
        self._unanswered = unanswered
        self._is_sessionless = options is not None and not options.sessions
        self._ends_streams = protected is not None and not protected.outlive_token
        self._on_ready = on_ready
        self._on_deadline = on_deadline
        self._sessions: dict[int, Hosted] = {}
        # Sessions that have ended while handlers run, each with the timer that will name those handlers.
        self._leaving: dict[ServerSession, Spawned] = {}
        self._is_draining = False
        self._deadline: float | None = None

    def now(self) -> float:
        """Return the time."""
        return self.clock()

    def report_fault(self, message: str, error: BaseException | None) -> None:
        """Report a fault that clients can repeat: with its traceback once, later throttled and counted."""
        self.server.fault_reports.report(self, message, error)

    def receive(self, *items: RequestItem) -> None:
        """Process items of a request (head, body, end), in order."""
        machine, now = self.machine, self.clock()
        self._begin_turn(now)
        whole = whole_request(items)
        if whole is not None:
            machine.serve(*whole, now, is_direct=False)
            self._drain()
            return
        for item in items:
            machine.receive(item, now)
            if item.__class__ is End:
                # A request may have to wait for what the one before it caused, even if both came in one read.
                self._drain()
        if not items or items[-1].__class__ is not End:
            self._drain()

    def serve(self, head: RequestHead, body: bytes, now: float | None = None) -> Answer | None:
        """Process a whole request; return its answer if that is complete within this call.

        Otherwise the response comes by ``on_ready`` and ``responses_to_send``. ``now`` is the time, if it is known.
        """
        machine = self.machine
        if now is None:
            now = self.clock()
        self._begin_turn(now)
        exchange = machine.serve(head, body, now)
        if self._is_draining or (only := machine.only_event(exchange)) is None:
            self._drain()
        else:
            # The usual case: nothing but the request is to be acted on, and its answer is there after that.
            self._is_draining = True
            try:
                self._act(*only)
            finally:
                self._is_draining = False
        answer = machine.answer_of(exchange)
        if answer is None or machine.has_news:
            self._drain()
        return answer

    def _begin_turn(self, now: float) -> None:
        """Update the options of the machine that depend on the server."""
        if (offer := self.server.offer()) is not self._offer:
            self._offer = offer
            if self._engine is not None:
                self._engine.offer(*offer)
        if self._ends_streams:
            # Again each time: the clock of an event loop may stand still while the machine sleeps.
            self.machine.epoch = self.runtime.wall_clock() - now

    def responses_to_send(self, exchange: Hashable, max_bytes: int = 65536) -> list[ResponseItem]:
        """Return what to send of a response. See ``HttpServer.responses_to_send``."""
        items = self.machine.responses_to_send(exchange, max_bytes)
        # Requests that waited for room may go on, and a session may have ended with its last response.
        self._drain()
        return items

    def handle_timeout(self) -> None:
        """Handle expired deadlines. The next deadline is always reported."""
        self._deadline = math.nan  # unlike any other
        self.machine.handle_timeout(self.clock())
        self._drain()

    def finish_listening(self) -> None:
        """Answer the listen requests of stateless clients, which run for as long as they are let; serve all others."""
        if self._stateless is not None:
            _, driver = self._stateless
            self.server.audience.finish(driver)

    def close(self, grace: float | None = 5.0) -> None:
        """Refuse new requests, answer running ones for at most ``grace`` seconds, and end all streams."""
        self.machine.close(self.clock(), grace)
        self._drain()

    def take_sessions(self) -> tuple[ServerSession, ...]:
        """Return the sessions that are left, and the one of the stateless requests.

        For the one that ends the host: from here on it names the handlers that do not end, and the host does not.
        """
        stateless = () if self._stateless is None else (self._stateless[0],)
        for timer in self._leaving.values():
            timer.cancel()
        leaving, self._leaving = self._leaving, {}
        return (*leaving, *(hosted.session for hosted in self._sessions.values()), *stateless)

    def fail_abandoned(self) -> None:
        """Answer requests whose handlers were cut off with an error that says so (P4)."""
        for hosted in tuple(self._sessions.values()):
            hosted.session._fail_abandoned()
            hosted.driver.wake()
        if self._stateless is not None:
            self._stateless[0]._fail_abandoned()
            self._drain()

    def touch(self, session: HttpSession | Calls) -> None:
        """Process changes of a session's connection: now, or in the drain that is running."""
        self.machine.touch(session, self.clock())
        self._drain()

    def _drain(self) -> None:
        """Process everything that was marked, until nothing is left."""
        if self._is_draining:
            return  # the drain that is under way sees this too
        self._is_draining = True
        machine = self.machine
        try:
            while True:
                while (pair := machine.next_event()) is not None:
                    self._act(*pair)
                if self._store is not None and self._store.carry_on(self.runtime):
                    continue
                exchange = machine.next_ready()
                if exchange is None:
                    break
                self._on_ready(exchange)
        finally:
            self._is_draining = False
        deadline = machine.next_deadline()
        if deadline != self._deadline:
            self._deadline = deadline
            self._on_deadline(deadline)

    def _act(self, session: HttpSession | Calls, event: HttpEvent) -> None:
        if isinstance(session, Calls):
            self._handle_stateless(session, event)
            return
        try:
            if event.__class__ is SessionOpened:
                self._open(session, event)
            elif event.__class__ is SessionClosed:
                self._close(session)
            elif session.key in self._sessions:  # otherwise it could not be begun, and was reported
                self.may_block = self._sessions[session.key].session._handle(event)  # type: ignore[arg-type]  # an event of its engine
        except BaseException as error:
            self.report("a session failed", failure_of(error))
            session.connection.abort(error)

    def _note_room(self, session: HttpSession) -> None:
        """Resume handlers whose results wait for their client to read."""
        entry = self._sessions.get(session.key)
        if entry is not None:
            entry.session._note_room()

    # Sessions that outlive the process

    def _new_hooks(self, unanswered: UnansweredPolicy) -> DurableHooks:
        from mcpio.app.session import check_unanswered  # few servers keep sessions
        from mcpio.http.durable import DurableHooks

        check_unanswered(unanswered)
        return DurableHooks(
            save=lambda session: self._sessions[session.key].session.snapshot(),
            restore=self._restore,
            # Limited, so that a client which names a damaged session again and again cannot flood the log.
            report=self.report_fault,
        )

    @staticmethod
    def _durable(hooks: DurableHooks) -> DurableSessions:
        from mcpio.http.durable import DurableSessions  # as above

        return DurableSessions(hooks)

    def _new_writer(self, store: SessionStore, hooks: DurableHooks) -> StoreWriter[SessionEffect]:
        from mcpio.app.store_writer import StoreWriter  # as above
        from mcpio.http.sessions import SessionLoad

        def next_effect() -> SessionEffect | None:
            # The clock of an event loop may stand still, and that of the system may be set.
            hooks.epoch = self.runtime.wall_clock() - self.clock()
            return self.machine.next_effect()

        def read(effect: SessionEffect) -> Callable[[], Any] | None:
            return partial(store.session, effect.key) if isinstance(effect, SessionLoad) else None

        return StoreWriter(store, read=read, next_effect=next_effect, done=self._on_stored, process=self._drain)

    def _on_stored(self, effect: SessionEffect, answer: Any) -> None:
        if isinstance(answer, BaseException) and answer is not self._store_fault:
            self._store_fault = answer  # changes that were written together fail together
            self.report_fault("the store of sessions failed", answer)
        self.machine.store_done(effect.token, answer, self.clock())

    def _restore(self, saved: Mapping[str, Any], principal: Hashable, now: float) -> ServerConnection:
        from mcpio.app.session import SavedSession  # as above

        connection = self.server.connection(principal=principal, saved=SavedSession.read(saved), now=now)
        if self._on_connection is not None:
            self._on_connection(connection)
        return connection

    def _resume(self, session: HttpSession, served: ServerSession, saved: Mapping[str, Any]) -> None:
        """Serve or fail the requests whose handlers died with another process."""
        from mcpio.app.session import SavedSession  # as above

        try:
            served._resume(SavedSession.read(saved), self._unanswered)
        except Exception as error:
            self.report("a stored session cannot go on", error)
            session.connection.abort(error)

    # The machine

    def _connect(self, principal: Hashable) -> ServerConnection:
        connection = self.server.connection(principal=principal)
        if self._on_connection is not None:
            self._on_connection(connection)
        return connection

    def _new_engine(self) -> StatelessEngine:
        server, (capabilities, options) = self.server, self._offer
        engine = StatelessEngine(server.info, capabilities, instructions=server.instructions, options=options)
        if self._on_connection is not None:
            self._on_connection(engine)
        self._engine = engine
        return engine

    def _open(self, session: HttpSession, event: Any) -> None:
        hosted = HostedSession(self, session)
        opened = self.server.session(session.connection, hosted, self.state)
        opened.is_one_request = self._is_sessionless
        self._sessions[session.key] = Hosted(opened, hosted)
        if event.saved is not None:
            self._resume(session, opened, event.saved)

    def _handle_stateless(self, calls: Calls, event: Any) -> None:
        session, driver = self._stateless or self._open_stateless(calls)
        try:
            self.may_block = session._handle(event)
        except BaseException as error:
            # A fault of this side ends the one call.
            self.report("a call failed", failure_of(error))
            if calls.connection.is_pending(event.id):
                calls.connection.send_error(event.id, internal_error())
        if event is calls.connection.end:
            driver.end()

    def _open_stateless(self, calls: Calls) -> tuple[ServerSession, HostedCalls]:
        driver = HostedCalls(self, calls)
        session = self.server.stateless_session(calls.connection, driver, self.state)
        self._stateless = session, driver
        calls.on_room = session._note_room
        return self._stateless

    def _close(self, session: HttpSession) -> None:
        entry = self._sessions.pop(session.key, None)
        if entry is not None:
            entry.driver.end()
            if entry.session._running:
                name = partial(self._name_handlers, entry.session)
                self._leaving[entry.session] = self.runtime.call_later(HANDLER_CANCEL_TIMEOUT, name)

    def _name_handlers(self, session: ServerSession) -> None:
        """Tell the operator which cancelled handlers of a session that ended go on."""
        del self._leaving[session]
        session._report_handlers()


class Hosted(NamedTuple):
    """A session that is open, and its driver."""

    session: ServerSession
    driver: HostedSession


class Hosting:
    """The part of a driver that is the host's."""

    __slots__ = ("_host", "_session", "_waiting", "now")

    now: Callable[[], float]
    """Returns the time."""

    def __init__(self, host: HttpHost, session: HttpSession | Calls) -> None:
        self.now = host.clock
        self._host = host
        self._session = session
        self._waiting: tuple[OneShot, ...] = ()

    @property
    def runtime(self) -> Runtime:
        """The event loop."""
        return self._host.runtime

    def wake(self) -> None:
        """Process changes of the connection."""
        self._host.touch(self._session)

    async def wait_closed(self) -> None:
        """Wait until the session has ended."""
        if self._session.connection.phase is not Phase.CLOSED:
            ended = self.runtime.one_shot()
            self._waiting += (ended,)
            await ended.wait()

    def refuse(self, via: Hashable, id: IncomingId, scopes: frozenset[str]) -> None:
        """Set the status of a response to 403 because its token lacks scopes. See ``HttpServer.refuse``."""
        self._host.machine.refuse(self._session, via, id, scopes)

    def report(self, message: str, error: BaseException | None) -> None:
        """Report a fault to the operator."""
        self._host.report(message, error)

    def end(self) -> None:
        """Wake the tasks that wait for the end of the session."""
        for ended in self._waiting:
            ended.set(None)


class HostedCalls(Hosting):
    """The driver of all stateless calls."""

    __slots__ = ()

    def close(self, grace: float) -> None:
        """Do nothing: there is no connection to close."""


class HostedSession(Hosting):
    """The driver of one session, which passes on to the host."""

    __slots__ = ()

    _session: HttpSession

    def close(self, grace: float) -> None:
        """Close the session gracefully, at the loop's next turn. Then its client gets 404.

        Raises LocalProtocolError if ``grace`` is not a number of 0 or more.
        """
        limit = checked_grace(grace)
        self.runtime.call_soon(lambda: self._close(limit))

    def interrupt(self, via: Hashable, retry: float | None) -> bool:
        """End the exchange of a request, whose client fetches the answer later. See ``HttpServer.interrupt``."""
        done = self._host.machine.interrupt(self._session, via, self.now(), retry=retry)
        self.wake()
        return done

    def _close(self, grace: float | None) -> None:
        self._session.connection.close(self.now(), grace=grace)
        self.wake()
