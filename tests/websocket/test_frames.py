"""How frames are written, and close frames read."""

from __future__ import annotations

import pytest
from wsproto.frame_protocol import FrameDecoder, Opcode, ParseFailed

from mcpio.websocket.frames import close_payload, frame, read_close


@pytest.mark.parametrize("size", [0, 1, 125, 126, 65535, 65536, 70000])
@pytest.mark.parametrize("mask", [None, b"abcd", b"\0\0\0\0"])
def test_a_frame_of_any_size(size: int, mask: bytes | None) -> None:
    payload = bytes(n % 251 for n in range(size))
    decoder = FrameDecoder(mask is None)
    decoder.receive_bytes(frame(Opcode.TEXT, payload, mask))
    found = decoder.process_buffer()
    assert found is not None
    assert found == (Opcode.TEXT, payload, True, True)
    assert decoder.process_buffer() is None


def test_compressed_frame_sets_rsv1() -> None:
    assert frame(Opcode.TEXT, b"x", None, is_compressed=True) == b"\xc1\x01x"


@pytest.mark.parametrize(
    ("code", "reason", "payload"),
    [
        (1005, "x", b""),
        (1000, "", b"\x03\xe8"),
        (1009, "big", b"\x03\xf1big"),
        (1000, "é" * 100, b"\x03\xe8" + "é".encode() * 61),
        (1000, "a\ud800", b"\x03\xe8a?"),
    ],
)
def test_close_frame_is_parsed_into_code_and_reason(code: int, reason: str, payload: bytes) -> None:
    assert close_payload(code, reason) == payload
    assert len(payload) <= 125


def test_close_frame_payload_is_read() -> None:
    assert read_close(b"") == (1005, "")
    assert read_close(b"\x03\xe8") == (1000, "")
    assert read_close(b"\x0f\xa0\xc3\xa9") == (4000, "é")


@pytest.mark.parametrize(
    ("payload", "code"),
    [(b"\x03", 1002), (b"\x03\xed", 1002), (b"\x03\xee", 1002), (b"\0\0", 1002), (b"\x03\xe8\xff", 1007)],
)
def test_malformed_close_frame_is_refused(payload: bytes, code: int) -> None:
    with pytest.raises(ParseFailed) as failed:
        read_close(payload)
    assert failed.value.code == code
