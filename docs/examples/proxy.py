"""A proxy: ``python proxy.py PROGRAM [ARG ...]`` is a server that asks another for all.

Without a program it asks the echo server. ``Proxy`` is all of it: two engines, and what belongs
to what. The rest moves bytes.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable

import trio

from mcpio import (
    CancelReceived,
    ClientCapabilities,
    ClientConnection,
    ConnectionClosed,
    Event,
    Implementation,
    IncomingId,
    McpError,
    Negotiated,
    NotificationReceived,
    Options,
    OutgoingId,
    ProgressReceived,
    RequestError,
    RequestFailed,
    RequestReceived,
    ResponseReceived,
    ServerCapabilities,
    ServerConnection,
)
from mcpio.errors import ErrorCode
from mcpio.revisions import HANDSHAKE_REVISIONS
from mcpio.trio import open_process_stream, stdio_stream
from mcpio.types import (
    ElicitationCapability,
    RawNotification,
    RawRequest,
    RootsCapability,
    SamplingCapability,
)

ANYTHING = ClientCapabilities(
    sampling=SamplingCapability(tools={}, context={}),
    elicitation=ElicitationCapability(form={}, url={}),
    roots=RootsCapability(list_changed=True),
)
"""What the server may ask. A client that cannot answer it has the request refused here."""

SESSIONS = Options(revisions=HANDSHAKE_REVISIONS)
"""What it offers: a session on each side, and messages in both directions."""

Engine = ClientConnection | ServerConnection


class Proxy:
    """Passes messages on unchanged. Call ``handle`` with every event of either engine."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.back = ClientConnection(Implementation("proxy", "1.0"), ANYTHING)
        self.front: ServerConnection | None = None
        """The engine towards the client, made once the offer of the server is known."""
        self.passed_on: dict[tuple[Engine, IncomingId], OutgoingId] = {}
        """The ids on the other side, by the engine that received a request and its id there."""

    def handle(self, here: Engine, event: Event) -> None:
        """Act on an event of the engine ``here``."""
        there = self.back if here is self.front else self.front
        match event:
            case Negotiated(capabilities=ServerCapabilities() as offer):
                self.front = ServerConnection(
                    event.info, offer, instructions=event.instructions, options=SESSIONS
                )
            case RequestReceived() if there is not None:
                self.ask(here, there, event)
            case CancelReceived(id, reason) if there is not None:
                if (passed_id := self.passed_on.pop((here, id), None)) is not None:
                    there.cancel_request(passed_id, reason)
            case NotificationReceived() if there is not None:
                try:
                    params = event.raw.get("params", {})
                    there.send_notification(RawNotification(event.raw["method"], params))
                except McpError:
                    pass  # The other side did not declare that it takes this.
            case ProgressReceived(progress=progress, total=total, message=message) if there:
                there.send_progress(event.cookie, progress, total, message)
            case ResponseReceived() | RequestFailed() if there is not None and event.cookie:
                self.answer(there, event)
            case ConnectionClosed() if there is not None:
                there.close(self.clock())

    def ask(self, here: Engine, there: Engine, event: RequestReceived) -> None:
        """Pass a request on. Its id and its progress token are each engine's own."""
        params = event.raw.get("params", {})
        try:
            self.passed_on[here, event.id] = there.send_request(
                RawRequest(event.raw["method"], params),
                now=self.clock(),
                timeout=None,  # Whoever asks knows how long to wait.
                cookie=event.id,
                progress="progressToken" in params.get("_meta", {}),
            )
        except McpError as error:
            here.send_error(event.id, RequestError(ErrorCode.METHOD_NOT_FOUND, str(error)))

    def answer(self, there: Engine, event: ResponseReceived | RequestFailed) -> None:
        """Pass an answer on unchanged, even if it is invalid."""
        self.passed_on.pop((there, event.cookie), None)
        raw = event.raw or {}
        if "result" in raw:
            there.send_raw_result(event.cookie, json.dumps(raw["result"]).encode())
        elif isinstance(event, RequestFailed) and isinstance(event.error, RequestError):
            there.send_error(event.cookie, event.error)
        elif isinstance(event, RequestFailed):
            failure = RequestError(
                ErrorCode.INTERNAL_ERROR, f"The server is gone: {event.error}"
            )
            there.send_error(event.cookie, failure)


class Carrier:
    """Moves the bytes of both engines."""

    def __init__(self) -> None:
        self.proxy = Proxy(trio.current_time)
        self.changed = trio.Condition()

    async def touched(self) -> None:
        """Drain the events of both engines, and wake the writers."""
        busy = True
        while busy:
            engines = [each for each in (self.proxy.back, self.proxy.front) if each]
            events = [(each, event) for each in engines for event in each.events()]
            for each, event in events:
                self.proxy.handle(each, event)
            busy = bool(events)
        async with self.changed:
            self.changed.notify_all()

    async def carry(self, engine: Engine, stream: trio.abc.HalfCloseableStream) -> None:
        """Drive one engine until its connection ends."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.read, engine, stream)
            while not engine.closed:
                for chunk in engine.data_to_send():
                    await (stream.send_eof() if chunk is None else stream.send_all(chunk))
                await self.touched()
                async with self.changed:
                    if not engine.wants_write and not engine.closed:
                        await self.changed.wait()
            nursery.cancel_scope.cancel()

    async def read(self, engine: Engine, stream: trio.abc.HalfCloseableStream) -> None:
        """Feed an engine."""
        while engine.wants_read:
            data = await stream.receive_some()
            engine.receive_data(bytes(data) or None, trio.current_time())
            await self.touched()


async def main(command: list[str]) -> None:
    """Serve standard input and output through the server that ``command`` starts."""
    carrier = Carrier()
    back = carrier.proxy.back
    async with stdio_stream() as near, open_process_stream(command) as process:
        back.send_initialize(now=trio.current_time())
        async with trio.open_nursery() as nursery:
            nursery.start_soon(carrier.carry, back, process.stream)
            async with carrier.changed:
                while carrier.proxy.front is None and not back.closed:
                    await carrier.changed.wait()
            if carrier.proxy.front is not None:
                await carrier.carry(carrier.proxy.front, near)


if __name__ == "__main__":
    trio.run(main, sys.argv[1:] or [sys.executable, "echo_server.py"])
