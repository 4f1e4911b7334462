"""P3: a call that raises changes nothing; every error it raises is one of two kinds."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import pytest
from examples import examples
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from unchecked import unchecked

from mcpio.engine.client import ClientConnection
from mcpio.engine.connection import Connection
from mcpio.engine.limits import Limits, Timeout
from mcpio.engine.options import Options
from mcpio.engine.server import ServerConnection
from mcpio.engine.table import Phase, Role
from mcpio.errors import LocalProtocolError, NoBackChannel, RequestError
from mcpio.events import IncomingId, OutgoingId
from mcpio.revisions import REV_2025_11_25, REV_2026_07_28
from mcpio.testing import Pair, pair
from mcpio.types import (
    CallToolRequest,
    CallToolResult,
    CancelledNotification,
    ClientCapabilities,
    CustomNotification,
    CustomRequest,
    ElicitFormRequest,
    ElicitSchema,
    EmptyResult,
    Implementation,
    InitializedNotification,
    InitializeRequest,
    ListRootsRequest,
    ListRootsResult,
    ListToolsRequest,
    ListToolsResult,
    LoggingMessageNotification,
    PingRequest,
    ProgressNotification,
    ResourceUpdatedNotification,
    RootsCapability,
    RootsListChangedNotification,
    ServerCapabilities,
    TextContent,
    ToolListChangedNotification,
    ToolsCapability,
)
from mcpio.types.base import InputRequiredResult
from mcpio.types.features import (
    DiscoverRequest,
    DiscoverResult,
    SubscriptionFilter,
    SubscriptionsListenRequest,
    SubscriptionsListenResult,
)
from mcpio.types.tasks import CreatedTask

NESTED: Any = []
for _ in range(200):
    NESTED = [NESTED]

UNSAYABLE: list[Any] = [math.nan, math.inf, "\ud800", object(), {1: 2}, {1, 2}, b"bytes", NESTED]
"""Values without a JSON form."""

LONG: Any = "x" * 5000
"""A text that no message has room for."""

REQUESTS: list[Any] = [
    PingRequest(),
    ListToolsRequest(),
    CallToolRequest("t", {"a": [1, None]}),
    *(CallToolRequest("t", {"a": value}) for value in UNSAYABLE),
    CallToolRequest("t", {"a": LONG}),
    CallToolRequest("t", meta={"not valid!": 1}),
    unchecked(CallToolRequest("t"), name=5),
    ListRootsRequest(),
    DiscoverRequest(),
    SubscriptionsListenRequest(SubscriptionFilter(tools_list_changed=True)),
    unchecked(SubscriptionsListenRequest(SubscriptionFilter()), notifications="all"),
    CallToolRequest("t", input_responses={"k": math.nan}),  # type: ignore[dict-item]  # a mistake on purpose
    CallToolRequest("t", input_responses={"k": ListRootsResult(())}, request_state="s"),
    CustomRequest("tasks/get", {"taskId": "t"}),
    ElicitFormRequest("m", ElicitSchema({})),
    InitializeRequest("2025-11-25", ClientCapabilities(), Implementation("x", "1")),
    CustomRequest("acme/x", {"a": 1}),
    CustomRequest("acme/x", {"a": math.nan}),
    CustomRequest("", {}),
    CustomRequest("tools/list"),
    ListToolsRequest,
    CallToolResult(()),
    ToolListChangedNotification(),
    None,
    "tools/list",
]
NOTIFICATIONS: list[Any] = [
    ToolListChangedNotification(),
    RootsListChangedNotification(),
    LoggingMessageNotification("info", {"a": 1}),
    *(LoggingMessageNotification("info", value) for value in UNSAYABLE),
    ProgressNotification(1, 1),
    CancelledNotification(1),
    InitializedNotification(),
    CustomNotification("acme/x", {"a": "\ud800"}),
    CustomNotification("notifications/cancelled"),
    CustomNotification("acme/x"),
    ResourceUpdatedNotification("a:b"),
    PingRequest(),
    None,
]
RESULTS: list[Any] = [
    CallToolResult((TextContent("hi"),)),
    CallToolResult((TextContent("\ud800"),)),
    CallToolResult((TextContent(LONG),)),
    CallToolResult((5,)),  # type: ignore[arg-type]  # a mistake on purpose
    CallToolResult((), structured_content={"a": math.nan}),
    EmptyResult(),
    InputRequiredResult({"k": ListRootsRequest()}, "s"),
    InputRequiredResult({"k": unchecked(ListRootsRequest(), meta=5)}),
    InputRequiredResult({"k": {"method": "roots/list"}}),  # type: ignore[dict-item]  # a mistake on purpose
    InputRequiredResult({"k": CallToolRequest("t", {"name": object()})}),  # type: ignore[dict-item]  # as above
    InputRequiredResult({}, "\ud800"),
    InputRequiredResult(),
    ListToolsResult((), ttl_ms=-1),
    CreatedTask("t", "working", "then", "now", None),
    SubscriptionsListenResult(),
    unchecked(SubscriptionsListenResult(), meta={"a b": 1}),
    ListRootsResult(()),
    {},
    None,
]
RAW: list[Any] = [
    b"{}",
    b'{"content":[],"a":"%b"}' % LONG.encode(),
    b'{"content":[]}',
    b'{"resultType":"input_required","requestState":"s"}',
    b'{"_meta":[]}',
    b"[]",
    b"{",
    b'{"a":NaN}',
    b"\xff",
    b'{"a":' + b"[" * 200 + b"]" * 200 + b"}",
]
ERRORS: list[Any] = [
    RequestError(-32000, "no"),
    RequestError(1, "\ud800"),
    RequestError(1, LONG),
    RequestError(1, "no", object()),
    RequestError(-32002, "not found"),
    RequestError(-32050, "reserved"),
    RequestError(-32021, "no"),
    RequestError(-32021, "no", {"requiredCapabilities": {"roots": {}}}),
    RequestError(-32022, "no", {"supported": [object()], "requested": "x"}),
    RequestError(1.5, "no"),  # type: ignore[arg-type]  # a mistake on purpose
    RequestError(1, None),  # type: ignore[arg-type]  # a mistake on purpose
]
PROGRESS: list[Any] = [0, 1, 2.5, -1, 10**400, math.nan, math.inf]
FILTERS: list[Any] = [
    SubscriptionFilter(tools_list_changed=True),
    SubscriptionFilter(tools_list_changed=True),
    SubscriptionFilter(),
    SubscriptionFilter(resource_subscriptions=("a:b",)),
    unchecked(SubscriptionFilter(), tools_list_changed="yes"),
    {},
    None,
]
LEVELS: list[Any] = [None, "info", "loud", 5]
REVISIONS_SAID: list[Any] = [REV_2026_07_28, REV_2025_11_25, "2026-07-28", None]
TIMEOUTS: list[Any] = [None, 0, 1.5, -1, math.nan, math.inf, Timeout(5, 1), Timeout(None, None)]

ids = st.integers(-1, 6)
texts = st.sampled_from([None, "because", "", "\ud800"])


def _state(connection: Connection) -> Any:
    """Return the snapshot of a connection, or its public state where no snapshot can be taken."""
    seen = connection.phase, connection.pending, connection.wants_write, connection.next_deadline()
    return seen if connection.phase is Phase.CLOSED or connection.wants_write else (*seen, connection.snapshot(0.0))


@pytest.fixture(params=[REV_2025_11_25, REV_2026_07_28], ids=["handshake", "stateless"])
def link(request: pytest.FixtureRequest) -> Pair:
    """Two engines with a request each way, where the revision has that, or with a subscription."""
    options = Options(limits=Limits(outgoing_requests=3, sent_message_bytes=4000))
    client = ClientConnection(Implementation("c", "1"), ClientCapabilities(RootsCapability(True)), options=options)
    capabilities = ServerCapabilities(tools=ToolsCapability(True), logging={})
    server = ServerConnection(Implementation("s", "1"), capabilities, options=options)
    link = pair(client, server)
    if request.param is REV_2026_07_28:
        client.adopt(REV_2026_07_28, DiscoverResult(("2026-07-28",), capabilities))
    else:
        link.handshake()
        server.send_request(ListRootsRequest(), now=link.now)
    client.send_request(CallToolRequest("t"), now=link.now, progress=True)
    link.run()
    server.send_progress(IncomingId(server.pending.incoming[-1]), 2)
    link.run()
    return link


def _asked(link: Pair) -> OutgoingId:
    return OutgoingId(link.client.pending.outgoing[-1])


def _heard(link: Pair) -> IncomingId:
    return IncomingId(link.server.pending.incoming[-1])


SINGLE: dict[str, Callable[[Pair], object]] = {
    "arguments without a JSON form": lambda link: link.client.send_request(
        CallToolRequest("t", {"a": math.nan}), now=link.now
    ),
    "arguments that are too long": lambda link: link.client.send_request(
        CallToolRequest("t", {"a": LONG}), now=link.now
    ),
    "timeout": lambda link: link.client.send_request(CallToolRequest("t"), now=link.now, timeout=-1),
    "request that never was related to": lambda link: link.client.send_request(
        CallToolRequest("t"), now=link.now, related_to=IncomingId(6)
    ),
    "result that is too long": lambda link: link.server.send_result(_heard(link), CallToolResult((TextContent(LONG),))),
    "result without a JSON form": lambda link: link.server.send_result(
        _heard(link), CallToolResult((), structured_content={"a": math.nan})
    ),
    "error without a JSON form": lambda link: link.server.send_error(_heard(link), RequestError(1, "no", object())),
    "error of another type": lambda link: link.server.send_error(_heard(link), RequestError(1, None)),  # type: ignore[arg-type]  # a mistake on purpose
    "progress that decreases": lambda link: link.server.send_progress(_heard(link), 1),
    "reason without a JSON form": lambda link: link.client.cancel_request(_asked(link), "\ud800"),
    "grace": lambda link: link.client.close(link.now, grace=-1),
}
"""Calls with one mistake each, of engines that have running requests."""


@pytest.mark.parametrize("call", SINGLE.values(), ids=SINGLE)
def test_single_mistake_changes_nothing(link: Pair, call: Callable[[Pair], object]) -> None:
    before = _state(link.client), _state(link.server)
    with pytest.raises(LocalProtocolError):
        call(link)
    assert (_state(link.client), _state(link.server)) == before


def test_request_over_the_limit_changes_nothing(link: Pair) -> None:
    for _ in range(2):
        link.client.send_request(CallToolRequest("t"), now=link.now)
    link.run()
    before = _state(link.client)
    with pytest.raises(LocalProtocolError, match="3"):
        link.client.send_request(CallToolRequest("t"), now=link.now)
    assert _state(link.client) == before


def test_cancelled_opening_changes_nothing() -> None:
    client = ClientConnection(Implementation("c", "1"))
    client.send_initialize(now=0.0)
    client.data_to_send()
    before = _state(client)
    with pytest.raises(LocalProtocolError, match="initialize cannot be cancelled"):
        client.cancel_request(OutgoingId(client.pending.outgoing[0]))
    assert _state(client) == before


def test_acknowledgement_without_a_way_to_the_client_changes_nothing() -> None:
    capabilities = ServerCapabilities(tools=ToolsCapability(True))
    client = ClientConnection(Implementation("c", "1"))
    reaches = [True]
    server = ServerConnection(Implementation("s", "1"), capabilities, can_reach=lambda via: reaches[0])
    link = pair(client, server)
    client.adopt(REV_2026_07_28, DiscoverResult(("2026-07-28",), capabilities))
    wanted = SubscriptionFilter(tools_list_changed=True)
    client.send_request(SubscriptionsListenRequest(wanted), now=link.now)
    link.run()
    before = _state(server)
    reaches[0] = False
    with pytest.raises(NoBackChannel):
        server.acknowledge(_heard(link), wanted)
    assert _state(server) == before
    assert not server.is_acknowledged(_heard(link))


class Mistakes(RuleBasedStateMachine):
    """Two connected engines whose callers make every kind of call."""

    link: Pair
    is_cut_off = False
    """Whether the server has no way to its client, as its transport says."""

    @initialize(started=st.integers(0, 4))
    def start(self, started: int) -> None:
        options = Options(
            custom_methods=frozenset(["acme/x"]), limits=Limits(outgoing_requests=6, sent_message_bytes=4000)
        )
        client = ClientConnection(Implementation("c", "1"), ClientCapabilities(RootsCapability(True)), options=options)
        capabilities = ServerCapabilities(tools=ToolsCapability(True), logging={})
        server = ServerConnection(
            Implementation("s", "1"), capabilities, options=options, can_reach=lambda via: not self.is_cut_off
        )
        self.link = pair(client, server)
        if started == 1:
            self.link.stall(Role.SERVER)
        if started in (1, 2):
            self.link.handshake()
        elif started == 3:
            self.link.client.negotiate(self.link.now)
            self.link.run()
        elif started == 4:
            self.link.client.adopt(REV_2026_07_28, DiscoverResult(("2026-07-28",), capabilities))
        for _ in range(2):
            self.ask_rightly()

    @rule()
    def ask_rightly(self) -> None:
        """Have requests run on both sides, for the mistakes to be about."""
        listen = SubscriptionsListenRequest(SubscriptionFilter(tools_list_changed=True))
        for connection, request in (
            (self.link.client, CallToolRequest("t")),
            (self.link.client, listen),
            (self.link.server, ListRootsRequest()),
        ):
            with suppress(LocalProtocolError, NoBackChannel):
                connection.send_request(request, now=self.link.now, progress=True)
        self.link.run()

    def attempt(self, connection: Connection, verb: str, *arguments: Any, **options: Any) -> None:
        """Make a call; if it raises, check that the connection's state is unchanged."""
        before = _state(connection)
        refusal: Exception | None = None
        try:
            getattr(connection, verb)(*arguments, **options)
        except (LocalProtocolError, NoBackChannel) as error:
            refusal = error
        if refusal is not None:
            assert str(refusal)
            assert _state(connection) == before
        self.link.run()

    def side(self, is_client: bool) -> Connection:
        return self.link.client if is_client else self.link.server

    def one_of(self, known: Sequence[int], id: int) -> int:
        """Return an id that a call is to name: mostly one that runs, if any does."""
        return known[id % len(known)] if known and id > 1 else id

    def theirs(self, is_client: bool, id: int) -> IncomingId:
        return IncomingId(self.one_of(self.side(is_client).pending.incoming, id))

    @rule(is_cut_off=st.sampled_from([False, False, True]))
    def cut_off(self, is_cut_off: bool) -> None:
        self.is_cut_off = is_cut_off

    @rule(
        is_client=st.booleans(),
        request=st.sampled_from(REQUESTS),
        timeout=st.sampled_from(TIMEOUTS),
        related_to=st.none() | ids,
        progress=st.booleans(),
    )
    def ask(self, is_client: bool, request: Any, timeout: Any, related_to: int | None, progress: bool) -> None:
        options = {"related_to": None if related_to is None else IncomingId(related_to), "progress": progress}
        self.attempt(self.side(is_client), "send_request", request, now=self.link.now, timeout=timeout, **options)

    @rule(is_client=st.booleans(), notification=st.sampled_from(NOTIFICATIONS), related_to=st.none() | ids)
    def tell(self, is_client: bool, notification: Any, related_to: int | None) -> None:
        related = None if related_to is None else IncomingId(related_to)
        self.attempt(self.side(is_client), "send_notification", notification, related_to=related)

    @rule(is_client=st.booleans(), id=ids, result=st.sampled_from(RESULTS))
    def answer(self, is_client: bool, id: int, result: Any) -> None:
        self.attempt(self.side(is_client), "send_result", self.theirs(is_client, id), result)

    @rule(is_client=st.booleans(), id=ids, result=st.sampled_from(RAW))
    def answer_as_it_is(self, is_client: bool, id: int, result: bytes) -> None:
        self.attempt(self.side(is_client), "send_raw_result", self.theirs(is_client, id), result)

    @rule(is_client=st.booleans(), id=ids, error=st.sampled_from(ERRORS))
    def refuse(self, is_client: bool, id: int, error: RequestError) -> None:
        self.attempt(self.side(is_client), "send_error", self.theirs(is_client, id), error)

    @rule(is_client=st.booleans(), id=ids, value=st.sampled_from(PROGRESS), total=st.sampled_from([None, *PROGRESS]))
    def report(self, is_client: bool, id: int, value: Any, total: Any) -> None:
        key = self.theirs(is_client, id)
        self.attempt(self.side(is_client), "send_progress", key, value, total)
        self.attempt(self.side(is_client), "send_progress", key, -2)

    @rule(is_client=st.booleans(), id=ids, reason=texts)
    def cancel(self, is_client: bool, id: int, reason: str | None) -> None:
        side = self.side(is_client)
        key = OutgoingId(self.one_of(side.pending.outgoing, id))
        self.attempt(side, "cancel_request", key, "\ud800")
        self.attempt(side, "cancel_request", key, reason)

    @rule(timeout=st.sampled_from(TIMEOUTS))
    def open(self, timeout: Any) -> None:
        self.attempt(self.link.client, "send_initialize", now=self.link.now, timeout=timeout)

    @rule(timeout=st.sampled_from(TIMEOUTS))
    def negotiate(self, timeout: Any) -> None:
        self.attempt(self.link.client, "negotiate", self.link.now, timeout=timeout)

    @rule(revision=st.sampled_from(REVISIONS_SAID), known=st.booleans())
    def adopt(self, revision: Any, known: bool) -> None:
        discovered = DiscoverResult(("2026-07-28",), ServerCapabilities()) if known else None
        self.attempt(self.link.client, "adopt", revision, discovered)

    @rule(id=ids, honoured=st.sampled_from(FILTERS))
    def acknowledge(self, id: int, honoured: Any) -> None:
        key = self.theirs(False, id)
        for self.is_cut_off in (True, False):
            self.attempt(self.link.server, "acknowledge", key, honoured)

    @rule(level=st.sampled_from(LEVELS))
    def choose_level(self, level: Any) -> None:
        self.attempt(self.link.client, "__setattr__", "log_level", level)

    @rule(
        is_client=st.booleans(),
        grace=st.sampled_from([0, 1, -1, math.nan]),
        really=st.sampled_from([False] * 9 + [True]),
    )
    def close(self, is_client: bool, grace: float, really: bool) -> None:
        """Close, which ends all that can be tried, or mostly only try to."""
        self.attempt(self.side(is_client), "close", self.link.now, grace=grace if really else -1)

    @invariant()
    def whatever_happened_was_said(self) -> None:
        """Check that refused calls sent nothing: the peer understood every message on the wire."""
        if hasattr(self, "link"):
            violations = [
                event
                for event in self.link.client_events + self.link.server_events
                if "Violated" in type(event).__name__
            ]
            assert violations == []


TestMistakes = Mistakes.TestCase
TestMistakes.settings = settings(
    max_examples=examples(30), stateful_step_count=40, suppress_health_check=[HealthCheck.too_slow]
)
