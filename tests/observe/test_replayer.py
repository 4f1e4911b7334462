from __future__ import annotations

import json
from typing import Any, ClassVar

import pytest
from wires import INFO, call, client, feed, new_server, request, server

from mcpio.engine.client import ClientConnection
from mcpio.engine.connection import Connection
from mcpio.engine.dialect import BatchItem
from mcpio.engine.limits import Limits, Timeout
from mcpio.engine.options import Options
from mcpio.engine.stateless_engine import StatelessEngine
from mcpio.engine.table import Phase, Role
from mcpio.errors import (
    ConnectionLost,
    InvalidMessage,
    LocalProtocolError,
    McpError,
    RequestError,
    RequestTimeout,
    UnexpectedResponse,
)
from mcpio.events import CloseReason, ConnectionClosed, OutgoingId, RequestFailed, RequestReceived
from mcpio.observe.recording import Recorder, Replay, replay
from mcpio.observe.tap import Redactor, Tap, add_tap
from mcpio.profiles import Profile
from mcpio.revisions import REV_2025_11_25, REV_2026_07_28, REVISIONS
from mcpio.types import (
    CallToolRequest,
    CallToolResult,
    ClientCapabilities,
    CustomNotification,
    DiscoverResult,
    PromptsCapability,
    RootsCapability,
    ServerCapabilities,
    ToolsCapability,
)


def recording() -> list[str]:
    connection = server()
    lines: list[str] = []
    add_tap(connection, Recorder(lines.append), now=0.0)
    (event,) = feed(connection, call(1))
    connection.send_result(event.id, CallToolResult(()))
    connection.data_to_send()
    return lines


def test_replayed_calls_hold_events_and_output() -> None:
    played = Replay(recording())
    assert played.role is Role.SERVER
    fed, pulled, answered, wrote = played
    assert (fed.line, fed.verb, fed.event, fed.sent, fed.phase) == (2, "receive_message", None, (), Phase.OPERATING)
    assert type(pulled.event).__name__ == "RequestReceived"
    assert answered.arguments["id"] == 1
    assert wrote.sent == (b'{"jsonrpc":"2.0","id":1,"result":{"content":[]}}\n',)
    assert played.connection.pending.incoming == ()


def test_options_and_principal_given_replace_missing_ones() -> None:
    options = Options(strict_initialized=True)
    played = Replay(recording(), options=options, principal="ada")
    assert played.connection.options is options
    (event,) = played.events()
    assert event.context.principal == "ada"  # type: ignore[union-attr]  # a request


def test_blank_lines_are_skipped() -> None:
    assert len(replay([recording()[0], "\n", *recording()[1:]])) == 1


def test_difference_from_the_recording_is_reported() -> None:
    lines = recording()
    changed = [json.loads(line) for line in lines]
    changed[2]["event"] = "ProgressReceived"
    changed[4]["chunks"] = ["other\n"]
    changed.insert(3, {"at": 0, "do": "next_event", "event": "Initialized"})
    changed.append({"at": 0, "do": "respond", "id": 1, "text": {"bytes": '{"id":1,"result":{}}'}})
    changed.append({"at": 0, "do": "next_message", "text": {"bytes": "x"}})
    changed.append({"at": 0, "do": "next_event"})
    changed.append({"at": 0, "do": "receive_message", "text": '{"jsonrpc":"2.0","id":5,"method":"ping"}', "via": None})
    changed.append({"at": 0, "do": "next_event"})
    differs = [step.differs for step in Replay(map(json.dumps, changed)) if step.differs]
    assert differs == [
        "RequestReceived, where there was ProgressReceived",
        "no event, where there was Initialized",
        "what is to be written",
        "refused: the peer's request 1 was answered before",
        "what is to be written",
        "Answered, where there was none",
    ]


