"""A server and a client under Twisted."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import Any

from echo_app import App, Caller, EchoServer
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IHalfCloseableProtocol, IPushProducer
from twisted.internet.protocol import ClientFactory, Protocol, connectionDone
from twisted.internet.task import react
from twisted.python.failure import Failure
from zope.interface import implementer

LINGER = 5.0
"""Seconds that a peer has to read the last output."""


@implementer(IPushProducer, IHalfCloseableProtocol)
class Driver(Protocol):
    """Drives a connection. Call ``touch`` after using it outside ``on_event``."""

    transport: Any

    def __init__(self, app: App, reactor: Any) -> None:
        self.app = app
        self.ended: Deferred[None] = Deferred()
        self._reactor = reactor
        self._can_write = False
        self._timer: Any = None

    def connectionMade(self) -> None:
        self.transport.registerProducer(self, True)  # The transport pauses and resumes output.
        self.resumeProducing()

    def dataReceived(self, data: bytes) -> None:
        self.app.conn.receive_data(data, monotonic())
        self.touch()

    def readConnectionLost(self) -> None:
        self.app.conn.receive_data(None, monotonic())
        self.touch()

    def writeConnectionLost(self) -> None:
        pass  # This program never closes only its output.

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self._can_write = False
        self.app.conn.connection_lost(reason.value, monotonic())
        self.touch()
        self._set_timer(None)
        self.ended.callback(None)

    def pauseProducing(self) -> None:
        self._can_write = False

    def resumeProducing(self) -> None:
        self._can_write = True
        self.touch()

    def stopProducing(self) -> None:
        self._can_write = False

    def touch(self) -> None:
        """Drain the events, write the chunks, re-arm the deadline."""
        conn, transport = self.app.conn, self.transport
        self._drain()
        while self._can_write and conn.wants_write:
            chunks = conn.data_to_send()
            transport.writeSequence([chunk for chunk in chunks if chunk is not None])
            self._drain()
        if conn.closed:
            transport.unregisterProducer()
            transport.loseConnection()
            self._set_timer(self._reactor.callLater(LINGER, transport.abortConnection))
            return
        transport.resumeProducing() if conn.wants_read else transport.pauseProducing()
        deadline = conn.next_deadline()
        if deadline is None:
            self._set_timer(None)
        else:
            seconds = max(0, deadline - monotonic())
            self._set_timer(self._reactor.callLater(seconds, self._expire))

    def _drain(self) -> None:
        for event in self.app.conn.events():
            self.app.on_event(event)

    def _expire(self) -> None:
        self.app.conn.handle_timeout(monotonic())
        self.touch()

    def _set_timer(self, timer: Any) -> None:
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        self._timer = timer


class DriverFactory(ClientFactory):
    """Returns a driver for each connection, whether listening or connecting."""

    noisy = False

    def __init__(self, new_driver: Callable[[], Driver]) -> None:
        self._new_driver = new_driver

    def buildProtocol(self, addr: object) -> Driver:
        return self._new_driver()


async def main(reactor: Any) -> None:
    """Run a client and a server."""
    servers = DriverFactory(lambda: Driver(EchoServer(), reactor))
    port = reactor.listenTCP(0, servers, interface="127.0.0.1")
    client = Driver(Caller(), reactor)
    reactor.connectTCP("127.0.0.1", port.getHost().port, DriverFactory(lambda: client))
    await client.ended
    await port.stopListening()


if __name__ == "__main__":
    react(main)
