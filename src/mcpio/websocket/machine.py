"""One end of a WebSocket that is open: bytes become messages, and messages bytes, until both ends have closed.

The obligation, after every call that is not a mere look: *drain the events, write the bytes, re-arm the deadline.*
"""

from __future__ import annotations

import codecs
import io
from collections import deque
from collections.abc import Callable
from typing import Final, TypeAlias

import attrs
from wsproto.frame_protocol import CloseReason, Frame, FrameDecoder, Opcode, ParseFailed

from mcpio.engine.table import Role
from mcpio.errors import LocalProtocolError, McpError, RemoteProtocolError, RequestTimeout
from mcpio.websocket.closing import CloseCode, error_for, is_valid
from mcpio.websocket.deflate import Deflate
from mcpio.websocket.frames import close_payload, frame, read_close
from mcpio.websocket.options import WebSocketOptions

__all__ = [
    "FragmentReceived",
    "MessageReceived",
    "PingReceived",
    "PongReceived",
    "WebSocket",
    "WebSocketEnded",
    "WebSocketEvent",
]

PONGS: Final = 16
"""How many pings wait for their pongs. Beyond: the oldest gets none."""

_TOO_LONG: Final = ParseFailed("", CloseReason.MESSAGE_TOO_BIG)


@attrs.frozen
class MessageReceived:
    """A whole message came."""

    text: str
    """The text, which is meant to be one JSON text."""


@attrs.frozen
class FragmentReceived:
    """A piece of a message came, and more of it is to follow."""

    size: int
    """How many bytes the message has so far."""


@attrs.frozen
class PingReceived:
    """A ping came; its pong goes out with the next output."""

    payload: bytes
    """What was in it."""


@attrs.frozen
class PongReceived:
    """A pong came, asked for or not."""

    payload: bytes
    """What was in it."""


@attrs.frozen
class WebSocketEnded:
    """No message comes or goes any more: the last event, given once. There may still be bytes to write."""

    code: int
    """The close code: what the other side said, or what it is told. 1005 and 1006 stand for none."""
    reason: str
    """The text with it, for people."""
    error: McpError | None
    """What it means; ``None`` for the end in order, whichever side began it. See ``mcpio.websocket.closing``."""


_IGNORED: Final = FragmentReceived(0)

WebSocketEvent: TypeAlias = MessageReceived | FragmentReceived | PingReceived | PongReceived | WebSocketEnded


