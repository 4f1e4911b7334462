"""Receives the redirect of a browser on a loopback address, in a thread (RFC 8252 §7.3)."""

from __future__ import annotations

import contextlib
import selectors
import socket
import sys
import threading
import time
from collections.abc import Iterable
from typing import Final

import h11

from mcpio.auth.errors import AuthorizationError
from mcpio.auth.pending import PendingAuthorization

__all__ = ["RedirectReceiver"]

_HEAD_BYTES: Final = 16384
"""Bytes of a request. Browsers send some KiB, and a code may be long."""
_CONNECTIONS: Final = 32
"""The most concurrent connections. Browsers open some in advance and send nothing on them."""
_PATIENCE: Final = 30.0
"""Seconds that a connection may take for its request."""

_PAGE: Final = (
    "<!doctype html><meta charset=utf-8><title>mcpio</title><p style='font:1.2em sans-serif;margin:3em'>{}</p>"
)
_DONE: Final = "The login is complete. You can close this window."
_FAILED: Final = "The login failed. The program that began it says why."
_OTHER: Final = "This is not the login that is waited for."

_FIELDS: Final = (
    ("content-type", "text/html; charset=utf-8"),
    ("cache-control", "no-store"),
    ("referrer-policy", "no-referrer"),
    ("content-security-policy", "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"),
    ("x-content-type-options", "nosniff"),
    ("connection", "close"),
)


