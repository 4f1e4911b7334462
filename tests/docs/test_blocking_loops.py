"""The loops without an event loop: the blocking one, and the thread around ``select`` that others call."""

from __future__ import annotations

import runpy
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from threading import Thread
from time import monotonic
from typing import Any

import pytest
from tree import ROOT

from mcpio import (
    CallToolRequest,
    ClientConnection,
    CloseReason,
    ConnectionClosed,
    ConnectionLost,
    Event,
    Implementation,
    LocalProtocolError,
    Negotiated,
    NoBackChannel,
    Options,
    RequestFailed,
    RequestReceived,
    RequestTimeout,
    ResponseReceived,
    ServerCapabilities,
    ServerConnection,
    ToolsCapability,
)
from mcpio.types import CustomRequest

EXAMPLES = ROOT / "docs" / "examples"
run: Callable[..., None] = runpy.run_path(str(EXAMPLES / "blocking_sockets.py"))["run"]
Driver: Callable[..., Any] = runpy.run_path(str(EXAMPLES / "calls_from_threads.py"))["Driver"]

OPTIONS = Options(custom_methods=frozenset({"x/echo"}))


def client() -> ClientConnection:
    return ClientConnection(Implementation("client", "1"), options=OPTIONS)


def server() -> ServerConnection:
    offer = ServerCapabilities(tools=ToolsCapability())
    return ServerConnection(Implementation("server", "1"), offer, options=OPTIONS)


class Heard:
    """What one side under ``run`` hears; a server answers whatever it is asked."""

    def __init__(
        self, conn: ClientConnection | ServerConnection, *requests: CustomRequest, timeout: float = 60
    ) -> None:
        self.conn = conn
        self.events: list[Event] = []
        self._requests = requests
        self._timeout = timeout

    def __call__(self, event: Event) -> None:
        self.events.append(event)
        match event:
            case Negotiated() if isinstance(self.conn, ClientConnection):
                for request in self._requests:
                    self.conn.send_request(request, now=monotonic(), timeout=self._timeout, cookie="asked")
            case RequestReceived():
                self.conn.send_result(event.id, event.request.params)
            case ResponseReceived(cookie="asked") | RequestFailed(cookie="asked"):
                if not self.conn.pending.outgoing:
                    self.conn.close(monotonic())

    def of(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]


def test_blocking_program_prints_the_documented_output(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(EXAMPLES / "blocking_sockets.py"), run_name="__main__")
    assert capsys.readouterr().out == "echo speaks 2026-07-28\nit says: hello\n"


def test_many_calls_over_a_blocking_socket() -> None:
    here, there = socket.socketpair()
    near, far = client(), server()
    asked = Heard(near, *(CustomRequest("x/echo", {"n": n}) for n in range(500)))
    near.send_initialize(now=monotonic())
    with here, there:
        thread = Thread(target=run, args=(far, there, Heard(far)))
        thread.start()
        run(near, here, asked)
        thread.join()
    assert [event.result["n"] for event in asked.of(ResponseReceived)] == list(range(500))
    assert asked.events[-1] == ConnectionClosed(CloseReason.CLOSED, None)


def initialized(sock: socket.socket) -> None:
    """Answer ``initialize`` by hand, and no more."""
    sock.recv(65536)
    sock.sendall(
        b'{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25","capabilities":{},'
        b'"serverInfo":{"name":"hand","version":"1"}}}\n'
    )


def test_deadlines_expire_while_a_peer_sends_without_a_pause() -> None:
    here, there = socket.socketpair()
    near = client()
    asked = Heard(near, CustomRequest("x/echo", {}), timeout=0.01)
    near.send_initialize(now=monotonic())

    def flood() -> None:
        initialized(there)
        try:
            while True:
                there.sendall(b'{"jsonrpc":"2.0","method":"notifications/x"}\n' * 100)
        except OSError:
            pass

    with there:
        thread = Thread(target=flood)
        thread.start()
        with here:
            run(near, here, asked)
        thread.join()
    (failed,) = asked.of(RequestFailed)
    assert isinstance(failed.error, RequestTimeout)


def test_a_blocking_socket_that_breaks_ends_the_requests_as_lost() -> None:
    here, there = socket.socketpair()
    near = client()
    asked = Heard(near, CustomRequest("x/echo", {}))
    near.send_initialize(now=monotonic())

    def leave() -> None:
        initialized(there)
        there.close()

    thread = Thread(target=leave)
    thread.start()
    with here:
        run(near, here, asked)
    thread.join()
    (failed,) = asked.of(RequestFailed)
    assert isinstance(failed.error, ConnectionLost)


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    here, there = socket.socketpair()
    with here, there:
        yield here, there


