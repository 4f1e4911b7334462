"""``open_http`` and ``connect_http``: a client of a server over Streamable HTTP."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Any, TypedDict, Unpack

import trio

from mcpio._driving import report
from mcpio.app.client import Client, ClientOptions, client_connection
from mcpio.app.runtime import checked_grace
from mcpio.app.session import Session
from mcpio.engine.client import ClientConnection
from mcpio.http.client import HttpClient
from mcpio.http.client_events import ListeningEnded, MessageRefused, SessionLost
from mcpio.http.client_options import HttpClientOptions
from mcpio.http.location import Location
from mcpio.http.model import Body, End, RequestHead, Reset, ResponseItem
from mcpio.trio._drivers import Opened, check_options, shake_hands
from mcpio.trio._groups import ungrouped
from mcpio.trio._http_exchange import HttpClientTimeouts, HttpPool
from mcpio.trio._runtime import TrioRuntime
from mcpio.trio._timekeeper import Timekeeper

__all__ = ["HttpConnectOptions", "connect_http", "open_http"]


class TransportOptions(TypedDict, total=False):
    """What the transport may be given."""

    http: HttpClientOptions | None
    """Header fields, listening, how a broken stream is taken up."""
    ssl_context: ssl.SSLContext | None
    """How HTTPS is done; ``None`` trusts what the system trusts."""
    timeouts: HttpClientTimeouts | None
    """How long the server may take."""
    max_connections: int
    """How many exchanges may be under way at once; further ones wait."""


class HttpConnectOptions(TransportOptions, ClientOptions, total=False):
    """The keyword arguments of ``open_http`` and ``connect_http``: of the transport, and of the client."""


async def connect_http(url: str, *, nursery: trio.Nursery, **options: Unpack[HttpConnectOptions]) -> Client:
    """Return a client that has shaken hands with the server at a URL. Its tasks live in ``nursery`` and never raise.

    Raises ``ConnectFailed``, and ``ValueError`` for what is no URL.
    """
    given: dict[str, Any] = dict(options)
    transport = {name: given.pop(name) for name in TransportOptions.__annotations__ if name in given}
    check_options(given, ClientOptions.__annotations__)
    location = Location.parse(url)
    client: Client = await nursery.start(_carry, location, transport, given)
    return await shake_hands(client)


def open_http(url: str, **options: Unpack[HttpConnectOptions]) -> Opened[Client]:
    """Give a client for the length of a block: ``async with open_http("http://…/mcp") as client``."""
    return Opened(lambda nursery: connect_http(url, nursery=nursery, **options))


async def _carry(
    location: Location,
    transport: Mapping[str, Any],
    options: ClientOptions,
    *,
    task_status: trio.TaskStatus[Client] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Carry one client until it is over."""
    timekeeper = Timekeeper()
    connection = client_connection(**options)
    with ungrouped():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(timekeeper.run)
            actor = HttpActor(connection, location, timekeeper, nursery, transport)
            client = Client(connection, actor, **options)
            actor.attach(client)
            task_status.started(client)
            await actor.run()
            nursery.cancel_scope.cancel()


class HttpActor:
    """Runs one client until its connection has ended and the server was told, and is its ``Driver``."""

    def __init__(
        self,
        connection: ClientConnection,
        location: Location,
        timekeeper: Timekeeper,
        nursery: trio.Nursery,
        transport: Mapping[str, Any],
    ) -> None:
        self.runtime = TrioRuntime(nursery)
        self._machine = HttpClient(connection, location, options=transport.get("http"))
        self._pool = HttpPool(
            location,
            nursery,
            receive=self._receive,
            ssl_context=transport.get("ssl_context"),
            timeouts=transport.get("timeouts") or HttpClientTimeouts(),
            most=transport.get("max_connections", 64),
        )
        self._timekeeper = timekeeper
        self._is_busy = self._is_touched = False
        self._over = trio.Event()

    def attach(self, session: Session) -> None:
        """Say who acts on events."""
        self._session = session

    # The driver of the session

    def now(self) -> float:
        """Return Trio's time."""
        return trio.current_time()

    def wake(self) -> None:
        """Do what there is to do."""
        self._is_touched = True
        if self._is_busy:
            return  # whoever is at it sees this too
        self._is_busy = True
        try:
            while self._is_touched:
                self._is_touched = False
                self._process()
        finally:
            self._is_busy = False
        self._timekeeper.arm(self, self._machine.next_deadline())
        if self._machine.closed:
            self._over.set()

    def report(self, message: str, error: BaseException | None) -> None:
        """Write to the log, under the name ``mcpio``."""
        report(message, error)

    def handle_timeout(self) -> None:
        """Let deadlines expire. The timekeeper calls this."""
        self._machine.handle_timeout(trio.current_time())
        self.wake()

    def close(self, grace: float) -> None:
        """Close in order, at the loop's next turn. ``LocalProtocolError`` for a grace that makes no sense."""
        limit = checked_grace(grace)
        self.runtime.call_soon(lambda: self._close(limit))

    async def wait_closed(self) -> None:
        """Wait until the connection has ended and the server was told."""
        await self._over.wait()

    async def run(self) -> None:
        """Wait for the end. In a block that is cancelled, the session ends at once."""
        try:
            self.wake()
            await self._over.wait()
        finally:
            self._machine.connection.abort()
            self.wake()
            self._over.set()

    # Inside

    def _receive(self, item: ResponseItem) -> None:
        self._machine.receive(item, trio.current_time())
        self.wake()

    def _close(self, grace: float | None) -> None:
        self._machine.connection.close(trio.current_time(), grace)
        self.wake()

    def _process(self) -> None:
        self._act_on_events()
        pool = self._pool
        for item in self._machine.requests_to_send(trio.current_time()):
            self._is_touched = True
            if isinstance(item, RequestHead):
                pool.add(item)
            elif isinstance(item, Body):
                pool.add_body(item)
            elif isinstance(item, End):
                pool.run(item.exchange)
            elif isinstance(item, Reset):
                pool.cut(item.exchange)
        # To find that nothing is left to send may be what ends the connection, and an event says so.
        self._is_touched |= self._act_on_events()

    def _act_on_events(self) -> bool:
        """Act on what happened. Returns whether anything did."""
        machine, is_new = self._machine, False
        while (event := machine.next_event()) is not None:
            is_new = True
            if isinstance(event, SessionLost | MessageRefused | ListeningEnded):
                report("the server does not know the session any more", None)
                continue
            try:
                self._session.handle(event)
            except Exception as error:
                report("a session failed", error)
                machine.connection.abort(error)
        return is_new
