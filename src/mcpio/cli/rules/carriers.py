"""Carry raw messages to a server, over a stream of lines or over HTTP, and read what comes."""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol

import h11
import trio

from mcpio._drivers.event_loop import reason_of
from mcpio.cli.rules.rows import Carrier, Reply, Sent, same_id
from mcpio.framing.json import JsonError, loads
from mcpio.framing.lines import LineFramer
from mcpio.framing.sse import SseParser
from mcpio.http.client import Location
from mcpio.trio._event_loop import BROKEN, TrioEventLoop

SETTLE: Final = 0.1
"""Seconds to wait for an answer that should not come, or that is late, after the server showed that it reads on."""

RECEIVE_SIZE: Final = 65536

MAX_BYTES: Final = 64 << 20
"""The most bytes to read after one message."""

_TOO_MUCH: Final = f"the server sent more than {MAX_BYTES >> 20} MiB"


class RawCarrier(Protocol):
    """Carries messages of one conversation."""

    kind: Carrier

    async def exchange(self, sent: Sent, fence: Callable[[], Sent]) -> Reply:
        """Send a message and return the answer.

        ``fence`` makes a request whose answer shows that the server has read all earlier messages.
        """
        ...


class LineCarrier:
    """Messages on lines, over any stream."""

    kind: Carrier = "stream"

    def __init__(self, stream: Any, *, timeout: float, last_words: Callable[[], Awaitable[str]] | None = None) -> None:
        """``timeout`` is how long to wait for an answer. ``last_words`` tells how a server ended."""
        self._stream = stream
        self._framer = LineFramer()
        self._timeout = timeout
        self._last_words = last_words
        self._ended = ""

    async def exchange(self, sent: Sent, fence: Callable[[], Sent]) -> Reply:
        """Send a message, and read to its answer; where none is due, to that of the fence."""
        lines: list[bytes] = []
        await self._send(sent)
        if sent.ids or sent.until == "message":
            with trio.move_on_after(self._timeout):
                await self._read(lines, sent.ids, to_any=sent.until == "message")
        else:
            barrier = fence()
            await self._send(barrier)
            with trio.move_on_after(self._timeout):
                await self._read(lines, barrier.ids)
            lines = [line for line in lines if not any(_is_answer(line, id) for id in barrier.ids)]
            with trio.move_on_after(0 if lines else SETTLE):
                await self._read(lines, ())
        return Reply(tuple(lines), ended=self._ended)

    async def _send(self, sent: Sent) -> None:
        if self._ended:
            return
        try:
            with trio.move_on_after(self._timeout):
                await self._stream.send_all(sent.data + b"\n")
        except BROKEN:
            pass  # reading says so, after what came before

    async def _read(self, lines: list[bytes], ids: tuple[Any, ...], *, to_any: bool = False) -> None:
        """Read until each of ``ids`` is answered; without any, to the end."""
        unanswered, size = list(ids), 0
        while not self._ended:
            while (line := self._framer.next_line()) is not None:
                if not isinstance(line, bytes):
                    continue  # longer than any message may be
                lines.append(line)
                if to_any:
                    return
                unanswered = [id for id in unanswered if not _is_answer(line, id)]
                if ids and not unanswered:
                    return
            try:
                data = await self._stream.receive_some(RECEIVE_SIZE)
            except BROKEN:
                data = b""
            size += len(data)
            if size > MAX_BYTES:
                self._ended = _TOO_MUCH
            elif data:
                self._framer.receive(bytes(data))
            else:
                self._ended = await self._last_words() if self._last_words else "the server closed the connection"


def _is_answer(line: bytes, id: Any) -> bool:
    try:
        value = loads(line)
    except JsonError:
        return False
    return any(
        isinstance(each, dict) and "method" not in each and same_id(each.get("id"), id)
        for each in (value if isinstance(value, list) else [value])
    )


