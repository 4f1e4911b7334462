from __future__ import annotations

from mcpio.errors import ConnectionLost
from mcpio.http.client import ListeningEnded, MessageRefused, SessionLost


def test_events_compare_by_value() -> None:
    assert SessionLost(1.0) == SessionLost(1.0) != SessionLost(None)
    error = ConnectionLost("gone")
    assert MessageRefused(error).error is ListeningEnded(error).error is error
