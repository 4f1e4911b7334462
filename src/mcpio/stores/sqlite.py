"""Tasks in an SQLite file."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Sequence
from types import TracebackType
from typing import Final, Self

from mcpio.engine.task_records import StoreDelete, StorePut

__all__ = ["SqliteTaskStore"]

VERSION: Final = 1
"""The version of the table, in the file's ``user_version``."""

_BEGIN = f"""
CREATE TABLE tasks (key TEXT PRIMARY KEY, record BLOB NOT NULL, payload BLOB) WITHOUT ROWID;
PRAGMA user_version = {VERSION};
"""
_PUT = """
INSERT INTO tasks (key, record, payload) VALUES (?, ?, ?)
ON CONFLICT (key) DO UPDATE SET record = excluded.record, payload = coalesce(excluded.payload, payload)
"""


class SqliteTaskStore:
    """Keeps tasks in a file, which is whole again after the process was killed at any moment.

    The file belongs to this store alone, and to one process at a time. Close it when serving is over, or use it as a
    context manager. Its methods may be called from any thread.
    """

    blocking = True

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Open the file, and make it where there is none; ``":memory:"`` is none.

        ``sqlite3.Error`` for a file that cannot be opened, that is no database, or that another process has open, and
        ``ValueError`` for the file of another program, or of another version of this one.
        """
        # A thread that nobody waits for any more may still be at work when the next call comes.
        self._lock = threading.Lock()
        self._database = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)
        try:
            self._open(path)
        except BaseException:
            self._database.close()
            raise

    def close(self) -> None:
        """Close the file. A second time does nothing."""
        with self._lock:
            self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def records(self) -> list[tuple[str, bytes]]:
        """Return all records, as (key, record)."""
        with self._lock:
            return self._database.execute("SELECT key, record FROM tasks").fetchall()

    def payload(self, key: str) -> bytes | None:
        """Return the payload under a key, ``None`` where there is none."""
        with self._lock:
            row = self._database.execute("SELECT payload FROM tasks WHERE key = ?", (key,)).fetchone()
        found: bytes | None = None if row is None else row[0]
        return found

    def write(self, changes: Sequence[StorePut | StoreDelete]) -> None:
        """Make the changes in one transaction. What is back from here survives the process, and a power cut."""
        with self._lock, self._database:
            self._database.execute("BEGIN IMMEDIATE")
            for change in changes:
                if isinstance(change, StoreDelete):
                    self._database.execute("DELETE FROM tasks WHERE key = ?", (change.key,))
                else:
                    self._database.execute(_PUT, (change.key, change.record, change.payload))

    def _open(self, path: object) -> None:
        database = self._database
        # Two processes would take each other's tasks for cut off. The system lifts the lock of one that is killed.
        database.execute("PRAGMA locking_mode = EXCLUSIVE")
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = FULL")
        with database:
            database.execute("BEGIN IMMEDIATE")
            (version,) = database.execute("PRAGMA user_version").fetchone()
            (tables,) = database.execute("SELECT count(*) FROM sqlite_master").fetchone()
            if version == 0 and tables == 0:
                for statement in filter(str.strip, _BEGIN.split(";")):
                    database.execute(statement)
            elif version != VERSION or database.execute("SELECT name FROM sqlite_master").fetchall() != [("tasks",)]:
                raise ValueError(f"{path} is no file of tasks, or one of another version: expected version {VERSION}")
