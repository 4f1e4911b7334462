from __future__ import annotations

import json
from collections.abc import Hashable
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpio.engine.channel import Timers
from mcpio.engine.handshake import Handshake
from mcpio.engine.limits import REQUEST_COST, Held, Limits, Timeout
from mcpio.engine.pending import (
    NOT_YET,
    IncomingRequest,
    IncomingRequests,
    OutgoingRequest,
    OutgoingRequests,
    Pending,
    Unanswered,
)
from mcpio.engine.snapshot import IncomingState, OutgoingState
from mcpio.engine.table import RequestInput, RequestState, Role
from mcpio.events import IncomingId, OutgoingId, RequestContext
from mcpio.methods import METHODS
from mcpio.revisions import REV_2025_11_25, Era
from mcpio.types.features import Implementation, ServerCapabilities

DIALOGUE = Handshake(Role.SERVER, None)
CONTEXT = RequestContext(
    Era.HANDSHAKE, REV_2025_11_25, ServerCapabilities(), Implementation("s", "1"), None, None, None
)

# Requests of our own


def ours(retired: int = 3) -> tuple[OutgoingRequests, Timers[int]]:
    timers: Timers[int] = Timers()
    return OutgoingRequests(timers, Limits(retired_ids=retired)), timers


def ask(requests: OutgoingRequests, timeout: Timeout | None = None, now: float = 0.0) -> OutgoingRequest:
    request = OutgoingRequest(OutgoingId(requests.next), "tools/list", METHODS["tools/list"], "cookie", DIALOGUE)
    requests.add(request, timeout or Timeout(None), now)
    return request


@pytest.mark.req("RPC-05")
def test_outgoing_ids_count_up() -> None:
    requests, _ = ours()
    seen = []
    for number in range(20):
        request = ask(requests)
        seen.append(request.id)
        if number % 2:
            requests.finish(request, RequestInput.RECV_RESULT)
    assert seen == list(range(1, 21))
    assert {type(id) for id in seen} == {OutgoingId}
    assert requests.next == 21


def test_used_up_id_counts_as_cancelled() -> None:
    requests, _ = ours()
    assert requests.use_up() == 1
    assert (requests.next, len(requests), requests.state_of(1)) == (2, 0, RequestState.CANCELLED)
    assert ask(requests).id == 2
    requests.forget(1)
    requests.forget(1)
    requests.forget(7)
    assert requests.state_of(1) is RequestState.ANSWERED
    assert requests.save(0.0)[1] == {}


def test_running_request_is_found_by_its_id() -> None:
    requests, _ = ours()
    assert (len(requests), list(requests), requests.get(1)) == (0, [], None)
    one, two = ask(requests), ask(requests)
    assert (len(requests), list(requests)) == (2, [one, two])
    assert (requests.get(1), requests[1], requests.get(3)) == (one, one, None)
    requests.finish(one, RequestInput.RECV_ERROR)
    requests.finish(two, RequestInput.RECV_ERROR)
    assert (len(requests), list(requests), requests.get(1)) == (0, [], None)


@pytest.mark.req("TIME-02", "TIME-03")
def test_touch_moves_the_idle_deadline_but_not_the_total() -> None:
    requests, timers = ours()
    request = ask(requests, Timeout(total=10.0, idle=4.0), now=100.0)
    deadlines = []
    for now in (100.0, 103.0, 105.0, 107.0, 109.0):
        requests.touch(request, now)
        deadlines.append(timers.next())
    assert deadlines == [104.0, 107.0, 109.0, 110.0, 110.0]
    requests.finish(request, RequestInput.RECV_RESULT)
    assert timers.next() is None


@pytest.mark.parametrize(
    ("timeout", "first", "later"),
    [
        (Timeout(None), None, None),
        (Timeout(5.0), 5.0, 5.0),
        (Timeout(None, 5.0), 5.0, 8.0),
        (Timeout(0.0), 0.0, 0.0),
        (Timeout(2.0, 5.0), 2.0, 2.0),
    ],
)
def test_total_and_idle_timeouts_are_independent(timeout: Timeout, first: float | None, later: float | None) -> None:
    requests, timers = ours()
    request = ask(requests, timeout)
    assert timers.next() == first
    requests.touch(request, 3.0)
    assert timers.next() == later


