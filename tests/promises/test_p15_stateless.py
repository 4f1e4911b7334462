"""P15 without sessions: observers change nothing, and a replayed recording gives the same events and bytes."""

from __future__ import annotations

import json
from collections.abc import Hashable
from typing import Any

import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from stateless import BOTH, INFO, tool_call
from talks import check_replays, engines, talk, talks

from mcpio.engine.envelope import read_envelope
from mcpio.engine.limits import Held
from mcpio.engine.options import Options
from mcpio.engine.stateless_engine import StatelessEngine
from mcpio.engine.table import Role
from mcpio.framing import jsonrpc
from mcpio.observe.recording import Recorder, Replay
from mcpio.observe.tap import Redactor, Tap, add_tap
from mcpio.testing import Pair, at_random, pair
from mcpio.types.features import CallToolResult, ServerCapabilities, ToolsCapability


@settings(max_examples=examples(50))
@given(drawn=talks, seed=st.integers(0, 99))
def test_replayed_talk_gives_same_events_and_bytes(drawn: Any, seed: int) -> None:
    alone = pair(*engines(drawn[1]), chunk=at_random(seed))
    talk(alone, drawn)
    link, recordings = _recorded(drawn, seed)
    assert link.tap == alone.tap
    check_replays(link, recordings)


class Response:
    """The response to one HTTP request: it keeps what it is given to send."""

    takes_notifications = True

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.held = Held()

    def put(self, text: bytes, kind: int, key: Hashable) -> None:
        self.sent.append(text)

    def answer(self, text: bytes, *, is_error: bool) -> None:
        self.sent.append(text)


@pytest.mark.parametrize("notified", [0, 1, 3])
def test_tap_sees_each_message_of_each_response(notified: int) -> None:
    heard: list[tuple[Any, bytes]] = []

    class Sent(Tap):
        def message_sent(self, text: bytes, via: Any, now: float) -> None:
            heard.append((via, text))

    offers = ServerCapabilities(tools=ToolsCapability())
    served = StatelessEngine(INFO, offers, options=Options(revisions=BOTH))
    add_tap(served, Sent())
    responses = [Response(), Response()]
    for response in responses:
        text = json.dumps(tool_call(1, more={"progressToken": "p"})).encode()
        request: Any = jsonrpc.parse(text)
        event = served.receive(request, text, read_envelope(request.params, BOTH), response, "me", 5.0)
        assert event is not None
        for progress in range(notified):
            served.send_progress(event.id, progress)
        served.send_result(event.id, CallToolResult(()))
    assert heard == [(response, text) for response in responses for text in response.sent]
    assert len(heard) == 2 * (notified + 1)


@settings(max_examples=examples(30))
@given(drawn=talks, seed=st.integers(0, 99))
def test_replayed_redacted_talk_gives_same_events(drawn: Any, seed: int) -> None:
    link, recordings = _recorded(drawn, seed, Redactor())
    for role, events in ((Role.CLIENT, link.client_events), (Role.SERVER, link.server_events)):
        names = [type(step.event).__name__ for step in Replay(recordings[role]) if step.event is not None]
        assert names == [type(event).__name__ for event in events]


def _recorded(drawn: Any, seed: int, redactor: Redactor | None = None) -> tuple[Pair, dict[Role, list[str]]]:
    link = pair(*engines(drawn[1]), chunk=at_random(seed))
    recordings: dict[Role, list[str]] = {role: [] for role in Role}
    for connection in (link.client, link.server):
        add_tap(connection, Recorder(recordings[connection.role].append, redactor=redactor))
    talk(link, drawn)
    return link, recordings
