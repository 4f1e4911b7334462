"""A client and a server joined by a channel, in every order of events up to a depth: each request has one outcome.

The engines are searched, not a model of them. A state is both snapshots and what is on its way; of two ways into a
state one is followed. States come in the order of their depth, so that a violation comes with the shortest way to it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from searching import search

from mcpio.engine.client import ClientConnection
from mcpio.engine.connection import Connection
from mcpio.engine.limits import Timeout
from mcpio.engine.options import Options
from mcpio.engine.server import ServerConnection
from mcpio.engine.table import Phase
from mcpio.errors import RequestError
from mcpio.events import (
    Answered,
    CancelReceived,
    ConnectionClosed,
    Event,
    IgnoreReason,
    IncomingId,
    MessageIgnored,
    OutgoingId,
    ProtocolViolated,
    RequestFailed,
    RequestReceived,
    ResponseReceived,
)
from mcpio.revisions import HANDSHAKE_REVISIONS, Era
from mcpio.types.asking import ListRootsRequest, ListRootsResult
from mcpio.types.base import CustomRequest
from mcpio.types.features import (
    ClientCapabilities,
    Implementation,
    RootsCapability,
    ServerCapabilities,
    SubscriptionFilter,
    SubscriptionsListenRequest,
    SubscriptionsListenResult,
    ToolListChangedNotification,
    ToolsCapability,
)

CALL = "acme/do"
LATE = {
    IgnoreReason.LATE_RESPONSE,
    IgnoreReason.LATE_PROGRESS,
    IgnoreReason.UNKNOWN_REQUEST,
    IgnoreReason.NOT_INITIALIZED,
}
Move = tuple[str, Callable[["World"], None]]


class Side:
    """One end, and what its program has asked and owes."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.wire: list[bytes] = []  # what is on its way to the other side
        self.ended = False  # its output
        self.asked: list[OutgoingId] = []
        self.cancelled: set[OutgoingId] = set()
        self.owed: list[RequestReceived] = []
        self.listeners: list[IncomingId] = []
        self.taken: set[int] = set()  # the other side's ids of the requests that got here
        self.outcomes: dict[OutgoingId, str] = {}
        self.closes = False
        self.listens = False

    def settle(self) -> None:
        """Take the events, and put the output on the wire."""
        connection = self.connection
        while True:
            for event in connection.events():
                self.note(event)
            if not connection.wants_write:
                break
            for chunk in connection.data_to_send(1 << 20):
                if chunk is None:
                    self.ended = True
                else:
                    self.wire += chunk.splitlines(keepends=True)
        if connection.closed:
            self.ended = True  # a driver closes its transport then

    def note(self, event: Event) -> None:
        match event:
            case RequestReceived(reused_id=True):
                raise AssertionError(event)
            case RequestReceived(request=SubscriptionsListenRequest()):
                self.connection.acknowledge(event.id, event.request.notifications)
                self.listeners.append(event.id)
            case RequestReceived():
                self.owed.append(event)
                self.taken.add(event.raw["id"])
            case CancelReceived():
                self.owed = [each for each in self.owed if each.id != event.id]
                self.listeners = [each for each in self.listeners if each != event.id]
            case ResponseReceived() | RequestFailed():
                if event.id in self.asked:
                    assert event.id not in self.outcomes, "two outcomes"
                    error = event.error if isinstance(event, RequestFailed) else None
                    self.outcomes[event.id] = "answered" if error is None else type(error).__name__
            case MessageIgnored():
                assert event.reason in LATE, event
            case Answered(method="server/discover"):
                pass  # a server with sessions refuses it
            case Answered():
                reason = event.error and (event.error.data or {}).get("reason")
                assert event.error is None or reason in ("closing", "not initialized"), event
            case ProtocolViolated():
                raise AssertionError(event)
            case ConnectionClosed():
                self.owed, self.listeners = [], []

    @property
    def era(self) -> Era | None:
        revision = self.connection.revision
        return None if revision is None else revision.era

    def moves(self, name: str) -> Iterator[Move]:
        """What the program of this side may do."""
        connection = self.connection
        asks = 2 if name == "client" else self.era is Era.HANDSHAKE
        if connection.phase is Phase.OPERATING and len(self.asked) < asks:
            yield f"the {name} asks", partial(ask, name=name)
        for id in self.asked:
            if id not in self.outcomes and id not in self.cancelled:
                yield f"the {name} cancels {id}", partial(cancel, name=name, id=id)
                break
        if self.owed:
            yield f"the {name} answers its first request", partial(answer, name=name, which=0)
        if len(self.owed) > 1:
            yield f"the {name} fails its last request", partial(answer, name=name, which=-1)
        if not self.closes:
            yield f"the {name} closes", partial(close, name=name)
        if connection.next_deadline() is not None:
            yield f"the {name}'s deadline passes", partial(expire, name=name)

    def key(self, now: float) -> Any:
        """Return what distinguishes this side's future."""
        connection = self.connection
        state = None if connection.closed else json.dumps(connection.snapshot(now), default=repr)
        owed = repr([each.id for each in self.owed]), repr(self.listeners)
        past = len(self.asked), len(self.cancelled), tuple(sorted(self.taken)), self.closes
        return state, tuple(self.wire), self.ended, owed, past


