"""P15: observers see everything and change nothing; replaying a recording in a fresh engine gives the same events."""

from __future__ import annotations

import json
from typing import Any

import pytest
from examples import examples
from hypothesis import example, given, settings
from hypothesis import strategies as st
from talks import check_replays, plain

from mcpio.engine.client import ClientConnection
from mcpio.engine.connection import Connection
from mcpio.engine.limits import Timeout
from mcpio.engine.server import ServerConnection
from mcpio.engine.table import Phase, Role
from mcpio.errors import LocalProtocolError, NoBackChannel, RequestError
from mcpio.events import Event, IncomingId, OutgoingId
from mcpio.observe.recording import Recorder, Replay
from mcpio.observe.tap import Redacting, Redactor, Tap, add_tap
from mcpio.testing import Pair, at_random, pair
from mcpio.types import (
    CallToolRequest,
    CallToolResult,
    ClientCapabilities,
    Implementation,
    ListRootsRequest,
    ListRootsResult,
    LoggingMessageNotification,
    ResourceUpdatedNotification,
    RootsCapability,
    ServerCapabilities,
    TextContent,
    ToolsCapability,
)
from mcpio.types.features import ResourcesCapability

sides = st.booleans()
ids = st.integers(1, 6)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("ask"), sides, st.sampled_from([None, 1.0, 5.0]), st.sampled_from([None, 0.5, 2.0])),
        st.tuples(st.just("answer"), sides, ids, st.sampled_from(["result", "raw", "error"])),
        st.tuples(st.just("progress"), sides, ids, st.integers(1, 9)),
        st.tuples(st.just("cancel"), sides, ids, st.sampled_from([None, "enough"])),
        st.tuples(st.just("notify"), st.sampled_from(["log", "updated"]), ids, st.none()),
        st.tuples(st.just("feed"), sides, st.sampled_from([b"x\n", b"\xff\n", b"[]\n", b'{"a"', b"\n"]), st.none()),
        st.tuples(st.just("wait"), st.integers(0, 24).map(lambda eighths: eighths / 8), st.none(), st.none()),
        st.tuples(st.just("close"), sides, st.sampled_from([None, 0.5, 4.0]), st.none()),
        st.tuples(st.just("lose"), st.none(), st.none(), st.none()),
        st.tuples(st.just("abort"), sides, st.none(), st.none()),
    ),
    max_size=25,
)


ANSWERED = [("ask", True, None, None), ("progress", False, 1, 5), ("answer", False, 1, "result")]
"""A whole call: what is drawn has few of them, since each of its steps must fit those before."""


@settings(max_examples=examples(60), deadline=None)
@given(steps=steps, seed=st.integers(0, 99))
@example(steps=ANSWERED, seed=0)
def test_replayed_recording_gives_same_events_and_bytes(steps: list[Any], seed: int) -> None:
    link, recordings = _recorded(steps, seed)
    check_replays(link, recordings)


@settings(max_examples=examples(30), deadline=None)
@given(steps=steps, seed=st.integers(0, 99))
def test_replayed_redacted_recording_gives_same_events_elsewhere(steps: list[Any], seed: int) -> None:
    link, recordings = _recorded(steps, seed, Redactor())
    for role, events in ((Role.CLIENT, link.client_events), (Role.SERVER, link.server_events)):
        taken = list(Replay(recordings[role]))
        names = [type(step.event).__name__ for step in taken if step.event is not None]
        assert names == [type(event).__name__ for event in events]


@settings(max_examples=examples(30), deadline=None)
@given(steps=steps, seed=st.integers(0, 99), failing=st.integers(0, 200))
def test_failing_observer_changes_nothing(steps: list[Any], seed: int, failing: int) -> None:
    alone, _ = _recorded(steps, seed, taps=False)
    link = pair(*_engines(), chunk=at_random(seed))
    reports: list[str] = []
    for connection in (link.client, link.server):
        add_tap(connection, Failing(failing), report=lambda message, _: reports.append(message))
    _walk(link, steps)
    assert link.tap == alone.tap
    assert [plain(event) for event in link.client_events] == [plain(event) for event in alone.client_events]
    assert [plain(event) for event in link.server_events] == [plain(event) for event in alone.server_events]
    assert len(reports) <= 2


def test_tap_sees_every_byte_in_both_directions() -> None:
    heard: list[tuple[str, bytes]] = []

    class Bytes(Tap):
        def received(self, data: bytes | None, now: float) -> None:
            heard.append(("in", data or b""))

        def sent(self, data: bytes | None, now: float) -> None:
            heard.append(("out", data or b""))

    client, server = _engines()
    link = pair(client, server, chunk=at_random(1))
    add_tap(server, Bytes())
    link.handshake()
    client.send_request(CallToolRequest("t", {"text": "é"}), now=0.0)
    link.run()
    server.send_result(IncomingId(1), CallToolResult(()))
    link.run()
    assert b"".join(data for way, data in heard if way == "in") == link.sent(Role.CLIENT)
    assert b"".join(data for way, data in heard if way == "out") == link.sent(Role.SERVER)


