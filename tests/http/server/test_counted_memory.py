"""What is counted for clients over HTTP is what it takes in memory, by and large, and rarely less."""

from __future__ import annotations

import gc
import json
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest
from httpsaid import asked, progress
from httpsite import BOTH, Site, tool_call

from mcpio.engine.limits import Limits
from mcpio.http.model import Body, HttpOptions

KIB = 1024
COUNT = 60
LIMITS = Limits(high_water=100 * 1024 * KIB, queued_bytes=100 * 1024 * KIB)


class Scene:
    """A site with a session, which forgets what a test keeps of requests and responses."""

    def __init__(self, **limits: Any) -> None:
        self.site = Site(HttpOptions(answers="auto"), limits=Limits(**limits) if limits else LIMITS)
        self.session = self.site.open()

    def begin(self, session: str | None, body: bytes = b"") -> Any:
        """Begin a POST whose response nobody reads."""
        headers = {} if session is None else {"mcp_session_id": session}
        exchange = self.site.ask("POST", body=None, content_type="application/json", accept=BOTH, **headers)
        self.site.stall(exchange)
        if body:
            self.site.machine.receive(Body(self.site.name(exchange), body), 0.0)
        return exchange


def bodies(scene: Scene) -> None:
    for _ in range(COUNT):
        scene.begin(scene.session, b" " * 50 * KIB)


def bodies_without_a_session(scene: Scene) -> None:
    for _ in range(COUNT):
        scene.begin(None, b" " * 50 * KIB)


def idle_exchanges(scene: Scene) -> None:
    for _ in range(2 * COUNT):
        scene.begin(None)


def idle_sessions(scene: Scene) -> None:
    for _ in range(COUNT):
        scene.site.open()


def unread_answers(scene: Scene) -> None:
    for id in range(COUNT):
        scene.site.complete(scene.begin(scene.session), json.dumps(tool_call(id)).encode())
        scene.site.answer(scene.site.requests()[-1], "x" * 50 * KIB)
        scene.site.events.clear()


def unread_events(scene: Scene) -> None:
    site = scene.site
    for id in range(COUNT):
        exchange = scene.begin(scene.session)
        site.complete(exchange, json.dumps(tool_call(id, progressToken="p")).encode())
        event = site.requests()[-1]
        progress(site, event, 1)
        site.answer(event, "x" * 50 * KIB)
        site.machine.responses_to_send(site.name(exchange), 1)  # as much as makes an event of it
        site.events.clear()


def kept_events(scene: Scene) -> None:
    site = scene.site
    for _ in range(COUNT):
        exchange, event = asked(site, scene.session)
        progress(site, event, 1)
        site.answer(event, "x" * 50 * KIB)
        exchange.data = b""
        site.events.clear()
        site._responses.clear()


def many_kept_events(scene: Scene) -> None:
    site = scene.site
    _, event = asked(site, scene.session)
    progress(site, event, *range(1, 1000))
    site.events.clear()
    site._responses.clear()


def waiting_requests(scene: Scene) -> None:
    session = scene.site.session()
    session.unwritten += 200 * 1024 * KIB
    session.connection.set_unwritten(session.unwritten)
    for id in range(COUNT):
        message = tool_call(id)
        message["params"]["arguments"] = {"x": "x" * 20 * KIB}
        scene.site.post(message, scene.session)


@pytest.mark.req("SEC-10")
@pytest.mark.parametrize(
    "hold",
    [
        bodies,
        bodies_without_a_session,
        idle_exchanges,
        idle_sessions,
        unread_answers,
        unread_events,
        kept_events,
        many_kept_events,
        waiting_requests,
    ],
)
def test_counted_bytes_match_traced_memory(hold: Callable[[Scene], None]) -> None:
    hold(Scene())  # what is made once is made now
    scene = Scene()
    ledger = scene.site.machine._ledger
    before = ledger.total
    gc.collect()
    tracemalloc.start()
    try:
        hold(scene)
        scene.site.events.clear()
        gc.collect()
        real = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    counted = ledger.total - before - 200 * 1024 * KIB * (hold is waiting_requests)
    # The test keeps something of each exchange too. The first 64 KiB of output are in buffers larger than they are.
    assert real <= 1.15 * counted + 1024 * KIB
    # The ledger rounds up, by at most 16 KiB for each session and exchange.
    assert counted <= 2 * real + 16 * KIB * 2 * COUNT
