"""Frames of HTTP/2 for clients that say what no library would."""

from __future__ import annotations

from typing import Any

import trio
from hpack import Encoder
from http2wire import PSEUDO, Http2Client, message, session, text_of
from triowire import MemorySite

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM, END_HEADERS, ACK = 0x1, 0x4, 0x1
PROTOCOL_ERROR, FRAME_SIZE_ERROR, CANCEL, CALM = 1, 6, 8, 11


def frame(kind: int, stream: int = 0, payload: bytes = b"", flags: int = 0) -> bytes:
    """Return a frame of HTTP/2."""
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def head(fields: list[tuple[str, str]]) -> bytes:
    """Return fields as the first frame of a connection packs them."""
    return bytes(Encoder().encode(fields))


GET = head([*PSEUDO, (":authority", "localhost")])


async def connected(site: MemorySite, nursery: trio.Nursery, **how: Any) -> Http2Client:
    """Return a client that has heard what the server says first."""
    client = await Http2Client(site.listener.connect(), **how).begin(nursery)
    await client.settle()
    return client


async def is_well(site: MemorySite, nursery: trio.Nursery) -> None:
    """Another client is served."""
    client = await connected(site, nursery)
    headers = await session(client)
    asked = await client.ask("POST", "/mcp", headers, message("echo", text="x"))
    await client.settle()
    assert text_of(asked) == "x"


def rapid_resets(number: int) -> bytes:
    """Return a request that is reset as soon as it is made."""
    stream = 2 * number + 3
    return frame(HEADERS, stream, GET, END_HEADERS | END_STREAM) + frame(RST_STREAM, stream, b"\0\0\0\x08")
