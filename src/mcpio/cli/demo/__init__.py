"""``mcpio demo``: a client and a server talk over two pipes, and every message is shown.

The client is this process and the server its child. Beside each message stand the phases of the two engines after
they acted on it: the client's is read directly, the server reports its own on standard error.
"""

from __future__ import annotations

import argparse
import math
import sys
from functools import partial
from typing import Any

import trio

import mcpio
from mcpio.cli.demo.view import REPORT, View
from mcpio.cli.exit_status import Exit, Failure, failure_of
from mcpio.engine.client import ClientConnection
from mcpio.engine.options import Options
from mcpio.errors import McpError
from mcpio.events import Event, Negotiated, OutgoingId, ProgressReceived, RequestFailed, ResponseReceived
from mcpio.framing.lines import LineFramer
from mcpio.trio import open_process_stream, run_until_signalled
from mcpio.types.features import (
    CallToolRequest,
    GetPromptRequest,
    Implementation,
    ListPromptsRequest,
    ListResourcesRequest,
    ListToolsRequest,
    PingRequest,
    ReadResourceRequest,
)

SERVER = (sys.executable, "-m", "mcpio.cli.demo.server")

DEADLINE = 30.0
"""Seconds for the whole conversation, which takes two."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add no arguments."""


def run(options: argparse.Namespace) -> int:
    """Run the command and return the exit status."""
    return run_until_signalled(partial(hold, View.for_output()), timeout=None)


async def hold(view: View) -> int:
    """Start the server and hold the conversation."""
    began = trio.current_time()
    try:
        with trio.fail_after(DEADLINE):
            # Our own program may inherit the environment, which may say where to find mcpio.
            async with open_process_stream(SERVER, inherit_env=True, stderr=partial(_server_wrote, view)) as process:
                view.title(process.pid)
                await converse(Speaker(process.stream, view), view)
                status = await process.wait()
    except McpError as error:
        raise failure_of(error) from error
    except trio.TooSlowError as error:
        raise Failure(Exit.TIMEOUT, f"the conversation has not ended after {DEADLINE:g} s") from error
    view.end(f"the server exited with status {status}", trio.current_time() - began)
    if status != 0 or not view.complete:
        raise Failure(Exit.SERVER_DIED, f"the server exited with status {status}, or did not report all its phases")
    return Exit.DONE


async def converse(client: Speaker, view: View) -> None:
    """Send each request of the demo and check the answers."""
    view.step("The handshake settles the revision and what each side can do.")
    await client.initialize()
    view.step("What does the server offer?")
    await client.ask(ListToolsRequest())
    await client.ask(ListResourcesRequest())
    await client.ask(ListPromptsRequest())
    view.step("A tool call, with progress and a log message on the way.")
    result = await client.ask(CallToolRequest("count", {"to": 3}), progress=True)
    if result.structured_content != {"result": 3}:
        raise Failure(Exit.PROTOCOL, f"count(3) gave {result.structured_content!r}")
    view.step("A resource.")
    await client.ask(ReadResourceRequest("demo://greeting"))
    view.step("A prompt, filled in.")
    await client.ask(GetPromptRequest("explain", {"topic": "pipes"}))
    view.step("A call that would take an hour, cancelled after two reports of progress. The conversation goes on.")
    await client.ask_and_cancel(CallToolRequest("count", {"to": 18_000}), after=2)
    await client.ask(PingRequest())
    view.step("The newest revision needs no handshake: each request says who asks, in which revision.")
    await client.discover()
    await client.ask(CallToolRequest("count", {"to": 3}))
    view.step("The end: the client closes its pipe, and so does the server.")
    await client.close()


def _server_wrote(view: View, line: str) -> None:
    """Handle a line of the server's standard error: a report of its phase, or text for the user."""
    word, _, report = line.partition(" ")
    direction, _, phase = report.partition(" ")
    if word == REPORT and direction in {"in", "out"}:
        view.reported(direction, phase)
    else:
        print(f"server: {line}", file=sys.stderr)


# ----------------------------------------------------------------------------------------------------------- the client


class Speaker:
    """A client of the server at the other end of a stream."""

    def __init__(self, stream: trio.abc.HalfCloseableStream, view: View) -> None:
        self._stream = stream
        self._view = view
        self._framer = LineFramer()
        self._info = Implementation("mcpio-demo-client", mcpio.__version__)
        self._connection = ClientConnection(self._info)

    async def initialize(self) -> None:
        """Perform the handshake, up to ``notifications/initialized``."""
        await self._outcome(self._connection.send_initialize(now=trio.current_time()))
        await self._write()

    async def discover(self) -> None:
        """Be a client of 2026-07-28 from now on, which opens with ``server/discover``. No request may be in flight."""
        self._connection = ClientConnection(self._info, options=Options(era="stateless"))
        self._connection.negotiate(trio.current_time())
        await self._outcome(None)

    async def ask(self, request: Any, *, progress: bool = False) -> Any:
        """Send a request and return its result. Raises the error of a request that fails."""
        return await self._outcome(self._connection.send_request(request, now=trio.current_time(), progress=progress))

    async def ask_and_cancel(self, request: Any, *, after: int) -> None:
        """Send a request, and cancel it after ``after`` reports of progress."""
        id = self._connection.send_request(request, now=trio.current_time(), progress=True)
        reports = 0
        while reports < after:
            reports += sum(isinstance(event, ProgressReceived) for event in await self._turn())
        self._connection.cancel_request(id, "seen enough")
        await self._write()

    async def close(self) -> None:
        """Close our end, and wait for the server to close its end."""
        self._connection.close(trio.current_time())
        await self._write()
        while data := await self._stream.receive_some():
            self._feed(data)
        self._view.received("(end of output)", self._phase, is_message=False)

    async def _outcome(self, id: OutgoingId | None) -> Any:
        """Return the outcome of a request, or of the opening, or raise its error."""
        while True:
            for event in await self._turn():
                match event:
                    case ResponseReceived() if event.id == id:
                        return event.result
                    case Negotiated():
                        return event
                    case RequestFailed() if event.id == id or id is None:
                        raise event.error

    async def _turn(self) -> list[Event]:
        """Write the output, wait for input or the deadline, and return the events."""
        await self._write()
        deadline = self._connection.next_deadline()
        with trio.move_on_at(math.inf if deadline is None else deadline):
            return self._feed(await self._stream.receive_some())
        self._connection.handle_timeout(trio.current_time())
        return list(self._connection.events())

    def _feed(self, data: bytes | bytearray) -> list[Event]:
        """Feed the engine message by message, and show each with the phase after it."""
        now = trio.current_time()
        if not data:
            self._connection.receive_data(None, now)
            return list(self._connection.events())
        events: list[Event] = []
        self._framer.receive(data)
        while isinstance(line := self._framer.next_line(), bytes):
            self._connection.receive_data(line + b"\n", now)
            events += self._connection.events()
            self._view.received(line.decode(), self._phase)
        return events

    async def _write(self) -> None:
        while chunks := self._connection.data_to_send():
            for chunk in chunks:
                if chunk is None:
                    self._view.sent("(end of input)", self._phase, is_message=False)
                    await self._stream.send_eof()
                else:
                    self._view.sent(chunk.decode().rstrip("\n"), self._phase)
                    await self._stream.send_all(chunk)

    @property
    def _phase(self) -> str:
        return self._connection.phase.value
