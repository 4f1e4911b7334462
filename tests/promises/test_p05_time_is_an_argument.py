"""P5: time and chance are arguments. The same calls give the same bytes, and an hour passes in a millisecond."""

from __future__ import annotations

import os
import subprocess
import sys
from math import inf
from typing import Any

import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from mcpio.engine.client import ClientConnection
from mcpio.engine.limits import Timeout
from mcpio.engine.server import ServerConnection
from mcpio.engine.table import Role
from mcpio.errors import RequestTimeout
from mcpio.events import RequestFailed
from mcpio.testing import pair
from mcpio.types import CallToolRequest, Implementation, ServerCapabilities, ToolsCapability

HOUR = 3600.0
HEAD = b'{"jsonrpc":"2.0",'
RESULT = b'{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}'


@pytest.mark.req("TIME-04")
def test_one_hour_timeout_expires_without_waiting() -> None:
    link = pair(server=ServerConnection(Implementation("s", "1"), ServerCapabilities(tools=ToolsCapability())))
    link.handshake()
    link.client.send_request(CallToolRequest("slow"), now=link.now, timeout=HOUR, cookie="slow")
    link.advance(HOUR - 0.001)
    assert link.client.pending.outgoing
    link.advance(0.001)
    failed = link.client_events[-1]
    assert isinstance(failed, RequestFailed)
    assert isinstance(failed.error, RequestTimeout)
    assert failed.error.seconds == HOUR
    assert b"notifications/cancelled" in link.sent(Role.CLIENT)


# Times are multiples of 1/8: their sums and differences are exact floats.
eighths = st.integers(0, 8 * 6).map(lambda number: number / 8)
asking = st.tuples(st.just("ask"), st.sampled_from([None, 1.0, 5.0]), st.sampled_from([None, 0.5, 2.0]))
hearing = st.tuples(st.just("hear"), st.integers(2, 9), st.sampled_from([b"progress", b"result", b"error"]))
steps = st.lists(
    st.one_of(
        asking,
        hearing,
        asking,
        hearing,
        st.tuples(st.just("cancel"), st.integers(2, 9), st.none()),
        st.tuples(st.just("wait"), eighths, st.none()),
    ),
    min_size=10,
    max_size=40,
)


@settings(max_examples=examples(100))
@given(steps=steps, origin=st.integers(-(2**30), 2**30))
def test_same_calls_give_same_bytes_and_deadlines_on_any_clock(steps: list[tuple[str, Any, Any]], origin: int) -> None:
    first = _walk(steps, 0.0)
    assert _walk(steps, 0.0) == first
    assert _walk(steps, float(origin)) == first


class Deadlines:
    """What the deadlines of requests are, and how long each request may take."""

    def __init__(self) -> None:
        self.limits: dict[int, tuple[float | None, float | None]] = {}
        self.due: dict[int, tuple[float, float]] = {}

    def ask(self, id: int, total: float | None, idle: float | None, now: float) -> None:
        self.limits[id] = total, idle
        self.due[id] = _after(now, total), _after(now, idle)

    def progress(self, id: int, now: float) -> None:
        if id in self.due:
            self.due[id] = self.due[id][0], _after(now, self.limits[id][1])

    def expire(self, now: float) -> dict[int, float]:
        """Return which requests are over, with the seconds that each had."""
        over = {id: due for id, due in self.due.items() if min(due) <= now}
        for id in over:
            del self.due[id]
        return {id: self.limits[id][0 if total_at <= now else 1] or 0.0 for id, (total_at, _) in over.items()}

    def next(self) -> float | None:
        earliest = min(map(min, self.due.values()), default=inf)
        return None if earliest == inf else earliest


def _after(now: float, seconds: float | None) -> float:
    return inf if seconds is None else now + seconds


def _walk(steps: list[tuple[str, Any, Any]], origin: float) -> list[tuple[float, Any]]:
    """Run the steps on a clock that starts at ``origin``; return the output with its times.

    The deadlines, and the limits that failed requests name, are compared with a model.
    """
    client = ClientConnection(Implementation("c", "1"))
    client.send_initialize(now=origin)
    client.receive_data(HEAD + b'"id":1,"result":' + RESULT + b"}\n", origin)
    assert len(list(client.events())) == 1
    now, seen, model = 0.0, list[tuple[float, Any]](), Deadlines()
    for what, first, second in steps:
        over: dict[int, float] = {}
        if what == "ask":
            # A clock that has gone back a little counts as one that stands still.
            told, limits = origin + now - 1.0 * (first == 5.0), Timeout(first, second)
            id = client.send_request(CallToolRequest("t"), now=told, timeout=limits, progress=True)
            model.ask(id, first, second, now)
        elif what == "cancel" and first in client.pending.outgoing:
            client.cancel_request(first, "enough")
            del model.due[first]
        elif what == "hear":
            client.receive_data(_said(first, second, len(seen)), origin + now)
            if second == b"progress":
                model.progress(first, now)
            else:
                model.due.pop(first, None)
        elif what == "wait":
            now += first
            client.handle_timeout(origin + now)
            over = model.expire(now)
        events = list(client.events())
        errors = [(event.id, event.error) for event in events if isinstance(event, RequestFailed)]
        assert {id: error.seconds for id, error in errors if isinstance(error, RequestTimeout)} == over
        due = client.next_deadline()
        assert (None if due is None else due - origin) == model.next()
        seen.append((now, [type(event).__name__ for event in events]))
        seen.append((now, client.data_to_send()))
    return seen


def _said(id: int, what: bytes, count: int) -> bytes:
    if what == b"progress":
        params = b'{"progressToken":%d,"progress":%d}' % (id, count)
        return HEAD + b'"method":"notifications/progress","params":%b}\n' % params
    body = b'{"content":[]}' if what == b"result" else b'{"code":1,"message":"no"}'
    return HEAD + b'"id":%d,"%b":%b}\n' % (id, what, body)


PROGRAM = """
from mcpio.engine.server import ServerConnection
from mcpio.engine.table import Role
from mcpio.testing import pair
from mcpio.types import CallToolRequest, Implementation, ServerCapabilities, ToolsCapability
link = pair(server=ServerConnection(Implementation("s", "1"), ServerCapabilities(tools=ToolsCapability())))
link.handshake()
link.client.send_request(CallToolRequest("slow"), now=link.now, timeout=1.0)
link.advance(2.0)
link.client.close(link.now)
link.run()
print(link.sent(Role.CLIENT) + link.sent(Role.SERVER))
"""


def test_same_calls_give_same_bytes_in_another_process() -> None:
    runs = set()
    for seed in ("1", "2"):
        command, environment = [sys.executable, "-c", PROGRAM], {**os.environ, "PYTHONHASHSEED": seed}
        runs.add(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)
    assert len(runs) == 1
    assert "notifications/cancelled" in runs.pop()