def test_answer_with_other_formatting_is_replayed() -> None:
    lines = recording()[:3]
    text = '{"result": {"a": 1}, "id": 1}'
    lines.append(json.dumps({"at": 0, "do": "respond", "id": 1, "text": {"bytes": text}}))
    played = Replay(lines)
    assert [step.differs for step in played] == [None] * 3
    assert played.connection.data_to_send() == [b'{"jsonrpc":"2.0","id":1,"result":{"a":1}}\n']


def test_every_verb_is_replayed() -> None:
    connection = client()
    lines: list[str] = []
    add_tap(connection, Recorder(lines.append), now=0.0)
    related = feed(connection, request("roots/list", 1, _meta={"progressToken": 1}))[0].id
    first = connection.send_request(CallToolRequest("x"), now=1.0, timeout=Timeout(5, 1), related_to=related)
    connection.cancel_request(first, "enough")
    connection.send_request(CallToolRequest("x"), now=1.0, timeout=2.0, cookie="c")
    connection.send_progress(related, 1)
    connection.send_notification(CustomNotification("a/b", {"c": 1}), related_to=related)
    connection.send_error(related, RequestError(1, "no", [1]))
    connection.receive_data(b"\xff\n", 2.0)
    connection.receive_message(b"\xff", 2.0)
    connection.receive_message(b"[]", 2.0)
    connection.receive_message("\ud800", 2.0)
    connection.handle_timeout(3.0)
    list(connection.events())
    connection.next_message()
    connection.data_to_send()
    connection.close(4.0)
    connection.connection_lost(OSError("gone"), 5.0)
    connection.abort()
    list(connection.events())
    fresh = ClientConnection(INFO)
    more: list[str] = []
    add_tap(fresh, Recorder(more.append), now=0.0)
    fresh.send_initialize(now=0.0)
    fresh.receive_data(None, 1.0)
    list(fresh.events())
    for recorded in (lines, more):
        assert [step.differs for step in Replay(recorded) if step.differs] == []


def test_deferred_requests_and_the_end_are_replayed() -> None:
    connection = server(limits=Limits(high_water=1000))
    lines: list[str] = []
    add_tap(connection, Recorder(lines.append), now=0.0)
    connection.set_unwritten(10)
    connection.set_unwritten(2000)
    assert feed(connection, call(1)) == []
    connection.set_unwritten(0)
    assert len(list(connection.events())) == 1
    connection.abort(reason=CloseReason.OVERLOADED)
    list(connection.events())
    played = Replay(lines)
    assert [step.differs for step in played if step.differs] == []
    assert len([line for line in lines if "set_unwritten" in line]) == 2
    assert played.connection.end == ConnectionClosed(CloseReason.OVERLOADED, None)


def test_sent_batch_is_replayed() -> None:
    connection = client("2025-03-26")
    lines: list[str] = []
    add_tap(connection, Recorder(lines.append), now=0.0)
    items = [BatchItem(CallToolRequest("x"), Timeout(5.0), "c", True), CustomNotification("a/b", {"c": 1})]
    connection.send_batch(items, now=1.0)
    connection.data_to_send()
    played = Replay(lines)
    assert [step.differs for step in played if step.differs] == []
    assert played.connection.pending.outgoing == (2,)


def test_received_batches_and_calls_of_transports_are_replayed() -> None:
    connection = client("2025-03-26")
    lines: list[str] = []
    add_tap(connection, Recorder(lines.append, redactor=Redactor()), now=0.0)
    batch = [
        BatchItem(CallToolRequest("x", {"token": "y"}), 5, "c"),
        CustomNotification("a/b", {"c": 1}),
        CallToolRequest("z"),
    ]
    first, _, last = connection.send_batch(batch, now=1.0)
    assert first is not None
    connection.fail_request(first, ConnectionLost("the stream ended"), 2.0)
    connection.next_message(via=None)
    connection.next_message(via="other")
    events: list[Any] = list(connection.events())
    played = Replay(lines)
    again: list[Any] = played.events()
    assert [(event.id, event.cookie) for event in again] == [(event.id, event.cookie) for event in events] == [(2, "c")]
    assert played.connection.pending.outgoing == (last,)
    assert '"token":"[redacted]"' in "".join(lines)


