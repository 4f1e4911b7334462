"""permessage-deflate: what is agreed on, and that nothing is inflated beyond the limit."""

from __future__ import annotations

import zlib

import pytest
from wsproto.frame_protocol import CloseReason, FrameDecoder, Opcode, ParseFailed

from mcpio.websocket.frames import OFFER, Deflate, accept_offer, frame, read_answer


@pytest.mark.parametrize(
    ("offered", "answer"),
    [
        (OFFER, (OFFER, 15)),
        ("permessage-deflate", (OFFER, 15)),
        ("permessage-deflate; client_max_window_bits", (OFFER, 15)),
        ("permessage-deflate; client_max_window_bits=8", (OFFER, 15)),
        ("permessage-deflate;server_max_window_bits = 9", (f"{OFFER}; server_max_window_bits=9", 9)),
        ('permessage-deflate; server_max_window_bits="10"', (f"{OFFER}; server_max_window_bits=10", 10)),
        ("x, permessage-deflate; server_max_window_bits=8, permessage-deflate", (OFFER, 15)),
        ("", None),
        ("x-webkit-deflate-frame", None),
        ("permessage-deflate; unknown", None),
        ("permessage-deflate; server_no_context_takeover=1", None),
        ("permessage-deflate; server_max_window_bits=16", None),
        ("permessage-deflate; server_max_window_bits=abc", None),
        ("permessage-deflate; server_max_window_bits=015", None),
        ("permessage-deflate; client_max_window_bits=7", None),
        ("permessage-deflate; client_max_window_bits; client_max_window_bits", None),
    ],
)
def test_extension_answer_of_a_server(offered: str, answer: tuple[str, int] | None) -> None:
    assert accept_offer(offered) == answer


@pytest.mark.parametrize(
    ("answer", "fits"),
    [
        (OFFER, True),
        ("permessage-deflate; server_no_context_takeover", True),
        ("permessage-deflate; server_no_context_takeover; server_max_window_bits=8", True),
        ("permessage-deflate", False),
        ("permessage-deflate; server_no_context_takeover; server_max_window_bits=7", False),
        ("permessage-deflate; server_no_context_takeover; client_max_window_bits=12", False),
        (f"{OFFER}, {OFFER}", False),
        ("", False),
    ],
)
def test_extension_answers_that_a_client_accepts(answer: str, fits: bool) -> None:
    assert read_answer(answer) is fits


def inflated(data: bytes, max_bytes: int, size: int = 2**16) -> bytes:
    """Return what frames stand for, fed in pieces. Raises ``ParseFailed``."""
    deflate = Deflate(max_bytes, 15)
    decoder = FrameDecoder(True, [deflate])
    found = b""
    for start in range(0, len(data), size):
        decoder.receive_bytes(data[start : start + size])
        while (piece := decoder.process_buffer()) is not None:
            if piece.opcode.iscontrol():
                continue
            text = bytes(piece.payload)  # type: ignore[arg-type]  # not decoded yet
            if deflate.is_compressed:
                text = deflate.inflate(text, piece.frame_finished and piece.message_finished)
                assert len(text) <= max_bytes + 1
            found += text
            if len(found) > max_bytes:
                raise ParseFailed("too long", CloseReason.MESSAGE_TOO_BIG)
    return found


@pytest.mark.parametrize("bits", [9, 15])
@pytest.mark.parametrize("size", [1, 7, 2**16])
def test_messages_round_trip(bits: int, size: int) -> None:
    deflate = Deflate(10**6, bits)
    assert (deflate.enabled(), deflate.offer()) == (True, OFFER)
    texts = [b"", b"x", b"abc" * 30_000, bytes(range(256)) * 40]
    frames = [frame(Opcode.TEXT, deflate.compress(text), None, is_compressed=True) for text in texts]
    assert inflated(b"".join(frames), 10**6, size) == b"".join(texts)


def test_messages_that_are_not_compressed_and_frames_in_between() -> None:
    data = Deflate(100, 15).compress(b"squeezed")
    first = bytes([0x41, len(data) - 2]) + data[:-2]
    last = bytes([0x80, 2]) + data[-2:]
    ping = frame(Opcode.PING, b"ping", None)
    assert inflated(frame(Opcode.TEXT, b"plain", None) + first + ping + last + ping, 100) == b"plainsqueezed"


@pytest.mark.req("XPORT-04")
@pytest.mark.parametrize("size", [1, 100, 2**20])
def test_a_bomb_is_not_inflated(size: int) -> None:
    bomb = Deflate(0, 15).compress(bytes(2**24))
    assert len(bomb) < 20_000
    with pytest.raises(ParseFailed) as failed:
        inflated(frame(Opcode.TEXT, bomb, None, is_compressed=True), 1000, size)
    assert failed.value.code is CloseReason.MESSAGE_TOO_BIG


@pytest.mark.parametrize("over", [0, 1])
def test_the_limit_is_exact(over: int) -> None:
    data = frame(Opcode.TEXT, Deflate(0, 15).compress(b"x" * (1000 + over)), None, is_compressed=True)
    if not over:
        assert inflated(data, 1000) == b"x" * 1000
        return
    with pytest.raises(ParseFailed):
        inflated(data, 1000)


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (frame(Opcode.TEXT, b"\xff\xff\xff", None, is_compressed=True), 1007),
        (frame(Opcode.PING, b"", None, is_compressed=True), 1002),
        (frame(Opcode.CONTINUATION, b"", None, is_compressed=True), 1002),
        (b"\xa1\x00", 1002),
    ],
)
def test_invalid_extension_headers_raise(data: bytes, code: int) -> None:
    with pytest.raises(ParseFailed) as failed:
        inflated(data, 1000)
    assert failed.value.code == code


def test_a_final_block_in_a_message() -> None:
    squeezer = zlib.compressobj(wbits=-15)
    final = squeezer.compress(b"x") + squeezer.flush(zlib.Z_FINISH)
    rest = Deflate(0, 15).compress(b"y")
    assert inflated(frame(Opcode.TEXT, final + rest, None, is_compressed=True), 1000) == b"xy"
    with pytest.raises(ParseFailed) as failed:
        inflated(frame(Opcode.TEXT, final + final + rest, None, is_compressed=True), 1000)
    assert failed.value.code == 1007
