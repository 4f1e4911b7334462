from __future__ import annotations

import gc
import sys
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpio.engine.channel import ANSWERS, BACKLOG, Kind, Outbox, Outgoing
from mcpio.engine.limits import MESSAGE_COST
from mcpio.events import IncomingId, OutgoingId

ONE, TWO, THREE = map(IncomingId, (1, 2, 3))


def drained(box: Outbox) -> list[bytes]:
    texts = []
    while (message := box.pop()) is not None:
        texts.append(message.text)
    return texts


def test_empty_outbox_holds_no_containers() -> None:
    box = Outbox(10)
    assert box.pop() is None
    assert not box
    assert (box.size, box.own_bytes, box.dropped_logs) == (0, 0, 0)


def test_message_keeps_its_routing_data() -> None:
    box = Outbox(10)
    box.put(b"{}", Kind.RESPONSE, via="exchange", related=ONE, last=True)
    assert box
    message = box.pop()
    assert message is not None
    assert (message.text, message.via, message.related, message.last) == (b"{}", "exchange", ONE, True)
    assert (message.requests, message.call) == ((), None)
    assert repr(message) == "Outgoing(b'{}', via='exchange', related=1, last=True)"
    assert not box
    box.put(b"{}", Kind.REQUEST, requests=(OutgoingId(5),), call=("tools/call", {"name": "x"}))
    message = box.pop()
    assert message is not None
    assert (message.last, message.requests, message.call) == (False, (5,), ("tools/call", {"name": "x"}))


def test_sizes_count_waiting_messages_by_kind() -> None:
    box = Outbox(10)
    box.put(b"1234", Kind.REQUEST)
    box.put(b"12", Kind.NOTIFICATION)
    box.put(b"1", Kind.RESPONSE, related=ONE)
    assert (box.size, box.own_bytes) == (7 + 3 * MESSAGE_COST, 4 + MESSAGE_COST)
    box.pop()
    assert (box.size, box.own_bytes) == (3 + 2 * MESSAGE_COST, 0)
    box.clear()
    assert (box.size, box.own_bytes, bool(box)) == (0, 0, False)
    assert drained(box) == []


def test_lanes_take_turns_and_keep_their_order() -> None:
    box = Outbox(10)
    for number in range(4):
        box.put(b"one %d" % number, Kind.NOTIFICATION, related=ONE)
    box.put(b"two 0", Kind.NOTIFICATION, related=TWO)
    box.put(b"two 1", Kind.RESPONSE, related=TWO, last=True)
    box.put(b"other", Kind.NOTIFICATION)
    assert drained(box) == [b"one 0", b"two 0", b"other", b"one 1", b"two 1", b"one 2", b"one 3"]


@pytest.mark.req("PING-01")
def test_automatic_answers_have_their_own_lane() -> None:
    box = Outbox(2000)
    for number in range(1000):
        box.put(b"log %d" % number, Kind.LOG)
    box.put(b"pong 1", Kind.RESPONSE, lane=ANSWERS)
    box.put(b"pong 2", Kind.RESPONSE, lane=ANSWERS)
    first = [message.text for _ in range(4) if (message := box.pop())]
    assert first == [b"log 0", b"pong 1", b"log 1", b"pong 2"]


def test_newest_message_of_a_key_replaces_the_older() -> None:
    box = Outbox(10)
    box.put(b"10 %", Kind.NOTIFICATION, related=ONE, key="progress")
    box.put(b"warning", Kind.LOG, related=ONE)
    box.put(b"20 %", Kind.NOTIFICATION, related=ONE, key="progress")
    box.put(b"changed", Kind.NOTIFICATION, key="list")
    assert box.size == len(b"warning20 %changed") + 3 * MESSAGE_COST
    assert drained(box) == [b"warning", b"changed", b"20 %"]
    box.put(b"30 %", Kind.NOTIFICATION, related=ONE, key="progress")
    assert drained(box) == [b"30 %"]


def test_oldest_logs_are_dropped_and_counted() -> None:
    box = Outbox(2)
    box.put(b"log 1", Kind.LOG)
    box.put(b"log 2", Kind.LOG, related=ONE)
    box.put(b"answer", Kind.RESPONSE, related=ONE)
    box.put(b"log 3", Kind.LOG)
    assert box.dropped_logs == 1
    box.put(b"log 4", Kind.LOG)
    assert box.dropped_logs == 2
    assert drained(box) == [b"log 3", b"answer", b"log 4"]
    for _ in range(2):
        box.put(b"log", Kind.LOG)
    assert box.dropped_logs == 2


def test_logs_leave_by_the_turns_of_their_lanes() -> None:
    box = Outbox(2)
    box.put(b"busy", Kind.NOTIFICATION, related=ONE)
    box.put(b"log 1", Kind.LOG, related=ONE)
    box.put(b"log 2", Kind.LOG, related=TWO)
    assert [message.text for _ in range(2) if (message := box.pop())] == [b"busy", b"log 2"]
    box.put(b"log 3", Kind.LOG)
    assert box.dropped_logs == 0
    assert box.pop() is not None
    box.put(b"log 4", Kind.LOG)
    box.put(b"log 5", Kind.LOG)
    assert box.dropped_logs == 1
    assert drained(box) == [b"log 4", b"log 5"]


