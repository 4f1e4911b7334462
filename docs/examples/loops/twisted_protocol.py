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
"""Seconds that a peer has to read what was written last."""


@implementer(IPushProducer, IHalfCloseableProtocol)
class Carrier(Protocol):
    """Carries a connection. Who acts on it outside ``on_event`` calls ``touch`` then."""

    transport: Any

    def __init__(self, app: App, reactor: Any) -> None:
        self.app = app
        self.over: Deferred[None] = Deferred()
        self._reactor = reactor
        self._can_write = False
        self._timer: Any = None

    def connectionMade(self) -> None:
        self.transport.registerProducer(self, True)  # What it produces is the output.
        self.resumeProducing()

    def dataReceived(self, data: bytes) -> None:
        self.app.conn.receive_data(data, monotonic())
        self.touch()

    def readConnectionLost(self) -> None:
        self.app.conn.receive_data(None, monotonic())
        self.touch()

    def writeConnectionLost(self) -> None:
        pass  # Nothing here closes the output alone.

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self._can_write = False
        self.app.conn.connection_lost(reason.value, monotonic())
        self.touch()
        self._set_timer(None)
        self.over.callback(None)

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


class Carriers(ClientFactory):
    """Makes a carrier for each connection, for listening and for connecting alike."""

    noisy = False

    def __init__(self, new_carrier: Callable[[], Carrier]) -> None:
        self._new_carrier = new_carrier

    def buildProtocol(self, addr: object) -> Carrier:
        return self._new_carrier()


async def main(reactor: Any) -> None:
    """Let a client talk to a server."""
    servers = Carriers(lambda: Carrier(EchoServer(), reactor))
    port = reactor.listenTCP(0, servers, interface="127.0.0.1")
    client = Carrier(Caller(), reactor)
    reactor.connectTCP("127.0.0.1", port.getHost().port, Carriers(lambda: client))
    await client.over
    await port.stopListening()


if __name__ == "__main__":
    react(main)
