from __future__ import annotations

import json
from typing import Any

import pytest
from wires import INFO, call, client, feed, new_server, request, server

from mcpio.engine.client import ClientConnection
from mcpio.engine.dialect import BatchItem
from mcpio.engine.limits import Limits, Timeout
from mcpio.engine.options import Options
from mcpio.errors import LocalProtocolError, RequestError
from mcpio.observe.recording import Recorder, Replay, replay
from mcpio.observe.tap import Redactor, add_tap
from mcpio.profiles import Profile
from mcpio.revisions import REV_2025_06_18
from mcpio.types import CallToolRequest, CallToolResult, CustomNotification

DIALECTS: Any = frozenset({Profile.ERLMCP})


def recorded(connection: Any, *, redactor: Redactor | None = None, now: float = 0.0) -> list[str]:
    lines: list[str] = []
    add_tap(connection, Recorder(lines.append, redactor=redactor), now=now)
    return lines


def entries(lines: list[str]) -> list[dict[str, Any]]:
    assert all(line.endswith("\n") for line in lines)
    return [json.loads(line) for line in lines]


def test_header_holds_role_options_and_snapshot() -> None:
    connection = new_server(
        revisions=(REV_2025_06_18,),
        limits=Limits(message_bytes=500),
        request_timeout=Timeout(5),
        custom_methods=frozenset({"a/b"}),
        accept_batches=True,
        profiles=DIALECTS,
        emit_profile=Profile.ERLMCP,
        on_tasks_create=lambda params: None,
    )
    header = entries(recorded(connection, now=2.5))[0]
    assert (header["recording"], header["role"], header["at"]) == (1, "server", 2.5)
    assert set(header["options"]) == {
        "revisions",
        "limits",
        "request_timeout",
        "custom_methods",
        "accept_batches",
        "profiles",
        "emit_profile",
    }
    options = Replay([json.dumps(header)]).connection.options
    assert options == Options(
        revisions=(REV_2025_06_18,),
        limits=Limits(message_bytes=500),
        request_timeout=Timeout(5),
        custom_methods=frozenset({"a/b"}),
        accept_batches=True,
        profiles=DIALECTS,
        emit_profile=Profile.ERLMCP,
    )


def test_recording_begun_mid_conversation_holds_the_snapshot() -> None:
    connection = server()
    (event,) = feed(connection, call(1))
    connection.receive_data(b'{"jsonrpc":"2.0",', 1.0)
    lines = recorded(connection, now=1.0)
    connection.receive_data(b'"id":2,"method":"ping"}\n', 2.0)
    events = list(connection.events())
    connection.send_result(event.id, CallToolResult(()))
    sent = connection.data_to_send()
    steps = list(Replay(lines))
    assert [step.event for step in steps if step.event] == events
    assert [chunk for step in steps for chunk in step.sent] == sent
    assert {step.differs for step in steps} == {None}


def test_bytes_that_are_not_utf8_are_written_in_hex() -> None:
    connection = server()
    lines = recorded(connection)
    connection.receive_data(b"\xff\n", 0.0)
    for text in (b"\xff", b"[]", "[]", "\ud800", "é"):
        connection.receive_message(text, 0.0, via=("a", 1))
    events = list(connection.events())
    while connection.next_message() is not None:
        pass
    connection.connection_lost(OSError("gone"), 1.0)
    events += connection.events()
    again = replay(lines)
    assert [type(event) for event in again] == [type(event) for event in events]
    assert [getattr(event, "raw", None) for event in again] == [getattr(event, "raw", None) for event in events]
    assert {each["via"] for each in entries(lines) if "via" in each} == {"('a', 1)"}


def test_arguments_that_json_cannot_hold_are_left_out() -> None:
    connection = client()
    lines = recorded(connection)
    for timeout, cookie in ((None, object()), (float("inf"), "c"), (Timeout(5, 1), 7)):
        connection.send_request(CallToolRequest("x"), now=0.0, timeout=timeout, cookie=cookie)
    connection.send_request(CallToolRequest("x"), now=0.0)
    connection.close(0.0, grace=float("inf"))
    said = [(each["timeout"], each["cookie"]) for each in entries(lines) if each.get("do") == "send_request"]
    assert said == [(None, None), (None, "c"), ([5, 1], 7), ("default", None)]
    assert entries(lines)[-1]["grace"] is None
    assert [step.differs for step in Replay(lines)] == [None] * 5


