"""One end of an open WebSocket: bytes become messages and messages bytes, until both ends have closed.

It is in one ``State`` at a time, and ``TABLE`` alone decides the next one. The obligation, after every call that is not
a mere look: *drain the events, write the bytes, re-arm the deadline.*
"""

from __future__ import annotations

import codecs
import enum
import io
from collections import deque
from collections.abc import Callable
from typing import Final, TypeAlias

import attrs
from wsproto.frame_protocol import CloseReason, Frame, FrameDecoder, Opcode, ParseFailed

from mcpio._checks import called, is_count, required
from mcpio.engine.limits import check_time
from mcpio.engine.table import Role
from mcpio.errors import LocalProtocolError, McpError, RemoteProtocolError, RequestTimeout
from mcpio.websocket.closing import CloseCode, error_for, is_valid
from mcpio.websocket.frames import Deflate, WebSocketOptions, close_payload, frame, not_compressed, read_close

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
"""How many pings may wait for their pongs. Beyond it, the oldest ping gets none."""

_NEVER: Final = float("inf")
_TOO_LONG: Final = ParseFailed("", CloseReason.MESSAGE_TOO_BIG)


class State(enum.Enum):
    """The state of a WebSocket. The close frame of this side is made on leaving ``OPEN``, and pulled later."""

    OPEN = "open"
    """Messages go both ways."""
    FAILING = "failing"
    """The peer broke a rule. Answers to its earlier messages may still be sent, before the close frame."""
    LEAVING = "leaving"
    """The peer gives no sign of life: as ``FAILING``, but it need not be waited for."""
    CLOSING = "closing"
    """This side closed; of the input, only the peer's close frame counts."""
    ENDING = "ending"
    """Both close frames are exchanged; the peer closes the connection."""
    OVER = "over"
    """Close the connection once everything is written."""


class Input(enum.Enum):
    """The inputs of the table."""

    SEND_CLOSE = "send close"
    """This side closes."""
    CLOSE_PULLED = "close pulled"
    """The close frame of this side was pulled, to be written."""
    RECV_CLOSE = "receive close"
    """A close frame came."""
    RECV_FAULT = "receive fault"
    """The peer broke a rule, or sent no first message in time."""
    RECV_SILENCE = "receive silence"
    """The peer did not answer a ping in time."""
    RECV_LOSS = "receive loss"
    """The connection ended, or the peer did not close in time."""


def _table(role: Role) -> dict[tuple[State, Input], State]:
    # A client leaves it to the server to close the connection first (RFC 6455 section 7.1.1).
    both_closed = State.OVER if role is Role.SERVER else State.ENDING
    return {
        (State.OPEN, Input.SEND_CLOSE): State.CLOSING,
        (State.OPEN, Input.RECV_CLOSE): both_closed,
        (State.OPEN, Input.RECV_FAULT): State.FAILING,
        (State.OPEN, Input.RECV_SILENCE): State.LEAVING,
        (State.OPEN, Input.RECV_LOSS): State.OVER,
        # The peer gets a moment to read why, and then closes; one that gives no sign of life is not waited for.
        (State.FAILING, Input.CLOSE_PULLED): State.ENDING,
        (State.FAILING, Input.RECV_LOSS): State.OVER,
        (State.LEAVING, Input.CLOSE_PULLED): State.OVER,
        (State.LEAVING, Input.RECV_LOSS): State.OVER,
        (State.CLOSING, Input.RECV_CLOSE): both_closed,
        (State.CLOSING, Input.RECV_FAULT): State.ENDING,
        (State.CLOSING, Input.RECV_LOSS): State.OVER,
        (State.ENDING, Input.RECV_LOSS): State.OVER,
    }


TABLE: Final = {role: _table(role) for role in Role}
"""The next state, by role, state and input. Without a row, the input changes nothing."""

_HEARING: Final = frozenset({State.OPEN, State.CLOSING})
"""The states in which input counts."""

_SPEAKING: Final = frozenset({State.OPEN, State.FAILING, State.LEAVING})
"""The states in which messages may be sent."""


@attrs.frozen
class MessageReceived:
    """Fired when a whole message came."""

    text: str
    """The text, meant to be one JSON text."""


@attrs.frozen
class FragmentReceived:
    """Fired when a piece of a message came, and more of it is to follow."""

    size: int
    """The bytes received of the current message."""