class RedirectReceiver:
    """Binds one loopback port, and listens there. Raises OSError if the port is taken.

    ``host`` is a loopback address, or ``localhost`` for both 127.0.0.1 and ::1, since browsers choose one of them.
    ``port`` is ``None`` for any port; ``path`` may have a query. Requests for another path, host or login get a page of
    fixed text, and the wait goes on: no other page can end a login (AUTH-27). Nothing of a request is echoed.
    """

    def __init__(self, host: str, port: int | None, path: str) -> None:
        self._path = path
        self._mutex = threading.Lock()
        self._is_waiting = self._is_closed = False
        self._listeners: list[socket.socket] = []
        self._wake, self._woken = socket.socketpair()
        try:
            self._port = self._bind("127.0.0.1" if host == "localhost" else host, port or 0)
            if host == "localhost" and _has_ipv6():
                self._bind("::1", self._port)
        except BaseException:
            self._close()
            raise
        self._origin = f"http://{f'[{host}]' if ':' in host else host}:{self._port}"

    @property
    def uri(self) -> str:
        """The redirect URI, with the port that is bound."""
        return self._origin + self._path

    def close(self) -> None:
        """Stop. A ``wait`` in another thread returns ``None``. May be called at any time, and twice."""
        with self._mutex:
            self._is_closed = True
            if self._is_waiting:
                self._wake.send(b"x")
            else:
                self._close()

    def listen(self) -> None:
        """Start to listen; connections that arrive before ``wait`` are queued for it."""
        for each in self._listeners:
            _allow_reuse(each, True)
            each.listen(_CONNECTIONS)
            each.setblocking(False)

    def _bind(self, address: str, port: int) -> int:
        """Bind a port of an address, and return which one it is."""
        listener = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
        self._listeners.append(listener)
        if sys.platform == "win32":  # pragma: no cover - without it another process could bind the port as well
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_EXCLUSIVEADDRUSE, 1)
        # The port of a login a minute ago is free, though its connection is in TIME_WAIT.
        _allow_reuse(listener, True)
        listener.bind((address, port))
        # Until this socket listens, no other process may bind the port.
        _allow_reuse(listener, False)
        return int(listener.getsockname()[1])

    def wait(self, pending: PendingAuthorization) -> str | None:
        """Wait, after ``listen``, for the redirect of a login, in a thread; return its URL, or ``None`` once closed.

        The page that the person sees is written after the checks of the state and the issuer.
        """
        connections: dict[socket.socket, tuple[h11.Connection, float]] = {}
        with self._mutex:
            if self._is_closed:
                return None
            self._is_waiting = True
        with selectors.DefaultSelector() as selector, contextlib.ExitStack() as stack:
            stack.callback(self._end_wait)
            stack.callback(_close_all, connections)
            for each in (*self._listeners, self._woken):
                selector.register(each, selectors.EVENT_READ)
            while True:
                for key, _ in selector.select(_PATIENCE):
                    connection: socket.socket = key.fileobj  # type: ignore[assignment]  # only sockets are registered
                    if connection is self._woken:
                        return None
                    if connection in self._listeners:
                        with contextlib.suppress(OSError):
                            self._accept(connection, selector, connections)
                        continue
                    if connection not in connections:
                        continue  # dropped for a newer one in this round
                    target, is_over = self._read(connection, connections[connection][0])
                    if target is not None:
                        url = self._origin + target
                        if self._answer(connection, url, pending):
                            return url
                    if is_over:
                        self._drop(selector, connections, connection)
                late = [each for each, (_, since) in connections.items() if since + _PATIENCE < time.monotonic()]
                for connection in late:
                    self._drop(selector, connections, connection)

    def _accept(
        self,
        listener: socket.socket,
        selector: selectors.BaseSelector,
        connections: dict[socket.socket, tuple[h11.Connection, float]],
    ) -> None:
        connection, _ = listener.accept()
        if len(connections) >= _CONNECTIONS:
            self._drop(selector, connections, next(iter(connections)))
        connection.setblocking(False)
        http = h11.Connection(h11.SERVER, max_incomplete_event_size=_HEAD_BYTES)
        connections[connection] = http, time.monotonic()
        selector.register(connection, selectors.EVENT_READ)

    def _drop(
        self,
        selector: selectors.BaseSelector,
        connections: dict[socket.socket, tuple[h11.Connection, float]],
        connection: socket.socket,
    ) -> None:
        del connections[connection]
        selector.unregister(connection)
        connection.close()

    def _read(self, connection: socket.socket, http: h11.Connection) -> tuple[str | None, bool]:
        """Return the target of a request to the redirect URI, and whether the connection has ended."""
        try:
            data = connection.recv(_HEAD_BYTES)
            http.receive_data(data)
            event = http.next_event()
        except BlockingIOError:
            return None, False
        except (OSError, h11.RemoteProtocolError):
            return None, True
        if event is h11.NEED_DATA:
            return None, False
        if not isinstance(event, h11.Request):
            return None, True
        hosts = [value for name, value in event.headers if name == b"host"]
        target = event.target.decode("latin-1")
        # The host is compared because of DNS rebinding: a page whose name resolves to this address sends its own name.
        # Browsers leave port 80 out.
        own = self._origin.removeprefix("http://").removesuffix(":80").encode()
        path = self._path.partition("?")[0] or "/"
        if event.method == b"GET" and hosts == [own] and target.partition("?")[0] == path:
            return target, True
        _send(connection, "404 Not Found", _OTHER)
        return None, True

    def _answer(self, connection: socket.socket, url: str, pending: PendingAuthorization) -> bool:
        """Write the page for a URL; return whether the URL belongs to the login."""
        if not pending.matches(url):
            _send(connection, "400 Bad Request", _OTHER)
            return False
        try:
            pending.code(url)
        except AuthorizationError:
            _send(connection, "200 OK", _FAILED)
        else:
            _send(connection, "200 OK", _DONE)
        connection.close()
        return True

    def _end_wait(self) -> None:
        with self._mutex:
            self._is_waiting, self._is_closed = False, True
            self._close()

    def _close(self) -> None:
        for each in (*self._listeners, self._wake, self._woken):
            each.close()


def _allow_reuse(listener: socket.socket, allow: bool) -> None:
    if sys.platform != "win32":  # pragma: no branch - there, it would let another process share the port
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, allow)


def _has_ipv6() -> bool:
    """Return whether this machine has the address ::1."""
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as tried:
            tried.bind(("::1", 0))
    except OSError:
        return False
    return True


def _close_all(connections: Iterable[socket.socket]) -> None:
    for each in connections:
        each.close()


def _send(connection: socket.socket, status: str, text: str) -> None:
    body = _PAGE.format(text).encode()
    fields = [*_FIELDS, ("content-length", str(len(body)))]
    head = "".join(f"{name}: {value}\r\n" for name, value in fields)
    with contextlib.suppress(OSError):
        connection.sendall(f"HTTP/1.1 {status}\r\n{head}\r\n".encode() + body)
        connection.shutdown(socket.SHUT_WR)
