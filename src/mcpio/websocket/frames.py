"""Writing WebSocket frames, and the payload of close frames. wsproto reads the frames."""

from __future__ import annotations

import struct
from typing import Final

from wsproto.frame_protocol import CloseReason, Opcode, ParseFailed, XorMaskerSimple

from mcpio.websocket.closing import CloseCode, is_valid

__all__ = ["close_payload", "frame", "read_close"]

REASON_BYTES: Final = 123
"""The longest reason of a close frame, in bytes."""

_FIN, _COMPRESSED, _MASKED = 0x80, 0x40, 0x80


def frame(opcode: Opcode, payload: bytes, mask: bytes | None, *, is_compressed: bool = False) -> bytes:
    """Return a whole frame. ``mask`` is a client's four random bytes; a server's frames have none."""
    first = _FIN | opcode | (_COMPRESSED if is_compressed else 0)
    size = len(payload)
    flag = 0 if mask is None else _MASKED
    if size < 126:
        head = bytes((first, flag | size))
    elif size < 65536:
        head = struct.pack("!BBH", first, flag | 126, size)
    else:
        head = struct.pack("!BBQ", first, flag | 127, size)
    if mask is None:
        return head + payload
    return b"".join((head, mask, XorMaskerSimple(mask).process(bytearray(payload))))


def close_payload(code: int, reason: str) -> bytes:
    """Return the payload of a close frame. A reason that is too long is truncated."""
    if code == CloseCode.NO_CODE:
        return b""
    return struct.pack("!H", code) + reason.encode(errors="replace")[:REASON_BYTES].decode(errors="ignore").encode()


def read_close(payload: bytes) -> tuple[int, str]:
    """Return the code and reason of a close frame. Raises ParseFailed if the payload is invalid."""
    if not payload:
        return CloseCode.NO_CODE, ""
    code = int.from_bytes(payload[:2], "big")
    if len(payload) < 2 or not is_valid(code):
        raise ParseFailed("a close frame without a valid code")
    try:
        return code, payload[2:].decode()
    except UnicodeDecodeError:
        raise ParseFailed("the reason of a close frame is no UTF-8", CloseReason.INVALID_FRAME_PAYLOAD_DATA) from None