class HttpCarrier:
    """Sends each message as an HTTP request, on a separate connection."""

    kind: Carrier = "http"

    def __init__(self, location: Location, *, timeout: float, dial: Callable[[], Awaitable[Any]] | None = None) -> None:
        """``dial`` connects; by default to ``location``."""
        self._location = location
        self._timeout = timeout
        self._dial = dial or self._connect

    async def exchange(self, sent: Sent, fence: Callable[[], Sent]) -> Reply:
        """Send a request, and read its response: to the answer, if it is an event stream."""
        answer = _Response(sent)
        stream = None
        try:
            with trio.move_on_after(self._timeout) as scope:
                stream = await self._dial()
                await self._exchange(stream, sent, answer)
            if scope.cancelled_caught and answer.status is None:
                return answer.reply(f"no response within {self._timeout:g} s")
        except (*BROKEN, h11.ProtocolError) as error:
            return answer.reply("" if answer.status is not None else f"no response: {reason_of(error)}")
        finally:
            if stream is not None:
                with trio.CancelScope(shield=True):
                    await trio.aclose_forcefully(stream)
        return answer.reply("")

    async def _connect(self) -> Any:
        loop, location = TrioEventLoop(), self._location
        stream = await loop.open_stream(location.host, location.port, location.unix)
        if location.scheme == "http":
            return stream
        try:
            return await loop.start_tls(stream, ssl.create_default_context(), location.host)
        except BaseException:
            await trio.aclose_forcefully(stream)
            raise

    async def _exchange(self, stream: Any, sent: Sent, answer: _Response) -> None:
        http = h11.Connection(h11.CLIENT)
        fields = [("host", self._location.authority), ("connection", "close"), *sent.headers.items()]
        if sent.data or sent.verb == "POST":
            fields.append(("content-length", str(len(sent.data))))
        encoded = [(name.encode("ascii"), value.encode("latin-1")) for name, value in fields]
        parts = [http.send(h11.Request(method=sent.verb, target=self._location.target, headers=encoded))]
        if sent.data:
            parts.append(http.send(h11.Data(data=sent.data)))
        parts.append(http.send(h11.EndOfMessage()))
        await stream.send_all(b"".join(part or b"" for part in parts))
        size = 0
        while not answer.is_complete and size <= MAX_BYTES:
            event = http.next_event()
            if event is h11.NEED_DATA:
                http.receive_data(bytes(await stream.receive_some(RECEIVE_SIZE)))
            elif isinstance(event, h11.Response):
                answer.begin(event)
            elif isinstance(event, h11.Data):
                size += len(event.data)
                answer.add(bytes(event.data))
            elif not isinstance(event, h11.InformationalResponse):
                return


class _Response:
    """A response as it comes."""

    def __init__(self, sent: Sent) -> None:
        self.status: int | None = None
        self.is_complete = False
        self._sent = sent
        self._left = list(sent.ids)
        self._headers: dict[str, str] = {}
        self._body = bytearray()
        self._parser: SseParser | None = None
        self._raw: list[bytes] = []

    def begin(self, head: h11.Response) -> None:
        self.status = head.status_code
        self._headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in head.headers}
        if self._headers.get("content-type", "").startswith("text/event-stream"):
            self._parser = SseParser()
            self.is_complete = self._sent.verb == "GET"

    def add(self, data: bytes) -> None:
        if self._parser is None:
            self._body += data
            return
        for event in self._parser.receive(data):
            if event.data:  # an empty one only carries the id to resume from
                self._raw.append(event.data.encode())
                self._left = [id for id in self._left if not _is_answer(self._raw[-1], id)]
                self.is_complete = self._sent.until == "message" or (not self._left and bool(self._sent.ids))

    def reply(self, ended: str) -> Reply:
        raw = [*self._raw, *([bytes(self._body)] if self._body else [])]
        return Reply(tuple(raw), self.status, self._headers, ended)
