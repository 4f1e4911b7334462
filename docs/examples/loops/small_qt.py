"""An event loop with the parts of Qt that ``qt_sockets.py`` uses."""

from __future__ import annotations

import socket
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from selectors import EVENT_READ, EVENT_WRITE, DefaultSelector
from time import monotonic


class Signal:
    """Calls the functions that are connected to it."""

    def __init__(self) -> None:
        self._slots: list[Callable[..., object]] = []

    def connect(self, slot: Callable[..., object]) -> None:
        self._slots.append(slot)

    def emit(self, *args: object) -> None:
        for slot in self._slots:
            slot(*args)


class QCoreApplication:
    """The event loop. Only one may exist at a time."""

    app: QCoreApplication

    def __init__(self, _: list[str]) -> None:
        QCoreApplication.app = self
        self.selector = DefaultSelector()
        self._due: list[tuple[float, int, Callable[[], object]]] = []
        self._number = count()
        self._is_running = True

    def exec(self) -> None:
        while self._is_running:
            wait = max(0, self._due[0][0] - monotonic()) if self._due else None
            for key, events in self.selector.select(wait):
                key.data(events)
            while self._due and self._due[0][0] <= monotonic():
                heappop(self._due)[2]()
        self.selector.close()

    def quit(self) -> None:
        self._is_running = False

    def call_at(self, when: float, act: Callable[[], object]) -> None:
        heappush(self._due, (when, next(self._number), act))


class QTimer:
    """Fires once, after a number of milliseconds."""

    def __init__(self) -> None:
        self.timeout = Signal()
        self._starts = 0

    def setSingleShot(self, single: bool) -> None:
        assert single

    def start(self, ms: int) -> None:
        self._starts += 1
        start = self._starts

        def fire() -> None:
            if start == self._starts:
                self.timeout.emit()

        QCoreApplication.app.call_at(monotonic() + ms / 1000, fire)

    def stop(self) -> None:
        self._starts += 1


class QByteArray(bytes):
    def data(self) -> bytes:
        return self


class QTcpSocket:
    """A socket that reads and writes in the background, and emits signals."""

    def __init__(self) -> None:
        self.readyRead, self.bytesWritten = Signal(), Signal()
        self.errorOccurred, self.disconnected = Signal(), Signal()
        self._read = self._unsent = b""
        self._room = 0
        self._is_ending = False
        self._error = ""

    def setSocketDescriptor(self, descriptor: int) -> None:
        self._socket = socket.socket(fileno=descriptor)
        self._socket.setblocking(False)

    def setReadBufferSize(self, size: int) -> None:
        self._room = size
        self._watch()

    def bytesAvailable(self) -> int:
        return len(self._read)

    def bytesToWrite(self) -> int:
        return len(self._unsent)

    def readAll(self) -> QByteArray:
        data, self._read = self._read, b""
        self._watch()
        return QByteArray(data)

    def write(self, data: bytes) -> None:
        self._unsent += data
        self._watch()

    def errorString(self) -> str:
        return self._error

    def disconnectFromHost(self) -> None:
        self._is_ending = True
        self._watch()

    def abort(self) -> None:
        self._unsent = b""
        self.disconnectFromHost()

    def _watch(self) -> None:
        """Register for reading if the buffer has room, and for writing if output waits."""
        selector = QCoreApplication.app.selector
        if self._socket.fileno() < 0:
            return
        if self._socket in selector.get_map():
            selector.unregister(self._socket)
        if self._is_ending and not self._unsent:
            self._socket.close()
            self.disconnected.emit()
            return
        reads = not self._is_ending and len(self._read) < self._room
        events = EVENT_READ * reads | EVENT_WRITE * bool(self._unsent)
        if events:
            selector.register(self._socket, events, self._turn)

    def _turn(self, events: int) -> None:
        try:
            if events & EVENT_READ:
                data = self._socket.recv(self._room - len(self._read))
                if not data:
                    raise ConnectionError("The remote host closed the connection")
                self._read += data
                self.readyRead.emit()
            if events & EVENT_WRITE:
                size = self._socket.send(self._unsent)
                self._unsent = self._unsent[size:]
                self.bytesWritten.emit(size)
        except OSError as exc:
            self._error = str(exc)
            self.errorOccurred.emit(exc)
            self.abort()
        self._watch()
