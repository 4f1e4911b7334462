from __future__ import annotations

import os
import sqlite3
import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tasked import Mine

from mcpio.app.tasks.store import MemoryTaskStore
from mcpio.engine.tasks import RETRY, StoreDelete, StorePut
from mcpio.stores import SqliteStore


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    if request.param == "memory":
        yield MemoryTaskStore()
    else:
        with SqliteStore(tmp_path / "tasks.db") as found:
            yield found


def test_records_and_payloads_loaded_by_key(store: Any) -> None:
    assert (list(store.records()), store.payload("a")) == ([], None)
    store.write([StorePut(1, "a", b"one", None), StorePut(2, "b", b"two", b"result")])
    assert sorted(store.records()) == [("a", b"one"), ("b", b"two")]
    assert (store.payload("a"), store.payload("b")) == (None, b"result")
    # A record without a payload leaves the one that is there.
    store.write([StorePut(3, "b", b"three", None), StoreDelete(4, "a"), StoreDelete(5, "unknown")])
    assert (list(store.records()), store.payload("b")) == ([("b", b"three")], b"result")
    store.write([StorePut(6, "b", b"four", b"other"), StoreDelete(7, "b")])
    assert (list(store.records()), store.payload("b")) == ([], None)


def test_file_loaded_by_a_new_store(tmp_path: Path) -> None:
    path = tmp_path / "tasks.db"
    with SqliteStore(path) as store:
        store.write([StorePut(1, "a", b"one", b"result")])
    with SqliteStore(str(path)) as store:
        assert (store.records(), store.payload("a")) == ([("a", b"one")], b"result")
    store.close()
    with pytest.raises(sqlite3.ProgrammingError):
        store.records()


@pytest.mark.skipif(os.name != "posix", reason="modes are of POSIX")
def test_file_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    with SqliteStore(tmp_path / "tasks.db") as store:
        store.write([StorePut(1, "a", b"one", b"result")])
        assert {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()} == {
            "tasks.db": 0o600,
            "tasks.db-wal": 0o600,
        }
    (tmp_path / "tasks.db").chmod(0o640)
    SqliteStore(tmp_path / "tasks.db").close()
    assert stat.S_IMODE((tmp_path / "tasks.db").stat().st_mode) == 0o640  # whoever shares it has a reason


@pytest.mark.parametrize("path", ["", ":memory:"])
def test_missing_directory_creates_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    monkeypatch.chdir(tmp_path)
    SqliteStore(path).close()
    assert list(tmp_path.iterdir()) == []


def test_changes_are_atomic(tmp_path: Path) -> None:
    with SqliteStore(tmp_path / "tasks.db") as store:
        wrong: Any = StorePut(2, "b", object(), None)  # type: ignore[arg-type]  # what no database takes
        with pytest.raises(sqlite3.Error):
            store.write([StorePut(1, "a", b"one", None), wrong])
        assert store.records() == []
        store.write([StorePut(1, "a", b"one", None)])
        assert store.records() == [("a", b"one")]


def test_second_process_is_locked_out(tmp_path: Path) -> None:
    with SqliteStore(tmp_path / "tasks.db"), pytest.raises(sqlite3.OperationalError, match="locked"):
        SqliteStore(tmp_path / "tasks.db")


def test_foreign_file_rejected(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no database " * 100)
    with pytest.raises(sqlite3.DatabaseError):
        SqliteStore(tmp_path / "text")
    for name, script in (("other", "CREATE TABLE x (y)"), ("newer", "PRAGMA user_version = 2")):
        database = sqlite3.connect(tmp_path / name)
        database.executescript(script)
        database.close()
        with pytest.raises(ValueError, match="expected version 1"):
            SqliteStore(tmp_path / name)
    with pytest.raises(sqlite3.OperationalError):
        SqliteStore(tmp_path / "no" / "such" / "folder")


def test_calls_from_any_thread_accepted(tmp_path: Path) -> None:
    with SqliteStore(tmp_path / "tasks.db") as store:
        changes = [[StorePut(0, f"{n}-{m}", b"x", None) for m in range(20)] for n in range(4)]
        threads = [threading.Thread(target=store.write, args=(each,)) for each in changes]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(store.records()) == 80


def test_task_that_ends_while_the_disk_is_full_is_completed_when_there_is_room(tmp_path: Path) -> None:
    with SqliteStore(tmp_path / "tasks.db") as store:
        mine = Mine(store=store)
        ended, cancelled = mine.wire.begin(), mine.wire.begin()
        waiting = mine.wire.send("tasks/result", taskId=ended)
        (pages,) = store._database.execute("PRAGMA page_count").fetchone()
        store._database.execute(f"PRAGMA max_page_count = {pages}")
        mine.dug("gold " * 10_000)
        answer = mine.wire.ask("tasks/cancel", taskId=cancelled)
        mine.link.advance(RETRY)
        assert mine.wire.answer_to(waiting) is None
        assert mine.wire.status(ended) == "working"
        assert [b"completed" in record for _, record in store.records()] == [False, False]
        assert mine.link.reports.count("tasks cannot be stored") == 1
        store._database.execute("PRAGMA max_page_count = 1000000")
        mine.link.advance(RETRY)
        mine.wire.look()
        assert mine.wire.status(ended) == "completed"
        assert mine.wire.answer_to(waiting) is not None
        assert mine.wire.status(cancelled) == "cancelled"
        assert answer.get("status", "cancelled") == "cancelled"
