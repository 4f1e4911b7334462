"""A store in an SQLite file, for tasks and for sessions over HTTP."""

from __future__ import annotations

import contextlib
import math
import os
import sqlite3
import threading
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Self, TypeAlias, assert_never

from mcpio.engine.tasks import Owner, StoreDelete, StoredTask, StorePut
from mcpio.http.sessions import SessionDelete, SessionSave, SessionSweep, StoredEvent, StoredSession

VERSION: Final = 1
"""The version of the tables, in the file's ``user_version``."""

TABLES: Final = {("tasks",), ("sessions",), ("events",)}

_BEGIN = f"""
CREATE TABLE tasks (
    key TEXT PRIMARY KEY, record BLOB NOT NULL, payload BLOB, owner TEXT, runs INTEGER NOT NULL,
    version INTEGER NOT NULL DEFAULT 1
) WITHOUT ROWID;
CREATE TABLE sessions (key TEXT PRIMARY KEY, record BLOB NOT NULL, at REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE events (
    session TEXT NOT NULL REFERENCES sessions (key) ON DELETE CASCADE,
    stream INTEGER NOT NULL, number INTEGER NOT NULL, data BLOB NOT NULL,
    PRIMARY KEY (session, stream, number)
) WITHOUT ROWID;
PRAGMA user_version = {VERSION};
"""
_PUT = """
INSERT INTO tasks (key, record, payload, owner, runs) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (key) DO UPDATE
SET record = excluded.record, payload = coalesce(excluded.payload, payload), runs = excluded.runs, version = version + 1
WHERE runs OR record = excluded.record
"""
_END = "UPDATE tasks SET record = ?, runs = 0, version = version + 1 WHERE key = ? AND version = ?"
_SAVE = """
INSERT INTO sessions (key, record, at) VALUES (?, ?, ?)
ON CONFLICT (key) DO UPDATE SET record = excluded.record, at = excluded.at
"""
_APPEND = "INSERT OR REPLACE INTO events (session, stream, number, data) VALUES (?, ?, ?, ?)"
_SWEEP = """
DELETE FROM sessions WHERE at < ? OR key IN (SELECT key FROM sessions ORDER BY at DESC LIMIT -1 OFFSET ?)
"""

Change: TypeAlias = StorePut | StoreDelete | SessionSave | SessionDelete | SessionSweep
"""A change to write."""