def initialize(driver: Any) -> None:
    driver.ask(lambda future: driver.conn.send_initialize(now=monotonic(), cookie=future))


def square(driver: Any, n: int) -> Any:
    request = CallToolRequest("square", {"n": n})
    return driver.ask(lambda future: driver.conn.send_request(request, now=monotonic(), cookie=future))


def test_many_threads_call_at_once(ends: tuple[socket.socket, socket.socket]) -> None:
    near, far = Driver(client(), ends[0]), Driver(server(), ends[1])
    initialize(near)
    with ThreadPoolExecutor(8) as threads:
        results = list(threads.map(lambda n: square(near, n), range(200)))
    assert [result.content[0].text for result in results] == [str(n * n) for n in range(200)]
    near.close()
    far.close()


def test_eight_threads_make_a_thousand_calls_each_without_any_event_loop() -> None:
    run = subprocess.run([sys.executable, "-c", MANY_CALLS], cwd=EXAMPLES, capture_output=True, text=True)
    assert (run.stdout, run.stderr) == ("8000 answers\n", "")


MANY_CALLS = """
import socket, sys
from concurrent.futures import ThreadPoolExecutor
from time import monotonic
from mcpio import *
from calls_from_threads import Driver

here, there = socket.socketpair()
offer = ServerCapabilities(tools=ToolsCapability())
server = Driver(ServerConnection(Implementation("squares", "1"), offer), there)
client = Driver(conn := ClientConnection(Implementation("asker", "1")), here)
client.ask(lambda future: conn.send_initialize(now=monotonic(), cookie=future))

def squares(thread):
    for n in range(1000 * thread, 1000 * (thread + 1)):
        request = CallToolRequest("square", {"n": n})
        result = client.ask(lambda future: conn.send_request(request, now=monotonic(), cookie=future))
        assert result.content[0].text == str(n * n)
    return 1000

with ThreadPoolExecutor(8) as threads:
    print(sum(threads.map(squares, range(8))), "answers")
client.close()
server.close()
assert {"anyio", "asyncio", "gevent", "trio", "twisted"} & set(sys.modules) == set()
"""


def test_forbidden_call_raises_at_the_caller(ends: tuple[socket.socket, socket.socket]) -> None:
    near, far = Driver(client(), ends[0]), Driver(server(), ends[1])
    with pytest.raises(LocalProtocolError):
        square(near, 1)
    near.close()
    far.close()


def test_lost_connection_fails_every_waiting_thread(ends: tuple[socket.socket, socket.socket]) -> None:
    near = Driver(client(), ends[0])
    with ThreadPoolExecutor(8) as threads:
        opening = threads.submit(initialize, near)
        initialized(ends[1])
        opening.result()

        def ask() -> Any:
            request = CustomRequest("x", {})
            return near.ask(lambda future: near.conn.send_request(request, now=monotonic(), cookie=future))

        waiting = [threads.submit(ask) for _ in range(8)]
        with ends[1].makefile("rb") as lines:
            assert sum(b'"method":"x"' in line for line in islice(lines, 9)) == 8
        ends[1].close()
        errors = [each.exception() for each in waiting]
    assert [type(error) for error in errors] == [ConnectionLost] * 8
    near.close()
    with pytest.raises(NoBackChannel):
        ask()
    near.close()


def test_closing_is_legal_from_every_thread_at_once_and_each_call_has_one_outcome(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    near, far = Driver(client(), ends[0]), Driver(server(), ends[1])
    initialize(near)
    with ThreadPoolExecutor(16) as threads:
        calls = [threads.submit(square, near, n) for n in range(8)]
        for closing in [threads.submit(each.close) for each in (near, far) * 4]:
            closing.result()
    for n, call in enumerate(calls):
        if call.exception() is None:
            assert call.result().content[0].text == str(n * n)
        else:
            assert isinstance(call.exception(), ConnectionLost | NoBackChannel)


def test_peer_that_does_not_read_delays_neither_calls_nor_the_end(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    near = Driver(client(), ends[0])
    with ThreadPoolExecutor(1) as threads:
        opening = threads.submit(initialize, near)
        initialized(ends[1])
        opening.result()
    big = CustomRequest("x", {"text": "x" * 10_000_000})
    with pytest.raises(RequestTimeout):
        near.ask(lambda future: near.conn.send_request(big, now=monotonic(), timeout=0, cookie=future))
    near.do(near.conn.abort)
    ends[1].close()
    near.close()
