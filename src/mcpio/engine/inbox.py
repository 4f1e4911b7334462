"""Input that was fed and not yet parsed, of byte channels and of message channels."""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Hashable
from typing import Any, Final, NamedTuple, TypeAlias

from mcpio.engine.ledger import MESSAGE_COST
from mcpio.engine.limits import Limits
from mcpio.framing import jsonrpc
from mcpio.framing.lines import LineFramer, Overlong

__all__ = ["KEEP", "QUOTE", "Inbox", "Keep", "head"]

QUOTE = 200
"""How many characters of an unreadable text an event quotes."""


class Keep(enum.Enum):
    """The type of ``KEEP``."""

    KEEP = "keep"


KEEP: Final = Keep.KEEP
"""The principal of a message that came without one: that of its connection."""


Received: TypeAlias = "tuple[bytes | str | Overlong, Hashable, Hashable, jsonrpc.Message | None]"
"""A text, its ``via``, its principal, and its parsed form, if the transport has parsed it."""


class Deferred(NamedTuple):
    """A request, or a batch, that waits for room."""

    id: int | str | None
    """The peer's id of it; ``None`` for a batch."""
    text: bytes | str
    """The whole message."""
    via: Hashable
    """The exchange that brought it."""
    principal: Hashable
    """The sender's principal, or ``KEEP``."""


class Inbox:
    """One JSON text at a time, in the order of arrival."""

    __slots__ = ("_deferred", "_deferred_by", "_framer", "_limits", "_messages", "deferred_bytes", "ended")

    deferred_bytes: int
    """Bytes of the deferred requests; 0 without any."""

    ended: bool
    """The peer will send no more."""

    def __init__(self, limits: Limits) -> None:
        # Made with the first bytes: channels with message boundaries, as HTTP, need none.
        self._framer: LineFramer | None = None
        self._limits = limits
        self._messages: deque[Received] | None = None
        self._deferred: deque[Deferred] | None = None
        # How many by each exchange: whether one has any is asked for each stream of a session.
        self._deferred_by: dict[Hashable, int] | None = None
        self.deferred_bytes = 0
        self.ended = False

    def add_data(self, data: bytes) -> None:
        """Store bytes of a line-framed channel."""
        if self._framer is None:
            self._framer = self._new_framer()
        self._framer.receive(data)

    def add_message(
        self, text: bytes | str, via: Hashable, principal: Hashable, parsed: jsonrpc.Message | None = None
    ) -> None:
        """Store one whole text of a channel that has message boundaries."""
        if self._messages is None:
            self._messages = deque()
        size = len(text) if isinstance(text, bytes) or text.isascii() else len(text.encode(errors="replace"))
        if size > self._limits.message_bytes:
            head = text[:200] if isinstance(text, bytes) else text[:200].encode(errors="replace")
            self._messages.append((Overlong(size, head), via, principal, None))
        else:
            self._messages.append((text, via, principal, parsed))

    def end(self) -> None:
        """Note the end of the input. A last line without its line end counts."""
        self.ended = True
        if self._framer is not None:
            self._framer.receive_eof()

    def next(self) -> Received | None:
        """Remove and return the next text with its ``via`` and its principal, or ``None``."""
        if self._messages is not None:
            item = self._messages.popleft()
            if not self._messages:
                self._messages = None
            return item
        line = None if self._framer is None else self._framer.next_line()
        return None if line is None else (line, None, KEEP, None)

    # Requests that wait for room

    def defer(self, id: int | str | None, text: bytes | str, via: Hashable, principal: Hashable) -> None:
        """Defer a request, or a batch (which has no id), until memory for its work is free."""
        if self._deferred is None or self._deferred_by is None:
            self._deferred, self._deferred_by = deque(), {}
        self._deferred.append(Deferred(id, text, via, principal))
        self._deferred_by[via] = self._deferred_by.get(via, 0) + 1
        self.deferred_bytes += len(text) + MESSAGE_COST

    def next_deferred(self) -> Deferred:
        """Remove and return the request that was deferred first. At least one must be deferred."""
        return self._take_deferred(0)

    def drop_deferred(self, id: int | str, via: Hashable) -> bool:
        """Drop the deferred request that a cancellation names, in its exchange or any; return whether one did."""
        # 1, True and "1" are three ids.
        named = [
            (place, each.via)
            for place, each in enumerate(self._deferred or ())
            if each.id == id and each.id.__class__ is id.__class__
        ]
        found = [place for place, its_via in named if its_via == via] or [place for place, _ in named]
        if len(found) != 1:
            return False
        self._take_deferred(found[0])
        return True

    def is_deferred(self, via: Hashable) -> bool:
        """Whether a request of that exchange was put aside."""
        return self._deferred_by is not None and via in self._deferred_by

    def _take_deferred(self, place: int) -> Deferred:
        deferred: Any = self._deferred
        counts: Any = self._deferred_by
        found: Deferred = deferred[place]
        del deferred[place]
        self.deferred_bytes -= len(found.text) + MESSAGE_COST
        counts[found.via] -= 1
        if not counts[found.via]:
            del counts[found.via]
        if not deferred:
            self._deferred = self._deferred_by = None
        return found

    @property
    def size(self) -> int:
        """Bytes held: unparsed input, and deferred requests."""
        messages = self._messages
        texts = 0 if messages is None else sum(len(text) for text, *_ in messages if not isinstance(text, Overlong))
        return texts + self.deferred_bytes + (0 if self._framer is None else self._framer.buffered)

    # The end

    def clear(self) -> None:
        """Drop everything: the connection has ended."""
        self._messages = self._framer = self._deferred = self._deferred_by = None
        self.deferred_bytes = 0

    def restart(self) -> None:
        """Drop everything and begin with another channel."""
        self.clear()
        self.ended = False

    def load(self, unfinished: bytes, *, skipping: bool) -> None:
        """Start in the middle of a line, after ``unfinished``; ``skipping`` means that the line is too long."""
        if unfinished or skipping:
            self._framer = self._new_framer(skipping=skipping)
            self._framer.receive(unfinished)

    @property
    def unfinished(self) -> bytes:
        """The bytes of the line that has not ended yet."""
        return b"" if self._framer is None else self._framer.unfinished

    @property
    def skipping(self) -> bool:
        """Whether the unfinished line is too long, so that its bytes are dropped."""
        return self._framer is not None and self._framer.skipping

    @property
    def is_cut(self) -> bool:
        """Whether the text that was taken out last stood at the end of the input, and may not be whole."""
        return self._framer is not None and self._framer.is_cut

    @property
    def pending(self) -> bool:
        """Whether whole messages wait to be parsed; they may turn out to be blank lines."""
        return self._messages is not None or (self._framer is not None and self._framer.pending)

    def _new_framer(self, *, skipping: bool = False) -> LineFramer:
        return LineFramer(self._limits.message_bytes, resync=self._limits.resync, skipping=skipping)


def head(text: bytes | str) -> str:
    """Return the beginning of a text, for events to quote."""
    return (text[: 4 * QUOTE].decode(errors="replace") if isinstance(text, bytes) else text)[:QUOTE]