class SqliteStore:
    """Keeps tasks, sessions or both in a file, which stays consistent when the process is killed at any moment.

    A ``TaskStore`` and a ``SessionStore``, for one server each. One process at a time can open the file, and nothing
    else may be in it. Close the store after serving, or use it as a context manager. Methods may be called from any
    thread.
    """

    blocking = True
    lease: float = math.inf
    clock_offset: float = 0.0

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Open the file, or create it with mode 0600; ``":memory:"`` keeps everything in memory.

        Raises sqlite3.Error if the file cannot be opened, is not a database, or is open in another process, and
        ValueError if it belongs to another program or to another version of this one.
        """
        # A cancelled wait abandons its thread, which may still be at work when the next call arrives.
        self._lock = threading.Lock()
        _make_private(path)
        self._database = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)
        # With strict decoding, one invalid text would lose all rows of its query.
        self._database.text_factory = lambda text: text.decode(errors="replace")
        try:
            self._open(path)
        except BaseException:
            self._database.close()
            raise

    def close(self) -> None:
        """Close the file. Further calls do nothing."""
        with self._lock:
            self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def fetch(self, key: str) -> StoredTask | None:
        """Return a task, or ``None``."""
        tasks = self._tasks("SELECT key, record, payload, version FROM tasks WHERE key = ?", key)
        return tasks[0] if tasks else None

    def summary(self, key: str) -> StoredTask | None:
        """Return a task without its result, or ``None``."""
        tasks = self._tasks("SELECT key, record, NULL, version FROM tasks WHERE key = ?", key)
        return tasks[0] if tasks else None

    def owned(self, owner: Owner) -> list[StoredTask]:
        """Return the tasks of an owner, without their results."""
        return self._tasks("SELECT key, record, NULL, version FROM tasks WHERE owner IS ?", _text(owner))

    def end(self, key: str, version: int, record: bytes) -> bool:
        """Replace the record of a task and end its lease, if it still has that version; return whether it had."""
        with self._lock:
            return self._database.execute(_END, (record, key, version)).rowcount == 1

    def adopt(self, lease: float) -> list[StoredTask]:
        """Return all tasks, without their results: those that run were left by an earlier process."""
        return self._tasks("SELECT key, record, NULL, version FROM tasks")

    def renew(self, keys: Sequence[str], lease: float) -> list[str]:
        """Return the keys of tasks that do not run: leases do not expire."""
        running = {task.key for task in self._tasks("SELECT key, record, NULL, version FROM tasks WHERE runs")}
        return [key for key in keys if key not in running]

    def answer(self, key: str, answers: Mapping[str, bytes]) -> None:
        """Do nothing: what asks is in this process."""

    def subscribe(self, callback: Callable[[str | None], None]) -> Callable[[], object]:
        """Do nothing: no other process changes a task."""
        return lambda: None

    def _tasks(self, query: str, *arguments: Any) -> list[StoredTask]:
        with self._lock:
            return [StoredTask(*row) for row in self._database.execute(query, arguments)]

    def session(self, key: str) -> StoredSession | None:
        """Return the session of a key with its events, or ``None``."""
        with self._lock, self._database:
            self._database.execute("BEGIN")
            stored = self._database.execute("SELECT record, at FROM sessions WHERE key = ?", (key,)).fetchone()
            if stored is None:
                return None
            query = "SELECT stream, number, data FROM events WHERE session = ? ORDER BY stream, number"
            record, at = stored
            return StoredSession(record, at, [StoredEvent(*row) for row in self._database.execute(query, (key,))])

    def write(self, changes: Sequence[Change]) -> list[bool]:
        """Write the changes in one transaction, and return which tasks were put.

        When this returns, the changes survive the process and a power failure.
        """
        with self._lock, self._database:
            self._database.execute("BEGIN IMMEDIATE")
            return [self._make(change) for change in changes]

    def _make(self, change: Change) -> bool:
        execute = self._database.execute
        match change:
            case StorePut():
                row = (change.key, change.record, change.payload, _text(change.owner), change.lease is not None)
                return execute(_PUT, row).rowcount == 1
            case StoreDelete():
                execute("DELETE FROM tasks WHERE key = ?", (change.key,))
            case SessionSave():
                self._save(change)
            case SessionDelete():
                execute("DELETE FROM sessions WHERE key = ?", (change.key,))
            case SessionSweep():
                execute(_SWEEP, (-1e300 if change.before is None else change.before, change.most))
            case _:
                assert_never(change)
        return True

    def _save(self, change: SessionSave) -> None:
        database, key = self._database, change.key
        database.execute(_SAVE, (key, change.record, change.at))
        database.executemany(_APPEND, [(key, each.stream, each.number, each.data) for each in change.events])
        gone = [(key, *position) for position in change.forgotten]
        database.executemany("DELETE FROM events WHERE session = ? AND stream = ? AND number = ?", gone)

    def _open(self, path: object) -> None:
        database = self._database
        # Two processes would treat each other's tasks as interrupted. The system releases the lock of a killed process.
        database.execute("PRAGMA locking_mode = EXCLUSIVE")
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = FULL")
        database.execute("PRAGMA foreign_keys = ON")
        with database:
            database.execute("BEGIN IMMEDIATE")
            (version,) = database.execute("PRAGMA user_version").fetchone()
            (tables,) = database.execute("SELECT count(*) FROM sqlite_master").fetchone()
            if version == 0 and tables == 0:
                for statement in filter(str.strip, _BEGIN.split(";")):
                    database.execute(statement)
            elif version != VERSION or set(database.execute("SELECT name FROM sqlite_master")) != TABLES:
                raise ValueError(
                    f"{path} must be a file of this store, of version {VERSION} with its tables, not version {version}"
                )


def _text(owner: Owner) -> str | None:
    return None if owner is None else f"{type(owner).__name__}:{owner}"


def _make_private(path: str | os.PathLike[str]) -> None:
    """Create the file with mode 0600 if it does not exist: session ids are bearer credentials.

    SQLite gives its own files beside it the same mode.
    """
    if os.fspath(path) not in ("", ":memory:"):
        with contextlib.suppress(OSError):  # SQLite reports it with a better message
            os.close(os.open(path, os.O_CREAT | os.O_EXCL, 0o600))
