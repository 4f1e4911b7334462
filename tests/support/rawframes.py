"""The far end of a WebSocket, frame by frame and written without a library: it can say what no library says.

``FarClient`` plays a client to a server of ours, ``FarServer`` a server to a client of ours.
"""

from __future__ import annotations

import base64
import hashlib
import json
import struct
import zlib
from collections.abc import Iterator
from typing import Any, Literal, Self

import attrs
import trio

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
KEY = "dGhlIHNhbXBsZSBub25jZQ=="
MASK = b"\x37\xfa\x21\x3d"
LONG = 65_536
"""From this size on payloads are masked with zeros, which changes nothing of them and costs no time."""

INFO = {"name": "far", "version": "1"}
REVISION = "2025-11-25"

Pace = Literal["at once", "by frames", "by bytes"] | int
"""How the bytes of frames are cut for sending: a number is how many at a time."""


@attrs.frozen
class Frame:
    """One frame. ``rsv`` are the three reserved bits as a number: 4 is the first, which tells of compression."""

    opcode: int
    payload: bytes = b""
    fin: bool = True
    rsv: int = 0

    def wire(self, *, masked: bool, length: bytes | None = None) -> bytes:
        """Return its bytes. ``length`` says the length in other bytes than the shortest."""
        size = len(self.payload)
        if length is None:
            short = size if size < 126 else 126 if size < LONG else 127
            length = (
                bytes([short]) + (b"", struct.pack("!H", size & 0xFFFF), struct.pack("!Q", size))[max(0, short - 125)]
            )
        first = self.fin << 7 | self.rsv << 4 | self.opcode
        head = bytes([first, length[0] | masked << 7]) + length[1:]
        if not masked:
            return head + self.payload
        mask = MASK if size < LONG else bytes(4)
        return head + mask + _masked(self.payload, mask)

    @property
    def code(self) -> int | None:
        """The code of a close frame; ``None`` where it has none."""
        return struct.unpack("!H", self.payload[:2])[0] if self.payload else None


def text(payload: bytes | str, *, fin: bool = True, rsv: int = 0) -> Frame:
    """Return a frame of text."""
    return Frame(TEXT, payload.encode() if isinstance(payload, str) else payload, fin, rsv)


def rest(payload: bytes | str = b"", *, fin: bool = True, rsv: int = 0) -> Frame:
    """Return a continuation frame."""
    return Frame(CONTINUATION, payload.encode() if isinstance(payload, str) else payload, fin, rsv)


def close(code: int | None = 1000, reason: bytes | str = b"") -> Frame:
    """Return a close frame."""
    said = reason.encode() if isinstance(reason, str) else reason
    return Frame(CLOSE, b"" if code is None else struct.pack("!H", code) + said)


def fragments(payload: bytes, size: int) -> tuple[Frame, ...]:
    """Return a message in frames of that many bytes."""
    pieces = [payload[start : start + size] for start in range(0, len(payload), size)] or [b""]
    last = len(pieces) - 1
    return tuple(Frame(TEXT if n == 0 else CONTINUATION, piece, fin=n == last) for n, piece in enumerate(pieces))


def deflated(payload: bytes, deflater: Any = None) -> bytes:
    """Return the payload of a compressed message (RFC 7692, 7.2.1), in the context of ``deflater``."""
    deflater = deflater or zlib.compressobj(wbits=-15)
    done: bytes = deflater.compress(payload) + deflater.flush(zlib.Z_SYNC_FLUSH)
    return done.removesuffix(b"\x00\x00\xff\xff")


def inflated(payload: bytes, bits: int = 15) -> bytes:
    """Return what the payload of a message stands for that was compressed by itself, with a window of 2 ** bits."""
    return zlib.decompressobj(-bits).decompress(payload + b"\x00\x00\xff\xff")


class Lost(Exception):
    """The connection ended without the frame that was waited for."""


