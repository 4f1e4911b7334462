from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from typing import Any

import pytest

from mcpio.engine import table
from mcpio.engine.client import ClientConnection
from mcpio.engine.connection import Connection
from mcpio.engine.options import Options
from mcpio.engine.server import ServerConnection
from mcpio.engine.table import (
    LIFE_TABLE,
    REQUEST_TABLE,
    TABLE,
    Direction,
    Input,
    Life,
    Phase,
    RequestInput,
    RequestState,
    Role,
)
from mcpio.errors import LocalProtocolError, NoBackChannel, RequestError
from mcpio.events import ConnectionClosed, IncomingId
from mcpio.revisions import REV_2025_11_25, REV_2026_07_28, REVISIONS
from mcpio.types.asking import ListRootsRequest, RootsListChangedNotification
from mcpio.types.features import (
    ClientCapabilities,
    Implementation,
    ListToolsRequest,
    LoggingMessageNotification,
    PingRequest,
    RootsCapability,
    ServerCapabilities,
    ToolListChangedNotification,
    ToolsCapability,
)

INFO = Implementation("test", "1")
OPEN = (Phase.NEW, Phase.DISCOVERING, Phase.INITIALIZING, Phase.OPERATING)
PRODUCT = list(itertools.product(Role, Phase, Input))

C, S = Role.CLIENT, Role.SERVER
NEW, DISCOVERING, INITIALIZING, OPERATING, CLOSING, CLOSED = Phase

EXPECTED: dict[Input, dict[tuple[Role, Phase], Phase]] = {
    Input.SEND_INITIALIZE: {(C, NEW): INITIALIZING},
    Input.SEND_DISCOVER: {(C, NEW): DISCOVERING},
    Input.SEND_ADOPT: {(C, NEW): OPERATING},
    Input.SEND_SKIP: {(S, NEW): OPERATING},
    Input.SEND_PING: {(role, phase): phase for role in Role for phase in (INITIALIZING, OPERATING)},
    Input.SEND_REQUEST: {(role, OPERATING): OPERATING for role in Role},
    Input.SEND_LOG: {
        (S, INITIALIZING): INITIALIZING,
        **{(role, phase): phase for role in Role for phase in (OPERATING, CLOSING)},
    },
    Input.SEND_NOTIFICATION: {(role, phase): phase for role in Role for phase in (OPERATING, CLOSING)},
    Input.SEND_CLOSE: {(role, phase): CLOSING for role in Role for phase in (*OPEN, CLOSING)},
    Input.SEND_END: {(role, CLOSING): CLOSED for role in Role},
    Input.SEND_ABORT: {(role, phase): CLOSED for role in Role for phase in (*OPEN, CLOSING)},
    Input.RECV_INITIALIZE: {(S, NEW): INITIALIZING},
    Input.RECV_INITIALIZE_RESULT: {(C, INITIALIZING): OPERATING},
    Input.RECV_DISCOVERED: {(C, DISCOVERING): OPERATING},
    Input.RECV_OTHER_ERA: {(C, DISCOVERING): NEW, (C, INITIALIZING): NEW},
    Input.RECV_INITIALIZED: {(S, INITIALIZING): OPERATING, (S, OPERATING): OPERATING},
    Input.RECV_REQUEST: {(S, INITIALIZING): OPERATING, **{(role, OPERATING): OPERATING for role in Role}},
    Input.RECV_END: {(role, phase): CLOSING for role in Role for phase in (*OPEN, CLOSING)},
    Input.RECV_SESSION_LOSS: {(C, DISCOVERING): NEW, (C, INITIALIZING): NEW, (C, OPERATING): NEW},
    Input.RECV_LOSS: {(role, phase): CLOSED for role in Role for phase in (*OPEN, CLOSING)},
}
"""What both tables together say of each visible phase."""


def next_phase(role: Role, phase: Phase, what: Input) -> Phase | None:
    """Return where the tables lead from a visible phase: the life of the connection first, then the handshake."""
    life = {CLOSING: Life.CLOSING, CLOSED: Life.CLOSED}.get(phase, Life.OPEN)
    to = LIFE_TABLE.get((life, what))
    if to is not None:
        return Phase[to.name]
    return TABLE.get((role, phase, what))


@pytest.mark.req("LIFE-01")
def test_the_tables_have_exactly_the_expected_rows() -> None:
    assert list(EXPECTED) == list(Input)
    for role, phase, what in PRODUCT:
        assert next_phase(role, phase, what) is EXPECTED[what].get((role, phase)), (role, phase, what)


