"""What the Autobahn test suite talks with: our WebSocket machine in each role, sending every text back.

    python tests/conformance/websocket_echo.py server PORT
    python tests/conformance/websocket_echo.py client PORT

The client asks the suite's server, as that wants it, how many cases there are, and goes through them.
"""

from __future__ import annotations

import os
import sys
from functools import partial

import h11
import trio

from mcpio.engine.table import Role
from mcpio.http.client import Location
from mcpio.http.model import HostPolicy, HttpOptions, RequestHead
from mcpio.websocket import (
    AcceptedHandshake,
    ClientOpening,
    CompletedHandshake,
    MessageReceived,
    WebSocket,
    WebSocketOptions,
    answer_opening,
)

MAX_BYTES = 16 * 1024 * 1024
OPTIONS = WebSocketOptions(subprotocols=(), compression=True, ping_interval=None)
ANYWHERE = HttpOptions(policy=HostPolicy(hosts=None, origins=None))
AGENT = "mcpio"


async def serve(stream: trio.SocketStream) -> None:
    """Serve one client until it leaves."""
    http = h11.Connection(h11.SERVER)
    while (request := http.next_event()) is h11.NEED_DATA:
        http.receive_data(await stream.receive_some())
    if not isinstance(request, h11.Request):
        return  # somebody looked whether we listen
    head = RequestHead(0, request.method.decode(), request.target.decode(), tuple(request.headers))
    answer = answer_opening(head, http=ANYWHERE, options=OPTIONS, subprotocols=())
    assert isinstance(answer, AcceptedHandshake), answer
    await stream.send_all(http.send(h11.InformationalResponse(status_code=101, headers=list(answer.headers))) or b"")
    http.next_event()
    rest, _ = http.trailing_data
    await echo(stream, Role.SERVER, answer.window_bits, rest)


async def call(port: int, path: str) -> list[str]:
    """Talk with the suite's server until the end; return what it said."""
    stream = await trio.open_tcp_stream("127.0.0.1", port)
    place = Location.parse(f"http://127.0.0.1:{port}{path}")
    opening = ClientOpening(place, OPTIONS, subprotocols=(), headers={}, entropy=os.urandom)
    await stream.send_all(opening.request)
    while (opened := opening.outcome()) is None:
        opening.receive_data(bytes(await stream.receive_some()) or None)
    assert isinstance(opened, CompletedHandshake), opened
    return await echo(stream, Role.CLIENT, opened.window_bits, opened.rest)


async def echo(stream: trio.SocketStream, role: Role, window_bits: int | None, data: bytes) -> list[str]:
    """Send every text back until the end; return them."""
    clock = trio.current_time
    machine = WebSocket(role, OPTIONS, max_bytes=MAX_BYTES, now=clock(), entropy=os.urandom, window_bits=window_bits)
    texts: list[str] = []
    has_ended = False
    async with stream:
        machine.receive_data(data, clock())
        while True:
            texts += send_back(machine)
            try:
                while out := machine.data_to_send(clock()):
                    await stream.send_all(out)
                if machine.over:
                    return texts
                if machine.is_deaf and not has_ended:
                    await stream.send_eof()
                    has_ended = True
                with trio.move_on_at(machine.next_deadline() or float("inf")):
                    machine.receive_data(bytes(await stream.receive_some(65536)) or None, clock())
            except trio.BrokenResourceError:
                machine.connection_lost(clock())
            machine.handle_timeout(clock())


def send_back(machine: WebSocket) -> list[str]:
    """Take the events; return the texts that came, each of which goes back."""
    texts: list[str] = []
    while (event := machine.next_event()) is not None:
        if isinstance(event, MessageReceived):
            texts.append(event.text)
            if machine.is_open:
                machine.send_message(event.text.encode())
    return texts


async def go_through(port: int) -> None:
    """Take all cases of the suite's server, and have it write its report."""
    (count,) = await call(port, "/getCaseCount")
    for case in range(1, int(count) + 1):
        await call(port, f"/runCase?case={case}&agent={AGENT}")
    await call(port, f"/updateReports?agent={AGENT}")


def main(role: str, port: str) -> None:
    """Be the server or the client."""
    if role == "server":
        trio.run(partial(trio.serve_tcp, serve, int(port), host="127.0.0.1"))
    else:
        trio.run(go_through, int(port))


if __name__ == "__main__":
    main(*sys.argv[1:])
