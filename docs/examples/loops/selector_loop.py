"""A server of many clients, and a client, in one thread around ``selectors``."""

from __future__ import annotations

import socket
from collections.abc import Callable
from functools import partial
from selectors import EVENT_READ, EVENT_WRITE, DefaultSelector
from time import monotonic

from echo_app import App, Caller, EchoServer

LINGER = 5.0
"""Seconds that a peer has to read the last output."""


class Link:
    """One connection, its socket, and output that was pulled and not yet written."""

    def __init__(self, app: App, sock: socket.socket) -> None:
        self.app, self.sock = app, sock
        self._unsent = b""
        self._last_chance: float | None = None

    def turn(self, events: int) -> None:
        """Read or write as the socket allows, expire deadlines, and handle the events."""
        conn = self.app.conn
        try:
            if events & EVENT_READ:
                conn.receive_data(self.sock.recv(65536) or None, monotonic())
            if events & EVENT_WRITE:
                if not self._unsent:
                    chunks = conn.data_to_send()
                    self._unsent = b"".join(chunk for chunk in chunks if chunk is not None)
                self._unsent = self._unsent[self.sock.send(self._unsent) :]
        except OSError as exc:
            self._unsent = b""
            conn.connection_lost(exc, monotonic())
        conn.handle_timeout(monotonic())
        for event in conn.events():
            self.app.on_event(event)
        if conn.closed and self._last_chance is None:
            self._last_chance = monotonic() + LINGER

    @property
    def waits_for(self) -> int:
        conn = self.app.conn
        is_writing = bool(self._unsent) or conn.wants_write
        return EVENT_READ * conn.wants_read | EVENT_WRITE * is_writing

    @property
    def deadline(self) -> float | None:
        conn = self.app.conn
        return self._last_chance if conn.closed else conn.next_deadline()

    @property
    def is_over(self) -> bool:
        if self._last_chance is None:
            return False
        return not self._unsent or self._last_chance <= monotonic()


class Loop:
    """Drives any number of connections in the thread that calls ``run``."""

    def __init__(self) -> None:
        self.selector = DefaultSelector()
        self._deadlines: dict[Link, float] = {}  # only of connections that have one
        self._links: set[Link] = set()

    def listen(self, listener: socket.socket, new_app: Callable[[], App]) -> None:
        """Accept connections, and drive each with a new application."""
        listener.setblocking(False)

        def accept(_: int) -> None:
            self.add(new_app(), listener.accept()[0])

        self.selector.register(listener, EVENT_READ, accept)

    def add(self, app: App, sock: socket.socket) -> Link:
        """Drive a connection. Call ``touch`` after using it outside ``on_event``."""
        sock.setblocking(False)
        link = Link(app, sock)
        self._links.add(link)
        self.touch(link)
        return link

    def touch(self, link: Link, events: int = 0) -> None:
        """Drain the events, register the socket for reading or writing, re-arm the deadline."""
        link.turn(events)
        self._watch(link, 0 if link.is_over else link.waits_for)
        self._deadlines.pop(link, None)
        deadline = link.deadline
        if link.is_over:
            self._links.discard(link)
            link.sock.close()
        elif deadline is not None:
            self._deadlines[link] = deadline

    def run(self) -> None:
        """Run until all connections are closed."""
        while self._links:
            deadline = min(self._deadlines.values(), default=None)
            timeout = None if deadline is None else max(0, deadline - monotonic())
            for key, events in self.selector.select(timeout):
                key.data(events)
            now = monotonic()
            for link in [link for link, when in self._deadlines.items() if when <= now]:
                self.touch(link)

    def _watch(self, link: Link, events: int) -> None:
        is_known = link.sock in self.selector.get_map()
        if is_known and events:
            self.selector.modify(link.sock, events, partial(self.touch, link))
        elif events:
            self.selector.register(link.sock, events, partial(self.touch, link))
        elif is_known:
            self.selector.unregister(link.sock)


def main() -> None:
    """Run a client and a server."""
    loop = Loop()
    with socket.create_server(("127.0.0.1", 0)) as listener, loop.selector:
        loop.listen(listener, EchoServer)
        loop.add(Caller(), socket.create_connection(listener.getsockname()))
        loop.run()


if __name__ == "__main__":
    main()