@pytest.mark.parametrize("known", [True, False])
def test_skipped_handshake_is_replayed(known: bool) -> None:
    connection = new_server()
    lines: list[str] = []
    add_tap(connection, Recorder(lines.append), now=0.0)
    if known:
        connection.skip_handshake(REV_2025_11_25, capabilities=ClientCapabilities(roots=RootsCapability()), info=INFO)
    else:
        connection.skip_handshake(REV_2025_11_25)
    feed(connection, call(1))
    played = Replay(lines)
    assert [step.differs for step in played if step.differs] == []
    assert played.connection.peer == connection.peer


def test_options_are_restored() -> None:
    header = json.loads(recording()[0])
    header["options"] = {
        "revisions": ["2025-06-18", "2025-11-25"],
        "limits": {"message_bytes": 5},
        "request_timeout": {"total": 5, "idle": None},
        "custom_methods": ["a/b"],
        "profiles": ["erlmcp"],
        "emit_profile": "erlmcp",
        "accept_batches": True,
    }
    options = Replay([json.dumps(header)]).connection.options
    assert (options.limits.message_bytes, options.request_timeout, options.latest.name) == (5, Timeout(5), "2025-11-25")
    assert (options.custom_methods, options.emit_profile, options.accept_batches) == (
        frozenset({"a/b"}),
        Profile.ERLMCP,
        True,
    )


def test_overlong_line_is_replayed_by_its_length() -> None:
    lines = [recording()[0], json.dumps({"at": 0, "do": "receive_data", "overlong": 17 * 1024 * 1024})]
    lines.append(json.dumps({"at": 0, "do": "next_event", "event": "ProtocolViolated"}))
    assert [step.differs for step in Replay(lines)] == [None, None]


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("", "not a recording: the first line is not a header"),
        ("no json", "not a header"),
        ("[]", "not a header"),
        ("{}", "not a header"),
        ('{"recording": true}', "not a header"),
        ('{"recording": 2}', "the recording has version 2; this library reads up to 1"),
        ('{"recording": 1}', "the header has no proper role"),
        ('{"recording": 1, "role": "x", "at": 0, "options": {}, "snapshot": {}}', "no proper role"),
        ('{"recording": 1, "role": "client", "at": "0", "options": {}, "snapshot": {}}', "no proper at"),
        ('{"recording": 1, "role": "client", "at": 0, "options": {}, "snapshot": {}}', "not a snapshot"),
        ('{"recording": 1, "role": "client", "at": 0, "options": {"x": 1}, "snapshot": {}}', "the options: "),
        (
            '{"recording": 1, "role": "client", "at": 0, "options": {"revisions": ["x"]}, "snapshot": {}}',
            "the revision must be one of the protocol, not 'x'",
        ),
    ],
)
def test_malformed_header_is_refused(line: str, fault: str) -> None:
    with pytest.raises(LocalProtocolError, match=fault):
        Replay([line])
    with pytest.raises(LocalProtocolError, match="not a header"):
        Replay([])


@pytest.mark.parametrize(
    ("entry", "fault"),
    [
        ("no json", "line 2: "),
        ("5", "line 2: no call"),
        ("{}", "line 2: no call"),
        ('{"at": 0, "do": "fly"}', "line 2: no call"),
        ('{"at": 0, "do": []}', "line 2: no call"),
        ('{"at": "x", "do": "abort"}', "line 2: no call"),
        ('{"at": 0, "do": "receive_data"}', "line 2: receive_data: KeyError"),
        ('{"at": 0, "do": "receive_data", "data": {"hex": "x"}}', "line 2: receive_data: ValueError"),
        (
            '{"at": 0, "do": "skip_handshake", "revision": "x", "capabilities": null, "info": null}',
            "line 2: skip_handshake: ValueError",
        ),
        ('{"at": 0, "do": "send_initialize", "timeout": 5, "cookie": null}', "line 2: send_initialize: TypeError"),
    ],
)
def test_malformed_line_is_named(entry: str, fault: str) -> None:
    with pytest.raises(LocalProtocolError, match=f"malformed recording: {fault}"):
        replay([recording()[0], entry])