class WebSocket:
    """One end of a WebSocket, after the opening handshake.

    ``now`` is in seconds on the caller's monotonic clock. No bytes of the other side, and no timing, make
    ``receive_data``, ``next_event`` or ``handle_timeout`` raise. Messages longer than ``max_bytes`` end it: by what
    their frames announce, and where they are compressed while they are inflated. ``entropy`` returns as many random
    bytes as it is asked for, with which clients mask their frames. ``window_bits`` is what the handshake gave; ``None``
    is no compression.
    """

    def __init__(
        self,
        role: Role,
        options: WebSocketOptions,
        *,
        max_bytes: int,
        now: float,
        entropy: Callable[[int], bytes],
        window_bits: int | None = None,
    ) -> None:
        self.role = role
        self._options = options
        self._max = max_bytes
        self._entropy = entropy if role is Role.CLIENT else None
        self._deflate = None if window_bits is None else Deflate(max_bytes, window_bits)
        self._decoder = FrameDecoder(role is Role.CLIENT, [self._deflate] if self._deflate else None)
        self._may_have_more = False
        # The message that is coming in.
        self._size: int | None = None
        self._text = io.StringIO()
        self._utf8 = codecs.getincrementaldecoder("utf-8")()
        # What is to go out, in this order.
        self._out: list[bytes] = []
        self._pongs: deque[bytes] = deque(maxlen=PONGS)
        self._ping_is_due = False
        self._last: bytes | None = None
        # How it stands.
        self._is_deaf = self._is_mute = self._has_closed = self._has_ended = self._is_over = False
        self._end: WebSocketEnded | None = None
        # Time.
        self._now = self._quiet_since = now
        self._gone_at: float | None = None
        self._close_by: float | None = None
        limit = options.first_message_timeout
        self._speak_by = None if role is Role.CLIENT or limit is None else now + limit

    # Feed

    def receive_data(self, data: bytes | None, now: float) -> None:
        """Take in bytes, or ``None`` for the end of the connection. Empty bytes do nothing.

        What comes after the end is ignored. Drain the events, write the bytes, re-arm the deadline.
        """
        self._advance(now)
        if data is None:
            self._break()
        elif data and not self._is_deaf:
            self.extend(now)
            self._decoder.receive_bytes(data)
            self._may_have_more = True

    def connection_lost(self, now: float) -> None:
        """Note that the connection broke: nothing more goes out. Drain the events."""
        self._advance(now)
        self._out.clear()
        self._last = None
        self._break()

    def extend(self, now: float) -> None:
        """Take a silence until now for no sign of anything: nothing could be read, or something could be written."""
        self._advance(now)
        self._quiet_since = self._now
        self._gone_at = None
        self._ping_is_due = False

    # Pull

    def next_event(self) -> WebSocketEvent | None:
        """Return the next event, or ``None`` for "feed me". No more than one frame of a message is looked at."""
        while self._end is None and not self._is_deaf:
            try:
                event = self._next_frame()
            except ParseFailed as failure:
                self._fail(int(failure.code), self._complaint(failure))
            except UnicodeDecodeError:
                self._fail(CloseCode.INVALID_TEXT, "a text is no UTF-8")
            else:
                if event is None and self._end is None:
                    self._may_have_more = False
                    return None
                # Whoever closed looks for nothing but the other side's close frame.
                if not self._has_ended:
                    return event
        end, self._end = self._end, None
        self._may_have_more = not self._is_deaf
        return end

    def data_to_send(self, now: float) -> bytes:
        """Return everything that is to be written now, ``b""`` for nothing. Pull when the last of it is written.

        When ``over`` is true after that, the connection is to be closed.
        """
        self._advance(now)
        # Pongs wait for no message (RFC 6455 section 5.5.2).
        out = [self._frame(Opcode.PONG, payload) for payload in self._pongs]
        self._pongs.clear()
        out += self._out
        self._out = []
        if self._ping_is_due:
            out.append(self._frame(Opcode.PING, b""))
            self._ping_is_due = False
        if self._last is not None:
            out.append(self._last)
            self._last = None
            self._is_mute = True
        return b"".join(out)

    # Time

    def next_deadline(self) -> float | None:
        """Return when ``handle_timeout`` is due, or ``None``. It may become earlier only by ``close``."""
        if self._is_over:
            return None
        if self._has_closed:
            return self._close_by
        interval = self._options.ping_interval
        alive = self._gone_at
        if alive is None and interval is not None:
            alive = self._quiet_since + interval
        return min((when for when in (alive, self._speak_by) if when is not None), default=None)

    def handle_timeout(self, now: float) -> None:
        """Let deadlines up to ``now`` expire. Early or repeated calls do nothing.

        Drain the events, write the bytes, re-arm the deadline.
        """
        self._advance(now)
        due = self.next_deadline()
        if due is None or due > self._now:
            return
        options = self._options
        if self._has_closed:
            self._break()
        elif self._speak_by is not None and self._speak_by <= self._now:
            limit = options.first_message_timeout
            self._fail(CloseCode.POLICY, f"no message came within {limit:g} s")
        elif self._gone_at is not None:
            self._fail(CloseCode.FAILED, "no sign of life after a ping", RequestTimeout("ping", options.pong_timeout))
            self._is_over = True
        else:
            self._ping_is_due = True
            self._gone_at = self._now + options.pong_timeout

    # Act

    def send_message(self, text: bytes) -> None:
        """Send a message: text in UTF-8, in one frame. ``LocalProtocolError`` where ``is_open`` is false.

        Write the bytes.
        """
        if not self.is_open:
            raise LocalProtocolError("the WebSocket is closed: no message can be sent")
        deflate = self._deflate
        if deflate is None:
            self._out.append(self._frame(Opcode.TEXT, text))
        else:
            self._out.append(self._frame(Opcode.TEXT, deflate.compress(text), is_compressed=True))

    def close(self, code: int, reason: str, now: float) -> None:
        """Close: what was sent goes out first, and what comes in is ignored. Does nothing when this side has closed.

        ``reason`` is for people. ``LocalProtocolError`` for a code that may not be sent. Drain the events, write the
        bytes, re-arm the deadline.
        """
        if not is_valid(code):
            raise LocalProtocolError(f"a WebSocket cannot be closed with the code {code!r:.20}")
        self._advance(now)
        if not self._has_closed:
            self._is_mute = True
            self._close(code, reason)
            self._finish(WebSocketEnded(code, reason, None))

    # Look

    @property
    def is_open(self) -> bool:
        """Whether messages may be sent: also to an end that broke the rules, until it is told so."""
        return not self._is_mute

    @property
    def is_deaf(self) -> bool:
        """Whether nothing that the other side says counts any more."""
        return self._is_deaf

    @property
    def wants_write(self) -> bool:
        """Whether ``data_to_send`` has something to give."""
        return bool(self._out or self._pongs) or self._last is not None or self._ping_is_due

    @property
    def has_more(self) -> bool:
        """Whether ``next_event`` may have something to give before more is fed."""
        return self._may_have_more or self._end is not None

    @property
    def over(self) -> bool:
        """Whether the connection is to be closed, once everything is written."""
        return self._is_over and not self.wants_write

    # Reading

    def _next_frame(self) -> WebSocketEvent | None:
        """Return the event of the next frame, or piece of one, or ``None`` where there is no more."""
        decoder = self._decoder
        piece = decoder.process_buffer()
        if self._deflate is None and not self._has_ended:
            self._check_announced(piece)
        if piece is None:
            return None
        if self._has_ended and piece.opcode is not Opcode.CLOSE:
            return _IGNORED
        payload: bytes = piece.payload  # type: ignore[assignment]  # before anything decodes it
        match piece.opcode:
            case Opcode.TEXT | Opcode.CONTINUATION:
                return self._receive_text(piece, payload)
            case Opcode.PING:
                # The newest may stand for all that are not answered yet (RFC 6455 section 5.5.3).
                self._pongs.append(payload)
                return PingReceived(payload)
            case Opcode.PONG:
                return PongReceived(payload)
            case Opcode.CLOSE:
                self._receive_close(*read_close(payload))
                return None
        raise ParseFailed("binary messages are not accepted", CloseReason.UNSUPPORTED_DATA)

    def _receive_text(self, piece: Frame, payload: bytes) -> WebSocketEvent:
        if (self._size is None) is (piece.opcode is Opcode.CONTINUATION):
            raise ParseFailed("a message that begins within another, or goes on without a beginning")
        is_whole = piece.frame_finished and piece.message_finished
        size = (self._size or 0) + len(payload)
        if size > self._max:
            raise _TOO_LONG
        if is_whole and self._size is None:
            self._speak_by = None
            return MessageReceived(payload.decode())
        self._size = size
        self._text.write(self._utf8.decode(payload, is_whole))
        if not is_whole:
            return FragmentReceived(size)
        text = self._text.getvalue()
        self._text = io.StringIO()
        self._size = self._speak_by = None
        return MessageReceived(text)

    def _check_announced(self, piece: Frame | None) -> None:
        """Refuse a message as soon as the head of a frame tells that it is too long."""
        header = self._decoder.header  # that of a frame of which more is to come
        if header is None or header.opcode.iscontrol():
            return
        rest = header.payload_len - self._decoder.payload_consumed
        if (self._size or 0) + rest + (0 if piece is None else len(piece.payload)) > self._max:
            raise _TOO_LONG

    # The end

    def _receive_close(self, code: int, reason: str) -> None:
        self._is_deaf = self._is_mute = True
        if not self._has_closed:
            self._close(code, "")
        # A client leaves it to the server to close the connection first (RFC 6455 section 7.1.1).
        self._is_over = self.role is Role.SERVER
        self._finish(WebSocketEnded(code, reason, error_for(code, reason)))

    def _fail(self, code: int, reason: str, error: McpError | None = None) -> None:
        """Give up on what the other side does. It is told why, and has a moment to read that."""
        self._is_deaf = True
        if not self._has_closed:
            self._close(code, reason)
        self._finish(WebSocketEnded(code, reason, error or RemoteProtocolError(reason)))

    def _break(self) -> None:
        """Note that nothing more comes: the connection ended, or this side has waited long enough."""
        self._is_deaf = self._is_mute = self._is_over = self._has_closed = True
        self._pongs.clear()
        self._ping_is_due = False
        self._finish(WebSocketEnded(CloseCode.ABNORMAL, "", error_for(CloseCode.ABNORMAL, "")))

    def _close(self, code: int, reason: str) -> None:
        self._has_closed = True
        self._ping_is_due = False
        self._last = self._frame(Opcode.CLOSE, close_payload(code, reason))
        self._close_by = self._now + self._options.close_timeout

    def _finish(self, end: WebSocketEnded) -> None:
        if not self._has_ended:
            self._has_ended = True
            self._end = end

    # Small things

    def _complaint(self, failure: ParseFailed) -> str:
        """Return what is wrong, for the other side and for the error here."""
        if failure.code is CloseReason.MESSAGE_TOO_BIG:
            return f"a message is longer than {self._max} bytes"
        if failure.code is CloseReason.INVALID_FRAME_PAYLOAD_DATA and self._deflate is not None:
            return "a message is not what was compressed"
        return str(failure)

    def _frame(self, opcode: Opcode, payload: bytes, *, is_compressed: bool = False) -> bytes:
        return frame(opcode, payload, None if self._entropy is None else self._entropy(4), is_compressed=is_compressed)

    def _advance(self, now: float) -> None:
        if now > self._now:
            self._now = now
