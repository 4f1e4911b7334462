"""Rows of a file with the wrong types in them: each costs its own session or task, and is reported."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import pytest
from httpwire import MemoryWire, RawClient
from linked import Link
from tasked import Host, Wire

from mcpio import Context, Server
from mcpio.app.session_store import MemorySessionStore
from mcpio.app.tasks.receiver import TaskOptions
from mcpio.http.model import HttpOptions
from mcpio.http.sessions import StoredEvent, StoredSession
from mcpio.stores import SqliteStore

PARTS: list[Any] = [None, True, -1, 5, 2.5, 1e300, 10**30, "", "text", "9" * 30, [], [5], [[5]], {}, {"a": 5}]
"""What a part of a record may be by mistake."""


def done(coroutine: Any) -> Any:
    """Run what waits for nothing."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("it waits")


def streaming() -> Server:
    server = Server("s")

    @server.tool
    async def work(ctx: Context) -> None:
        ctx.progress(1)
        ctx.info("one")
        await ctx.sleep(1000)

    return server


def client_of(store: Any, session: str | None = None) -> RawClient:
    """Serve a store, to a client that names a session or begins one."""
    client = RawClient(MemoryWire(streaming(), HttpOptions(), store=store))
    if session is not None:
        client.headers |= {"mcp-session-id": session, "mcp-protocol-version": "2025-11-25"}
    return client


def fill(store: Any) -> str:
    """Put two sessions into a store, each with an open stream and events of it; return the id of the first."""
    client = client_of(store)
    for _ in range(2):
        client.headers.clear()
        done(client.initialize())
        done(client.call("work", progress="p"))
        done(client.call("work", 2, progress="q"))
        done(client.wire.pass_time(1))
    return client.headers["mcp-session-id"]


def visited(store: Any, session: str) -> tuple[int, str]:
    """Have a client come back to a session; return the status of its request, and what was reported of it."""
    client = client_of(store, session)
    status = done(client.post({"jsonrpc": "2.0", "id": 9, "method": "ping"})).status
    done(client.listen())
    for id in ("3-1", "4-0", "4-1"):
        done(client.listen(last_event_id=id))
    done(client.wire.pass_time(1))
    wire: Any = client.wire
    reports = {report.partition(" again: ")[0] for report in wire.reports}
    # Whatever became of it, others are served.
    other = RawClient(client.wire)
    assert done(other.initialize()).status == 200
    assert len(reports) <= 1
    return status, "".join(reports)


def test_intact_session_loaded() -> None:
    store = MemorySessionStore()
    assert visited(store, fill(store)) == (200, "")


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("sessions.record", "text"),
        ("sessions.record", 5),
        ("sessions.at", "text"),
        ("events.stream", "text"),
        ("events.number", b""),
        ("events.data", 2.5),
        ("events.data", sqlite3.Binary(b"bytes")),
    ],
)
def test_mistyped_column_loses_one_session(tmp_path: Path, column: str, value: Any) -> None:
    table, name = column.split(".")
    path = tmp_path / "sessions.db"
    with SqliteStore(path) as store:
        session = fill(store)
    key = "key" if table == "sessions" else "session"
    with contextlib.closing(sqlite3.connect(path)) as database, database:
        database.execute(f"UPDATE OR IGNORE {table} SET {name} = ? WHERE {key} = ?", (value, session))
    with SqliteStore(path) as store:
        expected = (200, "") if isinstance(value, memoryview) else (404, "a stored session cannot be read")
        assert visited(store, session) == expected


