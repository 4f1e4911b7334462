from __future__ import annotations

import math
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
from mcpio.engine.tasks import RETRY, StoreDelete, StoredTask, StorePut
from mcpio.stores import SqliteStore


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    if request.param == "memory":
        yield MemoryTaskStore()
    else:
        with SqliteStore(tmp_path / "tasks.db") as found:
            yield found


def put(key: str, record: bytes, payload: bytes | None = None, lease: float | None = math.inf, **more: Any) -> StorePut:
    return StorePut(0, key, record, payload, lease=lease, **more)


def records(store: Any) -> dict[str, bytes]:
    return {task.key: task.record for task in store.adopt(math.inf)}


def test_task_is_read_as_it_was_written_last(store: Any) -> None:
    assert (records(store), store.fetch("a")) == ({}, None)
    assert list(store.write([put("a", b"one"), put("b", b"two", b"result")])) == [True, True]
    assert records(store) == {"a": b"one", "b": b"two"}
    assert store.fetch("b") == StoredTask("b", b"two", b"result", 1)
    # A record without a payload leaves the one that is there.
    store.write([put("b", b"three"), StoreDelete(4, "a"), StoreDelete(5, "unknown")])
    assert (records(store), store.fetch("b")) == ({"b": b"three"}, StoredTask("b", b"three", b"result", 2))
    store.write([put("b", b"four", b"other"), StoreDelete(7, "b")])
    assert (records(store), store.fetch("b")) == ({}, None)


def test_task_that_has_ended_changes_no_more(store: Any) -> None:
    over = put("a", b"over", b"result", lease=None)
    assert list(store.write([put("a", b"one"), over, put("a", b"late"), over])) == [True, True, False, True]
    assert store.fetch("a").record == b"over"
    store.write([put("b", b"one")])
    assert not store.end("b", 2, b"wrong")
    assert not store.end("unknown", 1, b"wrong")
    assert store.end("b", 1, b"ended")
    assert store.fetch("b") == StoredTask("b", b"ended", None, 2)
    assert list(store.write([put("b", b"late")])) == [False]
    store.write([put("c", b"one")])
    assert list(store.renew(["a", "b", "c", "d"], math.inf)) == ["a", "b", "d"]


def test_summary_of_a_task_is_without_its_result(tmp_path: Path) -> None:
    with SqliteStore(tmp_path / "tasks.db") as store:
        assert store.summary("a") is None
        store.write([put("a", b"over", b"result", lease=None)])
        assert store.summary("a") == StoredTask("a", b"over", None, 1)


def test_owner_finds_own_tasks(store: Any) -> None:
    store.write([put(key, b"x", owner=owner) for key, owner in (("a", "7"), ("b", 7), ("c", None), ("d", "7"))])
    found = {owner: sorted(task.key for task in store.owned(owner)) for owner in ("7", 7, None, "ada")}
    assert found == {"7": ["a", "d"], 7: ["b"], None: ["c"], "ada": []}


def test_store_of_one_process_keeps_no_answers_and_tells_of_no_changes(store: Any) -> None:
    told: list[Any] = []
    end = store.subscribe(told.append)
    store.write([put("a", b"one")])
    store.answer("a", {"q": b"1"})
    end()
    assert (told, dict(store.fetch("a").answers)) == ([], {})


def test_file_loaded_by_a_new_store(tmp_path: Path) -> None:
    path = tmp_path / "tasks.db"
    with SqliteStore(path) as store:
        store.write([put("a", b"one", b"result")])
    with SqliteStore(str(path)) as store:
        assert store.fetch("a") == StoredTask("a", b"one", b"result", 1)
    store.close()
    with pytest.raises(sqlite3.ProgrammingError):
        store.fetch("a")


@pytest.mark.skipif(os.name != "posix", reason="modes are of POSIX")
def test_file_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    with SqliteStore(tmp_path / "tasks.db") as store:
        store.write([put("a", b"one", b"result")])
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
        wrong: Any = put("b", object())  # type: ignore[arg-type]  # what no database takes
        with pytest.raises(sqlite3.Error):
            store.write([put("a", b"one"), wrong])
        assert records(store) == {}
        store.write([put("a", b"one")])
        assert records(store) == {"a": b"one"}


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
        with pytest.raises(ValueError, match="must be a file of this store, of version 1"):
            SqliteStore(tmp_path / name)
    with pytest.raises(sqlite3.OperationalError):
        SqliteStore(tmp_path / "no" / "such" / "folder")


def test_calls_from_any_thread_accepted(tmp_path: Path) -> None:
    with SqliteStore(tmp_path / "tasks.db") as store:
        changes = [[put(f"{n}-{m}", b"x") for m in range(20)] for n in range(4)]
        threads = [threading.Thread(target=store.write, args=(each,)) for each in changes]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(records(store)) == 80


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
        assert [b"completed" in record for record in records(store).values()] == [False, False]
        assert mine.link.reports.count("tasks cannot be stored") == 1
        store._database.execute("PRAGMA max_page_count = 1000000")
        mine.link.advance(RETRY)
        mine.wire.look()
        assert mine.wire.status(ended) == "completed"
        assert mine.wire.answer_to(waiting) is not None
        assert mine.wire.status(cancelled) == "cancelled"
        assert answer.get("status", "cancelled") == "cancelled"
