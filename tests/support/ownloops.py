"""The programs of ``docs/examples`` that drive a connection in their own loops, for one suite over all of them.

A ``Program`` runs in its own thread until the connection has ended. It passes the test a function that calls others in
its loop, and one that tells the loop that the connection was used.
"""

from __future__ import annotations

import asyncio
import runpy
import socket
import struct
import sys
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from queue import SimpleQueue
from selectors import EVENT_READ
from threading import Condition, Thread
from time import monotonic
from typing import Any, TypeAlias, TypeVar

import asyncio_protocol
import gevent
import gevent_sockets
import qt_sockets
import selector_loop
import twisted_protocol
from tree import ROOT
from twisted.internet import epollreactor

from mcpio import (
    ClientConnection,
    Event,
    Implementation,
    Limits,
    McpError,
    Options,
    RequestFailed,
    RequestReceived,
    ResponseReceived,
    ServerConnection,
)
from mcpio.types import CustomRequest

__all__ = [
    "PROGRAMS",
    "Carried",
    "Heard",
    "Program",
    "client",
    "ends",
    "initialize",
    "initialized",
    "qt",
    "reset",
    "server",
    "threads",
]

T = TypeVar("T")
Act: TypeAlias = Callable[[], Any]
Started: TypeAlias = Callable[[Callable[[Act], Any], Act], None]
"""Takes what calls a function in the loop, from any thread, and what tells the loop that it was touched."""
Program: TypeAlias = Callable[["Heard", socket.socket, Started], None]

ECHO = "x/echo"
SECONDS = 20
"""For what happens at once, unless something is wrong."""


class Heard:
    """One side: it keeps what it hears, and answers what it is asked with what it was given."""

    def __init__(self, conn: ClientConnection | ServerConnection) -> None:
        self.conn = conn
        self.events: list[Event] = []
        self.answers = True
        self._changed = Condition()

    def on_event(self, event: Event) -> None:
        if isinstance(event, RequestReceived) and self.answers:
            self.conn.send_result(event.id, event.request.params)
        with self._changed:
            self.events.append(event)
            self._changed.notify_all()

    def of(self, kind: type[T]) -> list[T]:
        return [event for event in self.events if isinstance(event, kind)]

    def hears(self, kind: type[T]) -> T:
        """Wait for an event of a kind, and return the first."""
        with self._changed:
            assert self._changed.wait_for(lambda: self.of(kind), SECONDS), self.events[-5:]
        return self.of(kind)[0]

    def outcomes(self, count: int) -> dict[Any, Any]:
        """Wait for so many outcomes of what was asked with a cookie; return results and errors by their cookies."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self._ended()) >= count, SECONDS), self.events[-5:]
        found = self._ended()
        by_cookie = {
            event.cookie: event.result if isinstance(event, ResponseReceived) else event.error for event in found
        }
        assert len(by_cookie) == len(found), "one request, two outcomes"
        return by_cookie

    def _ended(self) -> list[ResponseReceived | RequestFailed]:
        ended = [event for event in self.events if isinstance(event, ResponseReceived | RequestFailed)]
        return [event for event in ended if event.cookie is not None]


def client() -> Heard:
    """Return a client that has asked to shake hands."""
    conn = ClientConnection(Implementation("client", "1"), options=Options(custom_methods=frozenset({ECHO})))
    conn.send_initialize(now=monotonic())
    return Heard(conn)


def server(**limits: Any) -> Heard:
    options = Options(custom_methods=frozenset({ECHO}), limits=Limits(**limits))
    return Heard(ServerConnection(Implementation("server", "1"), options=options))


class Carried:
    """A side under a program, in a thread, and what the rest of a program would do to it."""

    def __init__(self, program: Program, app: Heard, sock: socket.socket) -> None:
        self.app = app
        self._errors: list[BaseException] = []
        started: SimpleQueue[tuple[Callable[[Act], Any], Act]] = SimpleQueue()

        def run() -> None:
            try:
                program(app, sock, lambda call_soon, touch: started.put((call_soon, touch)))
            except BaseException as error:
                self._errors.append(error)
                raise

        self._thread = Thread(target=run)
        self._thread.start()
        self._call_soon, self._touch = started.get(timeout=SECONDS)

    def do(self, act: Callable[[], T]) -> T:
        """Do something to the connection in its loop."""
        future: Future[T] = Future()

        def inside() -> None:
            try:
                result = act()
            except McpError as error:
                self._touch()
                future.set_exception(error)
            else:
                self._touch()
                future.set_result(result)

        self._call_soon(inside)
        return future.result(SECONDS)

    def ask(self, *cookies: Any, text: str = "", timeout: float = 60) -> None:
        """Ask once for each cookie, all at once."""

        def act() -> None:
            for cookie in cookies:
                request = CustomRequest(ECHO, {"cookie": cookie, "text": text})
                self.app.conn.send_request(request, now=monotonic(), timeout=timeout, cookie=cookie)

        self.do(act)

    def close(self, grace: float = 5) -> None:
        self.do(lambda: self.app.conn.close(monotonic(), grace=grace))

    def join(self) -> None:
        """Wait until the program is done."""
        self._thread.join(SECONDS)
        assert not self._thread.is_alive()
        assert self._errors == []


# Sockets, and the other side by hand


def ends(room: int | None = None) -> tuple[socket.socket, socket.socket]:
    """Return two ends of a TCP connection, with about as little room between them as ``room`` says, in bytes."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        here = socket.socket()
        if room is not None:
            for end in (listener, here):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, room)
                end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, room)
        here.connect(listener.getsockname())
        return here, listener.accept()[0]


