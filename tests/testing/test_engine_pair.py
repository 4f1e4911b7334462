from __future__ import annotations

from unittest.mock import ANY

import pytest

from mcpio.engine.client import ClientConnection
from mcpio.engine.connection import Connection
from mcpio.engine.limits import Limits
from mcpio.engine.options import Options
from mcpio.engine.server import ServerConnection
from mcpio.engine.table import Phase, Role
from mcpio.errors import RequestTimeout
from mcpio.events import (
    Answered,
    CloseReason,
    ConnectionClosed,
    Event,
    Initialized,
    Negotiated,
    RequestFailed,
    RequestReceived,
    ResponseReceived,
)
from mcpio.testing import Carried, Chunking, Pair, at_random, cut_at, every, pair, whole
from mcpio.types import (
    CallToolRequest,
    CallToolResult,
    Implementation,
    PingRequest,
    ServerCapabilities,
    TextContent,
    ToolsCapability,
)


def _tool_server(limits: Limits | None = None) -> ServerConnection:
    capabilities = ServerCapabilities(tools=ToolsCapability())
    return ServerConnection(Implementation("server", "1"), capabilities, options=Options(limits=limits or Limits()))


def _answer(connection: Connection, event: Event) -> None:
    if isinstance(event, RequestReceived):
        connection.send_result(event.id, CallToolResult((TextContent(event.request.name),)))


def _calling(chunk: Chunking = whole, *, limits: Limits | None = None) -> Pair:
    """A pair whose server answers calls, right after the handshake."""
    link = pair(server=_tool_server(limits), chunk=chunk, on_event=_answer)
    link.handshake()
    link.client_events.clear()
    link.server_events.clear()
    return link


@pytest.mark.parametrize(
    "chunk", [whole, every(1), every(7), at_random(3), cut_at(5, 100), lambda *_: 0, lambda *_: 999999]
)
def test_any_chunking_gives_the_same_conversation(chunk: Chunking) -> None:
    link = pair(server=_tool_server(), chunk=chunk, on_event=_answer)
    link.handshake()
    link.client.send_request(CallToolRequest("echo"), now=link.now, cookie="a")
    link.run()
    assert [type(event) for event in link.client_events] == [Negotiated, ResponseReceived]
    assert [type(event) for event in link.server_events] == [Negotiated, Initialized, RequestReceived]
    assert isinstance(link.client_events[-1], ResponseReceived)
    assert link.client_events[-1].result == CallToolResult((TextContent("echo"),))


def test_default_engines_declare_no_capabilities() -> None:
    link = pair()
    link.handshake()
    assert link.client.peer is not None
    assert link.client.peer.info == Implementation("server", "1")
    assert link.client.peer.capabilities == ServerCapabilities()


@pytest.mark.parametrize(
    ("chunk", "pieces"),
    [
        (whole, [10]),
        (every(4), [4, 4, 2]),
        (cut_at(3, 9), [3, 6, 1]),
        (cut_at(), [10]),
    ],
)
def test_cut_at_splits_at_the_given_offsets(chunk: Chunking, pieces: list[int]) -> None:
    offset, found = 0, []
    while offset < 10:
        found.append(chunk(offset, 10 - offset))
        offset += found[-1]
    assert found == pieces


def test_same_seed_gives_the_same_pieces() -> None:
    sizes = [[at_random(seed)(offset, 1000) for offset in range(20)] for seed in (1, 1, 2)]
    assert sizes[0] == sizes[1] != sizes[2]
    assert all(1 <= size <= 1000 for size in sizes[0])


def test_tap_records_every_byte_with_time_and_sender() -> None:
    link = _calling()
    link.advance(3)
    link.client.send_request(PingRequest(), now=link.now)
    link.client.close(link.now)
    link.run()
    assert link.sent(Role.CLIENT).count(b"\n") == 3
    assert link.sent(Role.SERVER).startswith(b'{"jsonrpc":"2.0","id":1,"result":')
    assert link.tap[-1] == Carried(3, Role.SERVER, None)
    assert {carried.at for carried in link.tap} == {0, 3}