def test_invalid_utf_8_loses_one_session(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    with SqliteStore(path) as store:
        session = fill(store)
    with contextlib.closing(sqlite3.connect(path)) as database, database:
        database.execute("UPDATE sessions SET record = CAST(x'fffe' AS TEXT) WHERE key = ?", (session,))
    with SqliteStore(path) as store:
        assert visited(store, session) == (404, "a stored session cannot be read")


class Odd(MemorySessionStore):
    """A store that answers as it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.answer: Callable[[StoredSession], Any] = lambda stored: stored

    def session(self, key: str) -> Any:
        found = super().session(key)
        return None if found is None else self.answer(found)


VALUES: list[Any] = [None, True, -1, 2.5, 2**63, "", "text", b"", b"\xff\xfe", b"null", b"[]", [], {}]


def _flipped(answer: Callable[[StoredSession, Any], Any], value: Any, stored: StoredSession) -> Any:
    return answer(stored, value)


def test_mistyped_store_answer_loses_one_session() -> None:
    store = Odd()
    session = fill(store)
    event = StoredEvent(3, 1, b"x")

    def any_of(value: Any, *fitting: Any) -> Any:
        """Return a value, or another one where that would fit."""
        return object() if value.__class__ in fitting else value

    answers: list[Callable[[StoredSession, Any], Any]] = [
        lambda stored, value: any_of(value, type(None)),
        lambda stored, value: attrs.evolve(stored, record=value),
        lambda stored, value: attrs.evolve(stored, at=any_of(value, int, float)),
        lambda stored, value: attrs.evolve(stored, events=any_of(value, str, bytes, list, dict)),
        lambda stored, value: attrs.evolve(stored, events=[attrs.evolve(event, stream=value)]),
        lambda stored, value: attrs.evolve(stored, events=[attrs.evolve(event, number=value)]),
        lambda stored, value: attrs.evolve(stored, events=[attrs.evolve(event, data=any_of(value, bytes))]),
    ]
    for answer in answers:
        for value in VALUES:
            store.answer = partial(_flipped, answer, value)
            assert visited(store, session) == (404, "a stored session cannot be read"), (answer, value)


def places(value: Any, *path: Any) -> Iterator[tuple[Any, ...]]:
    """Yield the way to every part of a JSON value."""
    yield path
    for name, part in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from places(part, *path, name)


def changed(value: Any, path: tuple[Any, ...], part: Any) -> Any:
    """Return a JSON value with another part at the end of a way."""
    if not path:
        return part
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = changed(value[path[0]], path[1:], part)
    return copy


def test_mistyped_part_of_a_record_loses_one_session() -> None:
    store = MemorySessionStore()
    session = fill(store)
    records, events = store._records, store._events
    text, at = records[session]
    said = json.loads(text)
    reported = set()
    for number, place in enumerate(places(said)):
        part = PARTS[number % len(PARTS)]
        store._records = {session: (json.dumps(changed(said, place, part)).encode(), at)}
        store._events = {session: dict(events[session])}
        status, report = visited(store, session)
        # Not every part matters: a session may well be found without it.
        assert status in (200, 202, 404), (place, part)
        reported.add(report)
    assert reported >= {"a stored session cannot be read", "a stored session cannot be taken up"}


def test_mistyped_task_row_loses_one_task(tmp_path: Path) -> None:
    path = tmp_path / "tasks.db"

    def served(store: SqliteStore, drawn: int) -> tuple[Link, Wire]:
        server = Server("s", tasks=TaskOptions(store=store))
        server.tool(lambda: "gold", name="dig", task_support="optional")
        link = Link(server, principal="ada", era="handshake")
        link.runtime._drawn = drawn  # no two processes draw the same ids
        assert server.tasks is not None
        server.tasks.attach(Host(link))
        return link, Wire(link)

    with SqliteStore(path) as store:
        _, wire = served(store, 0)
        ids = [wire.begin() for _ in range(4)]
    wrong = ["record = 5", "record = CAST(x'fffe' AS TEXT)", "payload = 'text'"]
    with contextlib.closing(sqlite3.connect(path)) as database, database:
        for id, change in zip(ids, wrong, strict=False):
            database.execute(f"UPDATE tasks SET {change} WHERE key = ?", (id,))
    with SqliteStore(path) as store:
        link, wire = served(store, 100)

        def reports() -> int:
            return sum(each.startswith("tasks cannot be stored") for each in link.reports)

        assert [wire.status(id) for id in ids] == ["-32603", "-32603", "completed", "completed"]
        assert reports() == 2
        assert "a stored task cannot be read" in link.reports
        assert wire.ask("tasks/result", taskId=ids[2])["message"] == "The result of the task is lost"
        assert "the stored result of a task cannot be read" in link.reports
        assert [task["taskId"] for task in wire.ask("tasks/list")["tasks"]] == ids[2:]
        assert wire.ask("tasks/result", taskId=ids[3])["content"] == [{"type": "text", "text": "gold"}]
