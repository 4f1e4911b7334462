"""What passes a relay, read by framing alone: a line for each message, and its recording."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

import attrs

from mcpio._printable import printable
from mcpio.framing.json import dumps
from mcpio.framing.jsonrpc import (
    Batch,
    Error,
    Malformed,
    Message,
    Notification,
    Request,
    Result,
    answered_id,
    classify,
    parse,
)
from mcpio.framing.lines import LineFramer, Overlong
from mcpio.observe.relayed import RelayRecorder
from mcpio.observe.tap import Redactor

__all__ = ["MOST_BYTES", "Direction", "Traffic"]

MOST_BYTES: Final = 4 * 1024 * 1024
"""A longer message passes like any other, but is shown by its beginning only, and its recording says its size."""

MOST_PENDING: Final = 10_000
"""The most requests whose answers are awaited; older ones are forgotten, and their answers shown without a method."""

SUBJECT: Final = ("name", "uri", "protocolVersion", "taskId")
"""The parameters of which the first one there tells what a request is about."""


@attrs.frozen
class Asked:
    """A request that awaits its answer."""

    what: str
    at: float


class Traffic:
    """Shows and records what passes.

    ``show`` takes a line without its end; ``None`` shows nothing. ``clock`` gives monotonic seconds, ``wall`` Unix
    time.
    """

    def __init__(
        self,
        show: Callable[[str], object] | None,
        recorder: RelayRecorder | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._show = show
        self._recorder = recorder
        self._clock = clock
        self._wall = wall
        self._redactor = Redactor()
        self._asked: dict[tuple[Any, ...], Asked] = {}

    def message(self, from_client: bool, line: bytes | Overlong, scope: Any = None, via: int | None = None) -> None:
        """Take one message. Ids are told apart by ``scope``; ``via`` is the HTTP exchange."""
        now = self._clock()
        if self._show is not None:
            if isinstance(line, Overlong):
                said, size = self._overlong(from_client, line, scope, now), f"over {line.size_seen - 1} B"
            else:
                said, size = self._described(from_client, parse(line), scope, now), f"{len(line)} B"
            self._line("-->" if from_client else "<--", said, size)
        self._record(lambda recorder: recorder.message(from_client, line, now, via))

    def head(self, from_client: bool, said: str, head: Mapping[str, Any], via: int) -> None:
        """Take the head of an HTTP request or response; ``said`` is shown of it, unless it is empty."""
        now = self._clock()
        if said:
            self._line("-->" if from_client else "<--", said)
        self._record(lambda recorder: recorder.head(from_client, head, now, via))

    def note(self, text: str) -> None:
        """Show and record what the relay did or saw."""
        now = self._clock()
        self._line("---", text)
        self._record(lambda recorder: recorder.note(text, now))

    def _record(self, write: Callable[[RelayRecorder], None]) -> None:
        if self._recorder is None:
            return
        try:
            write(self._recorder)
        except OSError as error:
            # The conversation matters more than its recording.
            self._recorder = None
            self._line("---", f"the recording ends here: {error.strerror or error}")

    def _line(self, arrow: str, said: str, size: str = "") -> None:
        if self._show is None:
            return
        wall = self._wall()
        clock = f"{time.strftime('%H:%M:%S', time.localtime(wall))}.{int(wall % 1 * 1000):03}"
        said = printable(said).replace("\n", "\\n")
        self._show(f"{clock} {arrow} {f'{said:58} {size:>10}' if size else said}")

    def _described(self, from_client: bool, message: Message, scope: Any, now: float) -> str:
        match message:
            case Request():
                what = self._named(message.method, message.raw)
                self._asked[from_client, scope, type(message.id), message.id] = Asked(what, now)
                if len(self._asked) > MOST_PENDING:
                    del self._asked[next(iter(self._asked))]
                return f"#{_cut(dumps(message.id).decode(), 24)} {what}"
            case Notification():
                return self._named(message.method, message.raw)
            case Result():
                is_error = message.result.get("isError") is True
                return self._answer(from_client, message.id, "tool error" if is_error else "result", scope, now)
            case Error():
                return self._answer(from_client, message.id, self._fault(message), scope, now)
            case Batch():
                said = [self._described(from_client, classify(item), scope, now) for item in message.items[:5]]
                rest = len(message.items) - len(said)
                return f"batch of {len(message.items)}: {'; '.join(said)}{f'; {rest} more' if rest else ''}"
            case Malformed():
                return f"not a message: {message.reason}"

    def _answer(self, from_client: bool, id: int | str | None, outcome: str, scope: Any, now: float) -> str:
        asked = self._asked.pop((not from_client, scope, type(id), id), None)
        said = f"#{_cut(dumps(id).decode(), 24)}"
        if asked is None:
            return f"{said} {outcome}, to no request seen"
        return f"{said} {asked.what}: {outcome}, {_duration(now - asked.at)}"

    def _overlong(self, from_client: bool, line: Overlong, scope: Any, now: float) -> str:
        id = answered_id(line.head)
        if id is not None and (not from_client, scope, int, id) in self._asked:
            return self._answer(from_client, id, "an answer", scope, now)
        return f"a long message: {self._redactor.text(line.head[:40].decode(errors='replace'))}..."

    def _fault(self, error: Error) -> str:
        return f"error {error.code} {_cut(self._redactor.text(error.message), 60)}"

    def _named(self, method: str, raw: Mapping[str, Any]) -> str:
        params = raw.get("params")
        subjects = [params[name] for name in SUBJECT if name in params] if isinstance(params, Mapping) else []
        subject = next((each for each in subjects if isinstance(each, str)), "")
        return f"{_cut(method, 60)} {_cut(self._redactor.text(subject), 60)}".rstrip()


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