def test_recording_of_several_connections_is_replayed() -> None:
    first, second = recording(), recording()

    class Counted(Tap):
        opened_at: ClassVar[list[float]] = []

        def opened(self, connection: Connection | StatelessEngine, now: float) -> None:
            self.opened_at.append(now)

    played = Replay([*first, "\n", *second], tap=Counted())
    before = played.connection
    assert [step.differs for step in played if step.differs] == []
    assert len(Counted.opened_at) == 2
    assert played.connection is not before
    assert replay([*first, *second]) == [*replay(first), *replay(second)]
    with pytest.raises(LocalProtocolError, match=f"line {len(first) + 1}: the recording has version 2"):
        replay([*first, '{"recording": 2}'])


def test_recorder_begins_anew_with_each_connection() -> None:
    lines: list[str] = []
    recorder = Recorder(lines.append, redactor=Redactor())
    for _ in range(2):
        connection = client()
        add_tap(connection, recorder, now=0.0)
        connection.receive_data(b'{"half', 1.0)
        connection.receive_data(None, 1.0)
        list(connection.events())
    assert lines[: len(lines) // 2] == lines[len(lines) // 2 :]
    assert [step.differs for step in Replay(lines) if step.differs] == []


def test_client_recording_that_skips_the_handshake_is_refused() -> None:
    lines: list[str] = []
    add_tap(ClientConnection(INFO), Recorder(lines.append), now=0.0)
    with pytest.raises(LocalProtocolError, match="only a server has this verb"):
        replay([*lines, '{"at": 0, "do": "skip_handshake"}'])


def test_session_reset_is_replayed() -> None:
    connection = client()
    lines: list[str] = []
    add_tap(connection, Recorder(lines.append), now=0.0)
    connection.send_request(CallToolRequest("x"), now=1.0)
    connection.reset_session(2.0)
    events = [type(event) for event in connection.events()]
    played = Replay(lines)
    assert [type(event) for event in played.events()] == events == [RequestFailed]
    assert played.connection.phase is Phase.NEW
    with pytest.raises(LocalProtocolError, match="only a client has this verb"):
        replay([recording()[0], '{"at": 0, "do": "reset_session"}'])


def test_call_that_is_refused_now_is_reported_as_a_difference() -> None:
    entry: dict[str, Any] = {"method": "roots/list", "params": {}, "timeout": "default", "cookie": None}
    entry |= {"at": 0, "do": "send_request", "related_to": 7, "progress": False}
    (step,) = Replay([recording()[0], json.dumps(entry)])
    assert step.differs is not None
    assert step.differs.startswith("refused: ")


def test_held_time_is_replayed() -> None:
    connection = client()
    lines: list[str] = []
    add_tap(connection, Recorder(lines.append), now=0.0)
    connection.send_request(CallToolRequest("x"), now=1.0, timeout=10)
    connection.hold(2.0)
    connection.handle_timeout(50.0)
    connection.release(60.0)
    connection.handle_timeout(68.0)
    connection.handle_timeout(69.0)
    events = [type(event) for event in connection.events()]
    assert [type(event) for event in Replay(lines).events()] == events == [RequestFailed]
    with pytest.raises(LocalProtocolError, match="only a client has this verb"):
        replay([recording()[0], '{"at": 0, "do": "hold"}'])
    with pytest.raises(LocalProtocolError, match="only a client has this verb"):
        replay([recording()[0], '{"at": 0, "do": "release"}'])


def test_openings_of_stateless_clients_are_replayed() -> None:
    discovered = DiscoverResult(("2026-07-28",), ServerCapabilities(ToolsCapability()))
    for known in (None, discovered):
        lines: list[str] = []
        connection = ClientConnection(INFO, options=Options(revisions=REVISIONS))
        add_tap(connection, Recorder(lines.append), now=0.0)
        connection.adopt(REV_2026_07_28, known)
        connection.log_level = "debug"
        played = Replay(lines)
        list(played)
        assert (played.connection.phase, played.connection.revision) == (Phase.OPERATING, REV_2026_07_28)
        assert isinstance(played.connection, ClientConnection)
        assert played.connection.log_level == "debug"
    lines = []
    connection = ClientConnection(INFO, options=Options(revisions=REVISIONS))
    add_tap(connection, Recorder(lines.append), now=0.0)
    connection.negotiate(0.0)
    connection.data_to_send()
    sent = [text for step in Replay(lines) for text in step.sent]
    assert sent[0] is not None
    assert b"server/discover" in sent[0]


@pytest.mark.parametrize(
    ("error", "sent"),
    [
        (UnexpectedResponse(404, "no such path"), "initialize"),
        (UnexpectedResponse(503, "busy"), None),
        (RequestTimeout("server/discover", 5.0), None),
        (ConnectionLost("gone"), None),
        (InvalidMessage("", "the answer is malformed"), "initialize"),
        (RequestError(-32000, "Server not initialized"), "initialize"),
        (RequestError(-32003, "no sampling", {"requiredCapabilities": {"sampling": {}}}), None),
    ],
)
@pytest.mark.parametrize("redactor", [None, Redactor()])
def test_failed_probe_over_http_is_replayed_with_its_verdict(
    error: McpError, sent: str | None, redactor: Redactor | None
) -> None:
    lines: list[str] = []
    connection = ClientConnection(INFO)
    connection.over_http = True
    add_tap(connection, Recorder(lines.append, redactor=redactor), now=0.0)
    connection.negotiate(0.0)
    connection.data_to_send()
    connection.fail_request(OutgoingId(1), error, 1.0)
    events = [type(event) for event in connection.events()]
    chunks = connection.data_to_send()
    assert [json.loads(chunk or b"{}")["method"] for chunk in chunks] == ([] if sent is None else [sent])
    played = list(Replay(lines))
    assert [step.differs for step in played if step.differs] == []
    assert [type(step.event) for step in played if step.event is not None] == events
    assert [chunk for step in played for chunk in step.sent][1:] == chunks


def test_changed_capabilities_are_replayed() -> None:
    lines: list[str] = []
    connection = server()
    add_tap(connection, Recorder(lines.append), now=0.0)
    connection.capabilities = ServerCapabilities(prompts=PromptsCapability())
    assert [type(event) for event in feed(connection, request("prompts/list", 7))] == [RequestReceived]
    played = list(Replay(lines))
    assert [step.differs for step in played if step.differs] == []
    assert [type(step.event) for step in played if step.event is not None] == [RequestReceived]


@pytest.mark.parametrize(
    "call",
    [
        {"do": "negotiate", "timeout": None, "cookie": None, "over_http": False},
        {"do": "adopt", "revision": "2026-07-28", "discovered": None},
        {"do": "log_level", "level": "debug"},
    ],
)
def test_client_calls_in_the_recording_of_a_server_raise(call: dict[str, Any]) -> None:
    with pytest.raises(LocalProtocolError, match="only a client has this verb"):
        replay([recording()[0], json.dumps({"at": 0, **call})])


def test_acknowledge_in_the_recording_of_a_client_raises() -> None:
    lines: list[str] = []
    connection = ClientConnection(INFO)
    add_tap(connection, Recorder(lines.append), now=0.0)
    connection.send_initialize(0.0)
    call = {"at": 0, "do": "acknowledge", "id": 1, "honoured": {}}
    with pytest.raises(LocalProtocolError, match="only a server has this verb"):
        replay([lines[0], json.dumps(call)])
