"""The catalogue of bad input (``bad_input.txt``): for each fault the events, the answers and what becomes of the rest.

Each message comes once as bytes on a stream and once as a message of its own. Every time, a request that runs is still
running afterwards, one of this side's own still waits, and the next message is understood.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

from mcpio.engine.client import ClientConnection
from mcpio.engine.connection import Connection
from mcpio.engine.limits import Limits
from mcpio.engine.options import Options
from mcpio.engine.pending import Pending
from mcpio.engine.server import ServerConnection
from mcpio.engine.table import Phase
from mcpio.errors import InvalidMessage, RequestError
from mcpio.events import (
    Answered,
    CloseReason,
    ConnectionClosed,
    Event,
    IncomingId,
    MessageIgnored,
    NoiseReceived,
    NotificationReceived,
    OutgoingId,
    ProtocolViolated,
    RequestFailed,
    ResponseReceived,
)
from mcpio.profiles import Profile
from mcpio.revisions import REV_2025_11_25
from mcpio.types import (
    CallToolRequest,
    ClientCapabilities,
    Implementation,
    ListRootsRequest,
    ListRootsResult,
    ListToolsResult,
    PingRequest,
    RootsCapability,
    ServerCapabilities,
    ToolsCapability,
)

HEAD = b'{"jsonrpc":"2.0",'

# What does not parse: (what is wrong, text). A server answers it, a client takes it for noise (STDIO-12).
UNPARSABLE: list[tuple[str, bytes]] = [
    ("garbage", b"hello, world"),
    ("a log line", b"2025-11-25 12:00:00 INFO [main] listening on {stdio}"),
    ("not UTF-8", b"\xff\xfe\xfd"),
    ("cut in a character", HEAD + b'"id":3,"method":"ping\xc3"}'),
    ("UTF-16", '{"jsonrpc":"2.0","id":3,"method":"ping"}'.encode("utf-16-le")),
    ("a byte-order mark", b"\xef\xbb\xbf" + HEAD + b'"id":3,"method":"ping"}'),
    ("a control character", HEAD + b'"id":3,"method":"pi\x01ng"}'),
    ("truncated", HEAD + b'"id":3,"method":"pi'),
    ("too much of it", HEAD + b'"id":3,"method":"ping"}}'),
    ("two on one line", HEAD + b'"id":3,"method":"ping"}' + HEAD + b'"id":4,"method":"ping"}'),
    ("a comma too many", HEAD + b'"id":3,"method":"ping",}'),
    ("single quotes", b"{'jsonrpc':'2.0','id':3,'method':'ping'}"),
    ("a comment", b"// " + HEAD + b'"id":3,"method":"ping"}'),
    ("NaN", HEAD + b'"id":3,"method":"ping","params":{"x":NaN}}'),
    ("infinity", HEAD + b'"id":3,"method":"ping","params":{"x":-Infinity}}'),
    ("a number beyond a double", HEAD + b'"id":3,"method":"ping","params":{"x":1e999}}'),
    ("an integer of 4,301 digits", HEAD + b'"id":' + b"9" * 4301 + b',"method":"ping"}'),
    ("a lone surrogate", HEAD + b'"id":3,"method":"ping","params":{"x":"\\ud800"}}'),
    ("a bomb of arrays", b"[" * 100_000),
    ("a bomb of objects", b'{"a":' * 100_000),
    ("nested once too deep", HEAD + b'"id":3,"method":"ping","params":{"x":' + b"[" * 127 + b"]" * 127 + b"}}"),
]


@attrs.frozen
class Row:
    """One message, and what it leads to at either role."""

    text: bytes
    server: list[str]
    client: list[str]

    def outcomes(self, role: type[Connection]) -> list[str]:
        return self.server if role is ServerConnection else self.client


def _read(section: str) -> Iterator[Row]:
    text = (Path(__file__).parent / "bad_input.txt").read_text(encoding="utf-8")
    lines = re.sub(r"\n {8}", " ", text.split(f"## {section}\n")[1].split("\n## ")[0]).splitlines()
    row = Row(b"", [], [])
    for line in lines:
        message, bar, outcome = (part.strip() for part in line.partition(" | "))
        if line.startswith("    "):
            row.server.extend([outcome] if message in ("server", "both") else [])
            row.client.extend([outcome] if message in ("client", "both") else [])
        elif message and not message.startswith("#"):
            row = Row(message.encode().replace(b"{+", HEAD), [outcome] * bool(bar), [outcome] * bool(bar))
            yield row


def _rows(section: str) -> pytest.MarkDecorator:
    rows = list(_read(section))
    assert rows
    return pytest.mark.parametrize("row", rows, ids=[ascii(row.text.removeprefix(HEAD).decode()) for row in rows])


roles = pytest.mark.parametrize("role", [ServerConnection, ClientConnection], ids=["server", "client"])
channels = pytest.mark.parametrize("channel", ["stream", "messages"])


@channels
@roles
@pytest.mark.parametrize("text", [text for _, text in UNPARSABLE], ids=[name for name, _ in UNPARSABLE])
@pytest.mark.req("RPC-02", "RPC-15", "RPC-22", "STDIO-05", "STDIO-12")
def test_unparsable_text(role: type[Connection], text: bytes, channel: str) -> None:
    connection = _conversation(role)
    _feed(connection, text, channel)
    (event,) = connection.events()
    head = text.decode(errors="replace")[:200]
    if role is ServerConnection:
        assert isinstance(event, ProtocolViolated)
        assert (event.error.code, event.raw, event.via) == (-32700, head, None)
        error = {"code": -32700, "message": f"Parse error: {event.error}"}
        assert _sent(connection) == [_line({"error": error})]
    else:
        assert event == NoiseReceived(head, len(text))
        assert _sent(connection) == []
    _check_unharmed(connection)


@channels
@roles
@_rows("In operation")
@pytest.mark.req("RPC-03", "RPC-04", "RPC-09", "RPC-10", "RPC-11", "RPC-13", "RPC-14", "RPC-15", "RPC-16", "RPC-18")
def test_bad_message_in_operation(role: type[Connection], row: Row, channel: str) -> None:
    connection = _conversation(role)
    _feed(connection, row.text, channel)
    _check(connection, row.outcomes(role))
    _check_unharmed(connection)


@channels
@roles
@_rows("In operation, in 2025-03-26")
@pytest.mark.req("BATCH-01", "BATCH-05", "BATCH-07", "RPC-07", "RPC-12")
def test_bad_message_in_operation_in_2025_03_26(role: type[Connection], row: Row, channel: str) -> None:
    connection = _conversation(role, "2025-03-26")
    _feed(connection, row.text, channel)
    _check(connection, row.outcomes(role))
    _check_unharmed(connection)


@channels
@roles
@_rows("In operation, with the profiles")
def test_bad_message_in_operation_with_profiles(role: type[Connection], row: Row, channel: str) -> None:
    connection = _conversation(role, profiles=frozenset(Profile))
    _feed(connection, row.text, channel)
    _check(connection, row.outcomes(role))
    _check_unharmed(connection)


@channels
@roles
@pytest.mark.parametrize("revision", ["2024-11-05", "2025-06-18"])
@pytest.mark.parametrize("text", [b"[]", b"[1]", b"[" + HEAD + b'"id":3,"method":"ping"}]'])
@pytest.mark.req("BATCH-02", "RPC-12")
def test_array_is_refused_in_other_revisions(role: type[Connection], text: bytes, revision: str, channel: str) -> None:
    connection = _conversation(role, revision)
    _feed(connection, text, channel)
    _check(connection, ["violated -32600 -> nobody: a JSON array is no message in this revision"])
    _check_unharmed(connection)


@channels
@roles
@_rows("Before the handshake")
@pytest.mark.req("LIFE-11", "LIFE-22", "BATCH-03", "PING-01", "RPC-12")
def test_bad_message_before_the_handshake(role: type[Connection], row: Row, channel: str) -> None:
    connection = _new(role)
    _feed(connection, row.text, channel)
    _check(connection, row.outcomes(role))
    phases = [connection.phase]
    if isinstance(connection, ClientConnection):
        connection.send_initialize(now=0.0)
        connection.data_to_send()
        _feed(connection, row.text, channel)
        _check(connection, row.client)
        phases.append(connection.phase)
    assert phases == [Phase.NEW, Phase.INITIALIZING][: len(phases)]


@channels
@pytest.mark.parametrize(
    ("role", "text", "path"),
    [
        (ServerConnection, HEAD + b'"id":2,"result":{"roots":7}}', "roots"),
        (ServerConnection, HEAD + b'"id":2,"result":{}}', "roots"),
        (ClientConnection, HEAD + b'"id":2,"result":{"content":7}}', "content"),
        (ClientConnection, HEAD + b'"id":2,"result":{}}', "content"),
    ],
)
def test_malformed_result_fails_its_request(role: type[Connection], text: bytes, path: str, channel: str) -> None:
    connection = _conversation(role)
    _feed(connection, text, channel)
    (failed,) = connection.events()
    assert isinstance(failed, RequestFailed)
    assert isinstance(failed.error, InvalidMessage)
    assert (failed.id, failed.error.path, failed.raw) == (2, path, json.loads(text))
    _feed(connection, text, channel)
    _check(connection, ["violated -32600: a response to id 2, which was answered before"])
    _check_alive(connection)


@channels
@roles
@pytest.mark.parametrize(
    ("error", "retryable", "seconds"),
    [
        (b'"code":1056,"message":"x"', True, None),
        (b'"code":1056,"message":"x","data":null', True, None),
        (b'"code":1056,"message":"x","data":[{"retryable":false}]', True, None),
        (b'"code":1056,"message":"x","data":{"retryable":"false","retry_after":"1"}', True, None),
        (b'"code":1056,"message":"x","data":{"retryable":null,"retry_after":-1}', True, None),
        (b'"code":1056,"message":"x","data":{"retry_after":true,"retryAfter":[]}', True, None),
        (b'"code":1056,"message":"x","data":{"retryable":false,"retry_after":1e308}', False, 1e308),
        (b'"code":1059,"message":"","data":{"category":7,"severity":{}}', False, None),
        (b'"code":1006,"message":"unassigned"', False, None),
        (b'"code":1090,"message":"x"', False, None),
        (b'"code":%d,"message":"x"' % 10**400, False, None),
        (b'"code":-32010,"message":"x"', False, None),
    ],
)
def test_malformed_error_fails_its_request(
    role: type[Connection], error: bytes, retryable: bool, seconds: float | None, channel: str
) -> None:
    connection = _conversation(role)
    _feed(connection, HEAD + b'"id":2,"error":{%b}}' % error, channel)
    (failed,) = connection.events()
    assert isinstance(failed, RequestFailed)
    assert isinstance(failed.error, RequestError)
    assert (failed.error.is_retryable(), failed.error.retry_after) == (retryable, seconds)
    _check_alive(connection)


@channels
@roles
def test_numbers_of_any_size_are_handled(role: type[Connection], channel: str) -> None:
    connection = _conversation(role)
    big = b"1" + b"0" * 400
    _feed(connection, HEAD + b'"id":%b,"method":"ping"}' % big, channel)
    _check(connection, [f"pong -> {big.decode()}"])
    _feed(connection, HEAD + b'"id":%b,"result":{}}' % big, channel)
    _check(connection, [f"violated -32600: a response to id {big[:100].decode()}, which was never sent"])
    params = b'"params":{"progressToken":%b,"progress":%b}}' % (big, big)
    _feed(connection, HEAD + b'"method":"notifications/progress",' + params, channel)
    _check(connection, ["ignored UNKNOWN_TOKEN"])
    _check_unharmed(connection)


@channels
@pytest.mark.req("PROG-04")
def test_progress_of_any_size_is_handled(channel: str) -> None:
    connection = _conversation(ClientConnection)
    connection.send_request(CallToolRequest("t"), now=0.0, progress=True)
    connection.data_to_send()
    for number in (10**400, 10**400, 1, 10**401, -(10**401)):
        params = b'"params":{"progressToken":3,"progress":%d}}' % number
        _feed(connection, HEAD + b'"method":"notifications/progress",' + params, channel)
    events = [type(event).__name__ for event in connection.events()]
    violated = "ProtocolViolated"
    assert events == ["ProgressReceived", violated, violated, "ProgressReceived", violated]


@channels
@roles
def test_valid_messages_between_bad_ones_are_handled(role: type[Connection], channel: str) -> None:
    connection = _conversation(role)
    ping = HEAD + b'"id":%d,"method":"ping"}'
    for text in [b"#!/bin/sh", ping % 3, b"{}", b"[]", ping % 4, b"\xff", ping % 5]:
        _feed(connection, text, channel)
    bad = "ProtocolViolated" if role is ServerConnection else "NoiseReceived"
    events = [type(event).__name__ for event in connection.events()]
    assert events == [bad, "Answered", "ProtocolViolated", "ProtocolViolated", "Answered", bad, "Answered"]
    answers = [json.loads(line).get("id") for line in _sent(connection)]
    assert answers == ([None, 3, None, None, 4, None, 5] if role is ServerConnection else [3, None, None, 4, 5])
    _check_unharmed(connection)


@channels
@roles
@pytest.mark.req("SEC-10")
def test_input_after_an_oversized_message_is_ignored(role: type[Connection], channel: str) -> None:
    connection = _conversation(role, limits=Limits(message_bytes=200))
    for text in (b"x" * 201, HEAD + b'"id":3,"method":"ping"}', b"x" * 201):
        _feed(connection, text, channel)
    assert [type(event) for event in connection.events()] == [ProtocolViolated, RequestFailed]
    error = {"code": -32600, "message": "Invalid request: a message is longer than 200 bytes"}
    assert _sent(connection) == [_line({"error": error})]
    assert (connection.phase, connection.wants_read) == (Phase.CLOSING, False)


@channels
@roles
@pytest.mark.parametrize("text", [b"garbage", HEAD + b'"id":3,"method":"ping"}', b"", b"x" * 300])
def test_input_after_the_end_is_ignored(role: type[Connection], text: bytes, channel: str) -> None:
    connection = _conversation(role)
    connection.abort()
    assert list(connection.events())[-1] == ConnectionClosed(CloseReason.ABORTED, None)
    _feed(connection, text, channel)
    connection.receive_data(None, 1.0)
    connection.receive_message(None, 1.0)
    connection.connection_lost(OSError(), 1.0)
    connection.handle_timeout(1000.0)
    assert (list(connection.events()), connection.data_to_send(), connection.next_message()) == ([], [], None)
    assert connection.closed


@roles
@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.req("STDIO-03")
def test_unfinished_line_at_end_of_file(role: type[Connection], whole: bool) -> None:
    text = HEAD + b'"id":3,"method":"ping"}'
    connection = _conversation(role)
    connection.receive_data(text if whole else text[:-1], 1.0)
    assert list(connection.events()) == []
    connection.receive_data(None, 1.0)
    first, *rest = connection.events()
    assert isinstance(first, Answered if whole else ProtocolViolated if role is ServerConnection else NoiseReceived)
    assert isinstance(rest[0], RequestFailed)
    # A client has nobody to answer to; a server still answers what runs.
    assert len(_sent(connection)) == (role is ServerConnection)
    assert connection.phase is (Phase.CLOSING if role is ServerConnection else Phase.CLOSED)


# Making and checking

WHO = {"name": "peer", "version": "1"}


def _new(role: type[Connection], limits: Limits | None = None, **more: Any) -> Connection:
    options = Options(limits=limits or Limits(), **more)
    if role is ServerConnection:
        capabilities = ServerCapabilities(tools=ToolsCapability())
        return ServerConnection(Implementation("x", "1"), capabilities, options=options)
    return ClientConnection(Implementation("x", "1"), ClientCapabilities(roots=RootsCapability()), options=options)


def _conversation(
    role: type[Connection], revision: str = "2025-11-25", limits: Limits | None = None, **more: Any
) -> Connection:
    """A connection in operation: the peer's request 7 runs, and this side's own request 2 waits."""
    connection = _new(role, limits, **more)
    if isinstance(connection, ServerConnection):
        params = {"protocolVersion": revision, "capabilities": {"roots": {}}, "clientInfo": WHO}
        _say(connection, id=0, method="initialize", params=params)
        _say(connection, method="notifications/initialized")
        connection.send_request(PingRequest(), now=0.0)
        _say(connection, id=1, result={})
        _say(connection, id=7, method="tools/list")
        connection.send_request(ListRootsRequest(), now=0.0)
    elif isinstance(connection, ClientConnection):
        connection.send_initialize(now=0.0)
        _say(connection, id=1, result={"protocolVersion": revision, "capabilities": {"tools": {}}, "serverInfo": WHO})
        _say(connection, id=7, method="roots/list")
        connection.send_request(CallToolRequest("t"), now=0.0)
    connection.data_to_send()
    assert connection.pending == Pending((OutgoingId(2),), (IncomingId(1),))
    return connection


def _say(connection: Connection, **message: Any) -> list[Event]:
    connection.receive_data(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n", 0.0)
    return list(connection.events())


def _feed(connection: Connection, text: bytes, channel: str) -> None:
    if channel == "stream":
        connection.receive_data(text + b"\n", 1.0)
    else:
        connection.receive_message(text, 1.0)


def _sent(connection: Connection) -> list[bytes]:
    return [chunk for chunk in connection.data_to_send() if chunk is not None]


def _line(message: dict[str, Any]) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **message}, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"


def _check(connection: Connection, outcomes: list[str]) -> None:
    """Check every event, and every byte that went out."""
    assert [_outcome(event) for event in connection.events()] == [_without_answer(outcome) for outcome in outcomes]
    revision = connection.revision
    with_null = revision is None or revision < REV_2025_11_25
    assert _sent(connection) == [line for each in outcomes for line in _answers(each, with_null=with_null)]


def _outcome(event: Event) -> str:
    """Say an event as the catalogue does, without where the answer goes."""
    match event:
        case ProtocolViolated():
            return f"violated {event.error.code}: {event.error}"
        case Answered(error=None):
            return "pong"
        case Answered():
            assert event.error is not None
            data = "" if event.error.data is None else " " + json.dumps(event.error.data, separators=(",", ":"))
            return f"refused {event.error.code}: {event.error.message}{data}".rstrip()
        case MessageIgnored():
            return f"ignored {event.reason.name}"
        case NotificationReceived():
            return f"reported NotificationReceived {type(event.notification).__name__}"
        case _:
            return f"reported {type(event).__name__}"


def _without_answer(outcome: str) -> str:
    return re.sub(r" -> [^:]+", "", outcome, count=1)


def _answers(outcome: str, *, with_null: bool) -> list[bytes]:
    """Return what must go out, byte for byte."""
    match = re.fullmatch(r'(\w+) ?(-\d+)? -> ([^:]+)(?:: ?(.*?)( \{".*\})?)?', outcome)
    if match is None:
        return []
    kind, code, to, message, data = match.groups()
    if to == "nobody":
        id: dict[str, Any] = {"id": None} if with_null else {}
    else:
        id = {"id": json.loads(to)}
    if kind == "pong":
        return [_line({**id, "result": {}})]
    if kind == "violated":
        message = f"{TITLES[code]}: {message}"
    elif message == "Method not found:":
        message += " "
    error = {"code": int(code), "message": message, **({} if data is None else {"data": json.loads(data)})}
    return [_line({**id, "error": error})]


TITLES = {"-32600": "Invalid request", "-32602": "Invalid params"}


def _check_unharmed(connection: Connection) -> None:
    """What ran still runs, what waited still waits, and the next message is understood."""
    assert connection.phase is Phase.OPERATING
    assert connection.pending == Pending((OutgoingId(2),), (IncomingId(1),))
    assert connection.next_deadline() == 60
    is_server = isinstance(connection, ServerConnection)
    connection.send_result(IncomingId(1), ListToolsResult(()) if is_server else ListRootsResult(()))
    assert _sent(connection) == [_line({"id": 7, "result": {"tools" if is_server else "roots": []}})]
    (answer,) = _say(connection, id=2, result={"roots": []} if is_server else {"content": []})
    assert isinstance(answer, ResponseReceived)
    _check_alive(connection)


def _check_alive(connection: Connection) -> None:
    _say(connection, id="still there?", method="ping")
    assert _sent(connection) == [_line({"id": "still there?", "result": {}})]