@attrs.frozen
class PingReceived:
    """Fired when a ping came; its pong goes out with the next output."""

    payload: bytes
    """The payload of the ping."""


@attrs.frozen
class PongReceived:
    """Fired when a pong came, solicited or not."""

    payload: bytes
    """The payload of the pong."""


@attrs.frozen
class WebSocketEnded:
    """Fired once, last: no further message is received. There may still be bytes to write."""

    code: int
    """The close code that the peer sent, or is sent. 1005 and 1006 mean that no code was sent."""
    reason: str
    """The text that goes with the code, for people."""
    error: McpError | None
    """The error of the code; ``None`` for a graceful end by either side. See ``mcpio.websocket.closing``."""


_IGNORED: Final = FragmentReceived(0)

WebSocketEvent: TypeAlias = MessageReceived | FragmentReceived | PingReceived | PongReceived | WebSocketEnded


class WebSocket:
    """One end of a WebSocket, after the opening handshake.

    ``now`` is in seconds on the caller's monotonic clock. Neither the peer's bytes nor any timing make
    ``receive_data``, ``next_event`` or ``handle_timeout`` raise. A message longer than ``max_bytes`` ends the
    WebSocket: as soon as a frame announces its size, or, where it is compressed, while it is inflated. ``entropy(n)``
    returns n random bytes, with which clients mask their frames. ``window_bits`` is what the handshake agreed on;
    ``None`` means no compression.
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
        check_time(now)
        called("entropy", entropy)
        if not is_count(max_bytes):
            raise ValueError(f"max_bytes must be a number of bytes, not {max_bytes!r:.60}")
        if window_bits is not None and not is_count(window_bits, 9):
            raise ValueError(f"window_bits must be 9 to 15, not {window_bits!r:.60}")
        self.role: Role = required("role", role, Role)
        self._options = required("options", options, WebSocketOptions)
        self._max = max_bytes
        self._entropy = entropy if role is Role.CLIENT else None
        self._deflate = None if window_bits is None else Deflate(max_bytes, window_bits)
        self._decoder = FrameDecoder(role is Role.CLIENT, [self._deflate] if self._deflate else None)
        self._may_have_more = False
        # The message that is coming in.
        self._size: int | None = None
        self._text = io.StringIO()
        self._utf8 = codecs.getincrementaldecoder("utf-8")()
        # Bytes to send, in this order.
        self._out: list[bytes] = []
        self._pongs: deque[bytes] = deque(maxlen=PONGS)
        self._ping_is_due = False
        self._last: bytes | None = None
        self._table = TABLE[role]
        self._state = State.OPEN
        # The last event, until it is given out.
        self._end: WebSocketEnded | None = None
        # Time. The peer is silent since _quiet_since; after a ping, it is gone at _gone_at.
        self._now = self._quiet_since = now
        self._gone_at: float | None = None
        self._close_by: float | None = None
        limit = options.first_message_timeout
        self._speak_by = None if role is Role.CLIENT or limit is None else now + limit

    # Feed

    def receive_data(self, data: bytes | None, now: float) -> None:
        """Store bytes, or record the end of the connection (``None``). Empty bytes do nothing.

        Input after the end is ignored. Drain the events, write the bytes, re-arm the deadline.
        """
        if data is not None and not isinstance(data, (bytes, bytearray, memoryview)):
            raise LocalProtocolError(f"data must be bytes, not {data!r:.60}")
        self._advance(now)
        if data is None:
            self._break()
        elif data and self._state in _HEARING:
            self.extend(now)  # any input is a sign of life, not only a pong
            self._decoder.receive_bytes(data)
            self._may_have_more = True

    def connection_lost(self, now: float) -> None:
        """Record that the connection broke: no more output follows. Drain the events."""
        self._advance(now)
        self._out.clear()
        self._last = None
        self._break()

    def extend(self, now: float) -> None:
        """Restart the idle timer, because reading or writing was blocked until now."""
        self._advance(now)
        self._quiet_since = self._now
        self._gone_at = None
        self._ping_is_due = False

    # Pull

    def next_event(self) -> WebSocketEvent | None:
        """Return the next event, or ``None`` for "feed me". At most one frame of a message is looked at."""
        while self._end is None and self._state in _HEARING:
            try:
                event = self._next_frame()
            except ParseFailed as failure:
                self._fail(int(failure.code), self._complaint(failure))
            except UnicodeDecodeError:
                # A piece that does not inflate may have such text before: the reason must not depend on the pieces.
                reason = "a text is no UTF-8" if self._compressed is None else str(not_compressed())
                self._fail(int(CloseCode.INVALID_TEXT), reason)
            else:
                if event is None and self._end is None:
                    self._may_have_more = False
                    return None
                # Once this side has closed, only the peer's close frame counts.
                if self._state is State.OPEN:
                    return event
        end, self._end = self._end, None
        self._may_have_more = self._state in _HEARING
        return end

    def data_to_send(self, now: float) -> bytes:
        """Return the output to write now, ``b""`` if none. Pull when the previous output is written.

        When ``over`` is true after that, close the connection.
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
        # The close frame is the last one: no frame may follow it (RFC 6455 section 5.5.1).
        if self._last is not None:
            out.append(self._last)
            self._last = None
            self._step(Input.CLOSE_PULLED)
        return b"".join(out)

    # Time

    def next_deadline(self) -> float | None:
        """Return when ``handle_timeout`` is due, or ``None``. It may become earlier only by ``close``."""
        if self._state in (State.LEAVING, State.OVER):
            return None
        if self._state is not State.OPEN:
            return self._close_by
        interval = self._options.ping_interval
        alive = self._gone_at
        if alive is None and interval is not None:
            alive = self._quiet_since + interval
        return min((when for when in (alive, self._speak_by) if when is not None), default=None)

    def handle_timeout(self, now: float) -> None:
        """Handle the deadlines up to ``now``. Early or repeated calls do nothing.

        Drain the events, write the bytes, re-arm the deadline.
        """
        self._advance(now)
        due = self.next_deadline()
        if due is None or due > self._now:
            return
        options = self._options
        if self._state is not State.OPEN:
            self._break()
        elif self._speak_by is not None and self._speak_by <= self._now:
            limit = options.first_message_timeout
            self._fail(CloseCode.POLICY, f"no message came within {limit:g} s")
        elif self._gone_at is not None:
            why = "no sign of life after a ping"
            gone = RequestTimeout("ping", options.pong_timeout)
            self._close(Input.RECV_SILENCE, WebSocketEnded(CloseCode.FAILED, why, gone))
        else:
            self._ping_is_due = True
            self._gone_at = self._now + options.pong_timeout

    # Act

    def send_message(self, text: bytes) -> None:
        """Send a message: text in UTF-8, in one frame. Write the bytes.

        Raises LocalProtocolError if ``is_open`` is false.
        """
        if self._state not in _SPEAKING:
            raise LocalProtocolError("the WebSocket is closed: no message can be sent")
        if not isinstance(text, (bytes, bytearray)):
            raise LocalProtocolError(f"text must be bytes in UTF-8, not {text!r:.60}")
        deflate = self._deflate
        if deflate is None:
            self._out.append(self._frame(Opcode.TEXT, text))
        else:
            self._out.append(self._frame(Opcode.TEXT, deflate.compress(text), is_compressed=True))

    def close(self, code: int, reason: str, now: float) -> None:
        """Close: earlier messages are sent first, and input is ignored. Further calls do nothing.

        ``reason`` is for people. Drain the events, write the bytes, re-arm the deadline. Raises LocalProtocolError if
        ``code`` may not be sent.
        """
        if not is_valid(code):
            raise LocalProtocolError(f"a WebSocket cannot be closed with the code {code!r:.20}")
        self._advance(now)
        if self._state is State.OPEN:
            self._close(Input.SEND_CLOSE, WebSocketEnded(code, reason, None))

    # Look

    @property
    def is_open(self) -> bool:
        """Whether messages may be sent: also to a peer that broke a rule, until the close frame."""
        return self._state in _SPEAKING

    @property
    def is_deaf(self) -> bool:
        """Whether no input counts any more."""
        return self._state not in _HEARING

    @property
    def wants_write(self) -> bool:
        """Whether ``data_to_send`` has something to give."""
        return bool(self._out or self._pongs) or self._last is not None or self._ping_is_due

    @property
    def has_more(self) -> bool:
        """Whether ``next_event`` may have an event before more is fed."""
        return self._may_have_more or self._end is not None

    @property
    def over(self) -> bool:
        """Whether everything is written, and the connection must be closed."""
        return self._state is State.OVER and not self.wants_write

    # Reading

    def _next_frame(self) -> WebSocketEvent | None:
        """Return the event of the next frame, or piece of one; ``None`` if none is complete."""
        decoder = self._decoder
        piece = decoder.process_buffer()
        is_open = self._state is State.OPEN
        if is_open:
            self._check_announced(piece)
        if piece is None:
            return None
        if not is_open and piece.opcode is not Opcode.CLOSE:
            return _IGNORED  # an event, so that ``next_event`` goes on to the next frame
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
                code, reason = read_close(payload)
                self._close(Input.RECV_CLOSE, WebSocketEnded(code, reason, error_for(code, reason)), answer="")
                return None
        raise ParseFailed("binary messages are not accepted", CloseReason.UNSUPPORTED_DATA)

    def _receive_text(self, piece: Frame, payload: bytes) -> WebSocketEvent:
        if (self._size is None) is (piece.opcode is Opcode.CONTINUATION):
            raise ParseFailed("a message that begins within another, or goes on without a beginning")
        is_whole = piece.frame_finished and piece.message_finished
        if (deflate := self._compressed) is not None:
            payload = deflate.inflate(payload, is_whole)
        size = (self._size or 0) + len(payload)
        if size > self._max:
            # Only a compressed message gets here. Invalid UTF-8 before the limit is reported first, in any split.
            self._utf8.decode(payload[: self._max - size])
            raise _TOO_LONG
        if is_whole and self._size is None:
            # The usual case: one frame, read at once.
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
        """Reject a message as soon as the head of a frame announces too many bytes, before anything else about it."""
        header = self._decoder.header  # that of a frame of which more is to come
        current = piece if header is None else header
        if current is None or current.opcode.iscontrol() or self._compressed is not None:
            return  # of a compressed message the announced size says nothing
        rest = 0 if header is None else header.payload_len - self._decoder.payload_consumed
        if (self._size or 0) + rest + (0 if piece is None else len(piece.payload)) > self._max:
            raise _TOO_LONG

    @property
    def _compressed(self) -> Deflate | None:
        """The inflater of the incoming message; ``None`` if the message is not compressed."""
        return self._deflate if self._deflate is not None and self._deflate.is_compressed else None

    # The end

    def _fail(self, code: int, reason: str) -> None:
        """Close because the peer broke a rule. The peer gets the reason, and a moment to read it."""
        self._close(Input.RECV_FAULT, WebSocketEnded(code, reason, RemoteProtocolError(reason)))

    def _break(self) -> None:
        """Record that no more input comes: the connection ended, or this side has waited long enough."""
        self._pongs.clear()
        self._ping_is_due = False
        self._step(Input.RECV_LOSS, WebSocketEnded(CloseCode.ABNORMAL, "", error_for(CloseCode.ABNORMAL, "")))

    def _close(self, event: Input, end: WebSocketEnded, *, answer: str | None = None) -> None:
        """Take a step that ends the conversation. The first one makes the close frame, with ``answer`` as reason."""
        if self._state is State.OPEN:
            # The close frame is made once, and stays as it is: a later fault must not change the code that goes out.
            self._ping_is_due = False
            reason = end.reason if answer is None else answer
            self._last = self._frame(Opcode.CLOSE, close_payload(end.code, reason))
            self._close_by = self._now + self._options.close_timeout
        self._step(event, end)

    def _step(self, event: Input, end: WebSocketEnded | None = None) -> None:
        """Enter the next state. Leaving ``OPEN`` makes the last event, so there is exactly one (P4)."""
        if self._state is State.OPEN:
            self._end = end
        self._state = self._table.get((self._state, event), self._state)

    # Helpers

    def _complaint(self, failure: ParseFailed) -> str:
        """Return the fault, worded for the peer and for the error here."""
        if failure.code is CloseReason.MESSAGE_TOO_BIG:
            return f"a message is longer than {self._max} bytes"
        return str(failure)

    def _frame(self, opcode: Opcode, payload: bytes, *, is_compressed: bool = False) -> bytes:
        return frame(opcode, payload, None if self._entropy is None else self._entropy(4), is_compressed=is_compressed)

    def _advance(self, now: float) -> None:
        if now.__class__ is not float or not now < _NEVER:
            check_time(now)
        if now > self._now:
            self._now = now