class World:
    """Both sides, the channel and the clock."""

    def __init__(self, client: Connection, server: Connection) -> None:
        self.client, self.server = Side(client), Side(server)
        self.now = 0.0
        self.has_news = False
        self.is_harmed = False  # by the channel or a deadline

    @property
    def sides(self) -> tuple[Side, Side]:
        return self.client, self.server

    def key(self) -> Any:
        return self.client.key(self.now), self.server.key(self.now), self.has_news, self.is_harmed

    def check(self) -> None:
        """Assert what holds in every state."""
        for side, other in self.pairs():
            connection = side.connection
            running = set(connection.pending.outgoing)
            for id in side.asked:
                assert (id in running) is (id not in side.outcomes), f"{id!r}: running and ended, or neither"
                if side.outcomes.get(id) == "ConnectionLost" and not (self.is_harmed or side.closes):
                    assert id not in other.taken, f"{id!r}: taken, and lost by a graceful end"
            if connection.closed:
                assert not running, "running after the end"
                assert not connection.pending.incoming, "running after the end"
                assert connection.held.total == 0, "memory held after the end"
            elif side.closes:
                assert side.owed or side.listeners, "everything is answered, and the end does not come"
        if self.is_quiet():
            for side in self.sides:
                assert set(side.outcomes) == set(side.asked), "a request that nobody will answer"

    def is_quiet(self) -> bool:
        """Return whether nothing will happen any more, unless a side begins something."""
        return not any(self.arrives(*pair) or pair[0].owed or pair[0].listeners for pair in self.pairs())

    def pairs(self) -> Iterator[tuple[Side, Side]]:
        yield self.client, self.server
        yield self.server, self.client

    # What may happen

    def moves(self) -> Iterator[Move]:
        if self.client.connection.phase is Phase.NEW:
            yield "the client opens", open_connection
            return
        for name, (side, other) in zip(("client", "server"), self.pairs(), strict=True):
            if self.arrives(side, other):
                yield f"what the {name} sent arrives", partial(deliver, name=name)
            if not side.connection.closed:
                yield from side.moves(name)
        if self.client.connection.phase is Phase.OPERATING:
            yield from self.listening()
        if not self.client.connection.closed and not self.server.connection.closed:
            yield "the channel breaks", lose

    def arrives(self, side: Side, other: Side) -> bool:
        """Return whether anything that a side sent, or its end, is on its way."""
        connection = other.connection
        return not connection.closed and bool(side.wire or (side.ended and not connection.input_ended))

    def listening(self) -> Iterator[Move]:
        if self.client.era is Era.STATELESS and not self.client.listens:
            yield "the client listens", listen
        if self.server.listeners:
            yield "the server ends the subscription", end_subscription
            if not self.has_news:
                yield "the server's tools change", tell


def of(world: World, name: str) -> tuple[Side, Side]:
    return (world.client, world.server) if name == "client" else (world.server, world.client)


def deliver(world: World, name: str) -> None:
    side, other = of(world, name)
    other.connection.receive_data(side.wire.pop(0) if side.wire else None, world.now)


def open_connection(world: World) -> None:
    client = world.client.connection
    assert isinstance(client, ClientConnection)
    client.negotiate(world.now)