def test_redactor_blanks_secrets_alone_in_json_inside_a_text() -> None:
    heard: list[bytes] = []

    class Texts(Tap):
        def message_received(self, text: bytes, via: Any, now: float) -> None:
            heard.append(text)

    inside = {"rows": [1, 2.0, "é"], "password": "hunter2"}
    link = pair(*_engines())
    link.handshake()
    add_tap(link.server, Redacting(Texts()))
    for text in (json.dumps(inside), '{ "a" : 1 }', "[1,", "plain"):
        link.client.send_request(CallToolRequest("t", {"text": text}), now=0.0)
    link.run()
    first, *others = (json.loads(text)["params"]["arguments"]["text"] for text in heard)
    assert json.loads(first) == {**inside, "password": "[redacted]"}
    assert others == ['{ "a" : 1 }', "[1,", "plain"]


@pytest.mark.parametrize("engine", [0, 1])
def test_observed_engine_keeps_its_class(engine: int) -> None:
    connection = _engines()[engine]
    cls = type(connection)
    add_tap(connection, Tap())
    assert isinstance(connection, cls)
    restored = type(connection).restore(connection.snapshot(0.0), 0.0)
    assert list(restored.events()) == []


class Failing(Tap):
    """Raises after a number of observations."""

    def __init__(self, after: int) -> None:
        self._left = after

    def event(self, event: Event, now: float) -> None:
        self._count()

    def called(self, verb: str, arguments: Any, now: float) -> None:
        self._count()

    def message_received(self, text: bytes, via: Any, now: float) -> None:
        self._count()

    def _count(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise RuntimeError("enough")


def _recorded(
    steps: list[Any], seed: int, redactor: Redactor | None = None, *, taps: bool = True
) -> tuple[Pair, dict[Role, list[str]]]:
    link = pair(*_engines(), chunk=at_random(seed))
    recordings: dict[Role, list[str]] = {Role.CLIENT: [], Role.SERVER: []}
    if taps:
        for connection in (link.client, link.server):
            add_tap(connection, Recorder(recordings[connection.role].append, redactor=redactor))
    _walk(link, steps)
    return link, recordings


def _walk(link: Pair, steps: list[Any]) -> None:
    link.handshake()
    for number, step in enumerate(steps):
        link.run()
        try:
            _do(link, number, *step)
        except (LocalProtocolError, NoBackChannel):
            continue
    link.run()


def _do(link: Pair, number: int, what: str, choice: Any, first: Any, second: Any) -> None:
    side: Connection = link.client if choice is True else link.server
    match what:
        case "wait":
            link.advance(choice)
        case "lose":
            link.lose(OSError("gone"))
        case "abort":
            side.abort()
        case "close":
            side.close(link.now, grace=first)
        case "feed":
            side.receive_data(first, link.now)
        case "cancel":
            side.cancel_request(OutgoingId(first), second)
        case "progress":
            side.send_progress(IncomingId(first), second, None, "on the way")
        case _:
            _say(link, side, number, what, choice, first, second)


def _say(link: Pair, side: Connection, number: int, what: str, choice: Any, first: Any, second: Any) -> None:
    match what:
        case "notify" if choice == "log":
            link.server.send_notification(LoggingMessageNotification("info", {"n": number}))
        case "notify":
            link.server.send_notification(ResourceUpdatedNotification("a:b"), related_to=IncomingId(first))
        case "ask" if side.phase is Phase.OPERATING:
            request = CallToolRequest("t", {"n": number}) if choice else ListRootsRequest()
            side.send_request(request, now=link.now, timeout=Timeout(first, second), cookie=number, progress=True)
        case "answer" if second == "error":
            side.send_error(IncomingId(first), RequestError(1, "no", [1]))
        case "answer" if second == "raw":
            side.send_raw_result(IncomingId(first), b'{"roots": [], "content": [] }')
        case "answer":
            result = ListRootsResult(()) if choice else CallToolResult((TextContent("é"),))
            side.send_result(IncomingId(first), result)


def _engines() -> tuple[ClientConnection, ServerConnection]:
    offer = ServerCapabilities(tools=ToolsCapability(), logging={}, resources=ResourcesCapability(subscribe=True))
    return (
        ClientConnection(Implementation("c", "1"), ClientCapabilities(RootsCapability())),
        ServerConnection(Implementation("s", "1"), offer),
    )
