"""Stores of sessions: in memory, and in a file."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mcpio.app.session_store import MemorySessionStore
from mcpio.engine.tasks import StoredTask, StorePut
from mcpio.http.sessions import SessionDelete, SessionSave, SessionSweep, StoredEvent, StoredSession
from mcpio.stores import SqliteStore


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    if request.param == "memory":
        yield MemorySessionStore()
    else:
        with SqliteStore(tmp_path / "sessions.db") as found:
            yield found


def save(key: str, record: bytes, at: float, *events: StoredEvent, forgotten: Any = ()) -> SessionSave:
    return SessionSave(1, key, record, at, events, forgotten)


ONE, TWO, THREE = StoredEvent(4, 1, b"one"), StoredEvent(4, 2, b"two"), StoredEvent(10, 1, b"three")


def test_session_and_events_loaded_in_order(store: Any) -> None:
    assert store.session("a") is None
    store.write([save("a", b"first", 1.5, THREE, ONE), save("b", b"other", 2.5, ONE)])
    assert store.session("a") == StoredSession(b"first", 1.5, [ONE, THREE])
    store.write([save("a", b"second", 3.5, TWO, TWO, forgotten=((10, 1), (9, 9)))])
    assert store.session("a") == StoredSession(b"second", 3.5, [ONE, TWO])
    assert store.session("b") == StoredSession(b"other", 2.5, [ONE])
    store.write([SessionDelete(1, "a"), SessionDelete(2, "unknown")])
    assert store.session("a") is None
    # Its events went with it.
    store.write([save("a", b"again", 4.5)])
    assert store.session("a") == StoredSession(b"again", 4.5, [])


def test_event_appended_and_deleted_in_one_batch_is_absent(store: Any) -> None:
    store.write([save("a", b"", 0.0, ONE, TWO, forgotten=((4, 1),))])
    assert store.session("a") == StoredSession(b"", 0.0, [TWO])


@pytest.mark.parametrize(("before", "most", "left"), [(None, 9, "abc"), (2.0, 9, "bc"), (None, 1, "c"), (9.0, 9, "")])
def test_sweep_keeps_sessions_in_use(store: Any, before: float | None, most: int, left: str) -> None:
    store.write([save("c", b"", 3, ONE), save("a", b"", 1), save("b", b"", 2), SessionSweep(4, before, most)])
    assert "".join(key for key in "abc" if store.session(key)) == left


def test_one_file_holds_sessions_and_tasks(tmp_path: Path) -> None:
    path = tmp_path / "both.db"
    with SqliteStore(path) as store:
        store.write([save("a", b"session", 1.0, ONE), StorePut(2, "t", b"task", b"result")])
        broken: Any = StorePut(3, "u", object(), None)  # type: ignore[arg-type]  # what no database takes
        with pytest.raises(sqlite3.Error):
            store.write([SessionDelete(4, "a"), broken])
    with SqliteStore(path) as store:
        assert store.session("a") == StoredSession(b"session", 1.0, [ONE])
        assert store.fetch("t") == StoredTask("t", b"task", b"result", 1)
        other: Any = object()
        with pytest.raises(AssertionError):
            store.write([other])