def test_log_limit_of_zero_drops_all_logs() -> None:
    box = Outbox(0)
    box.put(b"log", Kind.LOG)
    assert (box.dropped_logs, drained(box), bool(box)) == (1, [], False)


def test_dropped_messages_free_their_memory() -> None:
    box = Outbox(10)
    box.put(b"kept", Kind.REQUEST, related=TWO)
    for number in range(10_000):
        box.put(b"%06d" % number, Kind.NOTIFICATION, related=ONE, key="progress")
        box.put(b"%06d" % number, Kind.LOG, related=THREE)
    assert sum(isinstance(each, Outgoing) for each in gc.get_objects()) < 200
    assert (box.size, box.dropped_logs) == (4 + 6 + 60 + 12 * MESSAGE_COST, 9990)
    assert Counter(drained(box)) == Counter([b"kept", b"009999", *(b"%06d" % number for number in range(9990, 10_000))])


def test_texts_behind_a_backlog_are_copied_to_size() -> None:
    box = Outbox(10)
    text = bytes(range(200))
    box.put(text, Kind.RESPONSE)
    box.put(b" " * BACKLOG, Kind.RESPONSE)
    box.put(text, Kind.RESPONSE)
    first, _, last = box.pop(), box.pop(), box.pop()
    assert first is not None
    assert last is not None
    assert (first.text is text, last.text is text, last.text) == (True, False, text)


def test_dropped_messages_free_their_memory_among_many_others() -> None:
    box = Outbox(10)
    for number in range(400):
        box.put(b"kept", Kind.NOTIFICATION, related=IncomingId(number + 9))
    for number in range(10_000):
        box.put(b"%06d" % number, Kind.NOTIFICATION, related=IncomingId(number % 5 + 1), key=number % 200)
    assert sum(isinstance(each, Outgoing) for each in gc.get_objects()) < 1_500
    assert (box.size, len(drained(box))) == (400 * 4 + 200 * 6 + 600 * MESSAGE_COST, 600)


def test_all_of_many_can_be_dropped() -> None:
    box = Outbox(0)
    for _ in range(200):
        box.put(b"log", Kind.LOG)
    assert (box.dropped_logs, box.size, drained(box)) == (200, 0, [])


def test_emptied_outbox_is_as_small_as_a_new_one() -> None:
    box = Outbox(10)
    base = {name: getattr(box, name) for name in Outbox.__slots__}
    for number in range(1000):
        box.put(b"x" * 100, number % 4, related=IncomingId(number % 7), key=number % 5 or None)
    drained(box)
    assert {name: getattr(box, name) for name in Outbox.__slots__ if name != "dropped_logs"} == {
        name: value for name, value in base.items() if name != "dropped_logs"
    }
    assert sys.getsizeof(box) < 200


PUTS = st.lists(
    st.one_of(
        st.none(),
        st.tuples(st.integers(0, 3), st.integers(0, 3), st.sampled_from([None, None, "a", "b"])),
    ),
    max_size=120,
)


@given(PUTS, st.integers(0, 5))
def test_random_operations_keep_order_sizes_and_messages(
    steps: list[tuple[int, int, str | None] | None], logs_limit: int
) -> None:
    box = Outbox(logs_limit)
    waiting: list[tuple[bytes, int, int, Any]] = []
    logs = dropped = 0
    for number, step in enumerate(steps):
        if step is None:
            message = box.pop()
            if message is None:
                assert waiting == []
                continue
            # The first of its lane, of what still waits.
            lane = next(item for item in waiting if item[2] == (message.related or 0))
            assert message.text == lane[0]
            waiting.remove(lane)
        else:
            kind, lane_number, key = step
            key = key if kind == Kind.NOTIFICATION else None
            text = b"%d" % number
            box.put(text, kind, related=IncomingId(lane_number) if lane_number else None, key=key)
            waiting = [item for item in waiting if key is None or item[3] != key]
            waiting.append((text, kind, lane_number, key))
        logs = sum(item[1] == Kind.LOG for item in waiting)
        if logs > logs_limit:
            waiting.remove(next(item for item in waiting if item[1] == Kind.LOG))
            dropped += 1
        assert box.size == sum(len(item[0]) + MESSAGE_COST for item in waiting)
        assert box.own_bytes == sum(len(item[0]) + MESSAGE_COST for item in waiting if item[1] == Kind.REQUEST)
        assert box.dropped_logs == dropped
    assert Counter(drained(box)) == Counter(item[0] for item in waiting)


def test_dropped_message_takes_no_turn() -> None:
    box = Outbox(10)
    for number in range(50):
        box.put(b"%d %%" % number, Kind.NOTIFICATION, related=ONE, key="progress")
        box.put(b"other", Kind.NOTIFICATION, related=TWO)
    box.put(b"response", Kind.RESPONSE, related=ONE, last=True)
    assert drained(box)[:4] == [b"49 %", b"other", b"response", b"other"]


