"""One channel to a peer: its input, its output, the clock, and its end. It knows neither messages nor methods.

A ``Channel`` never calls back. Its ``Connection`` asks it what came in and whether it must end, and acts on the answer.
"""

from __future__ import annotations

from collections.abc import Hashable, Sized
from typing import Final

from mcpio.engine.inbox import Inbox
from mcpio.engine.ledger import Held
from mcpio.engine.limits import Limits, check_time
from mcpio.engine.outbox import Outbox
from mcpio.engine.table import LIFE_TABLE, Input, Life, Role
from mcpio.engine.timers import CLOSE_TIMER, STALL_TIMER, Timers
from mcpio.errors import LocalProtocolError
from mcpio.events import CloseReason
from mcpio.framing import jsonrpc

__all__ = ["Channel"]

LAST_WRITE: Final = 1.0
"""Seconds that a client whose server has ended waits for its last write, which the server may never read."""

STALL: Final = 30.0
"""Seconds that a peer has to read some of an output beyond ``Limits.queued_bytes``."""

READ_RATE: Final = 4096
"""Bytes a second that a peer must read while the transport is writing."""

# Looked up once: before Python 3.12 an enumeration finds its members by a slow path.
_OPEN, _CLOSING, _CLOSED = Life.OPEN, Life.CLOSING, Life.CLOSED


_NEVER: Final = float("inf")
_BYTES: Final = (bytes, bytearray, memoryview, type(None))
_TEXT: Final = (str, bytes, type(None))