class Far:
    """One end: it sends what a test tells it to, and gives what it hears, frame by frame."""

    def __init__(self, stream: trio.abc.Stream, *, masks: bool) -> None:
        self.stream = stream
        self.masks = masks
        self.heard = bytearray()
        self.opened: dict[str, str] = {}
        """The fields of the other end's head, in small letters."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await trio.aclose_forcefully(self.stream)

    # Frames

    async def send(self, *frames: Frame, pace: Pace = "at once") -> None:
        """Send frames, unless the connection is over."""
        wires = [frame.wire(masked=self.masks) for frame in frames]
        await self.send_bytes(*(wires if pace == "by frames" else [b"".join(wires)]), pace=pace)

    async def send_bytes(self, *pieces: bytes, pace: Pace = "at once") -> None:
        """Send bytes as they are, unless the connection is over."""
        size = 1 if pace == "by bytes" else pace if isinstance(pace, int) else None
        cut = pieces if size is None else [each[n : n + size] for each in pieces for n in range(0, len(each), size)]
        try:
            for piece in cut:
                await self.stream.send_all(piece)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return  # what was heard tells why

    async def frame(self) -> Frame:
        """Return the next frame, which is whole, and masked as the role of its sender wants it. ``Lost`` at the end."""
        while (found := _parse(self.heard, masked=not self.masks)) is None:
            await self._hear()
        return found

    async def ended(self) -> None:
        """Wait for the end of the stream; nothing may come before it."""
        try:
            said = await self.frame()
        except Lost:
            return
        raise AssertionError(f"heard after the end: {said}")

    async def leave(self) -> None:
        """End the stream in order, as far as it has not ended."""
        try:
            if isinstance(self.stream, trio.SocketStream):
                await self.stream.send_eof()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        await self.stream.aclose()

    # Messages

    async def say(self, **message: Any) -> None:
        """Send a message of JSON-RPC."""
        await self.send(text(json.dumps({"jsonrpc": "2.0", **message})))

    async def message(self) -> dict[str, Any]:
        """Return the next message, of one frame, which may be compressed by itself."""
        frame = await self.frame()
        assert (frame.opcode, frame.fin) == (TEXT, True), frame
        found: dict[str, Any] = json.loads(inflated(frame.payload) if frame.rsv == 4 else frame.payload)
        return found

    # The head before the frames

    async def head(self) -> tuple[str, dict[str, str]]:
        """Return the first line of the head and its fields, with small letters."""
        while b"\r\n\r\n" not in self.heard:
            await self._hear()
        head, _, after = bytes(self.heard).partition(b"\r\n\r\n")
        self.heard[:] = after
        first, *lines = head.decode("latin-1").split("\r\n")
        return first, {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}

    async def _hear(self) -> None:
        try:
            data = await self.stream.receive_some(1 << 16)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            data = b""
        if not data:
            raise Lost(f"the connection ended, with {len(self.heard)} bytes of a frame")
        self.heard += data


class FarClient(Far):
    """Plays a client."""

    def __init__(self, stream: trio.abc.Stream, host: str) -> None:
        """``host`` is what the server is called."""
        super().__init__(stream, masks=True)
        self.host = host

    async def ask(self, path: str = "/mcp", *, without: str = "", **fields: str) -> tuple[int, dict[str, str]]:
        """Ask for the upgrade; return the status, and the fields of the answer.

        ``fields`` are more fields of the head, or others, with ``_`` for ``-``; ``without`` leaves one out.
        """
        await self.send_bytes(request(self.host, path, without=without, **fields))
        first, answer = await self.head()
        return int(first.split()[1]), answer

    async def open(self, **fields: str) -> None:
        """Open a connection, and shake hands as MCP has it."""
        status, self.opened = await self.ask(**fields)
        assert (status, self.opened["sec-websocket-accept"]) == (101, accept_for(KEY)), self.opened
        await self.shake_hands()

    async def shake_hands(self) -> None:
        hello = {"protocolVersion": REVISION, "capabilities": {}, "clientInfo": INFO}
        await self.say(id=0, method="initialize", params=hello)
        assert (await self.message())["result"]["protocolVersion"] == REVISION
        await self.say(method="notifications/initialized")


class FarServer(Far):
    """Plays a server."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        super().__init__(stream, masks=False)

    async def open(self, **fields: str) -> None:
        """Let a client in, and shake hands as MCP has it.

        ``fields`` are more fields of the answer, or others, with ``_`` for ``-``.
        """
        _, self.opened = await self.head()
        await self.send_bytes(answer_to(self.opened, **fields))
        await self.shake_hands()

    async def shake_hands(self) -> None:
        hello = await self.message()
        assert hello["method"] == "initialize"
        result = {"protocolVersion": REVISION, "capabilities": {"tools": {}}, "serverInfo": INFO}
        await self.say(id=hello["id"], result=result)
        assert (await self.message())["method"] == "notifications/initialized"


def request(host: str, path: str = "/mcp", /, *, without: str = "", **fields: str) -> bytes:
    """Return the head of a client's request."""
    usual = {
        "host": host,
        "upgrade": "websocket",
        "connection": "Upgrade",
        "sec-websocket-key": KEY,
        "sec-websocket-version": "13",
        "sec-websocket-protocol": "mcp",
    }
    found = usual | _named(fields)
    found.pop(without, None)
    return _head(f"GET {path} HTTP/1.1", found)


def answer_to(asked: dict[str, str], **fields: str) -> bytes:
    """Return the head of a server's answer."""
    usual = {
        "upgrade": "websocket",
        "connection": "Upgrade",
        "sec-websocket-accept": accept_for(asked["sec-websocket-key"]),
        "sec-websocket-protocol": "mcp",
    }
    return _head("HTTP/1.1 101 Switching Protocols", usual | _named(fields))


def accept_for(key: str) -> str:
    """Return what a server answers to a key (RFC 6455, 4.2.2)."""
    return base64.b64encode(hashlib.sha1(f"{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11".encode()).digest()).decode()


def _named(fields: dict[str, str]) -> dict[str, str]:
    return {name.replace("_", "-"): value for name, value in fields.items()}


def _head(first: str, fields: dict[str, str]) -> bytes:
    lines: Iterator[str] = (f"{name}: {value}" for name, value in fields.items() if value)
    return "\r\n".join([first, *lines, "", ""]).encode()


def _parse(data: bytearray, *, masked: bool) -> Frame | None:
    """Take a frame off the beginning of the data, if it is all there."""
    if len(data) < 2:
        return None
    assert bool(data[1] & 128) is masked, "whoever is a client masks its frames, and nobody else does"
    size, start = data[1] & 127, 2
    if size >= 126:
        width = 2 if size == 126 else 8
        size, start = int.from_bytes(data[2 : 2 + width], "big"), 2 + width
    mask = bytes(data[start : start + 4]) if masked else bytes(4)
    start += 4 * masked
    if len(data) < start + size:
        return None
    payload = _masked(bytes(data[start : start + size]), mask)
    frame = Frame(data[0] & 15, payload, bool(data[0] & 128), data[0] >> 4 & 7)
    del data[: start + size]
    return frame


def _masked(payload: bytes, mask: bytes) -> bytes:
    if mask == bytes(4):
        return payload
    size = len(payload)
    key = int.from_bytes((mask * (size // 4 + 1))[:size], "big")
    return (int.from_bytes(payload, "big") ^ key).to_bytes(size, "big")
