"""What was fed and not yet parsed, for byte channels and message channels alike."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable

from mcpio.engine.limits import Limits
from mcpio.framing.lines import LineFramer, Overlong

__all__ = ["QUOTE", "Inbox", "head"]

QUOTE = 200
"""How much of an unreadable text an event quotes."""


class Inbox:
    """One JSON text at a time, in the order of arrival."""

    __slots__ = ("_framer", "_limits", "_messages", "ended")

    ended: bool
    """The peer will send no more."""

    def __init__(self, limits: Limits) -> None:
        # There is none while only whole messages come, as on HTTP.
        self._framer: LineFramer | None = None
        self._limits = limits
        self._messages: deque[tuple[bytes | str | Overlong, Hashable]] | None = None
        self.ended = False

    def add_data(self, data: bytes) -> None:
        """Store bytes of a line-framed channel."""
        if self._framer is None:
            self._framer = self._new_framer()
        self._framer.receive(data)

    def add_message(self, text: bytes | str, via: Hashable) -> None:
        """Store one whole text of a channel that has message boundaries."""
        if self._messages is None:
            self._messages = deque()
        size = len(text) if isinstance(text, bytes) or text.isascii() else len(text.encode(errors="replace"))
        if size > self._limits.message_bytes:
            head = text[:200] if isinstance(text, bytes) else text[:200].encode(errors="replace")
            self._messages.append((Overlong(size, head), via))
        else:
            self._messages.append((text, via))

    def end(self) -> None:
        """Note the end of the input. A last line without its line end counts."""
        self.ended = True
        if self._framer is not None:
            self._framer.receive_eof()

    def next(self) -> tuple[bytes | str | Overlong, Hashable] | None:
        """Take out the next text with its ``via``, or ``None``."""
        if self._messages is not None:
            item = self._messages.popleft()
            if not self._messages:
                self._messages = None
            return item
        line = None if self._framer is None else self._framer.next_line()
        return None if line is None else (line, None)

    def clear(self) -> None:
        """Drop what was not parsed: nobody will."""
        self._messages = self._framer = None

    def restart(self) -> None:
        """Begin with another channel: nothing of what came by the last one is left."""
        self._messages, self._framer, self.ended = None, None, False

    def load(self, unfinished: bytes, *, skipping: bool) -> None:
        """Begin in the middle of a line, where ``unfinished`` was left; ``skipping`` says that it is too long."""
        if unfinished or skipping:
            self._framer = self._new_framer(skipping=skipping)
            self._framer.receive(unfinished)

    @property
    def unfinished(self) -> bytes:
        """The bytes of the line that has not ended yet."""
        return b"" if self._framer is None else self._framer.unfinished

    @property
    def skipping(self) -> bool:
        """Whether the line that has not ended yet is too long, and its bytes are thrown away."""
        return self._framer is not None and self._framer.skipping

    @property
    def pending(self) -> bool:
        """Whether whole messages wait to be parsed; they may turn out to be blank lines."""
        return self._messages is not None or (self._framer is not None and self._framer.pending)

    def _new_framer(self, *, skipping: bool = False) -> LineFramer:
        return LineFramer(self._limits.message_bytes, resync=self._limits.resync, skipping=skipping)


def head(text: bytes | str) -> str:
    """Return the beginning of a text, for events to quote."""
    return (text[: 4 * QUOTE].decode(errors="replace") if isinstance(text, bytes) else text)[:QUOTE]