class Channel:
    """Input, output, time and end of one connection."""

    __slots__ = (
        "_stalled_at",
        "cause",
        "end_received",
        "held",
        "inbox",
        "life",
        "limits",
        "now",
        "outbox",
        "reason",
        "received_at",
        "received_bytes",
        "role",
        "sent_bytes",
        "timers",
    )

    life: Life
    """Assigned by ``step`` and by a snapshot, and nowhere else."""
    now: float
    """The latest time that the caller gave; it never goes back."""
    received_at: float
    """When something came in last."""
    received_bytes: int
    """How many bytes were fed. Of text, its characters count."""
    sent_bytes: int
    """How many bytes of messages were pulled."""
    end_received: bool
    """Whether the end of the input was acted on, after all input before it."""
    reason: CloseReason
    """Why the channel closes or closed."""
    cause: BaseException | None
    """The exception that caused it."""

    def __init__(self, limits: Limits, role: Role) -> None:
        self.limits = limits
        self.role = role
        self.held = Held()
        self.inbox = Inbox(limits)
        self.outbox = Outbox(limits.queued_logs)
        self.timers: Timers[int] = Timers()
        self.now = self.received_at = float("-inf")
        self.life = _OPEN
        self.reason = CloseReason.CLOSED
        self.cause = None
        self.end_received = False
        self.received_bytes = self.sent_bytes = 0
        self._stalled_at: int | None = None  # what was sent when the peer was last seen not to read

    def advance(self, now: float) -> None:
        """Note the time. Raises ``LocalProtocolError`` for what is none."""
        # An ordinary time takes one comparison, since this runs for each message.
        try:
            if self.now < now < _NEVER:
                self.now = now
            elif now != self.now:
                check_time(now)
        except TypeError:
            check_time(now)

    # Input

    def receive_data(self, data: bytes | None, now: float) -> bool:
        """Store bytes, or note the end of file; return whether the input was still open."""
        if data.__class__ is not bytes and not isinstance(data, _BYTES):
            raise LocalProtocolError(f"data= takes bytes, not {data!r:.60}")
        self.advance(now)
        inbox = self.inbox
        if inbox.ended or self.life is _CLOSED:
            return False
        if data:
            self.received_at = self.now
            self.received_bytes += len(data)
            inbox.add_data(data)
        elif data is None:
            inbox.end()
        return True

    def receive_message(
        self,
        text: bytes | str | None,
        now: float,
        via: Hashable,
        principal: Hashable,
        parsed: jsonrpc.Message | None = None,
    ) -> bool:
        """Store one whole text, or note the end; return whether the input was still open."""
        if text.__class__ is not bytes and not isinstance(text, _TEXT):
            raise LocalProtocolError(f"text= takes text or bytes, not {text!r:.60}")
        self.advance(now)
        inbox = self.inbox
        if inbox.ended or self.life is _CLOSED:
            return False
        if text is None:
            inbox.end()
        else:
            self.received_at = self.now
            self.received_bytes += len(text)
            inbox.add_message(text, via, principal, parsed)
        return True

    def wants_read(self, unanswered: Sized) -> bool:
        """Return whether to read from the channel now. ``unanswered`` are the requests of this side."""
        inbox = self.inbox
        if inbox.ended or self.life is _CLOSED:
            return False
        if not self.is_full():
            # Requests that were put aside come first: drain the events.
            return not inbox.deferred_bytes
        # If both sides stopped reading while both wait for answers, neither would ever go on; and a cancellation may be
        # what frees a peer whose requests take too much. So read on: requests that come meanwhile are put aside.
        needs_more = len(unanswered) > 0 or self.held.requests > self.limits.peer_bytes // 2
        return needs_more and inbox.deferred_bytes <= self.limits.queued_bytes

    def is_full(self) -> bool:
        """Return whether the peer's requests must wait: until it reads its answers, or until running ones end."""
        outbox, held, limits = self.outbox, self.held, self.limits
        # Without this side's own requests: if both sides stopped reading for the sake of theirs, neither would go on.
        waiting = outbox.size - outbox.own_bytes + held.unwritten
        return waiting > limits.high_water or held.requests > limits.peer_bytes // 2

    @property
    def has_room_for_deferred(self) -> bool:
        """Whether deferred requests may continue."""
        return self.inbox.deferred_bytes > 0 and not self.is_full()

    # Output

    def pull(self, max_bytes: int) -> list[bytes | None]:
        """Remove and return messages as lines, about ``max_bytes`` in total."""
        outbox = self.outbox
        chunks: list[bytes | None] = []
        size = 0
        while outbox.size and size < max_bytes and (message := outbox.pop()) is not None:
            chunks.append(message.text + b"\n")
            size += len(message.text)
        self.sent_bytes += size
        return chunks

    def waiting_to_ask(self) -> int:
        """Return how many bytes of outgoing requests wait to be written."""
        return self.outbox.own_bytes + self.held.own + self.held.unwritten

    @property
    def has_room(self) -> bool:
        """Whether more output may be made."""
        held, limits = self.held, self.limits
        outbox, rest = self.outbox, held.unwritten + held.own
        return outbox.size + rest <= limits.peer_bytes // 2 and outbox.own_bytes + rest <= limits.queued_bytes // 2

    def is_overflowing(self) -> bool:
        """Return whether too much output waits for the connection to stay open; may start the stall timer.

        A peer may ask for more than it has read so far, so responses of handlers beyond ``Limits.queued_bytes`` only
        start the timer, and reading some of them stops it. Any other output must not wait that long.
        """
        outbox, limits, unwritten = self.outbox, self.limits, self.held.unwritten
        size = outbox.size + unwritten
        if size <= limits.queued_bytes:
            return False
        others = outbox.size - outbox.response_bytes
        if self.role is Role.CLIENT:
            # What a server's transport buffers are responses, or a piece of a stream; a client's buffers what it tells.
            others += unwritten
        if others > limits.queued_bytes or size > limits.peer_bytes:
            return True
        if self.timers.get(STALL_TIMER) is None:
            # Due at once, since ``now`` may be older than this call: ``is_stalled`` then starts the time itself.
            self._stalled_at = None
            self.timers.set(STALL_TIMER, self.now)
        return False

    def is_stalled(self) -> bool:
        """Return whether the peer read nothing since the last check; otherwise schedule another check."""
        unwritten = self.held.unwritten
        if self.outbox.size + unwritten <= self.limits.queued_bytes or self.life is _CLOSED:
            return False
        sent = self.sent_bytes - unwritten
        if self._stalled_at == sent:
            return True
        # The stall time begins here: the call that filled the output may have had an older time.
        self._stalled_at = sent
        self.timers.set(STALL_TIMER, self.now + STALL + unwritten / READ_RATE)
        return False

    # The end

    def step(self, what: Input) -> None:
        """Move to the next state of life. The caller has checked that a row exists."""
        self.life = LIFE_TABLE[self.life, what]

    def begin_closing(self, what: Input, grace: float | None) -> None:
        """Start no new work; end after at most ``grace`` seconds. ``None`` sets no limit."""
        self.step(what)
        if grace is not None:
            due = self.timers.get(CLOSE_TIMER)
            self.timers.set(CLOSE_TIMER, self.now + grace if due is None else min(due, self.now + grace))

    def finish(self, what: Input, reason: CloseReason, cause: BaseException | None) -> None:
        """Close now, and drop unread input and unsent output."""
        self.step(what)
        self.reason, self.cause = reason, cause
        self.outbox.clear()
        self.inbox.clear()
        self.timers.clear_all()