def ask(world: World, name: str) -> None:
    side, _ = of(world, name)
    request = CustomRequest(CALL) if name == "client" else ListRootsRequest()
    timeout = Timeout(5.0) if side.asked else None
    side.asked.append(side.connection.send_request(request, now=world.now, timeout=timeout))


def cancel(world: World, name: str, id: OutgoingId) -> None:
    side, _ = of(world, name)
    side.cancelled.add(id)
    assert side.connection.cancel_request(id, "enough")


def answer(world: World, name: str, which: int) -> None:
    side, _ = of(world, name)
    event = side.owed.pop(which)
    if which:
        side.connection.send_error(event.id, RequestError(1, "no"))
    else:
        result: Any = ListRootsResult(()) if isinstance(event.request, ListRootsRequest) else {}
        side.connection.send_result(event.id, result)


def close(world: World, name: str) -> None:
    side, _ = of(world, name)
    side.closes = True
    side.connection.close(world.now, grace=5.0)


def expire(world: World, name: str) -> None:
    connection = of(world, name)[0].connection
    world.is_harmed = True
    world.now = max(world.now, connection.next_deadline() or 0.0)
    connection.handle_timeout(world.now)


def listen(world: World) -> None:
    request = SubscriptionsListenRequest(SubscriptionFilter(tools_list_changed=True))
    world.client.listens = True
    world.client.asked.append(world.client.connection.send_request(request, now=world.now, timeout=None))


def tell(world: World) -> None:
    world.has_news = True
    world.server.connection.send_notification(ToolListChangedNotification(), related_to=world.server.listeners[0])


def end_subscription(world: World) -> None:
    world.server.connection.send_result(world.server.listeners.pop(0), SubscriptionsListenResult())


def lose(world: World) -> None:
    world.is_harmed = True
    for side in world.sides:
        side.wire.clear()
        side.ended = True
        side.connection.connection_lost(OSError("reset"), world.now)


def play(begin: Callable[[], World], way: tuple[Move, ...]) -> World:
    world = begin()
    for _, move in way:
        move(world)
        for side in world.sides:
            side.settle()
    return world


def world(client_revisions: Any, server_revisions: Any, **options: Any) -> World:
    info = Implementation("x", "1")
    both = {"custom_methods": frozenset({CALL}), **options}

    def given(revisions: Any) -> Options:
        return Options(**both) if revisions is None else Options(**both, revisions=revisions)

    client = ClientConnection(info, ClientCapabilities(roots=RootsCapability()), options=given(client_revisions))
    offers = ServerCapabilities(tools=ToolsCapability(list_changed=True))
    return World(client, ServerConnection(info, offers, options=given(server_revisions)))


PAIRS = pytest.mark.parametrize(
    ("client", "server"),
    [(HANDSHAKE_REVISIONS, None), (None, None), (None, HANDSHAKE_REVISIONS)],
    ids=["a session", "stateless", "a server that knows sessions only"],
)


@PAIRS
@pytest.mark.req("RPC-05", "LIFE-17")
def test_no_order_of_events_loses_a_request_or_answers_it_twice(client: Any, server: Any) -> None:
    states = search(partial(play, partial(world, client, server)), (), depth=8)
    assert states > 100


@PAIRS
@pytest.mark.long
@pytest.mark.timeout(300)
def test_no_longer_order_loses_a_request_or_answers_it_twice(client: Any, server: Any) -> None:
    states = search(partial(play, partial(world, client, server)), (), depth=11)
    assert states > 500


@pytest.mark.parametrize(
    ("method", "broken", "message"),
    [
        ("_lose_outgoing", lambda self, reason, cause: None, "running after the end"),
        ("_drop_incoming", lambda self: None, "running after the end"),
        ("_end_is_due", lambda self: True, "taken, and lost by a graceful end"),
        ("_end_is_due", lambda self: False, "everything is answered, and the end does not come"),
    ],
)
def test_search_finds_planted_fault(monkeypatch: pytest.MonkeyPatch, method: str, broken: Any, message: str) -> None:
    monkeypatch.setattr(Connection, method, broken)
    with pytest.raises(AssertionError, match=message):
        search(partial(play, partial(world, None, None)), (), depth=8)
