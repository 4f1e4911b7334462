"""Wrong arguments of the public constructors and verbs of an engine: refused where they are passed, by name."""

from __future__ import annotations

import math
from typing import Any

import pytest

from mcpio.engine import ClientConnection, ServerConnection, payloads
from mcpio.engine.stateless_engine import StatelessEngine
from mcpio.errors import LocalProtocolError, RequestError
from mcpio.events import IncomingId
from mcpio.types import (
    ClientCapabilities,
    EmptyResult,
    Implementation,
    ServerCapabilities,
    ToolListChangedNotification,
)
from mcpio.types.features import SubscriptionFilter

INFO = Implementation("x", "1")
ROLES: list[Any] = [ServerConnection, ClientConnection]
ENGINES: list[Any] = [*ROLES, StatelessEngine]
TIMES: list[Any] = [math.nan, math.inf, "0", None, b"1"]

WRONG: dict[str, list[Any]] = {
    "info": [5, "x", {"name": "x", "version": "1"}, Implementation, EmptyResult(), None],
    "capabilities": [5, {"tools": {}}, ServerCapabilities, EmptyResult()],
    "options": [5, {}, "auto"],
    "can_reach": [5, "x"],
}
CONSTRUCTORS = [(name, value) for name, values in WRONG.items() for value in values]


@pytest.mark.parametrize("role", ENGINES)
@pytest.mark.parametrize(("name", "wrong"), CONSTRUCTORS)
def test_wrong_argument_of_a_constructor_is_refused_by_name(role: Any, name: str, wrong: Any) -> None:
    if name == "can_reach" and role is StatelessEngine:
        return  # it has no such argument
    with pytest.raises(TypeError, match=f"^{name} must be"):
        role(**{"info": INFO, name: wrong})


def test_arguments_of_the_other_role_are_refused_by_name() -> None:
    with pytest.raises(TypeError, match=r"^capabilities must be ServerCapabilities, not ClientCapabilities"):
        ServerConnection(INFO, ClientCapabilities())  # type: ignore[arg-type]  # a mistake on purpose
    with pytest.raises(TypeError, match=r"^capabilities must be ClientCapabilities, not ServerCapabilities"):
        ClientConnection(INFO, ServerCapabilities())  # type: ignore[arg-type]  # as above
    with pytest.raises(TypeError, match=r"^instructions must be str"):
        ServerConnection(INFO, instructions=5)  # type: ignore[arg-type]  # as above


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize(
    ("info", "fault"),
    [
        (Implementation("x", "1", icons=("no",)), r"Implementation: icons\[0\]"),  # type: ignore[arg-type]  # as above
        (Implementation("x", "1", title="\ud800"), "not expressible in JSON"),
        (Implementation("x", "1", extra={"a": math.nan}), "not expressible in JSON"),
    ],
)
def test_description_that_no_peer_could_be_sent_is_refused_at_once(role: Any, info: Implementation, fault: str) -> None:
    with pytest.raises(LocalProtocolError, match=fault):
        role(info)
    assert role(INFO).info == INFO


def test_many_descriptions_are_not_kept() -> None:
    for number in range(200):
        ServerConnection(Implementation("x", str(number)))
    assert len(payloads._CHECKED) <= payloads._MOST_CHECKED


VERBS: dict[str, Any] = {
    "receive_data": lambda connection, now: connection.receive_data(b"x", now),
    "receive_message": lambda connection, now: connection.receive_message("{}", now),
    "connection_lost": lambda connection, now: connection.connection_lost(None, now),
    "handle_timeout": lambda connection, now: connection.handle_timeout(now),
    "close": lambda connection, now: connection.close(now),
    "snapshot": lambda connection, now: connection.snapshot(now),
    "negotiate": lambda connection, now: connection.negotiate(now),
    "send_initialize": lambda connection, now: connection.send_initialize(now),
    "hold": lambda connection, now: connection.hold(now),
    "release": lambda connection, now: connection.release(now),
}
CASES = [(role, verb) for role in ROLES for verb in VERBS if hasattr(role, verb)]


@pytest.mark.parametrize("now", TIMES)
@pytest.mark.parametrize(("role", "verb"), CASES)
def test_what_is_no_time_is_refused_by_name(role: Any, verb: str, now: Any) -> None:
    connection = role(INFO)
    before = role(INFO).snapshot(0.0)
    with pytest.raises(LocalProtocolError, match=r"^now must be a number of seconds on a monotonic clock, not"):
        VERBS[verb](connection, now)
    assert connection.snapshot(0.0) == before


@pytest.mark.parametrize("role", ROLES)
def test_input_of_the_wrong_kind_is_refused_by_name(role: Any) -> None:
    connection = role(INFO)
    for data in ("text", 5, [b"x"]):
        with pytest.raises(LocalProtocolError, match=r"^data must be bytes, not"):
            connection.receive_data(data, 0.0)
    for text in (5, {"jsonrpc": "2.0"}, bytearray(b"{}")):
        with pytest.raises(LocalProtocolError, match=r"^text must be text or bytes, not"):
            connection.receive_message(text, 0.0)
    connection.receive_data(bytearray(b"\n"), 0.0)
    connection.receive_data(memoryview(b"\n"), 0.0)
    assert list(connection.events()) == []


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("id", ["x", None, 1.5, (1,)])
def test_ids_of_the_wrong_kind_are_refused(role: Any, id: Any) -> None:
    connection = role(INFO)
    calls: list[Any] = [
        lambda: connection.send_result(id, EmptyResult()),
        lambda: connection.send_error(id, RequestError(1, "x")),
        lambda: connection.send_progress(id, 1.0),
        lambda: connection.cancel_request(id),
        lambda: connection.send_notification(ToolListChangedNotification(), related_to="x"),
        lambda: connection.fail_request(1, "x", 0.0),
    ]
    for call in calls:
        with pytest.raises(LocalProtocolError):
            call()
    if role is ServerConnection:
        with pytest.raises(LocalProtocolError):
            connection.acknowledge(id, SubscriptionFilter())
    assert connection.is_pending(IncomingId(1)) is False


def test_observer_without_a_function_is_refused_by_name() -> None:
    with pytest.raises(TypeError, match=r"^observer must be an object with tell"):
        ServerConnection(INFO).add_observer(5)  # type: ignore[arg-type]  # a mistake on purpose


@pytest.mark.parametrize("role", ROLES)
def test_sizes_and_causes_of_the_wrong_kind_are_refused_by_name(role: Any) -> None:
    connection = role(INFO)
    for wrong in ("5", None, -1, True, -1.0, 1.5, b"x"):
        with pytest.raises(LocalProtocolError, match=r"^max_bytes must be a number of bytes, not"):
            connection.data_to_send(wrong)
        with pytest.raises(LocalProtocolError, match=r"^size must be a number of bytes, not"):
            connection.set_unwritten(wrong)
    causes: list[Any] = ["broken", 5, OSError]
    for cause in causes:
        with pytest.raises(LocalProtocolError, match=r"^cause must be an exception or None, not"):
            connection.connection_lost(cause, 0.0)
    assert connection.data_to_send(5) == []
    assert not connection.closed
