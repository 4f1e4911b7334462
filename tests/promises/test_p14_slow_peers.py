"""P14: a slow peer costs only itself; order within a request is kept, and no response waits behind a flood."""

from __future__ import annotations

import json
from typing import Any

import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from mcpio.engine.client import ClientConnection
from mcpio.engine.connection import Connection
from mcpio.engine.limits import Limits
from mcpio.engine.options import Options
from mcpio.engine.server import ServerConnection
from mcpio.engine.table import Phase, Role
from mcpio.events import CloseReason, ConnectionClosed, Event, ProgressReceived, RequestReceived, ResponseReceived
from mcpio.testing import Pair, pair
from mcpio.types import (
    CallToolRequest,
    CallToolResult,
    ClientCapabilities,
    Implementation,
    ListRootsRequest,
    ListRootsResult,
    LoggingMessageNotification,
    RootsCapability,
    ServerCapabilities,
    TextContent,
    ToolsCapability,
)

REQUESTS = 6

speech = st.lists(
    st.tuples(
        st.integers(0, REQUESTS - 1), st.sampled_from(["progress", "log", "log", "answer", "read one", "global log"])
    ),
    max_size=80,
)


@settings(max_examples=examples(50))
@given(speech=speech)
@pytest.mark.req("PROG-03", "PROG-04")
def test_slow_reader_keeps_order_within_each_request(speech: list[tuple[int, str]]) -> None:
    link = _asked(REQUESTS)
    server, ids = link.server, link.server.pending.incoming
    said: dict[int, list[Any]] = {number: [] for number in range(REQUESTS)}
    heard: dict[int, list[Any]] = {number: [] for number in range(REQUESTS)}
    for count, (number, what) in enumerate(speech):
        if what == "read one":
            _hear(server.data_to_send(1), heard)
        elif what == "global log":
            server.send_notification(LoggingMessageNotification("info", -1))
        elif said[number][-1:] == ["answer"]:
            continue
        elif what == "progress":
            server.send_progress(ids[number], count + 1)
            said[number].append(count + 1)
        elif what == "log":
            message = LoggingMessageNotification("info", {"request": number, "count": count})
            server.send_notification(message, related_to=ids[number])
            said[number].append({"request": number, "count": count})
        else:
            server.send_result(ids[number], CallToolResult((TextContent(str(number)),)))
            said[number].append("answer")
    _hear(server.data_to_send(10**9), heard)
    for number in range(REQUESTS):
        # Progress may have coalesced: what arrived is a subsequence of what was sent, with the same last item.
        remaining = iter(said[number])
        assert all(each in remaining for each in heard[number])
        assert heard[number][-1:] == said[number][-1:]
        dropped = [each for each in said[number] if each not in heard[number]]
        assert all(isinstance(each, int) for each in dropped)


@pytest.mark.parametrize("others", [1, 5, 30])
@pytest.mark.parametrize("answered", [0, 50, 100])
def test_response_waits_for_at_most_one_message_per_other_request(others: int, answered: int) -> None:
    link = _asked(others + 1)
    *flooding, quick = link.server.pending.incoming
    for count in range(100):
        if count == answered:
            link.server.send_result(quick, CallToolResult(()))
        for id in flooding:
            link.server.send_notification(LoggingMessageNotification("info", count), related_to=id)
        link.server.send_notification(LoggingMessageNotification("info", count))
    if answered == 100:
        link.server.send_result(quick, CallToolResult(()))
    sent = [json.loads(chunk or b"") for chunk in link.server.data_to_send(10**9)]
    place = next(at for at, message in enumerate(sent) if "result" in message)
    assert place <= others + 1


def test_progress_supersedes_that_of_its_own_request_only() -> None:
    link = _asked(3)
    for progress in (1, 2):
        for id in link.server.pending.incoming:
            link.server.send_progress(id, progress)
    sent = [json.loads(chunk or b"")["params"] for chunk in link.server.data_to_send(10**9)]
    assert sent == [{"progressToken": token, "progress": 2} for token in (2, 3, 4)]


def test_newer_progress_keeps_the_turn_of_the_older() -> None:
    link = _asked(3)
    first, *others = link.server.pending.incoming
    link.server.send_progress(first, 1)
    for id in others:
        link.server.send_notification(LoggingMessageNotification("info", 0), related_to=id)
    link.server.send_progress(first, 2)
    (chunk,) = link.server.data_to_send(1)
    assert json.loads(chunk or b"")["params"] == {"progressToken": 2, "progress": 2}


def test_output_beyond_what_is_pulled_stays_with_the_engine() -> None:
    link = _asked(1)
    (id,) = link.server.pending.incoming
    for count in range(100):
        link.server.send_notification(LoggingMessageNotification("info", "x" * 1000), related_to=id)
        link.server.send_progress(id, count)
    assert 4000 <= sum(len(chunk or b"") for chunk in link.server.data_to_send(4000)) <= 4000 + 1200


def test_full_server_that_waits_for_an_answer_reads_it_and_puts_requests_aside() -> None:
    link = _asked(1, Limits(high_water=2000))
    (id,) = link.server.pending.incoming
    link.server.send_request(ListRootsRequest(), now=0.0, related_to=id)
    link.run()
    link.stall(Role.SERVER)
    for _ in range(20):
        link.server.send_notification(LoggingMessageNotification("info", "x" * 200), related_to=id)
    for count in range(20):
        link.client.send_request(CallToolRequest(str(count)), now=0.0)
        link.run()
    (question,) = link.client.pending.incoming
    link.client.send_result(question, ListRootsResult(()))
    link.run()
    assert [type(event) for event in link.server_events] == [ResponseReceived]
    link.resume(Role.SERVER)
    link.run()
    put_aside = link.server_events[1:]
    assert [event.request.name for event in put_aside if isinstance(event, RequestReceived)] == [*map(str, range(20))]