def test_message_behind_a_dropped_one_takes_its_turn_before_other_exchanges() -> None:
    box = Outbox(10)
    for text in (b"1 %", b"2 %"):
        box.put(text, Kind.NOTIFICATION, via="one", related=ONE, key="progress")
    box.put(b"other", Kind.NOTIFICATION, via="two", related=TWO)
    assert drained(box) == [b"2 %", b"other"]


@given(st.lists(st.integers(0, 9), min_size=1, max_size=80))
def test_a_response_waits_for_at_most_one_message_of_every_other_lane(lanes: list[int]) -> None:
    box = Outbox(0)
    for lane in lanes:
        box.put(b"notification", Kind.NOTIFICATION, related=IncomingId(lane + 2))
    box.put(b"response", Kind.RESPONSE, related=ONE, last=True)
    assert drained(box).index(b"response") <= len(set(lanes))


def test_joined_lanes_precede_later_messages() -> None:
    outbox = Outbox(5)
    for text, lane in ((b"a1", 1), (b"b1", 2), (b"x", 9), (b"a2", 1), (b"b2", 2)):
        outbox.put(text, Kind.NOTIFICATION, related=IncomingId(lane))
    size = outbox.size
    outbox.join_lanes([1, 2, 3], 1)
    assert outbox.size == size
    outbox.put(b"end", Kind.RESPONSE, lane=1)
    texts = []
    while (message := outbox.pop()) is not None:
        texts.append(message.text)
    assert texts == [b"a1", b"x", b"a2", b"b1", b"b2", b"end"]


def test_joining_empty_lanes_does_nothing() -> None:
    outbox = Outbox(5)
    outbox.join_lanes([1, 2], 1)
    outbox.put(b"a", Kind.NOTIFICATION, related=IncomingId(1))
    outbox.join_lanes([1, 2], 1)
    message = outbox.pop()
    assert message is not None
    assert message.text == b"a"
    assert outbox.pop() is None


def test_pop_by_returns_messages_of_one_exchange() -> None:
    box = Outbox(1)
    assert (box.pop_by("a"), box.vias()) == (None, [])
    box.put(b"log", Kind.LOG, via="a", lane=1)
    box.put(b"newer log", Kind.LOG, via="a", lane=1)
    box.put(b"nowhere in particular", Kind.NOTIFICATION)
    box.put(b"b1", Kind.RESPONSE, via="b", lane=2)
    box.put(b"b2", Kind.RESPONSE, via="b", lane=3)
    assert box.vias() == ["a", None, "b"]
    taken = [box.pop_by(via) for via in ("b", "a", "b", "a", None, None)]
    texts = [message and message.text for message in taken]
    assert texts == [b"b1", b"newer log", b"b2", None, b"nowhere in particular", None]
    assert (box.vias(), bool(box)) == ([], False)


def test_pop_by_keeps_the_turns_of_other_exchanges() -> None:
    box = Outbox(0)
    for number in range(3):
        box.put(b"%d" % number, Kind.NOTIFICATION, via=number, lane=number)
    assert box.pop_by("another") is None
    assert drained(box) == [b"0", b"1", b"2"]


def test_pop_only_returns_the_last_message_of_a_request_that_waits_alone() -> None:
    box = Outbox(5)
    assert box.pop_only("one") is None
    box.put(b"notification", Kind.NOTIFICATION, via="one", related=ONE)
    assert box.pop_only("one") is None
    box.put(b"answer", Kind.RESPONSE, via="two", related=TWO, last=True)
    assert (box.pop_only("one"), box.pop_only("two")) == (None, None)
    assert drained(box) == [b"notification", b"answer"]
    for text in (b"second", b"third"):
        box.put(text, Kind.RESPONSE, via="two", related=TWO, last=True)
        assert box.pop_only("one") is None
        message = box.pop_only("two")
        assert message is not None
        assert (message.text, bool(box)) == (text, False)


def test_news_names_each_exchange_once_until_it_has_more() -> None:
    box = Outbox(0)
    assert list(box.take_news()) == []
    for via in ("a", "b", "a", None):
        box.put(b"x", Kind.NOTIFICATION, via=via, lane=via)
    assert sorted(map(str, box.take_news())) == ["None", "a", "b"]
    assert list(box.take_news()) == []
    box.put(b"behind another", Kind.NOTIFICATION)
    assert list(box.take_news()) == []
    assert box.pop_by(None) is not None
    assert list(box.take_news()) == [None]
    assert (box.has("a"), box.has("c")) == (True, False)


def test_message_behind_one_of_another_exchange_is_news_when_that_is_taken() -> None:
    box = Outbox(0)
    box.put(b"request", Kind.NOTIFICATION, via="a", lane=1)
    box.put(b"cancelled", Kind.NOTIFICATION, lane=1)
    assert list(box.take_news()) == ["a"]
    assert box.pop_by(None) is None
    assert box.pop_by("a") is not None
    assert list(box.take_news()) == [None]
    assert drained(box) == [b"cancelled"]
