"""P12: a session saved and restored between any two messages continues byte for byte the same."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any, TypeVar

import attrs
import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from mcpio.engine.client import ClientConnection
from mcpio.engine.connection import Connection
from mcpio.engine.limits import Timeout
from mcpio.engine.server import ServerConnection
from mcpio.engine.table import Phase, Role
from mcpio.errors import LocalProtocolError, RequestError
from mcpio.events import (
    Event,
    IncomingId,
    MessageIgnored,
    OutgoingId,
    ProgressReceived,
    ProtocolViolated,
    RequestFailed,
)
from mcpio.testing import Pair, pair
from mcpio.types import (
    CallToolRequest,
    CallToolResult,
    ClientCapabilities,
    Implementation,
    ListRootsRequest,
    ListRootsResult,
    RootsCapability,
    ServerCapabilities,
    ToolsCapability,
)

Side = TypeVar("Side", bound=Connection)

# Times are multiples of 1/8: their sums and differences are exact floats.
steps = st.lists(
    st.one_of(
        st.tuples(st.just("ask"), st.booleans(), st.sampled_from([None, 1.0, 5.0]), st.sampled_from([None, 0.5, 2.0])),
        st.tuples(st.just("answer"), st.booleans(), st.integers(1, 6), st.sampled_from(["result", "error"])),
        st.tuples(st.just("progress"), st.booleans(), st.integers(1, 6), st.integers(1, 9)),
        st.tuples(st.just("cancel"), st.booleans(), st.integers(1, 6), st.none()),
        st.tuples(st.just("wait"), st.integers(0, 24).map(lambda eighths: eighths / 8), st.none(), st.none()),
        st.tuples(st.just("close"), st.booleans(), st.sampled_from([0.5, 4.0]), st.none()),
    ),
    max_size=25,
)
moves = st.sets(st.tuples(st.integers(0, 25), st.booleans()))


STALE_PROGRESS = b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%d,"progress":2}}\n'


def test_progress_goes_on_after_both_sides_moved() -> None:
    link = pair(*_engines())
    link.handshake()
    link.client.send_request(CallToolRequest("t"), now=link.now, cookie="asked", progress=True)
    link.run()
    (id,) = map(IncomingId, link.server.pending.incoming)
    for progress in (1, 2):
        _move(link, is_client=True)
        _move(link, is_client=False)
        link.server.send_progress(id, progress)
        link.run()
        with pytest.raises(LocalProtocolError, match="progress must increase"):
            link.server.send_progress(id, progress)
    reports = [event for event in link.client_events if isinstance(event, ProgressReceived)]
    assert [(event.progress, event.cookie) for event in reports] == [(1, "asked"), (2, "asked")]
    _move(link, is_client=True)
    link.client.receive_data(STALE_PROGRESS % reports[0].id, link.now)
    assert [type(event) for event in link.client.events()] == [ProtocolViolated]


@pytest.mark.parametrize("moved", [False, True])
def test_answer_to_a_cancelled_request_is_late_and_no_violation_in_another_process(moved: bool) -> None:
    link = pair(*_engines())
    link.handshake()
    cancelled, timed_out = (link.client.send_request(CallToolRequest("t"), now=0.0, timeout=5) for _ in range(2))
    link.client.cancel_request(cancelled, "enough")
    link.client.handle_timeout(5.0)
    assert [type(event) for event in link.client.events()] == [RequestFailed, RequestFailed]
    link.client.data_to_send()
    if moved:
        _move(link, is_client=True)
    for id, expected in ((cancelled, MessageIgnored), (timed_out, MessageIgnored), (99, ProtocolViolated)):
        link.client.receive_data(b'{"jsonrpc":"2.0","id":%d,"result":{"content":[]}}\n' % id, 5.0)
        assert [type(event) for event in link.client.events()] == [expected]


@settings(max_examples=examples(60))
@given(steps=steps, moves=moves)
def test_session_restored_at_any_point_continues_byte_for_byte(steps: list[Any], moves: set[tuple[int, bool]]) -> None:
    stayed, moved = _walk(steps, set()), _walk(steps, moves)
    assert moved.tap == stayed.tap
    assert [_plain(event) for event in moved.client_events] == [_plain(event) for event in stayed.client_events]
    assert [_plain(event) for event in moved.server_events] == [_plain(event) for event in stayed.server_events]
    assert moved.next_deadline() == stayed.next_deadline()


@settings(max_examples=examples(50))
@given(steps=steps, data=st.data(), origin=st.integers(-1000, 1000))
def test_session_restored_mid_line_on_another_clock_continues(
    steps: list[Any], data: st.DataObject, origin: int
) -> None:
    stream = _walk(steps, set()).sent(Role.CLIENT)
    cuts = sorted(data.draw(st.sets(st.integers(0, len(stream)), max_size=10)))
    stayed, moved = _engines()[1], _engines()[1]
    shift = 0.0
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        stayed.receive_data(stream[start:end], 1.0)
        moved.receive_data(stream[start:end], 1.0 + shift)
        assert [_plain(event) for event in moved.events()] == [_plain(event) for event in stayed.events()]
        assert moved.data_to_send() == stayed.data_to_send()
        if moved.phase is not Phase.CLOSED:
            moved = _restored(moved, 1.0 + shift, 1.0 + shift + origin)
            shift += origin


PROGRAM = """
import json, sys
from mcpio.engine.client import ClientConnection
given = json.load(sys.stdin)
client = ClientConnection.restore(given["snapshot"], given["now"])
client.receive_data(bytes.fromhex(given["input"]), given["now"] + 1)
for event in client.events():
    print(type(event).__name__, event.cookie)