@pytest.mark.req("CANC-07", "RPC-18")
def test_state_tells_late_answers_from_wrong_ones() -> None:
    requests, _ = ours()
    running, *others = (ask(requests) for _ in range(5))
    causes = [
        RequestInput.RECV_RESULT,
        RequestInput.SEND_CANCEL,
        RequestInput.RECV_TIMEOUT,
        RequestInput.RECV_LOSS,
    ]
    for request, cause in zip(others, causes, strict=True):
        requests.finish(request, cause)
    assert [requests.state_of(request.id) for request in (running, *others)] == [
        RequestState.RUNNING,
        RequestState.ANSWERED,
        RequestState.CANCELLED,
        RequestState.TIMED_OUT,
        RequestState.LOST,
    ]
    assert [requests.state_of(id) for id in (0, -1, 6, 10**30)] == [None] * 4


def test_oldest_retired_id_is_forgotten() -> None:
    requests, _ = ours(retired=2)
    for _ in range(4):
        requests.finish(ask(requests), RequestInput.SEND_CANCEL)
    assert [requests.state_of(id) for id in range(1, 5)] == [
        RequestState.ANSWERED,
        RequestState.ANSWERED,
        RequestState.CANCELLED,
        RequestState.CANCELLED,
    ]
    none, _ = ours(retired=0)
    none.finish(ask(none), RequestInput.SEND_CANCEL)
    assert none.state_of(1) is RequestState.ANSWERED


def test_outgoing_requests_survive_a_snapshot_with_remaining_time() -> None:
    requests, _ = ours()
    requests.finish(ask(requests), RequestInput.RECV_TIMEOUT)
    plain = ask(requests)
    busy = ask(requests, Timeout(total=20.0, idle=8.0), now=100.0)
    busy.progress, busy.related, busy.via = 3, IncomingId(7), "exchange"
    waiting = ask(requests, Timeout(total=6.0), now=100.0)
    waiting.progress = NOT_YET
    states, retired = requests.save(104.0)
    assert retired == {"1": "TIMED_OUT"}
    assert [(state.total_left, state.due_left) for state in states] == [(None, None), (16.0, 4.0), (2.0, 2.0)]
    assert json.loads(json.dumps([attrs.asdict(state) for state in states]))[1]["progress"] == 3

    again, timers = ours()
    again.load(states, 1000.0, DIALOGUE)
    again.load_ids(requests.next, retired)
    assert again.save(1000.0) == (states, retired)
    assert (again.next, again.state_of(1), len(again)) == (5, RequestState.TIMED_OUT, 3)
    assert timers.next() == 1002.0
    restored = again.get(busy.id)
    assert restored is not None
    assert (restored.method, restored.cookie, restored.related, restored.via) == (busy.method, "cookie", 7, "exchange")
    again.touch(restored, 1001.0)
    assert timers.get(busy.id) == 1009.0
    assert [request.progress for request in again] == [None, 3, NOT_YET]
    assert again.get(plain.id) is not None


def test_empty_outgoing_table_survives_a_snapshot() -> None:
    requests, _ = ours()
    assert requests.save(0.0) == ([], {})
    again, timers = ours()
    again.load_ids(9, {})
    assert (len(again), again.next, timers.next()) == (0, 9, None)
    assert again.state_of(8) is RequestState.ANSWERED


def test_empty_outgoing_table_holds_no_containers() -> None:
    requests, _ = ours()
    mine = [ask(requests, Timeout(1.0)) for _ in range(100)]
    for request in mine:
        requests.finish(request, RequestInput.RECV_RESULT)
    assert (requests._running, requests._retired, requests._timers.next()) == (None, None, None)


# The peer's requests


def incoming(id: IncomingId, wire_id: int | str, name: str, token: int | str | None, via: Hashable) -> IncomingRequest:
    return IncomingRequest(id, wire_id, name, METHODS.get(name), token, via, REQUEST_COST, DIALOGUE, CONTEXT, None)


def migrate(old: IncomingRequests, new: IncomingRequests) -> None:
    new.load(old.save(), lambda _: (DIALOGUE, CONTEXT))
    new.load_ids(old.next_id, old.save_finished(), old.save_answered())


