"""P9: closing is legal at any time, in any order, any number of times: no error, one end, and nothing after it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from mcpio.engine.client import ClientConnection
from mcpio.engine.connection import Connection
from mcpio.engine.pending import Pending
from mcpio.engine.server import ServerConnection
from mcpio.engine.table import Phase, Role
from mcpio.events import ConnectionClosed, Event, RequestFailed
from mcpio.testing import Pair, pair
from mcpio.types import (
    CallToolRequest,
    ClientCapabilities,
    Implementation,
    ListRootsRequest,
    RootsCapability,
    ServerCapabilities,
    ToolsCapability,
)

Ending = Callable[[Connection, float], None]

ENDINGS: dict[str, Ending] = {
    "close": lambda connection, now: connection.close(now),
    "close at once": lambda connection, now: connection.close(now, grace=0.0),
    "close slowly": lambda connection, now: connection.close(now, grace=1000.0),
    "abort": lambda connection, now: connection.abort(),
    "abort because": lambda connection, now: connection.abort(OSError("because")),
    "lose": lambda connection, now: connection.connection_lost(OSError("gone"), now),
    "end of stream": lambda connection, now: connection.receive_data(None, now),
    "end of messages": lambda connection, now: connection.receive_message(None, now),
    "wait": lambda connection, now: connection.handle_timeout(now + 5.0),
    "write": lambda connection, now: _write(connection),
}


@settings(max_examples=examples(80))
@given(
    started=st.sampled_from(list(Phase)[:3]),
    is_client=st.booleans(),
    endings=st.lists(st.sampled_from(sorted(ENDINGS)), min_size=1, max_size=6),
    looks=st.booleans(),
)
@pytest.mark.req("LIFE-17")
def test_any_sequence_of_closing_calls_gives_one_end(
    started: Phase, is_client: bool, endings: list[str], looks: bool
) -> None:
    link = _link(started)
    connection = link.client if is_client else link.server
    asked = connection.pending.outgoing
    events: list[Event] = []
    for number, name in enumerate(endings):
        ENDINGS[name](connection, float(number))
        if looks:
            events += connection.events()
    connection.close(10.0, grace=1.0)
    connection.handle_timeout(12.0)
    events += connection.events()
    assert [type(event) is ConnectionClosed for event in events].count(True) == 1
    assert isinstance(events[-1], ConnectionClosed)
    assert [event.id for event in events if isinstance(event, RequestFailed)] == [*asked]
    _check_over(connection)
    for ending in ENDINGS.values():
        ending(connection, 20.0)
    _check_over(connection)


@pytest.mark.parametrize("first", [Role.CLIENT, Role.SERVER])
@pytest.mark.parametrize("second", [None, Role.CLIENT, Role.SERVER])
def test_both_sides_closing_in_any_order_gives_no_error(first: Role, second: Role | None) -> None:
    link = _link(Phase.OPERATING)
    for role in (first, second):
        if role is not None:
            (link.client if role is Role.CLIENT else link.server).close(link.now)
    link.advance(10)
    for connection, events in ((link.client, link.client_events), (link.server, link.server_events)):
        if connection.pending.incoming:
            # The peer has gone; whether to finish the work is the application's decision.
            connection.close(link.now, grace=0.0)
            link.advance(0)
        assert isinstance(events[-1], ConnectionClosed)
        _check_over(connection)


def _write(connection: Connection) -> None:
    connection.data_to_send()


def _check_over(connection: Connection) -> None:
    assert connection.closed
    assert not connection.wants_read
    assert not connection.wants_write
    assert connection.next_deadline() is None
    assert connection.pending == Pending((), ())
    assert (list(connection.events()), connection.data_to_send(), connection.next_message()) == ([], [], None)


def _link(phase: Phase) -> Pair:
    """Return two peers in the given phase; in operation, each serves one request."""
    link = pair(
        ClientConnection(Implementation("c", "1"), ClientCapabilities(RootsCapability())),
        ServerConnection(Implementation("s", "1"), ServerCapabilities(tools=ToolsCapability())),
    )
    if phase is Phase.INITIALIZING:
        link.stall(Role.SERVER)
    if phase is not Phase.NEW:
        link.handshake()
    if phase is Phase.OPERATING:
        link.client.send_request(CallToolRequest("t"), now=0.0)
        link.server.send_request(ListRootsRequest(), now=0.0)
        link.run()
    link.client_events.clear()
    link.server_events.clear()
    return link