def reset(sock: socket.socket) -> None:
    """Close a connection so that the other end hears of a reset."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


def initialize(sock: socket.socket) -> None:
    """Open a conversation by hand, from the client's side."""
    sock.sendall(
        b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},'
        b'"clientInfo":{"name":"hand","version":"1"}}}\n'
    )
    sock.recv(65536)
    sock.sendall(b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n')


def initialized(sock: socket.socket) -> None:
    """Answer ``initialize`` by hand, and no more."""
    sock.recv(65536)
    sock.sendall(
        b'{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25","capabilities":{},'
        b'"serverInfo":{"name":"hand","version":"1"}}}\n'
    )


# The programs


def asyncio_streams(app: Heard, sock: socket.socket, started: Started) -> None:
    run = runpy.run_path(str(ROOT / "docs" / "examples" / "asyncio_embedding.py"))["run"]

    async def main() -> None:
        reader, writer = await asyncio.open_connection(sock=sock)
        wake = asyncio.Event()
        started(asyncio.get_running_loop().call_soon_threadsafe, wake.set)
        await run(app.conn, reader, writer, app.on_event, wake)
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(asyncio_protocol.LINGER):
                writer.close()
                await writer.wait_closed()
        writer.transport.abort()
        await asyncio.sleep(0)  # it closes in its loop's next turn

    asyncio.run(main())


def asyncio_callbacks(app: Heard, sock: socket.socket, started: Started) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        _, driver = await loop.create_connection(lambda: asyncio_protocol.Driver(app), sock=sock)
        started(loop.call_soon_threadsafe, driver.touch)
        await driver.ended

    asyncio.run(main())


def threads(app: Heard, sock: socket.socket, started: Started) -> None:
    driver_class: Any = runpy.run_path(str(ROOT / "docs" / "examples" / "calls_from_threads.py"))["Driver"]

    class Driver(driver_class):  # type: ignore[misc]  # it comes from a program
        def on_event(self, event: Event) -> None:
            app.on_event(event)

    driver = Driver(app.conn, sock)
    started(driver.do, lambda: None)
    driver._thread.join()


def twisted(app: Heard, sock: socket.socket, started: Started) -> None:
    new_reactor: Any = epollreactor.EPollReactor
    reactor = new_reactor()
    driver = twisted_protocol.Driver(app, reactor)
    driver.ended.addCallback(lambda _: reactor.stop())
    factory = twisted_protocol.DriverFactory(lambda: driver)
    reactor.callWhenRunning(reactor.adoptStreamConnection, sock.fileno(), sock.family, factory)
    reactor.callWhenRunning(sock.close)  # the reactor has one of its own then
    started(reactor.callFromThread, driver.touch)
    reactor.run(installSignalHandlers=False)


def selectors(app: Heard, sock: socket.socket, started: Started) -> None:
    loop, bell = selector_loop.Loop(), _Bell()
    link = loop.add(app, sock)
    loop.selector.register(bell.sock, EVENT_READ, bell.rung)
    started(bell.call_soon, lambda: loop.touch(link))
    loop.run()
    loop.selector.close()
    bell.close()


def greenlets(app: Heard, sock: socket.socket, started: Started) -> None:
    hub, bell, wake = gevent.get_hub(), _Bell(), gevent.event.Event()
    watcher = hub.loop.io(bell.sock.fileno(), 1)
    watcher.start(bell.rung)
    started(bell.call_soon, wake.set)
    with gevent.socket.socket(fileno=sock.detach()) as own:
        gevent_sockets.drive(app, own, wake)
    watcher.stop()
    watcher.close()
    bell.close()
    hub.destroy(destroy_loop=True)


def qt(app: Heard, sock: socket.socket, started: Started) -> None:
    names: Any = qt_sockets
    loop, bell = names.QCoreApplication([]), _Bell()
    if "PySide6.QtCore" in sys.modules:
        notifier = sys.modules["PySide6.QtCore"].QSocketNotifier
        bell.notifier = notifier(bell.sock.fileno(), notifier.Type.Read)
        bell.notifier.activated.connect(bell.rung)
    else:
        loop.selector.register(bell.sock, EVENT_READ, bell.rung)
    adopted = qt_sockets.adopt(sock)
    adopted.disconnected.connect(loop.quit)
    driver = qt_sockets.Driver(app, adopted)
    started(bell.call_soon, driver.touch)
    loop.exec()
    bell.close()
    if bell.notifier is not None:
        loop.shutdown()  # so that there can be another one


class _Bell:
    """Takes functions from other threads, and calls them in the thread of a loop that hears it ring."""

    notifier: Any = None

    def __init__(self) -> None:
        self.sock, self._clapper = socket.socketpair()
        self._todo: SimpleQueue[Act] = SimpleQueue()

    def call_soon(self, act: Act) -> None:
        self._todo.put(act)
        self._clapper.send(b"!")

    def rung(self, *_: object) -> None:
        self.sock.recv(4096)
        while not self._todo.empty():
            self._todo.get()()

    def close(self) -> None:
        self.sock.close()
        self._clapper.close()


PROGRAMS: list[Program] = [asyncio_streams, asyncio_callbacks, threads, twisted, selectors, greenlets, qt]