def test_deadlines_expire_in_order_at_their_times() -> None:
    link = pair(server=_tool_server())
    link.handshake()
    for seconds in (20, 10, 40):
        link.client.send_request(CallToolRequest("slow"), now=link.now, timeout=seconds, cookie=seconds)
    link.client_events.clear()
    link.advance(30)
    failed = [event for event in link.client_events if isinstance(event, RequestFailed)]
    assert [event.cookie for event in failed] == [10, 20]
    assert all(isinstance(event.error, RequestTimeout) for event in failed)
    assert [carried.at for carried in link.tap if b"cancelled" in (carried.data or b"")] == [10, 20]
    assert (link.now, link.next_deadline()) == (30, 40)
    link.advance_to(35)
    link.advance_to(5)
    assert link.now == 35


def test_closing_one_side_closes_the_other() -> None:
    link = _calling()
    link.client.close(link.now)
    link.run()
    assert link.client_events == [ConnectionClosed(CloseReason.CLOSED, None)]
    assert link.server_events == [ConnectionClosed(CloseReason.END_OF_FILE, None)]


def test_aborting_side_closes_its_stream() -> None:
    link = _calling()
    link.server.abort()
    link.run()
    assert link.client_events == [ConnectionClosed(CloseReason.END_OF_FILE, None)]


def test_stalled_side_keeps_its_output() -> None:
    link = _calling()
    link.stall(Role.CLIENT)
    link.client.send_request(CallToolRequest("echo"), now=link.now)
    link.run()
    assert link.client.wants_write
    assert not link.server_events
    link.resume(Role.CLIENT)
    link.run()
    assert isinstance(link.client_events[0], ResponseReceived)


def test_side_that_wants_no_input_gets_none() -> None:
    link = _calling(limits=Limits(high_water=50))
    link.stall(Role.SERVER)
    for _ in range(5):
        link.client.send_request(CallToolRequest("echo"), now=link.now)
        link.run()
    assert 0 < len(link.server_events) < 5
    link.resume(Role.SERVER)
    link.run()
    assert len(link.server_events) == 5


def test_output_of_a_cut_side_is_lost_silently() -> None:
    link = _calling(every(10))
    link.client.send_request(CallToolRequest("echo"), now=link.now, timeout=5)
    link.cut(Role.CLIENT)
    link.advance(5)
    assert isinstance(link.client_events[0], RequestFailed)
    link.client.close(link.now)
    link.run()
    assert link.client.closed
    assert (link.server_events, link.server.phase) == ([], Phase.OPERATING)


def test_lost_channel_ends_both_sides() -> None:
    link = _calling()
    cause = OSError("gone")
    link.client.send_request(CallToolRequest("echo"), now=link.now, cookie="a")
    link.lose(cause)
    link.run()
    failed, closed = link.client_events
    assert isinstance(failed, RequestFailed)
    assert failed.cookie == "a"
    assert closed == ConnectionClosed(CloseReason.LOST, cause)
    assert link.server_events == [ConnectionClosed(CloseReason.LOST, cause)]
    link.lose()
    link.advance(100)
    assert len(link.client_events) == 2


@pytest.mark.parametrize("size", [0, 1, 50])
def test_channel_lost_at_a_byte(size: int) -> None:
    link = pair(chunk=every(20))
    link.lose_after(Role.CLIENT, size)
    link.handshake()
    assert link.server_events == [ConnectionClosed(CloseReason.LOST, None)]
    assert len(link.sent(Role.CLIENT)) > 50


@pytest.mark.parametrize("size", [0, 1, 50])
def test_side_falls_silent_at_a_byte(size: int) -> None:
    link = pair(chunk=every(20))
    link.cut_after(Role.CLIENT, size)
    link.handshake()
    link.advance(30)
    assert link.server_events == []
    assert link.client_events[-1] == ConnectionClosed(CloseReason.HANDSHAKE_FAILED, ANY)


def test_side_replaced_during_the_conversation() -> None:
    link = pair(server=_tool_server())
    link.handshake()
    link.client.send_request(CallToolRequest("echo"), now=link.now, cookie="a")
    link.run()
    link.client = ClientConnection.restore(link.client.snapshot(link.now), link.now)
    _answer(link.server, link.server_events[-1])
    link.run()
    assert isinstance(link.client_events[-1], ResponseReceived)
    assert link.client_events[-1].cookie == "a"


def test_events_reach_the_application_in_order() -> None:
    seen: list[tuple[Role, type[Event]]] = []
    link = pair(on_event=lambda connection, event: seen.append((connection.role, type(event))))
    link.handshake()
    link.server.send_request(PingRequest(), now=link.now)
    link.run()
    assert seen[0] == (Role.SERVER, Negotiated)
    assert seen[-2:] == [(Role.CLIENT, Answered), (Role.SERVER, ResponseReceived)]