def come(requests: IncomingRequests, wire_id: int | str, via: Hashable = None) -> IncomingRequest:
    request = incoming(requests.next_id, wire_id, "tools/call", None, via)
    requests.add(request)
    return request


@pytest.mark.req("RPC-07")
def test_incoming_ids_are_scoped_to_their_exchange() -> None:
    requests = IncomingRequests(Held())
    assert not requests.is_running(1, None)
    one, text, other = come(requests, 1), come(requests, "1"), come(requests, 1, via="a")
    assert (one.id, text.id, other.id) == (1, 2, 3)
    assert {type(request.id) for request in requests} == {IncomingId}
    running = [requests.is_running(*key) for key in ((1, None), ("1", None), (1, "a"))]
    others = [requests.is_running(*key) for key in ((1, "b"), ("1", "a"), (2, None))]
    assert (running, others) == ([True] * 3, [False] * 3)
    assert (requests.get(3), requests.get(4), len(requests)) == (other, None, 3)


def test_named_returns_the_possible_requests() -> None:
    requests = IncomingRequests(Held())
    assert requests.named(1, None) == []
    one = come(requests, 1)
    assert requests.named(1, None) == [one]
    assert requests.named("1", None) == []
    requests.finish(one, RequestInput.RECV_CANCEL)
    first, second, lone = come(requests, 1, via="a"), come(requests, 1, via="b"), come(requests, 2, via="c")
    assert requests.named(1, "a") == [first]
    assert requests.named(1, "other") == [first, second]
    assert requests.named(1, None) == [first, second]
    assert requests.named(2, "other") == [lone]
    assert requests.named("2", "other") == []
    requests.finish(first, RequestInput.SEND_RESULT)
    assert requests.named(1, "other") == [second]
    requests.finish(second, RequestInput.SEND_RESULT)
    assert requests.named(1, "other") == []
    requests.finish(lone, RequestInput.SEND_RESULT)
    assert requests._by_wire_id is None


@pytest.mark.req("RPC-07")
def test_latest_finished_ids_are_remembered() -> None:
    requests = IncomingRequests(Held())
    assert 1 not in (requests.finished or ())
    for wire_id in (1, "1"):
        requests.finish(come(requests, wire_id), RequestInput.SEND_RESULT)
    assert [(wire_id in (requests.finished or ())) for wire_id in (1, "1", 2)] == [True, True, False]
    requests.finish(come(requests, 2, "an exchange"), RequestInput.SEND_RESULT)
    assert 2 not in (requests.finished or ())
    for wire_id in range(10, 16):
        requests.finish(come(requests, wire_id), RequestInput.RECV_CANCEL)
    assert [(wire_id in (requests.finished or ())) for wire_id in (1, "1", 10, 15)] == [False, False, True, True]


@pytest.mark.parametrize("wire_id", ["x" * 40, 2**320 - 1, -(2**320) + 1])
def test_longest_ids_that_are_remembered(wire_id: int | str) -> None:
    requests = IncomingRequests(Held())
    requests.finish(come(requests, wire_id), RequestInput.SEND_RESULT)
    assert requests.finished == [wire_id]


@pytest.mark.parametrize("wire_id", ["x" * 41, "ä", 2**320, -(2**320)])
def test_long_ids_are_not_remembered(wire_id: int | str) -> None:
    requests = IncomingRequests(Held())
    requests.finish(come(requests, wire_id), RequestInput.SEND_RESULT)
    assert wire_id not in (requests.finished or ())
    assert requests.save_finished() == []
    requests.finish(come(requests, "x", via="exchange"), RequestInput.SEND_RESULT)
    assert requests.save_finished() == []


def test_was_answered_knows_the_latest_requests() -> None:
    requests = IncomingRequests(Held())
    assert not requests.was_answered(1)
    answered, failed, cancelled = (come(requests, number) for number in range(3))
    long = come(requests, "long")
    requests.finish(answered, RequestInput.SEND_RESULT)
    requests.finish(failed, RequestInput.SEND_ERROR)
    requests.finish(cancelled, RequestInput.RECV_CANCEL)
    assert [requests.was_answered(id) for id in range(6)] == [False, True, True, False, False, False]
    for number in range(100):
        requests.finish(come(requests, number), RequestInput.RECV_CANCEL)
    requests.finish(long, RequestInput.SEND_RESULT)
    assert not any(requests.was_answered(id) for id in range(-5, 120))


