"""What transports with exchanges know of the way to the peer: where nothing can get through, and what never comes."""

from __future__ import annotations

from typing import Any

import pytest
from wires import call, client, feed, result, sent, server

from mcpio.engine.connection import Connection
from mcpio.errors import ConnectionLost, LocalProtocolError, NoBackChannel
from mcpio.events import IgnoreReason, MessageIgnored, OutgoingId, RequestFailed
from mcpio.types.base import CustomNotification
from mcpio.types.features import CallToolResult, PingRequest


def test_fail_request_fails_it_with_the_given_error() -> None:
    connection = client()
    lost = ConnectionLost("the answer was cut off")
    id = connection.send_request(PingRequest(), now=0.0, cookie="c")
    sent(connection)
    assert connection.is_pending(id)
    assert connection.fail_request(id, lost, 1.0)
    (failed,) = connection.events()
    assert isinstance(failed, RequestFailed)
    assert (failed.id, failed.error, failed.cookie) == (id, lost, "c")
    assert not connection.is_pending(id)
    assert sent(connection) == []
    assert not connection.fail_request(id, lost, 2.0)
    assert not connection.fail_request(OutgoingId(99), lost, 2.0)
    (late,) = feed(connection, result(id))
    assert isinstance(late, MessageIgnored)
    assert late.reason is IgnoreReason.LATE_RESPONSE


def ping(connection: Connection, related_to: Any = None) -> None:
    connection.send_request(PingRequest(), now=0.0, related_to=related_to)


def tell(connection: Connection, related_to: Any = None) -> None:
    connection.send_notification(CustomNotification("acme/x"), related_to=related_to)


@pytest.mark.parametrize("act", [ping, tell])
def test_unreachable_peer_raises_no_back_channel(act: Any) -> None:
    connection = server()
    (asked,) = feed(connection, call(), via="exchange")
    asked_for: list[Any] = []

    def can_reach(via: Any) -> bool:
        asked_for.append(via)
        return bool(via == "exchange")

    connection.can_reach = can_reach
    before = connection.pending
    with pytest.raises(NoBackChannel, match="no way to the peer for a message that belongs to no request"):
        act(connection)
    assert (connection.pending, sent(connection)) == (before, [])
    act(connection, asked.id)
    assert len(sent(connection)) == 1
    assert asked_for == [None, "exchange"]
    connection.can_reach = lambda via: False
    with pytest.raises(NoBackChannel, match="for the request that it belongs to, and none can come"):
        act(connection, asked.id)
    with pytest.raises(LocalProtocolError, match=r"is not running|never sent"):
        act(connection, 99)


def test_is_pending_is_true_for_running_requests() -> None:
    connection = server()
    (asked,) = feed(connection, call(), via="exchange")
    assert connection.is_pending(asked.id)
    connection.send_result(asked.id, CallToolResult(()))
    assert not connection.is_pending(asked.id)
