"""The demo's server: an ordinary server on a stream that reports each message and the phase on standard error."""

from __future__ import annotations

import sys
from typing import Annotated

import trio

import mcpio
from mcpio.app.context import Context
from mcpio.app.server import Server
from mcpio.cli.demo.view import REPORT
from mcpio.engine.connection import Connection
from mcpio.trio import serve, stdio_stream, terminate_on_signals

server: Server = Server("mcpio-demo-server", mcpio.__version__)


@server.tool
async def count(to: Annotated[int, "the last number"], ctx: Context) -> int:
    """Count, five numbers a second."""
    for number in range(1, to + 1):
        ctx.progress(number, to, f"counted to {number}")
        if number == to // 2 + 1:
            ctx.info("more than half of it")
        await trio.sleep(0.2)
    return to


@server.resource("demo://greeting", mime_type="text/plain")
def greeting() -> str:
    """Return a greeting."""
    return "Hello from the other end of the pipe."


@server.prompt
def explain(topic: str) -> str:
    """Explain a topic."""
    return f"Explain {topic} to me in two sentences."


async def main() -> None:
    """Serve the process that started this one."""
    with terminate_on_signals():
        async with stdio_stream() as stream, trio.open_nursery() as nursery:
            reporting = ReportingStream(stream)
            session = await nursery.start(serve, server, reporting)
            reporting.connection = session.connection


class ReportingStream(trio.abc.HalfCloseableStream):
    """Reports each line with the connection's phase: incoming lines once handled, outgoing ones before they go."""

    connection: Connection | None = None

    def __init__(self, stream: trio.abc.HalfCloseableStream) -> None:
        self._stream = stream
        self._taken = 0
        """Incoming lines that are not reported yet."""

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        """Read. A new read means that the connection has handled the previous input."""
        self._report_taken()
        data = await self._stream.receive_some(max_bytes)
        # The end of input counts as a message.
        self._taken += data.count(b"\n") if data else 1
        return data

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Write."""
        self._report_taken()
        self._report("out", bytes(data).count(b"\n"))
        await self._stream.send_all(data)

    async def send_eof(self) -> None:
        """Close the output."""
        self._report_taken()
        self._report("out", 1)
        await self._stream.send_eof()

    async def wait_send_all_might_not_block(self) -> None:
        """Wait until there is room."""
        await self._stream.wait_send_all_might_not_block()

    async def aclose(self) -> None:
        """Close."""
        await self._stream.aclose()

    def _report_taken(self) -> None:
        self._report("in", self._taken)
        self._taken = 0

    def _report(self, direction: str, times: int) -> None:
        phase = "new" if self.connection is None else self.connection.phase.value
        for _ in range(times):
            print(REPORT, direction, phase, file=sys.stderr, flush=True)


if __name__ == "__main__":
    trio.run(main)