def test_secrets_in_batches_are_redacted() -> None:
    connection = client("2025-03-26")
    lines = recorded(connection, redactor=Redactor())
    connection.send_batch([BatchItem(CallToolRequest("x", {"password": "hunter2"}), Timeout(5, 1), "c")], now=0.0)
    ((item,),) = [each["items"] for each in entries(lines) if each.get("do") == "send_batch"]
    assert (item["method"], item["timeout"], item["cookie"]) == ("tools/call", [5, 1], "c")
    assert "hunter2" not in "".join(lines)


def test_half_close_is_written() -> None:
    connection = server()
    lines = recorded(connection)
    connection.close(0.0)
    connection.data_to_send()
    assert entries(lines)[-1]["chunks"] == [None]


def test_call_before_any_time_has_the_time_of_the_header() -> None:
    connection = ClientConnection(INFO)
    lines = recorded(connection, now=7.0)
    connection.abort(OSError("x"))
    list(connection.events())
    assert [each["at"] for each in entries(lines)] == [7.0, 7.0, 7.0]
    (closed,) = replay(lines)
    assert str(closed.cause) == "OSError: x"  # type: ignore[union-attr]  # the end


def test_redactor_removes_secrets_from_every_line() -> None:
    connection = new_server(limits=Limits(message_bytes=400, resync=True))
    lines = recorded(connection, redactor=Redactor())
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
    stream = json.dumps(request("initialize", 0, **hello)) + "\n"
    stream += json.dumps(request("tools/call", 1, name="x", arguments={"password": "hunter2"})) + "\n"
    for index in range(0, len(stream), 7):
        connection.receive_data(stream[index : index + 7].encode(), 0.0)
    connection.receive_data(b"hunter2" * 100 + b"\n\xffhunter2\n", 0.0)
    events: list[Any] = list(connection.events())
    text = json.dumps(request("tools/call", 2, name="x", arguments={"token": "hunter2"}))
    for message in (text, text.replace("2,", "3,", 1).encode()):
        connection.receive_message(message, 0.0)
    events += connection.events()
    first, second, third = (event for event in events if type(event).__name__ == "RequestReceived")
    connection.send_raw_result(first.id, b'{"secret": "hunter2"}')
    connection.send_error(second.id, RequestError(1, "no", {"apiKey": "hunter2"}))
    connection.send_progress(third.id, 1, None, "Bearer hunter2hunter2")
    connection.data_to_send()
    connection.send_notification(CustomNotification("a/b", {"secret": "hunter2"}))
    connection.data_to_send()
    connection.receive_data(b'"hunter2', 0.0)
    connection.close(0.0, grace=1.0)
    connection.receive_data(None, 0.0)
    events += connection.events()
    connection.abort(OSError("Bearer hunter2hunter2"))
    connection.abort()
    events += connection.events()
    assert "password" in "".join(lines)
    kept = [line for line in lines if "hunter2" in line]
    assert [json.loads(line)["data"] for line in kept] == ['"hunter2\n']
    assert [type(event) for event in replay(lines)] == [type(event) for event in events]


def test_redacted_recording_is_refused_within_a_line() -> None:
    connection = server()
    connection.receive_data(b"{", 0.0)
    with pytest.raises(LocalProtocolError, match="begins between two lines"):
        recorded(connection, redactor=Redactor())


def test_recording_is_refused_where_a_snapshot_is() -> None:
    connection = server()
    connection.receive_data(b"{}\n", 0.0)
    with pytest.raises(LocalProtocolError, match="drain the events"):
        recorded(connection)


def test_failing_write_ends_only_the_recording() -> None:
    connection = server()
    lines: list[str] = []

    def write(line: str) -> None:
        if lines:
            raise OSError("disk full")
        lines.append(line)

    recorder = Recorder(write)
    observation = add_tap(connection, recorder)
    assert len(feed(connection, call(1))) == 1
    assert str(observation.error) == "disk full"
    lines.clear()  # the disk has room again, but the recording would have a gap
    add_tap(server(), recorder)
    assert lines == []
