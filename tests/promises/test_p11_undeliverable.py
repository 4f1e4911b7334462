"""P11: sending without a route raises; deliverable later means queued within a limit; dropped means counted."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from mcpio.engine.client import ClientConnection
from mcpio.engine.connection import Connection
from mcpio.engine.limits import Limits
from mcpio.engine.options import Options
from mcpio.engine.server import ServerConnection
from mcpio.engine.table import Phase, Role
from mcpio.errors import LocalProtocolError, NoBackChannel
from mcpio.events import CloseReason, ConnectionClosed
from mcpio.testing import Pair, pair
from mcpio.types import (
    CallToolRequest,
    ClientCapabilities,
    CustomNotification,
    Implementation,
    ListRootsRequest,
    LoggingMessageNotification,
    PingRequest,
    ResourcesCapability,
    ResourceUpdatedNotification,
    RootsCapability,
    RootsListChangedNotification,
    ServerCapabilities,
    ToolListChangedNotification,
    ToolsCapability,
)

Send = Callable[[Connection], object]

FROM_A_CLIENT: list[Send] = [
    lambda side: side.send_request(PingRequest(), now=0.0),
    lambda side: side.send_request(CallToolRequest("t"), now=0.0),
    lambda side: side.send_notification(RootsListChangedNotification()),
    lambda side: side.send_notification(CustomNotification("acme/x")),
]
FROM_A_SERVER: list[Send] = [
    lambda side: side.send_request(PingRequest(), now=0.0),
    lambda side: side.send_request(ListRootsRequest(), now=0.0),
    lambda side: side.send_notification(ToolListChangedNotification()),
    lambda side: side.send_notification(LoggingMessageNotification("info", "x")),
    lambda side: side.send_notification(CustomNotification("acme/x")),
]


@pytest.mark.parametrize("end", ["close", "abort", "lose"])
def test_send_on_closed_connection_raises_no_back_channel(end: str) -> None:
    link = _link()
    for side, sends in ((link.client, FROM_A_CLIENT), (link.server, FROM_A_SERVER)):
        if end == "close":
            side.close(link.now)
        elif end == "abort":
            side.abort()
        else:
            link.lose()
        link.run()
        for send in sends:
            with pytest.raises(NoBackChannel):
                send(side)
        assert not side.wants_write


def test_request_while_closing_raises_no_back_channel() -> None:
    link = _link()
    link.client.send_request(CallToolRequest("t"), now=0.0)
    link.run()
    link.server.close(0.0)
    for send in FROM_A_SERVER[:2]:
        with pytest.raises(NoBackChannel, match="closing"):
            send(link.server)
    assert link.server.pending.incoming


def test_undelivered_notifications_wait_within_their_limit() -> None:
    link = _link(Limits(outgoing_requests=3, queued_bytes=8000))
    link.stall(Role.CLIENT)
    for _ in range(3):
        link.client.send_request(PingRequest(), now=0.0)
    with pytest.raises(LocalProtocolError, match="3 requests wait"):
        link.client.send_request(PingRequest(), now=0.0)
    link.resume(Role.CLIENT)
    link.run()
    assert link.client.pending.outgoing == ()


def test_peer_that_never_reads_is_closed_as_slow_consumer() -> None:
    link = _link(Limits(queued_bytes=14_000))
    link.stall(Role.SERVER)
    sent = 0
    while link.server.phase is Phase.OPERATING:
        sent += 1
        link.server.send_notification(CustomNotification("acme/x", {"number": sent}))
    assert 20 < sent < 40
    with pytest.raises(NoBackChannel):
        link.server.send_notification(CustomNotification("acme/x"))
    link.run()
    assert link.server_events == [ConnectionClosed(CloseReason.SLOW_CONSUMER, None)]


def test_unread_broadcasts_coalesce_and_dropped_logs_are_counted() -> None:
    link = _link(Limits(queued_logs=10))
    link.stall(Role.SERVER)
    for number in range(1000):
        link.server.send_notification(ToolListChangedNotification())
        link.server.send_notification(ResourceUpdatedNotification(f"x:{number % 3}"))
        link.server.send_notification(LoggingMessageNotification("info", number))
    assert link.server.stats.dropped_logs == 990
    assert [_brief(message) for message in _waiting(link.server)] == [
        *(f"message {number}" for number in range(990, 997)),
        "updated x:1",
        "message 997",
        "updated x:2",
        "message 998",
        "list_changed",
        "updated x:0",
        "message 999",
    ]


@pytest.mark.req("PROG-06")
def test_unread_progress_coalesces_to_the_newest() -> None:
    link = _link()
    for name in ("a", "b"):
        link.client.send_request(CallToolRequest(name), now=0.0, progress=True)
    link.run()
    link.stall(Role.SERVER)
    for number in range(1, 1001):
        for id in link.server.pending.incoming:
            link.server.send_progress(id, number, 1000)
    waiting = _waiting(link.server)
    assert [(each["params"]["progressToken"], each["params"]["progress"]) for each in waiting] == [(2, 1000), (3, 1000)]


def _waiting(connection: Connection) -> list[dict[str, Any]]:
    return [json.loads(chunk) for chunk in connection.data_to_send() if chunk is not None]


def _brief(message: dict[str, Any]) -> str:
    name = message["method"].rpartition("/")[2]
    params = message.get("params", {})
    return f"{name} {params.get('uri', params.get('data', ''))}".strip()


def _link(limits: Limits | None = None) -> Pair:
    options = Options(limits=limits or Limits())
    capabilities = ServerCapabilities(
        tools=ToolsCapability(list_changed=True), resources=ResourcesCapability(subscribe=True), logging={}
    )
    link = pair(
        ClientConnection(Implementation("c", "1"), ClientCapabilities(RootsCapability(True)), options=options),
        ServerConnection(Implementation("s", "1"), capabilities, options=options),
    )
    link.handshake()
    link.client_events.clear()
    link.server_events.clear()
    return link
