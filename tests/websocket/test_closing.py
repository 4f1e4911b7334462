"""Close codes, and what they stand for, both ways."""

from __future__ import annotations

import pytest

from mcpio.engine.table import Role
from mcpio.errors import WebSocketClosed
from mcpio.events import CloseReason, ConnectionClosed
from mcpio.websocket.closing import CloseCode, code_for, error_for, is_valid


@pytest.mark.req("XPORT-04")
@pytest.mark.parametrize(
    ("reason", "cause", "client", "server"),
    [
        (CloseReason.CLOSED, None, 1000, 1001),
        (CloseReason.END_OF_FILE, None, 1000, 1000),
        (CloseReason.ABORTED, None, 1001, 1001),
        (CloseReason.ABORTED, ValueError(), 1011, 1011),
        (CloseReason.VERSION_MISMATCH, None, 1002, 1002),
        (CloseReason.HANDSHAKE_FAILED, None, 1002, 1002),
        (CloseReason.MESSAGE_TOO_LARGE, None, 1009, 1009),
        (CloseReason.SLOW_CONSUMER, None, 1008, 1008),
        (CloseReason.UNRESPONSIVE, None, 1011, 1011),
    ],
)
def test_close_codes_sent_for_each_end(reason: CloseReason, cause: Exception | None, client: int, server: int) -> None:
    end = ConnectionClosed(reason, cause)
    assert (code_for(end, Role.CLIENT), code_for(end, Role.SERVER)) == (client, server)


def test_close_code_of_an_abandoned_connection() -> None:
    assert code_for(None, Role.SERVER) is CloseCode.GOING_AWAY


@pytest.mark.req("XPORT-04")
def test_errors_for_each_received_close_code() -> None:
    assert [error_for(code, "x") for code in (1000, 1001, 1005)] == [None, None, None]
    for code in (1002, 1003, 1006, 1007, 1008, 1009, 1011, 1012, 4000):
        error = error_for(code, "x")
        assert isinstance(error, WebSocketClosed)
        assert (error.code, error.text) == (code, "x")


def test_close_codes_that_may_be_sent() -> None:
    valid = [code for code in range(70_000) if is_valid(code)]
    assert valid == [1000, 1001, 1002, 1003, *range(1007, 1015), *range(3000, 5000)]
