"""A server and a client in the event loop of a GUI: Qt, or a loop with the same interface.

Without PySide6, ``small_qt.py`` replaces the parts used here.
"""

from __future__ import annotations

import socket
from math import ceil
from time import monotonic
from typing import TYPE_CHECKING

from echo_app import App, Caller, EchoServer

if TYPE_CHECKING:
    from small_qt import QCoreApplication, QTcpSocket, QTimer
else:
    try:
        from PySide6.QtCore import QCoreApplication, QTimer
        from PySide6.QtNetwork import QTcpSocket
    except ImportError:
        from small_qt import QCoreApplication, QTcpSocket, QTimer

LINGER = 5000
"""Milliseconds that a peer has to read the last output."""

ROOM = 65536
"""Bytes that the socket may hold for each direction."""


class Driver:
    """Drives a connection. Call ``touch`` after using it outside ``on_event``."""

    def __init__(self, app: App, sock: QTcpSocket) -> None:
        self.app, self._sock = app, sock
        self._timer = QTimer()
        self._timer.setSingleShot(True)
        self._timer.timeout.connect(self._expire)
        sock.setReadBufferSize(ROOM)  # When it is full, the peer has to wait.
        sock.readyRead.connect(self.touch)
        sock.bytesWritten.connect(self.touch)
        sock.errorOccurred.connect(self._lose)
        sock.disconnected.connect(self._timer.stop)
        self.touch()

    def touch(self, _: object = None) -> None:
        """Read, drain the events, write the chunks, re-arm the deadline."""
        conn, sock = self.app.conn, self._sock
        if conn.wants_read and sock.bytesAvailable():
            conn.receive_data(sock.readAll().data(), monotonic())
        self._drain()
        while conn.wants_write and sock.bytesToWrite() < ROOM:
            for chunk in conn.data_to_send():
                if chunk is not None:
                    sock.write(chunk)
            self._drain()
        deadline = conn.next_deadline()
        if conn.closed:
            self._timer.start(LINGER)
            sock.disconnectFromHost()  # after the last write
        elif deadline is None:
            self._timer.stop()
        else:
            self._timer.start(max(0, ceil(1000 * (deadline - monotonic()))))

    def _drain(self) -> None:
        for event in self.app.conn.events():
            self.app.on_event(event)

    def _lose(self, _: object) -> None:
        # Qt has no half-close: the end of the input is also the end of the output.
        conn, sock = self.app.conn, self._sock
        conn.receive_data(sock.readAll().data(), monotonic())
        conn.connection_lost(ConnectionError(sock.errorString()), monotonic())
        self.touch()

    def _expire(self) -> None:
        if self.app.conn.closed:
            self._sock.abort()
        else:
            self.app.conn.handle_timeout(monotonic())
            self.touch()


def adopt(sock: socket.socket) -> QTcpSocket:
    """Return a QTcpSocket for a connected socket. A QTcpServer returns one too."""
    adopted = QTcpSocket()
    adopted.setSocketDescriptor(sock.detach())
    return adopted


def main() -> None:
    """Run a client and a server."""
    qt = QCoreApplication([])
    with socket.create_server(("127.0.0.1", 0)) as listener:
        here = adopt(socket.create_connection(listener.getsockname()))
        there = adopt(listener.accept()[0])
    there.disconnected.connect(qt.quit)
    drivers = [Driver(EchoServer(), there), Driver(Caller(), here)]
    qt.exec()
    assert all(driver.app.conn.closed for driver in drivers)


if __name__ == "__main__":
    main()
