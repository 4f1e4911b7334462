"""What passes a relay, read by framing alone: a line for each message, and its recording."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Final

from mcpio._printable import printable
from mcpio.framing.json import dumps
from mcpio.framing.jsonrpc import answered_id
from mcpio.framing.lines import LineFramer, Overlong
from mcpio.inspecting.ladder import Ladder, Sender
from mcpio.observe.relayed import RelayRecorder
from mcpio.observe.tap import Redactor

MOST_BYTES: Final = 1024 * 1024
"""A longer message passes like any other, but is shown by its beginning only, and its recording says its size."""

MOST_OPEN: Final = 10_000
"""The most requests whose answers are awaited where only the log is written; answers to older ones have no method."""


def small_ladder(clock: Callable[[], float] = time.monotonic) -> Ladder:
    """Return a ladder that joins answers to requests, and keeps no texts."""
    return Ladder(clock, max_entries=MOST_OPEN, max_bytes=0, text_bytes=0)


class Traffic:
    """Shows and records what passes.

    ``show`` takes a line without its end; ``None`` shows nothing. ``ladder`` knows which request an answer is to;
    without a page to show it, see ``small_ladder``. ``wall`` gives Unix time.
    """

    def __init__(
        self,
        show: Callable[[str], object] | None,
        ladder: Ladder | None,
        recorder: RelayRecorder | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._show = show
        self._ladder = ladder
        self._recorders = [] if recorder is None else [recorder]
        self._clock = clock
        self._wall = wall
        self._redactor = Redactor()

    def record(self, begin: Callable[[], RelayRecorder]) -> None:
        """Record what passes from now on as well. A recording that cannot begin ends as one that fails later does."""
        with self._guarded("the recording"):
            self._recorders.append(begin())

    def message(self, from_client: bool, line: bytes | Overlong, scope: str = "", via: int | None = None) -> None:
        """Take one message. Ids are told apart by ``scope``; ``via`` is the HTTP exchange."""
        now = self._clock()
        if self._ladder is not None:
            with self._guarded("this display", self._end_display):
                text, size = self._add_entry(self._ladder, from_client, line, scope, via, now)
                self._line("-->" if from_client else "<--", self._redactor.message(text), size)
        self._record(lambda recorder: recorder.message(from_client, line, now, via))

    def head(self, from_client: bool, text: str, head: Mapping[str, Any], via: int) -> None:
        """Take the head of an HTTP request or response; ``text`` is the line that is shown, if any."""
        if text:
            self._note("-->" if from_client else "<--", text, "client" if from_client else "server")
        now = self._clock()
        self._record(lambda recorder: recorder.head(from_client, head, now, via))

    def note(self, text: str) -> None:
        """Show and record an event of the relay."""
        self._note("---", text, "server")
        now = self._clock()
        self._record(lambda recorder: recorder.note(text, now))

    def forget(self, scope: str) -> None:
        """Wait for no more answers in a scope."""
        if self._ladder is not None:
            self._ladder.forget_open(scope)

    def _note(self, arrow: str, text: str, sender: Sender) -> None:
        if self._ladder is not None:
            with self._guarded("this display", self._end_display):
                message = self._redactor.message(text)
                self._line(arrow, message)
                self._ladder.note(message, self._clock(), sender=sender)

    def _record(self, add: Callable[[RelayRecorder], object]) -> None:
        for recorder in tuple(self._recorders):
            with self._guarded("the recording", partial(self._recorders.remove, recorder)):
                add(recorder)

    def _end_display(self) -> None:
        self._ladder = None

    @contextmanager
    def _guarded(self, name: str, end: Callable[[], object] = int) -> Iterator[None]:
        """Call ``end`` for a part that fails, such as a recording on a full disk: the conversation goes on."""
        try:
            yield
        except Exception as error:  # a fault of the relay must not end what passes it either
            end()
            with suppress(Exception):  # where the line itself cannot be shown
                reason = error.strerror if isinstance(error, OSError) else repr(error)
                self._line("---", f"{name} ends here: {reason}")

    def _add_entry(
        self, ladder: Ladder, from_client: bool, line: bytes | Overlong, scope: str, via: int | None, now: float
    ) -> tuple[str, str]:
        """Add a message to the ladder, and return it in words, with its size."""
        sender: Sender = "client" if from_client else "server"
        if not isinstance(line, Overlong):
            entry = ladder.message(sender, line, now, via=via, scope=scope)
            return _describe(entry), f"{entry['bytes']} B"
        size = f"over {line.size_seen - 1} B"
        id = answered_id(line.head)
        if id is None:
            text = f"a long message: {line.head[:60].decode(errors='replace')}..."
            ladder.note(text, now, sender=sender, kind="long")
            return text, size
        # What stands for an answer ends the wait for it.
        answer = dumps({"jsonrpc": "2.0", "id": id, "result": {"relay": f"{size}, not kept"}})
        entry = ladder.message(sender, answer, now, via=via, scope=scope)
        entry["bytes"] = line.size_seen
        return _describe(entry), size

    def _line(self, arrow: str, text: str, size: str = "") -> None:
        if self._show is None:
            return
        wall = self._wall()
        clock = f"{time.strftime('%H:%M:%S', time.localtime(wall))}.{int(wall % 1 * 1000):03}"
        text = printable(text).replace("\n", "\\n")
        self._show(f"{clock} {arrow} {f'{text:58} {size:>10}' if size else text}")


def _describe(entry: Mapping[str, Any]) -> str:
    """Return an entry of the ladder on one line."""
    id = f"#{_cut(dumps(entry['id']).decode(), 24)} " if "id" in entry else ""
    what = f"{id}{_cut(entry.get('method', ''), 60)} {_cut(entry.get('name', ''), 60)}".rstrip()
    match entry["kind"]:
        case "request" | "notification":
            return what
        case "result" | "error" as kind:
            outcome = f"error {_cut(entry['head'], 80)}" if kind == "error" else "result"
            if kind == "result" and entry.get("failed"):
                outcome = "tool error"
            took = f", {_duration(entry['took'])}" if "took" in entry else ", to no request seen"
            return f"{what}: {outcome}{took}"
        case "batch":
            return f"batch of {entry['head']}"
        case _:
            return f"not a message: {_cut(entry['head'], 80)}"


class Direction:
    """The lines of one direction: cut where they end, however the bytes come."""

    def __init__(self, traffic: Traffic, *, from_client: bool) -> None:
        self._traffic = traffic
        self._from_client = from_client
        self._lines = LineFramer(MOST_BYTES, resync=True)

    def passed(self, data: bytes) -> None:
        """Take bytes that were passed on."""
        self._lines.receive(data)
        self._take()

    def ended(self) -> None:
        """Take the end of the direction."""
        self._lines.receive_eof()
        self._take()
        self._traffic.note(f"end of {'input' if self._from_client else 'output'}")

    def _take(self) -> None:
        while (line := self._lines.next_line()) is not None:
            self._traffic.message(self._from_client, line)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 3]}..."


def _duration(seconds: float) -> str:
    return f"{seconds * 1000:.1f} ms" if seconds < 1 else f"{seconds:.2f} s"
