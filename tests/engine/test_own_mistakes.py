"""Your own mistake changes nothing (P3): after a refusal the machine is, to its last member, what it was before."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from unchecked import unchecked

from mcpio.engine.client import ClientConnection
from mcpio.engine.connection import Connection
from mcpio.engine.limits import Limits
from mcpio.engine.options import Options
from mcpio.engine.server import ServerConnection
from mcpio.errors import LocalProtocolError, NoBackChannel, RequestError
from mcpio.events import IncomingId, OutgoingId
from mcpio.types.asking import ListRootsRequest
from mcpio.types.base import CustomNotification, CustomRequest
from mcpio.types.content import TextContent
from mcpio.types.features import (
    CallToolRequest,
    CallToolResult,
    CancelledNotification,
    ClientCapabilities,
    EmptyResult,
    Implementation,
    InitializedNotification,
    InitializeRequest,
    ListPromptsRequest,
    ListToolsRequest,
    LoggingMessageNotification,
    PingRequest,
    ProgressNotification,
    PromptListChangedNotification,
    RootsCapability,
    ServerCapabilities,
    ToolListChangedNotification,
    ToolsCapability,
)
from mcpio.types.tasks import TaskMetadata

INFO = Implementation("test", "1")
TOOLS = ServerCapabilities(tools=ToolsCapability())
OPTIONS = Options(custom_methods=frozenset({"acme/do"}), limits=Limits(outgoing_requests=1))
SHARED = (Options, Implementation, ClientCapabilities, ServerCapabilities, Limits)
BAD: Any = object()


def state(value: Any) -> Any:
    """Return a copy of all that can be reached from a machine, down to plain values; shared things by identity."""
    if isinstance(value, SHARED) or type(value).__name__ in ("Codec", "Method"):
        return id(value)
    if isinstance(value, dict):
        return [(state(key), state(item)) for key, item in value.items()]
    if isinstance(value, (list, tuple)) or type(value).__name__ == "deque":
        return [state(item) for item in value]
    if type(value).__module__.startswith("mcpio.") and not attrs.has(type(value)):
        names = [name for cls in type(value).__mro__ for name in vars(cls).get("__slots__", ())]
        return [(name, state(getattr(value, name))) for name in names if hasattr(value, name)] or value
    return copy.copy(value) if isinstance(value, bytearray) else value


def feed(connection: Connection, *messages: Any) -> None:
    for message in messages:
        connection.receive_data(json.dumps(message).encode() + b"\n", 1.0)
    list(connection.events())


def call(id: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": "x", "_meta": {"progressToken": id}}}


def server(phase: str = "operating") -> ServerConnection:
    """Return a server that runs request 1 (with progress), has answered 2, and asked 1; with output that waits."""
    connection = ServerConnection(INFO, TOOLS, options=OPTIONS)
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
    if phase != "new":
        feed(connection, {"jsonrpc": "2.0", "id": "i", "method": "initialize", "params": hello})
    if phase not in ("new", "initializing"):
        feed(connection, call("runs"), call("done"), {"jsonrpc": "2.0", "id": 5, "method": "acme/do"})
        connection.send_progress(IncomingId(1), 5)
        connection.send_result(IncomingId(2), CallToolResult(()))
        connection.send_request(PingRequest(), now=1.0)
    if phase in ("closing", "closed"):
        connection.close(1.0)
    if phase == "closed":
        connection.abort()
    connection.receive_data(b'{"unfinished', 1.0)
    return connection


def client(phase: str = "operating") -> ClientConnection:
    connection = ClientConnection(INFO, ClientCapabilities(roots=RootsCapability()))
    if phase != "new":
        connection.send_initialize(now=1.0)
    if phase not in ("new", "initializing"):
        answer = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": hello_info()}
        feed(connection, {"jsonrpc": "2.0", "id": 1, "result": answer})
        connection.send_request(ListToolsRequest(), now=1.0)
    if phase in ("closing", "closed"):
        connection.close(1.0)
    if phase == "closed":
        connection.abort()
    return connection


def hello_info() -> dict[str, str]:
    return {"name": "s", "version": "1"}


Act = Callable[[Any], Any]


def ask(request: Any, **more: Any) -> Act:
    return lambda connection: connection.send_request(request, **{"now": 2.0, **more})


def tell(notification: Any, **more: Any) -> Act:
    return lambda connection: connection.send_notification(notification, **more)


def answer(id: int, result: Any) -> Act:
    return lambda connection: connection.send_result(IncomingId(id), result)


def fail(id: int, *error: Any) -> Act:
    return lambda connection: connection.send_error(IncomingId(id), RequestError(*error))


def report(id: int, *progress: Any) -> Act:
    return lambda connection: connection.send_progress(IncomingId(id), *progress)


UNSAYABLE = [float("nan"), "\ud800", BAD, {1: 2}, [[]] * 3 + [b""]]
OF_EITHER: list[Act] = [
    lambda connection: connection.send_batch([PingRequest()], now=2.0),
    ask(EmptyResult()),
    ask(None),
    ask(PingRequest),
    ask(CustomRequest("ping")),
    ask(CustomRequest("")),
    ask(CustomRequest("acme/x", BAD)),
    ask(CustomRequest("acme/x", {"_meta": 5}), progress=True),
    ask(CustomRequest("acme/x", {"_meta": {"progressToken": 1}})),
    ask(CustomRequest("acme/x"), related_to=IncomingId(99)),
    ask(CustomRequest("acme/x"), timeout=-1),
    ask(CustomRequest("acme/x"), timeout=float("nan")),
    ask(CustomRequest("acme/x"), timeout="5"),
    *(ask(CustomRequest("acme/x", {"a": value})) for value in UNSAYABLE),
    *(tell(CustomNotification("acme/x", {"a": value})) for value in UNSAYABLE),
    tell(InitializedNotification()),
    tell(CancelledNotification(1)),
    tell(ProgressNotification(1, 1)),
    tell(PingRequest()),
    tell(CustomNotification("acme/x"), related_to=IncomingId(99)),
    tell(CustomNotification("notifications/tools/list_changed")),
    lambda connection: connection.cancel_request(OutgoingId(99)),
    lambda connection: connection.cancel_request(OutgoingId(0)),
    lambda connection: connection.close(2.0, grace=float("nan")),
    lambda connection: connection.close(2.0, grace=-1),
    lambda connection: connection.snapshot(2.0),
    answer(99, CallToolResult(())),
    fail(99, 1, "x"),
    report(99, 1),
]
OF_SERVER: list[Act] = [
    *OF_EITHER,
    ask(PingRequest()),
    ask(ListRootsRequest()),
    ask(ListToolsRequest()),
    tell(ToolListChangedNotification()),
    tell(PromptListChangedNotification()),
    tell(LoggingMessageNotification("info", 1)),
    answer(1, EmptyResult()),
    answer(1, {}),
    answer(1, CallToolResult((TextContent("\ud800"),))),
    answer(1, CallToolResult((unchecked(TextContent("a"), text=BAD),))),
    answer(1, CallToolResult((), meta={"a b": 1})),
    answer(2, CallToolResult(())),
    answer(3, CallToolResult(())),
    *(answer(3, {"x": value}) for value in UNSAYABLE),
    lambda connection: connection.send_raw_result(IncomingId(1), b"[]"),
    fail(1, "1", "x"),
    fail(1, 1, None),
    *(fail(1, 1, "x", value) for value in UNSAYABLE),
    fail(2, 1, "x"),
    *(report(1, value) for value in (5, 4, "6", None, True, float("nan"), float("inf"), BAD)),
    report(1, 6, "7"),
    report(1, 6, 7, 8),
    report(2, 9),
]
OF_CLIENT: list[Act] = [
    *OF_EITHER,
    ask(InitializeRequest("x", ClientCapabilities(), INFO)),
    ask(ListPromptsRequest()),
    ask(ListRootsRequest()),
    ask(CallToolRequest("x", task=TaskMetadata())),
    ask(unchecked(CallToolRequest("a"), name=BAD)),
    ask(CallToolRequest("x", {"a": BAD})),
    ask(CallToolRequest("x", meta={"-": 1})),
    ask(CallToolRequest("x", meta={"progressToken": 5})),
    tell(ToolListChangedNotification()),
    lambda connection: connection.send_initialize(now=2.0),
    lambda connection: connection.cancel_request(OutgoingId(2), "\ud800"),
    lambda connection: connection.cancel_request(OutgoingId(2), 5),
]


def refused(connection: Connection, act: Act) -> None:
    before = state(connection)
    with pytest.raises((LocalProtocolError, NoBackChannel)):
        act(connection)
    assert state(connection) == before


@pytest.mark.parametrize("act", range(len(OF_SERVER)))
def test_refused_calls_leave_a_server_unchanged(act: int) -> None:
    refused(server(), OF_SERVER[act])


@pytest.mark.parametrize("act", range(len(OF_CLIENT)))
def test_refused_calls_leave_a_client_unchanged(act: int) -> None:
    refused(client(), OF_CLIENT[act])


@pytest.mark.parametrize("phase", ["new", "initializing", "operating", "closing", "closed"])
@pytest.mark.parametrize("make", [server, client])
def test_refused_calls_change_nothing_in_every_phase(make: Callable[[str], Connection], phase: str) -> None:
    for act in OF_SERVER if make is server else OF_CLIENT:
        connection = make(phase)
        before = state(connection)
        try:
            act(connection)
        except (LocalProtocolError, NoBackChannel):
            assert state(connection) == before


def test_unencodable_handshake_changes_nothing() -> None:
    for info in (unchecked(Implementation("a", "1"), name=BAD), Implementation("\ud800", "1")):
        connection = ClientConnection(Implementation("a", "1"))
        connection.info = info  # it was checked when the connection was made
        refused(connection, lambda connection: connection.send_initialize(now=5.0))


def test_comparison_sees_every_change() -> None:
    seen = [state(server())]
    changes: list[Act] = [
        lambda connection: connection.receive_data(b"x", 1.0),
        lambda connection: connection.handle_timeout(2.0),
        lambda connection: connection.send_result(IncomingId(1), CallToolResult(())),
        lambda connection: connection.send_progress(IncomingId(1), 6),
        lambda connection: connection.cancel_request(OutgoingId(1)),
        lambda connection: connection.data_to_send(),
        lambda connection: connection.close(1.0),
    ]
    for change in changes:
        connection = server()
        assert state(connection) == seen[0]
        change(connection)
        assert state(connection) not in seen
        seen.append(state(connection))


@given(st.lists(st.integers(0, len(OF_SERVER) - 1), max_size=30))
def test_random_mistakes_leave_the_conversation_unchanged(mistakes: list[int]) -> None:
    connection = server()
    for act in mistakes:
        refused(connection, OF_SERVER[act])
    connection.send_result(IncomingId(1), CallToolResult(()))
    assert connection.data_to_send(10**9) == TWIN


CLEAN = server()
CLEAN.send_result(IncomingId(1), CallToolResult(()))
TWIN = CLEAN.data_to_send(10**9)
