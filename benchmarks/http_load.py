"""Load for ``http_server.py``: servers over HTTP as child processes, and clients that block or take turns."""

from __future__ import annotations

import itertools
import json
import os
import re
import selectors
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any, Final, Self

import attrs
from harness import ENVIRONMENT, HERE, call_of_echo, free_port, resident_mib

READ: Final = 1 << 18
TEXT: Final = "hello"
REVISION: Final = "2025-11-25"
STATELESS: Final = "2026-07-28"
META: Final = {
    "io.modelcontextprotocol/protocolVersion": STATELESS,
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "benchmark", "version": "1"},
}
"""What each stateless request says of its client."""
ENDING: Final = 24
"""So many bytes at the end of an answer to the call are the same in each, and tell that it is whole."""
_TRACES = itertools.count(1)
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_SESSION = re.compile(rb"\r\nmcp-session-id: *([^\r]+)", re.IGNORECASE)
_IS_CHUNKED = re.compile(rb"\r\ntransfer-encoding: *chunked", re.IGNORECASE)


class RunningServer:
    """A server at a port, in a process."""

    def __init__(self, port: int, pid: int, fields: bytes = b"") -> None:
        """``fields`` are whole lines of header fields that all clients send."""
        self.port = port
        self.pid = pid
        self.fields = fields

    @property
    def cpu_seconds(self) -> float:
        """The processor time that it has used, all its threads together."""
        return time.clock_gettime(~self.pid << 3 | 2)  # how Linux numbers the clock of another process

    @property
    def resident_mib(self) -> float:
        """The memory that it holds."""
        return resident_mib(self.pid)


class HttpServer(RunningServer):
    """A server as a child process, which takes ``--http PORT``."""

    def __init__(
        self, argv: Sequence[str], *, cpu: int | None = None, limit: float = 30.0, fields: bytes = b""
    ) -> None:
        """``argv`` begins with a program of this folder, or an interpreter. ``cpu`` is the processor to run on, if any.

        ``fields`` are whole lines of header fields that all clients send.
        """
        port = free_port()
        program, *rest = argv
        command = [sys.executable, str(HERE / program), *rest] if program.endswith(".py") else argv
        self._process = subprocess.Popen(
            [*command, "--http", str(port)],
            stdin=subprocess.DEVNULL,
            env=ENVIRONMENT,
        )
        super().__init__(port, self._process.pid, fields)
        if cpu is not None:
            os.sched_setaffinity(self.pid, {cpu})
        self._wait(time.perf_counter() + limit)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _wait(self, deadline: float) -> None:
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
            except OSError:
                if self._process.poll() is not None or time.perf_counter() > deadline:
                    self._process.kill()
                    self._process.wait()
                    raise
                time.sleep(0.02)
            else:
                return


