"""Talks of the stateless era, drawn by hypothesis: an opening, then what both sides do, with a session beside it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import attrs
from hypothesis import strategies as st
from stateless import HELLO

from mcpio.engine.client import ClientConnection
from mcpio.engine.limits import Timeout
from mcpio.engine.options import Options
from mcpio.engine.server import ServerConnection
from mcpio.engine.table import Role
from mcpio.errors import LocalProtocolError, NoBackChannel, RequestError
from mcpio.events import Event, IncomingId, OutgoingId
from mcpio.observe.recording import Replay
from mcpio.revisions import HANDSHAKE_REVISIONS, REV_2026_07_28, REVISIONS, STATELESS_REVISIONS
from mcpio.testing import Pair
from mcpio.types import (
    CallToolRequest,
    CallToolResult,
    ClientCapabilities,
    CustomNotification,
    CustomRequest,
    Implementation,
    ListRootsRequest,
    ListRootsResult,
    ListToolsRequest,
    ListToolsResult,
    LoggingMessageNotification,
    ResourceUpdatedNotification,
    RootsCapability,
    ServerCapabilities,
    TextContent,
    ToolListChangedNotification,
    ToolsCapability,
)
from mcpio.types.base import TASKS_EXTENSION, InputRequiredResult
from mcpio.types.features import (
    DiscoverRequest,
    DiscoverResult,
    ResourcesCapability,
    SubscriptionFilter,
    SubscriptionsListenRequest,
    SubscriptionsListenResult,
)
from mcpio.types.tasks import CreatedTask

__all__ = ["engines", "openings", "plain", "steps", "talk", "talks"]

OFFERS = ServerCapabilities(
    tools=ToolsCapability(True), logging={}, resources=ResourcesCapability(True), extensions={TASKS_EXTENSION: {}}
)
DECLARED = ClientCapabilities(roots=RootsCapability(), extensions={TASKS_EXTENSION: {}})
FILTER = SubscriptionFilter(tools_list_changed=True, resource_subscriptions=("a:b",))
REQUESTS: dict[str, Any] = {
    "call": CallToolRequest("t", {"text": "é"}),
    "retry": CallToolRequest("t", input_responses={"k": ListRootsResult(())}, request_state=" s "),
    "list": ListToolsRequest(),
    "discover": DiscoverRequest(),
    "listen": SubscriptionsListenRequest(FILTER),
    "task": CustomRequest("tasks/get", {"taskId": "t"}),
}
ASKING = InputRequiredResult({"k": ListRootsRequest()}, " s ")
RESULTS: dict[str, Any] = {
    "call": CallToolResult((TextContent("é"),)),
    "list": ListToolsResult(()),
    "ask": ASKING,
    "task": CreatedTask("t", "working", "then", "now", None),
    "listen": SubscriptionsListenResult(),
    "custom": {"taskId": "t", "status": "working"},
}
NOTIFICATIONS: dict[str, Any] = {
    "log": LoggingMessageNotification("error", {"n": 1}),
    "tools": ToolListChangedNotification(),
    "updated": ResourceUpdatedNotification("a:b"),
    "tasks": CustomNotification("notifications/tasks", {"taskId": "t"}),
}


def _line(**members: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **members}).encode() + b"\n"


SESSION = [
    _line(id="hello", method="initialize", params=HELLO),
    _line(method="notifications/initialized"),
    _line(id="h", method="tools/list"),
    _line(id=2, method="ping"),
    _line(method="notifications/cancelled", params={"requestId": "h"}),
]
"""What another client says on the same pipe, in a session."""
NOISE = [b"x\n", b"\xff\n", b"[]\n", b'{"a"\n', _line(id=9, result={}), _line(id=3, method="roots/list")]

ids = st.integers(1, 6)
eighths = st.integers(0, 24).map(lambda number: number / 8)
"""Times whose sums and differences are exact floats."""
openings = st.sampled_from(["negotiate", "adopt"])
spoken = st.sampled_from([REVISIONS, STATELESS_REVISIONS, HANDSHAKE_REVISIONS])
"""The revisions of the server."""
steps = st.lists(
    st.one_of(
        st.tuples(st.just("ask"), st.sampled_from([*REQUESTS]), st.tuples(eighths, eighths)),
        st.tuples(st.just("ask"), st.sampled_from(["call", "listen"]), st.none()),
        st.tuples(st.just("answer"), ids, st.sampled_from([*RESULTS, "raw", "error", "missing"])),
        st.tuples(st.just("acknowledge"), ids, st.booleans()),
        st.tuples(st.just("notify"), ids, st.sampled_from([*NOTIFICATIONS])),
        st.tuples(st.just("notify"), ids, st.sampled_from([*NOTIFICATIONS])),
        st.tuples(st.just("progress"), ids, st.integers(1, 9)),
        st.tuples(st.just("cancel"), ids, st.sampled_from([None, "enough"])),
        st.tuples(st.just("level"), st.sampled_from([None, "error"]), st.none()),
        st.tuples(st.just("declare"), st.sampled_from(Role), st.none()),
        st.tuples(st.just("session"), st.sampled_from(SESSION), st.none()),
        st.tuples(st.just("noise"), st.sampled_from(Role), st.sampled_from(NOISE)),
        st.tuples(st.just("flow"), st.sampled_from(Role), st.booleans()),
        st.tuples(st.just("wait"), eighths, st.none()),
        st.tuples(st.just("end"), st.sampled_from(Role), st.sampled_from(["close", "abort", "lose", *[""] * 6])),
    ),
    max_size=25,
)
talks = st.tuples(openings, spoken, steps)
"""What ``engines`` and ``talk`` take."""


def engines(server_speaks: Any = REVISIONS) -> tuple[ClientConnection, ServerConnection]:
    """Return a client of both eras and a server."""
    client = ClientConnection(Implementation("c", "1"), DECLARED, options=Options(probe_timeout=2.0))
    custom = frozenset({"tasks/get"})
    options = Options(revisions=server_speaks, custom_methods=custom)
    return client, ServerConnection(Implementation("s", "1"), OFFERS, instructions="hint", options=options)


def talk(link: Pair, drawn: tuple[str, Any, list[Any]], *, before: Callable[[int], None] = lambda number: None) -> None:
    """Open a conversation and do the steps; ``before`` is called with the number of each, from 0 for the opening."""
    opening, _, todo = drawn
    before(0)
    if opening == "adopt":
        link.client.adopt(REV_2026_07_28, DiscoverResult(("2026-07-28",), OFFERS, "hint"))
    else:
        link.client.negotiate(link.now, cookie="opening")
    for number, step in enumerate(todo, 1):
        if step[0] != "session":  # its words may come before the opening is answered
            link.run()
        before(number)
        try:
            _do(link, number, *step)
        except (LocalProtocolError, NoBackChannel):
            continue
    link.run()


def _do(link: Pair, number: int, what: str, first: Any, second: Any) -> None:
    match what:
        case "ask" | "cancel" | "level":
            _do_as_client(link.client, number, link.now, what, first, second)
        case "answer" | "acknowledge" | "notify" | "progress":
            _do_as_server(link.server, what, IncomingId(first), second)
        case _:
            _happen(link, what, first, second)


def _do_as_client(client: ClientConnection, number: int, now: float, what: str, first: Any, second: Any) -> None:
    match what:
        case "ask":
            timeout = Timeout(None) if second is None else Timeout(*second)
            client.send_request(REQUESTS[first], now, timeout=timeout, cookie=number, progress=True)
        case "cancel":
            client.cancel_request(OutgoingId(first), second)
        case _:
            client.log_level = first


def _do_as_server(server: ServerConnection, what: str, id: IncomingId, second: Any) -> None:
    match what:
        case "answer":
            _answer(server, id, second)
        case "acknowledge":
            server.acknowledge(id, FILTER if second else SubscriptionFilter(tools_list_changed=True))
        case "notify":
            server.send_notification(NOTIFICATIONS[second], related_to=id)
        case _:
            server.send_progress(id, second, None, "on the way")


def _happen(link: Pair, what: str, first: Any, second: Any) -> None:
    side = link.client if first is Role.CLIENT else link.server
    match what:
        case "declare":
            mine = ClientCapabilities() if first is Role.CLIENT else ServerCapabilities(tools=ToolsCapability(True))
            side.capabilities = mine
        case "session":
            link.server.receive_data(first, link.now)
        case "noise":
            side.receive_data(second, link.now)
        case "flow":
            (link.stall if second else link.resume)(first)
        case "wait":
            link.advance(first)
        case _ if second == "lose":
            link.lose(OSError("gone"))
        case _ if second == "close":
            side.close(link.now, grace=2.0)
        case _ if second == "abort":
            side.abort()


def _answer(server: ServerConnection, id: IncomingId, how: str) -> None:
    match how:
        case "raw":
            server.send_raw_result(id, b'{"content": [], "tools": [] }')
        case "error":
            server.send_error(id, RequestError(5, "no", [1]))
        case "missing":
            server.send_error(id, RequestError(-32021, "no", {"requiredCapabilities": {"sampling": {}}}))
        case _:
            server.send_result(id, RESULTS[how])


def plain(event: Event) -> tuple[str, dict[str, Any]]:
    """Return an event in comparable form: exceptions as their class and text."""
    members = attrs.asdict(event, recurse=False)
    for name in ("error", "cause"):
        if members.get(name) is not None:
            members[name] = str(members[name]).removeprefix("OSError: ")
    return type(event).__name__, members


def check_replays(link: Pair, recordings: dict[Role, list[str]]) -> None:
    """Replay what was recorded of both sides, and compare events, bytes and the state in the end."""
    for role, events in ((Role.CLIENT, link.client_events), (Role.SERVER, link.server_events)):
        replay = Replay(recordings[role])
        taken = list(replay)
        assert [step.differs for step in taken if step.differs] == []
        assert [plain(step.event) for step in taken if step.event is not None] == [plain(event) for event in events]
        assert b"".join(chunk for step in taken for chunk in step.sent if chunk is not None) == link.sent(role)
        connection = link.client if role is Role.CLIENT else link.server
        assert (replay.connection.phase, replay.connection.next_deadline()) == (
            connection.phase,
            connection.next_deadline(),
        )
