"""A server and a client on gevent, in greenlets, without monkey-patching."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

import gevent
from echo_app import App, Caller, EchoServer
from gevent import socket
from gevent.event import Event
from gevent.server import StreamServer

LINGER = 5.0
"""Seconds that a peer has to read the last output."""


def drive(app: App, sock: socket.socket, wake: Event) -> None:
    """Drive a connection to its end. Set ``wake`` after using it outside ``on_event``."""
    conn = app.conn
    can_read, can_write = Event(), Event()

    def pump_in() -> None:
        while can_read.wait():
            data = sock.recv(65536)
            can_read.clear()
            conn.receive_data(data or None, monotonic())
            wake.set()

    def pump_out() -> None:
        while not conn.closed:
            can_write.wait()
            can_write.clear()
            chunks = conn.data_to_send()
            wake.set()
            sock.sendall(b"".join(chunk for chunk in chunks if chunk is not None))

    def until_lost(pump: Callable[[], None]) -> None:
        try:
            pump()
        except OSError as exc:
            conn.connection_lost(exc, monotonic())
            wake.set()

    pumps = [gevent.spawn(until_lost, pump) for pump in (pump_in, pump_out)]
    wake.set()
    while not conn.closed:
        deadline = conn.next_deadline()
        if not wake.wait(None if deadline is None else max(0, deadline - monotonic())):
            conn.handle_timeout(monotonic())
        wake.clear()
        for event in conn.events():
            app.on_event(event)
        if conn.wants_read:
            can_read.set()
        if conn.wants_write or conn.closed:
            can_write.set()
    pumps[1].join(LINGER)
    gevent.killall(pumps)


def serve(sock: socket.socket, address: object) -> None:
    """Serve one client. ``StreamServer`` takes this function as it is."""
    drive(EchoServer(), sock, Event())


def main() -> None:
    """Run a client and a server."""
    server = StreamServer(("127.0.0.1", 0), serve)
    server.start()
    with socket.create_connection(("127.0.0.1", server.server_port)) as sock:
        drive(Caller(), sock, Event())
    server.stop()


if __name__ == "__main__":
    main()