def test_tables_share_no_input_of_an_open_connection() -> None:
    lives = {what for life, what in LIFE_TABLE if life is Life.OPEN}
    assert lives.isdisjoint(what for _, _, what in TABLE)
    assert {phase for _, phase, _ in TABLE} | set(TABLE.values()) == set(OPEN)


def test_closed_is_reached_from_everywhere_and_never_left() -> None:
    for life in (Life.OPEN, Life.CLOSING):
        assert LIFE_TABLE[life, Input.SEND_ABORT] is Life.CLOSED
        assert LIFE_TABLE[life, Input.RECV_LOSS] is Life.CLOSED
    assert all(life is not Life.CLOSED for life, _ in LIFE_TABLE)
    assert all(to is not Life.OPEN for to in LIFE_TABLE.values())


def test_no_phase_is_entered_twice_in_one_session() -> None:
    order = list(Phase)
    for role in Role:
        rows = [(phase, what, to) for (who, phase, what), to in TABLE.items() if who is role and phase is not to]
        again = (Input.RECV_SESSION_LOSS, Input.RECV_OTHER_ERA)
        steps = [(phase, to) for phase, what, to in rows if what not in again]
        assert {to for _, to in steps} == {INITIALIZING, OPERATING} | ({DISCOVERING} if role is C else set())
        assert all(order.index(phase) < order.index(to) for phase, to in steps)


def test_input_names_begin_with_their_direction() -> None:
    for word in (*Input, *RequestInput):
        assert word.name.startswith(("SEND_", "RECV_"))


def test_table_words_hash_by_identity() -> None:
    assert all(hash(word) == object.__hash__(word) for word in (*Role, *Life, *Phase, *Input, *RequestState))
    assert {name for name in vars(table) if not name.startswith("_")} == {*table.__all__, "enum"}


# The life of one request


def test_request_states_but_running_are_final() -> None:
    for (direction, state, _), to in REQUEST_TABLE.items():
        assert state is RequestState.RUNNING
        assert direction in Direction
        assert to in RequestState
    assert set(REQUEST_TABLE.values()) == set(RequestState) - {RequestState.RUNNING}


@pytest.mark.req("CANC-02")
def test_only_outgoing_requests_are_cancelled_or_time_out() -> None:
    inputs: dict[Direction, set[RequestInput]] = {direction: set() for direction in Direction}
    for direction, _, what in REQUEST_TABLE:
        inputs[direction].add(what)
    assert inputs[Direction.OUTGOING] == {
        RequestInput.RECV_RESULT,
        RequestInput.RECV_ERROR,
        RequestInput.SEND_CANCEL,
        RequestInput.RECV_TIMEOUT,
        RequestInput.RECV_LOSS,
    }
    assert inputs[Direction.INCOMING] == set(RequestInput) - inputs[Direction.OUTGOING] | {RequestInput.RECV_LOSS}


# The machines do what the table says


def feed(connection: Connection, *messages: Any) -> None:
    for message in messages:
        connection.receive_message(json.dumps(message), 0.0)
    list(connection.events())


def machine(role: Role, phase: Phase) -> Connection:
    """Return a connection in a phase, with nothing undrained but for what closing owes."""
    connection: Connection
    if role is S:
        connection = ServerConnection(INFO, ServerCapabilities(tools=ToolsCapability(list_changed=True), logging={}))
        hello = {
            "protocolVersion": "2025-11-25",
            "capabilities": {"roots": {}},
            "clientInfo": {"name": "c", "version": "1"},
        }
        opening = [
            {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello},
            {"jsonrpc": "2.0", "method": "notifications/initialized"},
        ]
    else:
        declared = ClientCapabilities(roots=RootsCapability(list_changed=True))
        connection = ClientConnection(INFO, declared, options=Options(revisions=REVISIONS))
        answer = {
            "protocolVersion": "2025-11-25",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "s", "version": "1"},
        }
        opening = [{"jsonrpc": "2.0", "id": 1, "result": answer}]
        if phase is DISCOVERING:
            connection.negotiate(0.0)
        elif phase is not NEW:
            connection.send_initialize(now=0.0)
    steps = {NEW: 0, DISCOVERING: 0, INITIALIZING: 1 if role is S else 0}.get(phase, len(opening))
    feed(connection, *opening[:steps])
    if phase in (CLOSING, CLOSED):
        method = "tools/list" if role is S else "roots/list"
        feed(connection, {"jsonrpc": "2.0", "id": "running", "method": method})
        connection.close(0.0)
    if phase is CLOSED:
        connection.abort()
    connection.data_to_send()
    list(connection.events())
    assert connection.phase is phase
    return connection


