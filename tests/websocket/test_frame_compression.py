"""permessage-deflate in both roles, over raw bytes: families 12 and 13 of the Autobahn test suite, and bombs."""

from __future__ import annotations

import json
import tracemalloc
import zlib
from typing import Any

import pytest
from frame_cases import ping_of, sized
from rawends import END_OF, ROLES, near_client, near_server, played, refused
from rawframes import CLOSE, CONTINUATION, PING, PONG, TEXT, Far, Frame, close, deflated, inflated, rest, text

from mcpio import ConnectFailed
from mcpio.engine.table import Role
from mcpio.errors import UnexpectedResponse
from mcpio.websocket import WebSocket, WebSocketEnded, WebSocketOptions

COMPRESSED = WebSocketOptions(compression=True)
TAKEOVER = "permessage-deflate; server_no_context_takeover; client_no_context_takeover"
NAME = "sec-websocket-extensions"
FIRST = 4
"""The first of the reserved bits: a compressed message begins."""


def compressed(role: str, fields: dict[str, str] | None = None) -> Any:
    """Return what gives the far end of a connection with compression."""
    given = fields if fields is not None else {"sec_websocket_extensions": TAKEOVER}
    return END_OF[role](fields=given, websocket=COMPRESSED)


async def heard_code(far: Far) -> int | None:
    """Return the code by which the other end closes."""
    while (frame := await far.frame()).opcode != CLOSE:
        pass
    return frame.code


def squeezed(payload: bytes, size: int) -> list[Frame]:
    """Return a compressed message in frames of that many bytes."""
    data = deflated(payload)
    pieces = [data[start : start + size] for start in range(0, len(data), size)]
    last = len(pieces) - 1
    return [
        Frame(CONTINUATION if n else TEXT, piece, fin=n == last, rsv=0 if n else FIRST)
        for n, piece in enumerate(pieces)
    ]


# What is agreed on


@pytest.mark.parametrize(
    ("offered", "bits"),
    [
        ("permessage-deflate", ""),  # 12, 13.1
        ("permessage-deflate; server_no_context_takeover", ""),  # 13.2
        ("permessage-deflate; server_max_window_bits=9", "9"),  # 13.3
        ("permessage-deflate; server_max_window_bits=15", "15"),  # 13.4
        ("permessage-deflate; server_no_context_takeover; server_max_window_bits=9", "9"),  # 13.5
        ("permessage-deflate; server_no_context_takeover; server_max_window_bits=15", "15"),  # 13.6
        ("permessage-deflate; server_max_window_bits=9, permessage-deflate", "9"),  # 13.7
        ("permessage-deflate; client_max_window_bits", ""),  # what browsers offer
        ("permessage-deflate; client_max_window_bits=8", ""),
        ('permessage-deflate; server_max_window_bits="10"', "10"),
        ("permessage-deflate; server_max_window_bits=8, permessage-deflate", ""),
        ("x-other; a=b, permessage-deflate; x=y, permessage-deflate", ""),
    ],
)
def test_server_negotiates_and_compresses_each_message_separately(offered: str, bits: str) -> None:
    async def play() -> None:
        async with compressed("server", {"sec_websocket_extensions": offered}) as far:
            agreed = {part.strip() for part in far.opened[NAME].split(";")}
            plain = {"permessage-deflate", "server_no_context_takeover", "client_no_context_takeover"}
            assert agreed == plain | ({f"server_max_window_bits={bits}"} if bits else set())
            for word in ("again", "again", sized(30_000)):
                await far.send(text(deflated(ping_of(word)), rsv=FIRST))
                frame = await far.frame()
                assert json.loads(inflated(frame.payload, int(bits or 15)))["id"] == word

    played(play)


@pytest.mark.parametrize(
    "offered",
    [
        "",
        "x-webkit-deflate-frame",
        "permessage-deflate; server_max_window_bits=8",  # zlib has no such window
        "permessage-deflate; server_max_window_bits=7",
        "permessage-deflate; server_max_window_bits=16",
        "permessage-deflate; server_max_window_bits=ten",
        "permessage-deflate; server_max_window_bits=09",
        "permessage-deflate; server_max_window_bits",
        "permessage-deflate; server_max_window_bits=9; server_max_window_bits=9",
        "permessage-deflate; client_max_window_bits=99",
        "permessage-deflate; server_no_context_takeover=1",
        "permessage-deflate; server_no_context_takeover; server_no_context_takeover",
        "permessage-deflate; unknown",
        ";;;,,,===",
    ],
)
def test_server_ignores_invalid_offers(offered: str) -> None:
    async def play() -> None:
        async with compressed("server", {"sec_websocket_extensions": offered}) as far:
            assert NAME not in far.opened
            await far.send(text(ping_of("plain")))
            assert (await far.message())["id"] == "plain"
            await far.send(text(deflated(ping_of("never agreed on")), rsv=FIRST))
            assert await heard_code(far) == 1002

    played(play)


@pytest.mark.parametrize(
    "answer", [TAKEOVER, "permessage-deflate; server_no_context_takeover; server_max_window_bits=12"]
)
def test_client_accepts_its_offered_parameters(answer: str) -> None:
    async def play() -> None:
        async with compressed("client", {"sec_websocket_extensions": answer}) as far:
            assert far.opened[NAME] == TAKEOVER
            await far.send(text(deflated(ping_of("hello")), rsv=FIRST))
            assert (await far.message())["id"] == "hello"

    played(play)


