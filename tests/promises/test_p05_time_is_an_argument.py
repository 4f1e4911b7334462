"""P5: time and chance are arguments. The same calls give the same bytes, and an hour passes in a millisecond."""

from __future__ import annotations

import os
import subprocess
import sys
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
eighths = st.integers(0, 8 * 20).map(lambda number: number / 8)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("ask"), st.sampled_from([None, 1.0, 5.0]), st.sampled_from([None, 0.5, 2.0])),
        st.tuples(st.just("hear"), st.integers(1, 6), st.sampled_from([b"result", b"progress", b"error"])),
        st.tuples(st.just("cancel"), st.integers(1, 6), st.none()),
        st.tuples(st.just("wait"), eighths, st.none()),
    ),
    max_size=25,
)


@settings(max_examples=examples(50))
@given(steps=steps, origin=st.integers(-(2**30), 2**30))
def test_same_calls_give_same_bytes_on_any_clock(steps: list[tuple[str, Any, Any]], origin: int) -> None:
    first = _walk(steps, 0.0)
    assert _walk(steps, 0.0) == first
    assert _walk(steps, float(origin)) == first


def _walk(steps: list[tuple[str, Any, Any]], origin: float) -> list[tuple[float, Any]]:
    """Run the steps on a clock that starts at ``origin``; return the output and deadlines with their times."""
    client = ClientConnection(Implementation("c", "1"))
    client.send_initialize(now=origin)
    client.receive_data(HEAD + b'"id":1,"result":' + RESULT + b"}\n", origin)
    assert len(list(client.events())) == 1
    now, seen = 0.0, list[tuple[float, Any]]()
    for what, first, second in steps:
        if what == "ask":
            client.send_request(CallToolRequest("t"), now=origin + now, timeout=Timeout(first, second), progress=True)
        elif what == "cancel" and first in client.pending.outgoing:
            client.cancel_request(first, "enough")
        elif what == "hear":
            client.receive_data(_said(first, second, len(seen)), origin + now)
        elif what == "wait":
            now += first
            client.handle_timeout(origin + now)
        due = client.next_deadline()
        seen.append((now, None if due is None else due - origin))
        seen.append((now, [type(event).__name__ for event in client.events()]))
        seen.append((now, client.data_to_send()))
    return seen


def _said(id: int, what: bytes, count: int) -> bytes:
    if what == b"progress":
        params = b'{"progressToken":%d,"progress":%d}' % (id, count)
        return HEAD + b'"method":"notifications/progress","params":%b}\n' % params
    body = b'{"content":[]}' if what == b"result" else b'{"code":1,"message":"no"}'
    return HEAD + b'"id":%d,"%b":%b}\n' % (id, what, body)


PROGRAM = """
from mcpio.testing import pair
from mcpio.engine.table import Role
link = pair()
link.handshake()
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
    assert "initialize" in runs.pop()
