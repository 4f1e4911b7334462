"""A call costs the same whatever else a server carries: counted in lines of code, so that no clock is needed."""

from __future__ import annotations

from typing import Any

import pytest
from counting import lines_passed
from httpsite import Site

from mcpio.http.model import HttpOptions
from mcpio.types import LoggingMessageNotification

MOST = 1.2
"""How many times as many lines a call may take."""


def lines_of_a_call(site: Site, session: str) -> int:
    """Return how many lines of mcpio one warm call passes."""

    def call(id: str) -> None:
        exchange, event = site.call(session, id)
        site.answer(event)
        assert exchange.is_over

    call("warm")
    return lines_passed(lambda: call("counted"))


def stall_streams(site: Site, session: str, number: int) -> None:
    """Begin streams whose clients read nothing, with two messages waiting on each."""
    for id in range(number):
        exchange, event = site.call(session, id)
        site.stall(exchange)
        for _ in range(2):
            connection = site.session().connection
            connection.send_notification(LoggingMessageNotification("info", "x"), related_to=event.id)
        site.touch(site.session())


@pytest.mark.parametrize("answers", ["auto", "sse"])
def test_call_beside_stalled_streams_costs_the_same(answers: Any) -> None:
    site = Site(HttpOptions(answers=answers))
    session = site.open()
    alone = lines_of_a_call(site, session)
    stall_streams(site, session, 800)
    assert len(site.session().streams) == 800
    assert lines_of_a_call(site, session) <= MOST * alone


def test_call_beside_idle_sessions_costs_the_same() -> None:
    site = Site()
    session = site.open()
    alone = lines_of_a_call(site, session)
    for _ in range(500):
        site.open()
    site.events.clear()
    assert lines_of_a_call(site, session) <= MOST * alone