@pytest.mark.parametrize(
    "answer",
    [
        "permessage-deflate",  # which would need the context of earlier messages
        "permessage-deflate; server_no_context_takeover; client_max_window_bits=10",
        "permessage-deflate; server_no_context_takeover; server_no_context_takeover",
        "permessage-deflate; server_no_context_takeover; server_max_window_bits=16",
        "permessage-deflate; server_no_context_takeover; unknown",
        f"{TAKEOVER}, {TAKEOVER}",
        "x-webkit-deflate-frame",
    ],
)
def test_client_fails_on_parameters_that_were_not_offered(answer: str) -> None:
    async def play() -> None:
        error = await refused({"sec_websocket_extensions": answer}, websocket=COMPRESSED)
        assert isinstance(error.__cause__ or error, UnexpectedResponse | ConnectFailed)

    played(play)


# Messages


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("size", [64, 1024, 65_536, 131_072, 1024 * 1024])
@pytest.mark.parametrize("fragment", [1024 * 1024, 256])
def test_messages_of_all_sizes(role: str, size: int, fragment: int) -> None:
    word = (sized(size) + "0123456789abcdef" * (size // 16))[: len(sized(size))]

    async def play() -> None:
        async with compressed(role) as far:
            for _ in range(3):
                await far.send(*squeezed(ping_of(word), fragment))
                assert (await far.message())["id"] == word

    played(play)


@pytest.mark.parametrize("role", ROLES)
def test_messages_in_every_valid_encoding_are_received(role: str) -> None:
    async def play() -> None:
        async with compressed(role) as far:
            await far.send(text(ping_of("plain")))
            assert (await far.message())["id"] == "plain"
            await far.send(*squeezed(ping_of("byte by byte"), 1), pace="by bytes")
            assert (await far.message())["id"] == "byte by byte"
            first, *others = squeezed(ping_of("with a ping between"), 20)
            await far.send(first, Frame(PING, b"now"), *others)
            assert await far.frame() == Frame(PONG, b"now")  # it waits for no message
            assert (await far.message())["id"] == "with a ping between"
            await far.send(text(deflated(ping_of("and an empty end")), fin=False, rsv=FIRST), rest(b""))
            assert (await far.message())["id"] == "and an empty end"
            stored = zlib.compressobj(0, wbits=-15)
            await far.send(text(deflated(ping_of("stored"), stored), rsv=FIRST))
            assert (await far.message())["id"] == "stored"
            whole = zlib.compressobj(wbits=-15)
            final = whole.compress(ping_of("a final block")) + whole.flush() + b"\x00"  # RFC 7692, 7.2.3.4
            await far.send(text(final, rsv=FIRST))
            assert (await far.message())["id"] == "a final block"

    played(play)


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize(
    ("frames", "codes"),
    [
        ((text(deflated(ping_of("a")), fin=False, rsv=FIRST), rest(b"", rsv=FIRST)), {1002}),
        ((Frame(PING, b"", rsv=FIRST),), {1002}),
        ((Frame(CLOSE, close().payload, rsv=FIRST),), {1002}),
        ((text(deflated(ping_of("a")), rsv=2),), {1002}),
        ((text(b"\xff\xff\xff\xff no deflate", rsv=FIRST),), {1002, 1007}),
        ((text(deflated(b'{"jsonrpc":"2.0","id":"\xed\xa0\x80"}'), rsv=FIRST),), {1007}),
        ((Frame(2, deflated(b"binary"), rsv=FIRST),), {1003}),
    ],
    ids=["goes on with the bit", "ping", "close", "another bit", "no deflate", "no UTF-8", "binary"],
)
def test_messages_in_invalid_encodings_are_violations(role: str, frames: tuple[Frame, ...], codes: set[int]) -> None:
    async def play() -> None:
        async with compressed(role) as far:
            await far.send(*frames)
            assert await heard_code(far) in codes

    played(play)


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("fragment", [1024 * 1024, 100])
def test_decompression_bomb_is_closed_with_1009(role: str, fragment: int) -> None:
    async def play() -> None:
        async with compressed(role) as far:
            await far.send(*squeezed(b" " * (64 * 1024 * 1024), fragment))
            assert await heard_code(far) == 1009

    played(play)


@pytest.mark.parametrize("side", [Role.SERVER, Role.CLIENT])
def test_decompression_bomb_takes_bounded_memory(side: Role) -> None:
    limit = 1024 * 1024
    bomb = text(deflated(b" " * (64 * limit)), rsv=FIRST).wire(masked=side is Role.SERVER)
    machine = WebSocket(side, COMPRESSED, max_bytes=limit, now=0.0, entropy=bytes, window_bits=15)
    tracemalloc.start()
    machine.receive_data(bomb, 1.0)
    while (event := machine.next_event()) is not None and not isinstance(event, WebSocketEnded):
        pass
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert isinstance(event, WebSocketEnded)
    assert event.code == 1009
    assert peak < 5 * limit


def test_compression_is_off_by_default() -> None:
    async def play() -> None:
        async with near_client() as called:
            assert NAME not in called.opened
        async with near_server(fields={"sec_websocket_extensions": TAKEOVER}) as far:
            assert NAME not in far.opened

    played(play)
