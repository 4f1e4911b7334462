"""Frames of a WebSocket: their limits and compression."""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Iterable
from typing import Any, Final

import attrs
from wsproto.extensions import Extension
from wsproto.frame_protocol import (
    CloseReason,
    FrameDecoder,
    FrameProtocol,
    Opcode,
    ParseFailed,
    RsvBits,
    XorMaskerSimple,
)

from mcpio._checks import is_amount
from mcpio.engine.limits import without_limit
from mcpio.profiles import Profile
from mcpio.websocket.closing import CloseCode, is_valid

# -------------------------------------------------------------------------------------------------------------- options
# The options of a WebSocket, for both roles.

ERLMCP_SUBPROTOCOL: Final = "mcp.v1"

_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")


def _names(names: Iterable[str]) -> tuple[str, ...]:
    if isinstance(names, str):
        raise ValueError(f"subprotocols must be a tuple of names, not the text {names!r:.60}")  # noqa: TRY004  options are values
    return tuple(names)


def _distinct_tokens(_: object, __: object, names: tuple[Any, ...]) -> None:
    for name in names:
        if not isinstance(name, str) or _TOKEN.fullmatch(name) is None:
            raise ValueError(f"a subprotocol must be of letters, digits and !#$%&'*+-.^_`|~, not {name!r:.60}")
    if len(set(names)) < len(names):
        raise ValueError(f"subprotocols must be named once each, not {names!r:.100}")


def _positive(_: object, field: attrs.Attribute[Any], value: Any) -> None:
    if value is not None and (not is_amount(value) or value == 0):
        raise ValueError(f"{field.name} must be a number of seconds above 0, or None, not {value!r:.60}")


def _positive_and_finite(_: object, field: attrs.Attribute[Any], value: Any) -> None:
    # Without an end, a peer that is gone would keep its connection.
    if not is_amount(value) or value == 0:
        raise ValueError(f"{field.name} must be a finite number of seconds above 0, not {value!r:.60}")


@attrs.frozen(kw_only=True)
class WebSocketOptions:
    """Options for either role. Times are in seconds. Raises ValueError for invalid values.

    The limit on the size of a message is ``Limits.message_bytes``, as on every transport (XPORT-04).
    """

    subprotocols: tuple[str, ...] = attrs.field(default=("mcp",), converter=_names, validator=_distinct_tokens)
    """Subprotocols in order of preference. A client offers them and accepts no other; a server refuses clients that
    offer none of them. With ``Profile.ERLMCP`` among the profiles of the server or client, ``mcp.v1`` is added. Empty:
    a client offers none, and a server requires none."""
    ping_interval: float | None = attrs.field(default=30.0, converter=without_limit, validator=_positive)
    """Seconds of silence before a ping is sent; ``None`` for never."""
    pong_timeout: float = attrs.field(default=20.0, validator=_positive_and_finite)
    """Seconds after a ping until a silent peer is disconnected. Any input counts as a reply."""
    close_timeout: float = attrs.field(default=1.0, validator=_positive_and_finite)
    """Seconds to wait for the peer's close frame. The drivers wait for 1 s at most."""
    first_message_timeout: float | None = attrs.field(default=30.0, converter=without_limit, validator=_positive)
    """For servers: seconds in which a client must send its first message, or be disconnected; ``None`` for no limit."""
    compression: bool = False
    """Whether to negotiate permessage-deflate. Each message is compressed separately, so an idle connection needs no
    memory for it, and the length of one message reveals nothing about another. Leave it off if a message can contain
    both a secret and text that an attacker chose: its compressed length would reveal how similar they are."""

    def subprotocols_for(self, profiles: Iterable[Profile]) -> tuple[str, ...]:
        """Return the subprotocols to speak with these profiles."""
        names = self.subprotocols
        if not names or Profile.ERLMCP not in profiles or ERLMCP_SUBPROTOCOL in names:
            return names
        return (*names, ERLMCP_SUBPROTOCOL)


# --------------------------------------------------------------------------------------------------------------- frames
# Writing WebSocket frames, and the payload of close frames. wsproto reads the frames.

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


# -------------------------------------------------------------------------------------------------------------- deflate
# permessage-deflate (RFC 7692) without context takeover, and with a limit on inflated messages.
# wsproto has this extension too, but inflates to any length.

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
        """``window_bits``, from 9 to 15, is the logarithm of the window for compression.

        ``is_compressed`` says whether the message whose frame came last is.
        """
        self._max = max_bytes
        self._bits = window_bits
        self.is_compressed: bool = False
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
        begins = opcode is Opcode.TEXT or opcode is Opcode.BINARY
        if rsv.rsv1 and not begins:
            return CloseReason.PROTOCOL_ERROR
        if begins:
            self.is_compressed = rsv.rsv1
            self._left = self._max + 1
            if rsv.rsv1:
                self._inflating = zlib.decompressobj(-_MAX_BITS)
                self._is_final = False
        return RsvBits(True, False, False)

    # Not by wsproto, which would inflate a piece before it is known whether it may come here at all

    def inflate(self, payload: bytes, is_whole: bool) -> bytes:
        """Return what a piece of a compressed message stands for, at most a byte beyond the limit of the message.

        ``is_whole`` says that the message ends with it. Raises ParseFailed if the data are not deflated.
        """
        text = self._inflate(payload)
        return text + self._inflate(_TAIL) if is_whole else text

    def _inflate(self, data: bytes) -> bytes:
        if not self._left:  # which zlib would take for no limit
            return b""
        try:
            text = self._inflating.decompress(data, self._left)
        except zlib.error:
            raise not_compressed() from None
        self._left -= len(text)
        if not self._inflating.eof:
            return text
        # A final block need not be the end of a message (RFC 7692 section 7.2.3.4). More than one is useless, and each
        # would cost a new decompressor.
        if self._is_final:
            raise not_compressed()
        rest, self._inflating, self._is_final = self._inflating.unused_data, zlib.decompressobj(-_MAX_BITS), True
        return text + self._inflate(rest)


def not_compressed() -> ParseFailed:
    """Return the fault of a compressed message, whether it does not inflate or what it stands for is no UTF-8."""
    return ParseFailed("a message is not compressed text", CloseReason.INVALID_FRAME_PAYLOAD_DATA)


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
    parameters: dict[str, str | None] = {}
    for part in rest:
        key, equals, value = (each.strip() for each in part.partition("="))
        if key in parameters or (key in _FLAGS and equals):
            return None
        parameters[key] = value.strip('"') if equals else None
    return parameters if name == _NAME else None


def _bits(value: str | None, default: str | None, *, least: int = 9) -> int | None:
    """Return the bits of a window; ``None`` if invalid. zlib cannot compress with a window of 8 bits."""
    text = default if value is None else value
    return int(text) if text in {str(bits) for bits in range(least, _MAX_BITS + 1)} else None