def test_requests_that_wait_to_be_written_do_not_keep_the_peer_waiting() -> None:
    # Otherwise two sides that ask each other much would both stop reading, and neither would go on.
    link = _asked(1, client=Limits(high_water=2000))
    link.stall(Role.CLIENT)
    for count in range(20):
        link.client.send_request(CallToolRequest("t", {"text": "x" * 200, "count": count}), now=0.0)
    link.server.send_request(ListRootsRequest(), now=0.0, related_to=link.server.pending.incoming[0])
    link.run()
    assert [type(event) for event in link.client_events] == [RequestReceived]


def test_slow_reader_of_large_answers_is_kept_until_it_reads_nothing_for_half_a_minute() -> None:
    link = _asked(100, Limits(queued_bytes=20_000, high_water=10_000))
    for id in link.server.pending.incoming:
        link.server.send_result(id, CallToolResult((TextContent("x" * 500),)))
    server, now, sizes = link.server, 0.0, []
    for _ in range(30):
        now += 20.0
        server.handle_timeout(now)
        sizes.append(sum(len(chunk or b"") for chunk in server.data_to_send(1)))
    assert server.phase is Phase.OPERATING
    assert all(sizes)
    server.handle_timeout(now + 29.0)
    assert server.phase is Phase.OPERATING
    server.handle_timeout(now + 61.0)
    (closed,) = server.events()
    assert isinstance(closed, ConnectionClosed)
    assert closed.reason is CloseReason.SLOW_CONSUMER


def test_stalled_peer_is_not_read_and_others_continue() -> None:
    stalled, lively = _asked(0, Limits(high_water=2000)), _asked(0, Limits(high_water=2000))
    stalled.stall(Role.SERVER)
    for link in (stalled, lively):
        link.on_event = _answer
    for _ in range(200):
        for link in (stalled, lively):
            link.client.send_request(CallToolRequest("t"), now=0.0)
            link.run()
    assert len([event for event in lively.client_events if isinstance(event, ResponseReceived)]) == 200
    assert not stalled.server.wants_read
    assert len(stalled.server_events) < 10
    assert stalled.server.phase is Phase.OPERATING
    stalled.resume(Role.SERVER)
    stalled.run()
    assert len([event for event in stalled.client_events if isinstance(event, ResponseReceived)]) == 200


def test_output_for_stalled_peer_stays_within_its_limit() -> None:
    budget = 80_000
    link = _asked(1, Limits(queued_bytes=budget, queued_logs=100))
    (id,) = link.server.pending.incoming
    for count in range(20_000):
        link.server.send_progress(id, count + 1)
        link.server.send_notification(LoggingMessageNotification("info", "x" * 100), related_to=id)
    assert link.server.phase is Phase.OPERATING
    link.server.send_result(id, CallToolResult(()))
    waiting = link.server.data_to_send(10**9)
    assert sum(len(chunk or b"") for chunk in waiting) < budget
    assert len(waiting) == 102
    assert b'"result"' in (waiting[-1] or b"")


def test_slow_reader_gets_progress_before_its_response() -> None:
    link = _asked(1)
    (id,) = link.server.pending.incoming
    link.stall(Role.SERVER)
    for count in range(10):
        link.server.send_progress(id, count + 1)
    link.server.send_result(id, CallToolResult(()))
    link.run()
    link.resume(Role.SERVER)
    link.run()
    assert [type(event) for event in link.client_events] == [ProgressReceived, ResponseReceived]
    assert isinstance(link.client_events[0], ProgressReceived)
    assert link.client_events[0].progress == 10


def _answer(connection: Connection, event: Event) -> None:
    if isinstance(event, RequestReceived):
        connection.send_result(event.id, CallToolResult((TextContent("x" * 300),)))


def _asked(requests: int, limits: Limits | None = None, *, client: Limits | None = None) -> Pair:
    """Return a pair in operation with a number of calls running on the server."""
    able = ServerCapabilities(tools=ToolsCapability(), logging={})
    asking = ClientCapabilities(roots=RootsCapability())
    link = pair(
        client=ClientConnection(Implementation("c", "1"), asking, options=Options(limits=client or Limits())),
        server=ServerConnection(Implementation("s", "1"), able, options=Options(limits=limits or Limits())),
    )
    link.handshake()
    for number in range(requests):
        link.client.send_request(CallToolRequest(str(number)), now=0.0, progress=True)
    link.run()
    link.client_events.clear()
    link.server_events.clear()
    return link


def _hear(chunks: list[bytes | None], heard: dict[int, list[Any]]) -> None:
    """Group the output by request: the client's ids start at 2, after initialize."""
    for chunk in chunks:
        message = json.loads(chunk or b"")
        if "result" in message:
            heard[message["id"] - 2].append("answer")
        elif message["method"] == "notifications/progress":
            heard[message["params"]["progressToken"] - 2].append(message["params"]["progress"])
        elif message["params"]["data"] != -1:
            heard[message["params"]["data"]["request"]].append(message["params"]["data"])