def test_finishing_after_the_end_does_nothing() -> None:
    requests = IncomingRequests(Held())
    request = come(requests, 1)
    requests.finish(request, RequestInput.RECV_LOSS)
    requests.finish(request, RequestInput.RECV_LOSS)
    assert (len(requests), list(requests), requests.get(1)) == (0, [], None)


def test_incoming_requests_survive_a_snapshot() -> None:
    requests = IncomingRequests(Held())
    for wire_id in ("done", 5):
        requests.finish(come(requests, wire_id), RequestInput.SEND_RESULT)
    requests.finish(come(requests, 6), RequestInput.RECV_CANCEL)
    plain, busy = come(requests, 7), incoming(IncomingId(5), "b", "custom", "token", "exchange")
    requests.add(busy)
    busy.progress = 0.5
    again = IncomingRequests(Held())
    migrate(requests, again)
    assert again.save() == requests.save()
    assert again.save_finished() == ["done", 5, 6]
    assert again.save_answered() == [1, 2]
    assert again.next_id == 6
    assert [request.method for request in again] == [plain.method, None]
    assert again.named("b", "other")[0].progress == 0.5


def test_snapshot_with_old_answers_is_accepted() -> None:
    requests = IncomingRequests(Held())
    requests.load_ids(100, [], [1, 35, 36, 99, 100, -3])
    assert requests.save_answered() == [36, 99]


def test_pending_and_unanswered_are_plain_values() -> None:
    assert Pending((OutgoingId(1),), ()) == Pending((OutgoingId(1),), ())
    assert Unanswered(IncomingId(1), "ping", None, CONTEXT, None).method == "ping"


CAUSES = st.sampled_from([RequestInput.SEND_RESULT, RequestInput.SEND_ERROR, RequestInput.RECV_CANCEL])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("come"), st.integers(0, 3), st.sampled_from([None, None, "a", "b"])),
        st.tuples(st.just("finish"), st.integers(0, 5), CAUSES),
        st.tuples(st.just("migrate"), st.just(0), st.none()),
    ),
    max_size=150,
)


@given(STEPS)
def test_random_operations_keep_the_incoming_table_consistent(steps: list[tuple[str, int, Any]]) -> None:
    requests, running, answered = IncomingRequests(Held()), dict[Any, IncomingRequest](), set[int]()
    for what, number, more in steps:
        if what == "come":
            if (more, number) not in running:
                assert not requests.is_running(number, more)
                running[more, number] = come(requests, number, via=more)
        elif what == "finish" and running:
            key = list(running)[number % len(running)]
            request = running.pop(key)
            requests.finish(request, more)
            if more is not RequestInput.RECV_CANCEL:
                answered.add(request.id)
        elif what == "migrate":
            again = IncomingRequests(Held())
            migrate(requests, again)
            requests = again
            running = {(request.via, request.wire_id): request for request in requests}
        assert list(requests) == sorted(running.values(), key=lambda request: request.id)
        recent = range(max(1, requests.next_id - 64), requests.next_id)
        assert all(requests.was_answered(id) <= (id in answered) for id in range(requests.next_id))
        assert {id for id in recent if requests.was_answered(id)} <= answered
        for wire_id in range(4):
            namesakes = [request for (_, id), request in running.items() if id == wire_id]
            for via in (None, "a", "other"):
                exact = running.get((via, wire_id))
                apart = [request for request in namesakes if request.via is not None]
                assert requests.named(wire_id, via) == ([exact] if exact else sorted(apart, key=lambda each: each.id))


def test_states_have_the_members_that_a_snapshot_keeps() -> None:
    assert [field.name for field in attrs.fields(IncomingState)] == [
        "id",
        "wire_id",
        "name",
        "token",
        "progress",
        "via",
        "task",
        "envelope",
        "listening",
        "message",
    ]
    assert len(attrs.fields(OutgoingState)) == 13
