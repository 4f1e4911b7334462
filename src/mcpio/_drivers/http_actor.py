"""The HTTP client that the drivers of all event loops share: its options, and the actor that runs it."""

from __future__ import annotations

import ssl
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any, Final, TypedDict

import attrs

from mcpio._checks import check_options, checked, chosen
from mcpio._drivers import report
from mcpio._drivers.actor import EVENTS_PER_TURN, WORK_PER_TURN, Deadlines
from mcpio._drivers.auth.login import LoginDriver, LoginOptions, LoginSetup, declare_extension, with_key
from mcpio._drivers.event_loop import EventLoop
from mcpio._drivers.http.pool import HttpClientTimeouts, HttpPool
from mcpio._drivers.http.proxy import Proxy, find_proxy
from mcpio._drivers.setup import ClientSetupOptions, SessionSetup, prepare_client
from mcpio.app.awaitables import checked_callback
from mcpio.app.client import Client, ClientOptions
from mcpio.app.reconnection import SessionReconnector
from mcpio.app.runtime import Runtime, checked_grace
from mcpio.auth.given import ApiKey
from mcpio.errors import LocalProtocolError
from mcpio.http.client.client import HttpClient, HttpClientEvent
from mcpio.http.client.events import ListeningEnded, MessageRefused, SessionLost
from mcpio.http.client.options import HttpClientOptions
from mcpio.http.location import Location
from mcpio.http.model import Body, End, RequestHead, RequestItem, ResponseItem
from mcpio.http.param_headers import ParamHeader

__all__ = ["HttpActor", "HttpConnectOptions", "HttpSetup"]

LAST_WORDS: Final = 0.5
"""Seconds for telling the server that a cancelled block ends the session."""


class TransportOptions(TypedDict, total=False):
    """Options of the transport."""

    http: HttpClientOptions | None
    """Header fields, listening, resumption of broken streams, and reopening of lost sessions."""
    on_session_lost: Callable[[], None] | None
    """Called when the server has forgotten the session. Pending calls fail with ConnectionLost; unless ``http`` says
    otherwise, the client then opens another session. A plain function, not a coroutine function."""
    ssl_context: ssl.SSLContext | None
    """Settings for HTTPS; ``None`` trusts the authorities of the system."""
    timeouts: HttpClientTimeouts | None
    """How long the server may take."""
    proxy: str | None
    """The URL of an HTTP proxy."""
    trust_env: bool
    """Whether to use the proxy of the environment without ``proxy``: ``HTTP_PROXY``, ``HTTPS_PROXY``, ``ALL_PROXY``
    and ``NO_PROXY``, in lower case too."""


class HttpConnectOptions(TransportOptions, LoginOptions, ClientOptions, ClientSetupOptions, total=False):
    """The keyword arguments of ``open_http`` and ``connect_http``: of the transport, authorization, and the client."""


@attrs.frozen
class HttpSetup:
    """The checked arguments of ``connect_http``."""

    session: SessionSetup
    location: Location
    proxy: Proxy | None
    transport: TransportOptions
    of_client: Any
    """``ClientOptions``."""
    session_id: str | None
    """The id of a saved session, ``None`` for a new one."""
    login: LoginSetup | None
    """How the client is authorized; ``None`` without authorization."""

    @classmethod
    def check(cls, url: str, options: Any, now: float) -> HttpSetup:
        """Return the setup of a client. Raises ValueError for a malformed URL or option, and TypeError for its kind.

        Raises LocalProtocolError for a snapshot that cannot be continued.
        """
        given: dict[str, Any] = dict(options)
        check_options(given, HttpConnectOptions.__annotations__)
        transport: Any = {name: given.pop(name) for name in TransportOptions.__annotations__ if name in given}
        of_login: Any = {name: given.pop(name) for name in LoginOptions.__annotations__ if name in given}
        of_client: Any = {name: given.pop(name) for name in ClientOptions.__annotations__ if name in given}
        checked_callback("on_session_lost", transport.get("on_session_lost"))
        location = Location.parse(url)
        proxy = find_proxy(location, transport.get("proxy"), trust_env=transport.get("trust_env", False))
        if isinstance(of_login.get("auth"), ApiKey):
            transport["http"] = with_key(chosen("http", transport.get("http"), HttpClientOptions), of_login["auth"])
        login = LoginSetup.check(
            url,
            of_login,
            ssl_context=transport.get("ssl_context"),
            proxy=transport.get("proxy"),
            trust_env=transport.get("trust_env", False),
        )
        declare_extension(of_client, of_login.get("auth"))
        session = prepare_client(of_client, now, **given)
        return cls(session, location, proxy, transport, of_client, _session_id(session), login)

    def client(self, actor: HttpActor) -> Client:
        """Create the client of an actor."""
        connection: Any = self.session.connection
        client = Client(connection, actor, **self.of_client)
        actor.attach(client, SessionReconnector(client, self.transport.get("on_session_lost")))
        self.session.resume(client)
        return client


