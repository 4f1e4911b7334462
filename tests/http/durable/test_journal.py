from __future__ import annotations

import json
from typing import Any

import pytest

from mcpio.engine.limits import Limits
from mcpio.engine.server import ServerConnection
from mcpio.errors import LocalProtocolError
from mcpio.http.durable import Journal
from mcpio.http.sessions import EVENT_COST, HttpSession, StoredEvent, Stream
from mcpio.types.features import Implementation

SAVED = {"engine": {"phase": "OPERATING", "next_incoming": 1, "answered": []}, "state": 1}


class Ledger:
    """A journal, its session, and a stream in it."""

    def __init__(self, **limits: Any) -> None:
        self.changes = 0
        self.session = HttpSession(1, ServerConnection(Implementation("s", "1")), "ann", 0.0)
        self.journal = Journal(self.session, self._change, Limits(**limits), is_new=True)
        self.stream = Stream(4, None, self.session)
        self.session.streams[4] = self.stream

    def _change(self) -> None:
        self.changes += 1

    def write(self, saved: Any = SAVED, moment: float = 0.0) -> Any:
        return self.journal.write(self.session, saved, moment, 100.0)

    def taken(self) -> list[int]:
        found = []
        while (event := self.journal.take(self.stream)) is not None:
            found.append(event.number)
        return found


def test_event_is_released_when_stored() -> None:
    ledger = Ledger()
    journal, stream = ledger.journal, ledger.stream
    journal.put(stream, b"one")
    assert (ledger.changes, stream.next_number, journal.first(stream), journal.has_more) == (1, 2, None, True)
    record, events, forgotten = ledger.write()
    assert json.loads(record)["streams"] == [[4, 2, 0]]
    assert json.loads(record)["owner"] == "ann"
    assert (events, forgotten) == ((StoredEvent(4, 1, b"one"),), ())
    journal.put(stream, b"two")
    assert (journal.is_writing, journal.is_new, ledger.taken()) == (True, True, [])
    journal.written()
    assert (journal.is_writing, journal.is_new, journal.has_more) == (False, False, True)
    assert ledger.taken() == [1]
    _, events, _ = ledger.write()
    assert events == (StoredEvent(4, 2, b"two"),)
    journal.written()
    assert (ledger.taken(), journal.lane(stream).sent, journal.has_more) == ([2], 2, False)
    journal.written()  # of nothing


def test_failed_write_is_repeated() -> None:
    ledger = Ledger()
    ledger.journal.put(ledger.stream, b"one")
    ledger.journal.forget(3, 1)
    first = ledger.write()
    ledger.journal.failed()
    assert (ledger.journal.is_failing, ledger.taken()) == (True, [])
    assert ledger.write() == first
    ledger.journal.written()
    assert (ledger.journal.is_failing, ledger.taken()) == (False, [1])
    # What was to be forgotten is, and there is nothing more to say.
    assert ledger.write() is None


def test_unchanged_record_is_rewritten_only_to_refresh_it() -> None:
    ledger = Ledger()
    assert ledger.write() is not None
    ledger.journal.written()
    mark = ledger.journal.mark()
    counted = {**SAVED, "engine": {"phase": "OPERATING", "next_incoming": 9, "answered": [1, 2]}}
    assert ledger.write(counted, 99.0) is None
    assert ledger.journal.stored == mark
    assert ledger.write(counted, 100.0) is not None
    ledger.journal.written()
    assert ledger.write({**SAVED, "state": 2}, 100.0) is not None
    ledger.journal.written()
    ledger.stream.next_number += 1
    assert ledger.write({**SAVED, "state": 2}, 100.0) is not None
    ledger.journal.written()
    assert ledger.write({"no": "engine"}, 100.0) is not None
    with pytest.raises(LocalProtocolError):
        ledger.write({"no": object()}, 100.0)


def test_dropped_events_are_dropped_from_the_store() -> None:
    ledger = Ledger()
    journal, stream = ledger.journal, ledger.stream
    journal.forget(4, 1)
    journal.put(stream, b"y")
    journal.drop(stream)
    journal.drop(Stream(9, None, ledger.session))
    assert (journal.first(stream), journal.has_room, ledger.session.unwritten) == (None, True, 0)
    _, events, forgotten = ledger.write()
    assert (len(events), forgotten) == (1, ((4, 1),))


@pytest.mark.parametrize(("limits", "count"), [({"replay_events": 3}, 3), ({"replay_bytes": 3 * EVENT_COST}, 3)])
def test_journal_counts_events_until_taken(limits: dict[str, int], count: int) -> None:
    ledger = Ledger(**limits)
    for number in range(count):
        assert ledger.journal.has_room, number
        ledger.journal.put(ledger.stream, b"x")
    assert not ledger.journal.has_room
    ledger.journal.reach()
    ledger.journal.take(ledger.stream)
    assert ledger.journal.has_room


def test_events_of_closed_session_need_no_store() -> None:
    ledger = Ledger()
    ledger.journal.put(ledger.stream, b"one")
    ledger.journal.put_again(ledger.stream, StoredEvent(4, 2, b"two"))
    ledger.journal.let_events_go()
    assert ledger.taken() == [1, 2]
