"""permessage-deflate (RFC 7692) without context takeover, and with a limit on inflated messages.

wsproto has this extension too, but inflates to any length.
"""

from __future__ import annotations

import zlib
from typing import Final

from wsproto.extensions import Extension
from wsproto.frame_protocol import CloseReason, FrameDecoder, FrameProtocol, Opcode, RsvBits

__all__ = ["OFFER", "Deflate", "accept_offer", "read_answer"]

OFFER: Final = "permessage-deflate; server_no_context_takeover; client_no_context_takeover"
"""The offer of a client, and the answer of a server."""

_NAME: Final = "permessage-deflate"
_FLAGS: Final = frozenset({"server_no_context_takeover", "client_no_context_takeover"})
_TAIL: Final = b"\x00\x00\xff\xff"
"""The end of every compressed message, which is left out of it."""

_MAX_BITS: Final = 15


class Deflate(Extension):
    """Compresses messages, and inflates received ones to at most ``max_bytes``."""

    name = _NAME

    def __init__(self, max_bytes: int, window_bits: int) -> None:
        """``window_bits``, from 9 to 15, is the logarithm of the window for compression."""
        self._max = max_bytes
        self._bits = window_bits
        self._is_control = self._is_compressed = False
        self._inflating = zlib.decompressobj(-_MAX_BITS)
        self._is_final = False
        self._left = 0

    def compress(self, text: bytes) -> bytes:
        """Return the compressed payload of a message."""
        squeezer = zlib.compressobj(wbits=-self._bits)
        return (squeezer.compress(text) + squeezer.flush(zlib.Z_SYNC_FLUSH))[: -len(_TAIL)]

    # The interface of extensions in wsproto

    def enabled(self) -> bool:
        """Return True: it is only made where it was agreed on."""
        return True

    def offer(self) -> str:
        """Return the offer of a client."""
        return OFFER

    def frame_inbound_header(
        self, proto: FrameDecoder | FrameProtocol, opcode: Opcode, rsv: RsvBits, payload_length: int
    ) -> CloseReason | RsvBits:
        """Record which kind of frame begins. wsproto calls it again if the header was not complete."""
        self._is_control = opcode.iscontrol()
        begins = opcode is Opcode.TEXT or opcode is Opcode.BINARY
        if rsv.rsv1 and not begins:
            return CloseReason.PROTOCOL_ERROR
        if begins:
            self._is_compressed = rsv.rsv1
            self._left = self._max + 1
            if rsv.rsv1:
                self._inflating = zlib.decompressobj(-_MAX_BITS)
                self._is_final = False
        return RsvBits(True, False, False)

    def frame_inbound_payload_data(self, proto: FrameDecoder | FrameProtocol, data: bytes) -> bytes | CloseReason:
        """Return the inflated payload of a piece of a frame."""
        return data if self._is_control or not self._is_compressed else self._inflate(data)

    def frame_inbound_complete(self, proto: FrameDecoder | FrameProtocol, fin: bool) -> bytes | CloseReason | None:
        """Return the rest of an inflated message at its end."""
        return self._inflate(_TAIL) if fin and self._is_compressed and not self._is_control else None

    def _inflate(self, data: bytes) -> bytes | CloseReason:
        """Inflate ``data``, to at most the limit plus one byte."""
        try:
            text = self._inflating.decompress(data, self._left)
        except zlib.error:
            return CloseReason.INVALID_FRAME_PAYLOAD_DATA
        # ``_left`` is never 0 before a call, where it would mean no limit.
        self._left -= len(text)
        if self._left <= 0:
            return CloseReason.MESSAGE_TOO_BIG
        if not self._inflating.eof:
            return text
        # A final block need not be the end of a message (RFC 7692 section 7.2.3.4). More than one is useless, and each
        # would cost a new decompressor.
        if self._is_final:
            return CloseReason.INVALID_FRAME_PAYLOAD_DATA
        rest, self._inflating, self._is_final = self._inflating.unused_data, zlib.decompressobj(-_MAX_BITS), True
        more = self._inflate(rest)
        return text + more if isinstance(more, bytes) else more


def accept_offer(offered: str) -> tuple[str, int] | None:
    """Return the answer to a client's ``Sec-WebSocket-Extensions`` and the window bits; ``None`` for no compression.

    Other extensions, and malformed offers, are skipped.
    """
    for offer in offered.split(","):
        parameters = _parameters(offer)
        if parameters is None or not parameters.keys() <= _FLAGS | {"server_max_window_bits", "client_max_window_bits"}:
            continue
        bits = _bits(parameters.get("server_max_window_bits", "15"), None)
        # client_max_window_bits only says what the client could use; the answer need not make use of it.
        if bits is None or _bits(parameters.get("client_max_window_bits"), "15", least=8) is None:
            continue
        return (f"{OFFER}; server_max_window_bits={bits}" if "server_max_window_bits" in parameters else OFFER), bits
    return None


def read_answer(answer: str) -> bool:
    """Return whether a server's ``Sec-WebSocket-Extensions`` is a valid answer to ``OFFER``."""
    parameters = _parameters(answer)
    if parameters is None or not parameters.keys() <= _FLAGS | {"server_max_window_bits"}:
        return False
    bits = _bits(parameters.get("server_max_window_bits", "15"), None, least=8)
    return bits is not None and "server_no_context_takeover" in parameters


def _parameters(text: str) -> dict[str, str | None] | None:
    """Return the parameters of permessage-deflate; ``None`` for another extension or a repeated parameter."""
    name, *rest = [part.strip() for part in text.split(";")]
    found: dict[str, str | None] = {}
    for part in rest:
        key, equals, value = (each.strip() for each in part.partition("="))
        if key in found or (key in _FLAGS and equals):
            return None
        found[key] = value.strip('"') if equals else None
    return found if name == _NAME else None


def _bits(value: str | None, default: str | None, *, least: int = 9) -> int | None:
    """Return the bits of a window; ``None`` if invalid. zlib cannot compress with a window of 8 bits."""
    said = default if value is None else value
    return int(said) if said in {str(bits) for bits in range(least, _MAX_BITS + 1)} else None