class HttpClient:
    """A client with a connection of its own, and with a session unless it is stateless."""

    def __init__(
        self, server: RunningServer, *, is_stateless: bool = False, is_traced: bool = False, text: str = TEXT
    ) -> None:
        """``is_traced`` gives each request a ``traceparent`` of its own, as tracing clients and proxies do."""
        self._is_traced = is_traced
        self._text = text
        self._is_stateless = is_stateless
        self._host = f"127.0.0.1:{server.port}"
        self.socket = socket.create_connection(("127.0.0.1", server.port), timeout=30)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._fields = server.fields
        self._session = b""
        self._trace = b"%016x" % next(_TRACES)
        self.request = b""
        self.ending = b""
        self.received = b""
        self.began = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def initialize(self) -> None:
        """Shake hands, in a new session. Does nothing for a stateless client."""
        if self._is_stateless:
            return
        self._session = b""
        info = {"name": "benchmark", "version": "1"}
        params = {"protocolVersion": REVISION, "capabilities": {}, "clientInfo": info}
        head = self._ask({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}).partition(b"\r\n\r\n")[
            0
        ]
        found = _SESSION.search(head)
        if found is None:
            raise RuntimeError(f"no session: {head!r}")
        self._session = found[1]
        self._ask({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def call(self) -> None:
        """Call ``echo`` and check what comes of it. From then on ``request`` calls again, and ``ending`` is known."""
        params = call_of_echo(self._text) | ({"_meta": META} if self._is_stateless else {})
        self.request = self._request({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
        self.socket.sendall(self.request)
        response = self._receive()
        check(response, self._text)
        self.ending = response[-ENDING:]

    def send(self) -> None:
        """Send the call again."""
        if self._is_traced:
            self.request = self.request.replace(self._trace, trace := b"%016x" % next(_TRACES), 1)
            self._trace = trace
        self.socket.sendall(self.request)

    def _ask(self, message: dict[str, Any]) -> bytes:
        self.socket.sendall(self._request(message))
        return self._receive()

    def _receive(self) -> bytes:
        data = b""
        while not is_complete(data):
            more = self.socket.recv(READ)
            if not more:
                raise EOFError(f"the server closed the connection after {data[:300]!r}")
            data += more
        return data

    def _request(self, message: dict[str, Any]) -> bytes:
        body = json.dumps(message, separators=(",", ":")).encode()
        revision, more = REVISION, b"" if not self._session else b"mcp-session-id: %b\r\n" % self._session
        if self._is_stateless:
            revision, more = STATELESS, b"mcp-method: tools/call\r\nmcp-name: echo\r\n"
        if self._is_traced:
            more += b"traceparent: 00-%b%b-00f067aa0ba902b7-01\r\n" % (self._trace, self._trace[::-1])
        return (
            b"POST /mcp HTTP/1.1\r\nhost: %b\r\naccept: application/json, text/event-stream\r\n"
            b"content-type: application/json\r\nmcp-protocol-version: %b\r\n%b%bcontent-length: %d\r\n\r\n%b"
        ) % (self._host.encode(), revision.encode(), self._fields, more, len(body), body)


def is_complete(data: bytes) -> bool:
    """Whether there is a whole response, of those that these servers give."""
    head, end, body = data.partition(b"\r\n\r\n")
    if not end:
        return False
    length = _LENGTH.search(head)
    if length is not None:
        return len(body) >= int(length[1])
    return body.endswith(b"0\r\n\r\n") if _IS_CHUNKED.search(head) else True


def check(response: bytes, text: str = TEXT) -> None:
    """Raise ``RuntimeError`` for what is no answer to a call of ``echo``."""
    if not response.startswith(b"HTTP/1.1 200") or b'"text":"%b"' % text.encode() not in response:
        raise RuntimeError(f"not what was asked for: {response[:500]!r}")


@attrs.frozen
class Run:
    """What came of some load."""

    rate: float
    """Calls a second."""
    cpu_us: float
    """Microseconds of the server's processor time for one call."""
    busy: float
    """How much of a processor the clients kept busy: near 1, they are what is measured."""
    p50_us: float
    p99_us: float


def drive(
    server: RunningServer,
    count: int,
    seconds: float,
    *,
    is_stateless: bool = False,
    is_traced: bool = False,
    text: str = TEXT,
) -> Run:
    """Keep ``count`` clients asking, each as soon as it is answered."""
    clients = [HttpClient(server, is_stateless=is_stateless, is_traced=is_traced, text=text) for _ in range(count)]
    selector = selectors.DefaultSelector()
    try:
        for client in clients:
            client.initialize()
            client.call()
            selector.register(client.socket, selectors.EVENT_READ, client)
        return _take_turns(server, selector, clients, seconds, text)
    finally:
        selector.close()
        for client in clients:
            client.socket.close()


def _take_turns(
    server: RunningServer, selector: selectors.BaseSelector, clients: list[HttpClient], seconds: float, text: str
) -> Run:
    clock, taken, last = time.perf_counter_ns, [], b""
    cpu, own, began = server.cpu_seconds, time.process_time(), clock()
    deadline = began + int(seconds * 1e9)
    for client in clients:
        client.began = clock()
        client.send()
    asked = len(clients)
    while asked:
        for key, _ in selector.select(30):
            client = key.data
            data = client.socket.recv(READ)
            if not data:
                raise EOFError("the server closed a connection")
            client.received += data
            if not client.received.endswith(client.ending):
                continue
            now = clock()
            taken.append(now - client.began)
            last, client.received = client.received, b""
            if now < deadline:
                client.began = now
                client.send()
            else:
                asked -= 1
    elapsed, cpu, own = (clock() - began) / 1e9, server.cpu_seconds - cpu, time.process_time() - own
    check(last, text)
    taken.sort()
    calls = len(taken)
    return Run(
        calls / elapsed, cpu / calls * 1e6, own / elapsed, taken[calls // 2] / 1e3, taken[calls * 99 // 100] / 1e3
    )