client.handle_timeout(client.next_deadline())
for event in client.events():
    print(type(event).__name__, event.cookie)
print(client.data_to_send())
"""


def test_session_restored_in_another_process_continues() -> None:
    client, server = _engines()
    link = pair(client, server)
    link.handshake()
    for cookie in ("answered", "late"):
        client.send_request(CallToolRequest("t"), now=2.0, timeout=10, cookie=cookie)
    link.run()
    answer = b'{"jsonrpc":"2.0","id":2,"result":{"content":[]}}\n'.hex()
    given = json.dumps({"snapshot": client.snapshot(2.0), "now": 1_000_000, "input": answer})
    run = subprocess.run([sys.executable, "-c", PROGRAM], input=given, capture_output=True, text=True, check=True)
    assert run.stdout.splitlines() == [
        "ResponseReceived answered",
        "RequestFailed late",
        """[b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":3,"reason":"timeout"}}\\n']""",
    ]


def _walk(steps: list[Any], moves: set[tuple[int, bool]]) -> Pair:
    """Run the steps; before each step in ``moves``, save and restore one side."""
    link = pair(*_engines())
    link.handshake()
    for number, step in enumerate(steps):
        link.run()
        for is_client in (True, False):
            if (number, is_client) in moves:
                _move(link, is_client)
        try:
            _do(link, number, *step)
        except LocalProtocolError:
            continue
    link.run()
    return link


def _do(link: Pair, number: int, what: str, is_client: Any, first: Any, second: Any) -> None:
    side: Connection = link.client if is_client else link.server
    if what == "wait":
        link.advance(is_client)
    elif what == "ask" and side.phase is Phase.OPERATING:
        request = CallToolRequest("t") if is_client else ListRootsRequest()
        side.send_request(request, now=link.now, timeout=Timeout(first, second), cookie=number, progress=True)
    elif what == "answer" and second == "result":
        side.send_result(IncomingId(first), ListRootsResult(()) if is_client else CallToolResult(()))
    elif what == "answer":
        side.send_error(IncomingId(first), RequestError(1, "no"))
    elif what == "progress":
        side.send_progress(IncomingId(first), second)
    elif what == "cancel":
        side.cancel_request(OutgoingId(first), "enough")
    elif what == "close":
        side.close(link.now, grace=first)


def _move(link: Pair, is_client: bool) -> None:
    side = link.client if is_client else link.server
    if side.phase is Phase.CLOSED:
        return
    if is_client:
        link.client = _restored(link.client, link.now, link.now)
    else:
        link.server = _restored(link.server, link.now, link.now)


def _restored(connection: Side, now: float, then: float) -> Side:
    return type(connection).restore(json.loads(json.dumps(connection.snapshot(now))), then)


def _engines() -> tuple[ClientConnection, ServerConnection]:
    return (
        ClientConnection(Implementation("c", "1"), ClientCapabilities(RootsCapability())),
        ServerConnection(Implementation("s", "1"), ServerCapabilities(tools=ToolsCapability())),
    )


def _plain(event: Event) -> tuple[str, dict[str, Any]]:
    """Return an event in comparable form: exceptions as their class and text."""
    members = attrs.asdict(event, recurse=False)
    for name in ("error", "cause"):
        if name in members:
            members[name] = repr(members[name])
    return type(event).__name__, members
