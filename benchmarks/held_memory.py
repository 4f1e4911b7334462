"""The memory of a server whose clients send and never finish, ask and never read, or come back again and again.

python benchmarks/held_memory.py [--check] [--scale 1]

Each attack meets a fresh server with limits of a sixteenth of the defaults (``--scale`` multiplies them), while an
honest client calls a tool all the time. Printed are the server's resident memory above that of an idle one, beside the
bound that docs/limits.md states for those limits, and how the honest client fared. It needs Linux, loopback, and a
minute.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final

import attrs
import h2.config
import h2.connection
import h2.events
import trio
from h2.settings import SettingCodes
from http_load import HttpServer

MIB: Final = 1 << 20
BUFFERS: Final = 256 * 1024
"""What one connection reads and writes at the moment."""
OVERHEAD: Final = 1.25
"""The allocator takes more than what is asked of it."""
CONNECTIONS: Final = 100

NO_FIELDS: Final[dict[str, str]] = {}
HEADERS: Final = {"content-type": "application/json", "accept": "application/json, text/event-stream"}


@attrs.frozen
class Scale:
    """The limits of the server."""

    message: int
    peer: int
    total: int

    @classmethod
    def of(cls, scale: float) -> Scale:
        """Return a sixteenth of the defaults, so many times."""
        return cls(int(scale * MIB), int(scale * 32 * MIB), int(scale * 64 * MIB))

    @property
    def bound(self) -> float:
        """How many MiB the server may take for its clients."""
        return OVERHEAD * (self.total + self.peer + (CONNECTIONS + 10) * BUFFERS) / MIB


def serve(port: int, scale: Scale) -> None:
    """Be the server."""
    from mcpio import Limits, Options, Server
    from mcpio.trio import serve_http

    limits = Limits(
        message_bytes=scale.message,
        peer_bytes=scale.peer,
        total_bytes=scale.total,
        replay_bytes=2 * scale.message,
        queued_bytes=4 * scale.message,
        high_water=scale.message // 4,
    )
    server = Server("attacked", "1", options=Options(limits=limits))

    @server.tool
    def large(size: int) -> str:
        return "x" * size

    @server.tool
    async def later(size: int) -> str:
        await trio.sleep(0.6)  # until its answer is a stream
        return "x" * size

    with open(os.devnull, "w") as null:
        sys.stderr = null  # each session that is ended has a line in the log
        trio.run(partial(serve_http, server, port=port, http2=True))


# A client by hand


def request(method: str, session: str | None, body: bytes, length: int | None = None, **more: str) -> bytes:
    """Return a request of HTTP/1.1, of whose body more may be announced than there is."""
    fields = {**HEADERS, "host": "127.0.0.1", "content-length": str(len(body) if length is None else length), **more}
    if session is not None:
        fields["mcp-session-id"] = session
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return f"{method} /mcp HTTP/1.1\r\n{head}\r\n".encode() + body


def message(method: str, id: int | None = None, **params: Any) -> bytes:
    """Return a message."""
    said: dict[str, Any] = {"jsonrpc": "2.0", "method": method, "params": params}
    return json.dumps(said if id is None else {**said, "id": id}).encode()


def call(id: int, tool: str, size: int) -> bytes:
    """Return a call of a tool whose answer has that size."""
    return message("tools/call", id, name=tool, arguments={"size": size})


async def connected(port: int) -> trio.SocketStream:
    """Return a connection whose kernel buffers next to nothing for us."""
    sock = trio.socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    await sock.connect(("127.0.0.1", port))
    return trio.SocketStream(sock)


async def opened(port: int) -> str | None:
    """Begin a session and return its id; ``None`` if the server takes none."""
    info = {"name": "attacker", "version": "1"}
    hello = message("initialize", 0, protocolVersion="2025-11-25", capabilities={}, clientInfo=info)
    async with await connected(port) as stream:
        await stream.send_all(request("POST", None, hello))
        data = b""
        while b"\r\n\r\n" not in data:
            data += await stream.receive_some()
        found = [line for line in data.split(b"\r\n") if line.lower().startswith(b"mcp-session-id:")]
        if not found:
            return None
        session = found[0].partition(b":")[2].strip().decode()
    async with await connected(port) as stream:
        await stream.send_all(request("POST", session, message("notifications/initialized")))
        await stream.receive_some()
    return session


async def send(port: int, data: bytes, seconds: float) -> None:
    """Send on a connection of its own, read nothing, and stay so long."""
    with trio.move_on_after(seconds):
        async with await connected(port) as stream:
            await stream.send_all(data)
            await trio.sleep_forever()


# The attacks: each goes on for so many seconds


async def unfinished_bodies(port: int, scale: Scale, seconds: float) -> None:
    """Send all but the last byte of a body, on each connection."""
    body = b" " * (scale.message - 1)
    async with trio.open_nursery() as nursery:
        for _ in range(CONNECTIONS):
            nursery.start_soon(send, port, request("POST", None, body, len(body) + 1), seconds)


async def bodies_in_sessions(port: int, scale: Scale, seconds: float) -> None:
    """Do the same in ten sessions."""
    sessions = [await opened(port) for _ in range(10)]
    body = b" " * (scale.message - 1)
    async with trio.open_nursery() as nursery:
        for number in range(CONNECTIONS):
            data = request("POST", sessions[number % 10], body, len(body) + 1)
            nursery.start_soon(send, port, data, seconds)


async def unread_answers(port: int, scale: Scale, seconds: float, tool: str = "large") -> None:
    """Leave large answers to calls of ten sessions unread."""
    sessions = [await opened(port) for _ in range(10)]
    async with trio.open_nursery() as nursery:
        for number in range(CONNECTIONS):
            data = request("POST", sessions[number % 10], call(number, tool, scale.message - 1000))
            nursery.start_soon(send, port, data, seconds)


async def abandoned_streams(port: int, scale: Scale, seconds: float) -> None:
    """Close connections before the answers come, which are kept for a client that comes back."""
    with trio.move_on_after(seconds):
        while True:
            session = await opened(port)
            async with trio.open_nursery() as nursery:
                for number in range(20):
                    data = request("POST", session, call(number, "later", scale.message - 1000))
                    nursery.start_soon(send, port, data, 0.55)


async def over_http2(port: int, session: str | None, requests: list[tuple[dict[str, str], bytes]]) -> None:
    """Make requests on one connection, with no window for any answer, and read the frames."""
    http = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding="utf-8"))
    http.local_settings.initial_window_size = 0
    http.initiate_connection()
    http.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 0})
    async with await connected(port) as stream:
        for fields, body in requests:
            number = http.get_next_available_stream_id()
            named = {} if session is None else {"mcp-session-id": session}
            method = "POST" if body else "GET"
            pseudo = {":method": method, ":path": "/mcp", ":scheme": "http", ":authority": "127.0.0.1"}
            http.send_headers(number, [*{**pseudo, **HEADERS, **named, **fields}.items()], end_stream=not body)
            if body:
                http.send_data(number, body, end_stream=True)
        await stream.send_all(http.data_to_send())
        while data := await stream.receive_some():
            http.receive_data(data)
            await stream.send_all(http.data_to_send())


async def closed_windows(port: int, scale: Scale, seconds: float) -> None:
    """Leave answers over HTTP/2 unread, by closed windows."""
    with trio.move_on_after(seconds):
        async with trio.open_nursery() as nursery:
            for _ in range(10):
                session = await opened(port)
                calls = [(NO_FIELDS, call(number, "large", scale.message - 1000)) for number in range(90)]
                nursery.start_soon(over_http2, port, session, calls)
            await trio.sleep_forever()


async def replays(port: int, scale: Scale, seconds: float) -> None:
    """Ask for an answer that was read again and again over HTTP/2, without a window."""
    with trio.move_on_after(seconds):
        session = await opened(port)
        async with await connected(port) as stream:
            await stream.send_all(request("POST", session, call(1, "later", scale.message - 1000)))
            data = b""
            while b"\r\n0\r\n" not in data[-100:]:
                data += await stream.receive_some()
        seen = data.partition(b"\nid: ")[2].partition(b"\n")[0] or data.partition(b"id: ")[2].partition(b"\n")[0]
        async with trio.open_nursery() as nursery:
            for _ in range(10):
                again: list[tuple[dict[str, str], bytes]] = [({"last-event-id": seen.decode().strip()}, b"")] * 90
                nursery.start_soon(over_http2, port, session, again)
            await trio.sleep_forever()


ATTACKS: Final[dict[str, Callable[[int, Scale, float], Awaitable[None]]]] = {
    "bodies that do not end": unfinished_bodies,
    "bodies that do not end, in sessions": bodies_in_sessions,
    "unread answers": unread_answers,
    "unread answers of async tools": partial(unread_answers, tool="later"),
    "abandoned streams": abandoned_streams,
    "unread answers over HTTP/2": closed_windows,
    "replays over HTTP/2": replays,
}


# The measurement


@attrs.define
class Honest:
    """A client that reads what it asks for."""

    calls: int = 0
    failures: int = 0
    longest: float = 0.0
    has_begun: trio.Event = attrs.field(factory=trio.Event)

    async def go_on(self, port: int) -> None:
        """Call a tool, again and again."""
        from mcpio.errors import McpError
        from mcpio.trio import open_http

        async with open_http(f"http://127.0.0.1:{port}/mcp", era="handshake") as client:
            while True:
                began = trio.current_time()
                try:
                    result = await client.call_tool("large", {"size": 1000}, timeout=20)
                    self.failures += len(result.text) != 1000
                except McpError:
                    self.failures += 1
                self.calls += 1
                self.has_begun.set()
                self.longest = max(self.longest, trio.current_time() - began)
                await trio.sleep(0.02)


async def measured(
    attack: Callable[[int, Scale, float], Awaitable[None]], server: HttpServer, scale: Scale, seconds: float
) -> tuple[float, Honest]:
    """Return the most MiB that a server took beyond what it took before, and how the honest client fared."""
    honest, most = Honest(), 0.0
    async with trio.open_nursery() as nursery:
        nursery.start_soon(honest.go_on, server.port)
        await honest.has_begun.wait()
        before = server.resident_mib
        async with trio.open_nursery() as attackers:
            attackers.start_soon(attack, server.port, scale, seconds)
            with trio.move_on_after(seconds + 1):
                while True:
                    most = max(most, server.resident_mib - before)
                    await trio.sleep(0.02)
            attackers.cancel_scope.cancel()
        nursery.cancel_scope.cancel()
    return most, honest


def main() -> int:
    """Run the attacks; the exit status is 1 with ``--check`` when one of them broke a bound or hindered a client."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="exit with status 1 when a bound is broken")
    parser.add_argument("--scale", type=float, default=1.0, help="how many times the limits of the server")
    parser.add_argument("--seconds", type=float, default=5.0, help="how long each attack goes on")
    parser.add_argument("--http", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    scale = Scale.of(options.scale)
    if options.http is not None:
        serve(options.http, scale)
        return 0
    print(f"{'':<38}{'MiB':>8}{'bound':>8}{'calls':>8}{'failed':>8}{'longest':>9}")
    missed = []
    for name, attack in ATTACKS.items():
        with HttpServer(["held_memory.py", "--scale", str(options.scale)]) as server:
            most, honest = trio.run(measured, attack, server, scale, options.seconds)
        print(f"{name:<38}{most:>8.0f}{scale.bound:>8.0f}{honest.calls:>8}{honest.failures:>8}{honest.longest:>8.2f}s")
        if most > scale.bound or honest.failures or honest.calls < 5:
            missed.append(name)
    met = len(ATTACKS) - len(missed)
    print(f"verdict: {met} of {len(ATTACKS)} bounds kept{'; BROKEN: ' + ', '.join(missed) if missed else ''}")
    return 1 if options.check and missed else 0


if __name__ == "__main__":
    sys.exit(main())