def open_by(connection: Connection, what: Input) -> None:
    if what is Input.SEND_SKIP and isinstance(connection, ServerConnection):
        connection.skip_handshake(REV_2025_11_25)
    elif what is Input.SEND_SKIP or not isinstance(connection, ClientConnection):
        raise LocalProtocolError("this role has no such verb")
    elif what is Input.SEND_INITIALIZE:
        connection.send_initialize(now=0.0)
    elif what is Input.SEND_ADOPT:
        connection.adopt(REV_2026_07_28)
    else:
        connection.negotiate(now=0.0)


def act(connection: Connection, what: Input) -> None:
    is_client = connection.role is C
    match what:
        case Input.SEND_INITIALIZE | Input.SEND_DISCOVER | Input.SEND_ADOPT | Input.SEND_SKIP:
            open_by(connection, what)
        case Input.SEND_PING:
            connection.send_request(PingRequest(), now=0.0)
        case Input.SEND_REQUEST:
            connection.send_request(ListToolsRequest() if is_client else ListRootsRequest(), now=0.0)
        case Input.SEND_LOG:
            connection.send_notification(LoggingMessageNotification("info", 1))
        case Input.SEND_NOTIFICATION:
            connection.send_notification(RootsListChangedNotification() if is_client else ToolListChangedNotification())
        case Input.SEND_CLOSE:
            connection.close(0.0)
        case Input.SEND_END:
            connection.data_to_send()
        case _:
            connection.abort()


SENT = [place for place in PRODUCT if place[2].name.startswith("SEND_") and place[:2] != (S, DISCOVERING)]
OF_DISCOVERY = (Input.RECV_DISCOVERED, Input.RECV_OTHER_ERA)
"""What depends on the message that opens: ``test_stateless_client.py`` has it."""
RECEIVED: dict[Input, Any] = {
    Input.RECV_INITIALIZE: {
        "jsonrpc": "2.0",
        "id": "i",
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "c", "version": "1"},
        },
    },
    Input.RECV_INITIALIZE_RESULT: {
        "jsonrpc": "2.0",
        "id": 1,
        "result": {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "serverInfo": {"name": "s", "version": "1"},
        },
    },
    Input.RECV_INITIALIZED: {"jsonrpc": "2.0", "method": "notifications/initialized"},
    Input.RECV_END: None,
    Input.RECV_LOSS: None,
}


def place_id(value: object) -> str:
    return value.name if isinstance(value, Role | Phase | Input) else ""


@pytest.mark.parametrize(("role", "phase", "what"), SENT, ids=place_id)
def test_send_input_without_a_row_is_refused(
    role: Role, phase: Phase, what: Input, record_property: Callable[[str, object], None]
) -> None:
    record_property("pairs", 1)
    connection = machine(role, phase)
    if what is Input.SEND_END and phase is CLOSING:
        connection.send_error(IncomingId(1), RequestError(1, "x"))
    to = next_phase(role, phase, what)
    if what is Input.SEND_END or (phase is CLOSED and what in (Input.SEND_CLOSE, Input.SEND_ABORT)):
        # Writing asks for the end, and closing is legal any number of times.
        act(connection, what)
    elif to is None or (what is Input.SEND_LOG and role is C):
        with pytest.raises((LocalProtocolError, NoBackChannel)):
            act(connection, what)
    else:
        act(connection, what)
    assert connection.phase is (to or phase)


@pytest.mark.parametrize(
    "what", [what for what in Input if what.name.startswith("RECV_") and what not in OF_DISCOVERY], ids=place_id
)
@pytest.mark.parametrize("phase", [phase for phase in Phase if phase is not DISCOVERING], ids=place_id)
@pytest.mark.parametrize("role", Role, ids=place_id)
def test_received_input_has_a_reaction_in_every_phase(
    role: Role, phase: Phase, what: Input, record_property: Callable[[str, object], None]
) -> None:
    record_property("pairs", 1)
    connection = machine(role, phase)
    request = {"jsonrpc": "2.0", "id": "r", "method": "tools/list" if role is S else "roots/list"}
    if what is Input.RECV_LOSS:
        connection.connection_lost(None, 0.0)
    elif what is Input.RECV_SESSION_LOSS:
        if isinstance(connection, ClientConnection):
            connection.reset_session(0.0)
    elif what is Input.RECV_END:
        connection.receive_data(None, 0.0)
    else:
        connection.receive_message(json.dumps(RECEIVED.get(what, request)), 0.0)
    events = list(connection.events())
    to = next_phase(role, phase, what) or phase
    assert connection.phase is to
    if phase is CLOSED:
        assert events == []
    elif to is CLOSED:
        assert isinstance(events[-1], ConnectionClosed)
    elif what not in (Input.RECV_END, Input.RECV_SESSION_LOSS):
        assert events != []