def _session_id(setup: SessionSetup) -> str | None:
    """Return the id of a saved session, ``None`` for a new one. Raises LocalProtocolError for a malformed id."""
    id = None if setup.saved is None else setup.saved.transport.get("session_id")
    if id is not None and not (isinstance(id, str) and id and all("!" <= character <= "~" for character in id)):
        raise LocalProtocolError(f"malformed snapshot: no session id: {id!r:.60}")
    return id


class HttpActor(ABC):
    """The ``Driver`` of one client: it runs until its connection has ended and the server was notified.

    ``wake`` only marks. A turn acts on everything that is marked: ``run`` takes one for a mark, and the task of a
    connection takes one for its input, which saves a turn of the loop. Turns are never nested.
    """

    def __init__(self, setup: HttpSetup, loop: EventLoop, deadlines: Deadlines, runtime: Runtime) -> None:
        """``runtime`` runs the handlers."""
        self.runtime = runtime
        connection: Any = setup.session.connection
        transport = setup.transport
        login = setup.login
        authorizer = None if login is None else login.authorizer(runtime, loop.now(), interaction=login.interaction)
        self._machine = HttpClient(
            connection,
            setup.location,
            options=chosen("http", transport.get("http"), HttpClientOptions),
            session_id=setup.session_id,
            authorizer=authorizer,
            param_headers=self._param_headers,
        )
        self._login: LoginDriver | None = None
        if authorizer is not None and login is not None:
            self._login = LoginDriver(authorizer, login, loop, runtime, self._start, self.wake)
        self._pool = HttpPool(
            setup.location,
            loop=loop,
            start=self._start,
            receive=self._receive,
            on_input=self._turn,
            wants_read=self._wants_read,
            ssl_context=checked("ssl_context", transport.get("ssl_context"), ssl.SSLContext),
            timeouts=chosen("timeouts", transport.get("timeouts"), HttpClientTimeouts),
            proxy=setup.proxy,
        )
        self._loop = loop
        self._deadlines = deadlines
        self._work = loop.signal()
        self._left = EVENTS_PER_TURN
        self._has_more = False
        self._failure: BaseException | None = None
        self._scope = loop.scope()
        self._over = loop.event()

    def attach(self, client: Client, reconnector: SessionReconnector) -> None:
        """Set the client that handles events, and what replaces its lost sessions."""
        self._client = client
        self._driving = client.driving
        self._reconnector = reconnector
        self._driving.reconnect_by(reconnector)

    def _param_headers(self, name: str) -> tuple[ParamHeader, ...]:
        # The machine is made before the client that knows the tools.
        return self._driving.param_headers(name)

    # The driver of the session

    def now(self) -> float:
        """Return the loop's time."""
        return self._loop.now()

    def wake(self) -> None:
        """Mark that a turn is due, which ``run`` takes."""
        self._work.set()

    @property
    def has_session(self) -> bool:
        """Whether the server keeps a session: see ``HttpClient.has_session``."""
        return self._machine.has_session

    def save_transport(self) -> dict[str, Any]:
        """Return the transport's part of a snapshot. Raises as ``HttpClient.save`` does."""
        return {"session_id": self._machine.save()}

    def report(self, message: str, error: BaseException | None) -> None:
        """Write to the log named ``mcpio``."""
        report(message, error)

    def handle_timeout(self) -> None:
        """Expire deadlines. The timekeeper calls this."""
        self._machine.handle_timeout(self._loop.now())
        self.wake()

    def close(self, grace: float) -> None:
        """Close gracefully, at the loop's next turn. Raises LocalProtocolError for an invalid ``grace``."""
        limit = checked_grace(grace)
        self.runtime.call_soon(lambda: self._close(limit))

    async def wait_closed(self) -> None:
        """Wait until the connection has ended and the server was notified."""
        await self._over.wait()

    async def run(self) -> None:
        """Run until the connection has ended. A cancelled block ends the session at once, and tells the server.

        Raises an exception of a callback that ends the program, such as SystemExit.
        """
        try:
            with self._scope:
                await self._take_turns()
        finally:
            await self._end()
        if self._failure is not None:
            raise self._failure

    async def _take_turns(self) -> None:
        self._turn()
        # A mark that comes during a turn is kept by the signal, and costs one more turn that may find nothing.
        while not self._machine.closed:
            await self._work.wait()
            self._turn()

    async def _end(self) -> None:
        """Release everything, in bounded time: whatever is raised here, ``wait_closed`` returns."""
        async with AsyncExitStack() as steps:  # the last is taken first
            steps.callback(self._over.set)
            if self._login is not None:
                steps.push_async_callback(self._login.aclose)
            steps.callback(self._finish_events)
            steps.callback(self._machine.connection.abort)
            async with self._loop.last_moment(LAST_WORDS):
                # The callers of requests are cancelled in this turn of the loop: their cancellations go out first.
                await self.runtime.sleep(0)
                self._close(0.0)
                await self._take_turns()

    # Inside

    @abstractmethod
    def _start(self, task: Callable[[], Awaitable[None]]) -> None:
        """Start a task that outlives the cancellation of ``run``, by way of ``_guard``."""

    async def _guard(self, task: Callable[[], Awaitable[None]]) -> None:
        """Run a task. What it raises, but for a cancellation, ends the session."""
        try:
            await task()
        except self._loop.cancelled:
            raise
        except BaseException as error:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        """Record the exception of a task. It ends the session, and ``run`` raises it."""
        self._failure = self._failure or error
        self._scope.cancel()

    def _receive(self, item: ResponseItem) -> None:
        self._machine.receive(item, self._loop.now())

    def _wants_read(self, exchange: object) -> bool:
        # What was read is acted on before more is: one read may hold thousands of events.
        return not self._has_more and self._machine.wants_read(exchange)

    def _close(self, grace: float | None) -> None:
        self._machine.connection.close(self._loop.now(), grace=grace)
        self.wake()

    def _turn(self) -> None:
        """Handle events and give all requests to the pool, until nothing is left; then arm the deadline.

        A turn handles only so many events: ``_has_more`` says that some are left, and another turn is due.
        """
        has_acted = True
        began, self._left = self._loop.now(), EVENTS_PER_TURN
        while has_acted and self._left:
            self._handle_events(began)
            items = self._machine.requests_to_send(self._loop.now())
            for item in items:
                self._send(item)
            if self._login is not None:
                self._authorize(self._login)
            # To find that nothing is left to send may end the connection, which is an event.
            has_acted = self._handle_events(began) or bool(items)
        self._has_more = not self._left
        if self._has_more:
            self.wake()
        self._pool.resume()
        self._driving.settle()
        self._deadlines.arm(self, self._machine.next_deadline())
        if self._machine.closed:
            self.wake()  # run may wait while the task of a connection takes the last turn

    def _authorize(self, login: LoginDriver) -> None:
        while (effect := self._machine.next_effect()) is not None:
            login.perform(effect)
        if login.tell():
            # Private results are those of one user, and tools may be those of some scopes (CACHE-05).
            self._driving.miss_changes()

    def _send(self, item: RequestItem) -> None:
        if isinstance(item, RequestHead):
            self._pool.add(item)
        elif isinstance(item, Body):
            self._pool.add_body(item)
        elif isinstance(item, End):
            self._pool.run(item.exchange)
        else:
            self._pool.cancel(item.exchange)

    def _finish_events(self) -> None:
        """Take turns until the last event was handled, because no task is left to take them."""
        self._turn()
        while self._has_more:
            self._turn()

    def _handle_events(self, began: float) -> bool:
        """Handle the events that the turn still may; return whether there were any."""
        has_acted = False
        while self._left and (event := self._machine.next_event()) is not None:
            has_acted = True
            self._left -= 1
            if not self._left & 7 and self._loop.now() - began > WORK_PER_TURN:
                self._left = 0
            try:
                self._handle(event)
            except Exception as error:
                report("a session failed", error)
                self._machine.connection.abort(error)
        return has_acted

    def _handle(self, event: HttpClientEvent) -> None:
        if isinstance(event, SessionLost):
            report("the server does not know the session any more", None)
            self._reconnector.begin(event.again_in)
        elif isinstance(event, MessageRefused):
            report("the server did not take a message", event.error)
        elif isinstance(event, ListeningEnded):
            report("messages outside of requests are no longer received", event.error)
        else:
            self._driving.handle(event)
