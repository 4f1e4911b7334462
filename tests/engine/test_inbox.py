from __future__ import annotations

from typing import Any

import pytest

from mcpio.engine.channel import KEEP, QUOTE, Inbox, head
from mcpio.engine.limits import Limits
from mcpio.framing.lines import Overlong

SMALL = Limits(message_bytes=4)


def drained(inbox: Inbox) -> list[tuple[Any, Any]]:
    items = []
    while (item := inbox.next()) is not None:
        items.append(item[:2])
    return items


@pytest.mark.req("STDIO-03")
def test_end_of_input_completes_the_last_line() -> None:
    inbox = Inbox(Limits())
    inbox.add_data(b"one\r\n\n t")
    assert inbox.pending
    assert drained(inbox) == [(b"one", None)]
    assert (inbox.pending, inbox.unfinished, inbox.ended) == (False, b" t", False)
    inbox.add_data(b"wo")
    inbox.end()
    assert inbox.ended
    assert inbox.pending
    assert drained(inbox) == [(b" two", None)]
    assert not inbox.pending


def test_whole_messages_keep_exchange_and_order() -> None:
    inbox = Inbox(Limits())
    inbox.add_message("a\nb", via="x", principal=KEEP)
    inbox.add_message(b"", via=2, principal=KEEP)
    assert inbox.pending
    assert drained(inbox) == [("a\nb", "x"), (b"", 2)]
    assert not inbox.pending


@pytest.mark.parametrize(
    ("text", "size"),
    [(b"12345", 5), ("12345", 5), ("äöü", 6), ("\ud800" * 5, 5), (b"x" * 1000, 1000), ("é" * 1000, 2000)],
)
def test_overlong_message_keeps_only_its_head(text: bytes | str, size: int) -> None:
    inbox = Inbox(SMALL)
    inbox.add_message("äö", via=0, principal=KEEP)
    inbox.add_message(b"1234", via=0, principal=KEEP)
    inbox.add_message(text, via=1, principal=KEEP)
    assert drained(inbox)[:2] == [("äö", 0), (b"1234", 0)]
    inbox.add_message(text, via=1, principal=KEEP)
    ((overlong, via),) = drained(inbox)
    assert isinstance(overlong, Overlong)
    assert (overlong.size_seen, via) == (size, 1)
    assert len(overlong.head) <= 400
    start = text if isinstance(text, bytes) else text.encode(errors="replace")
    assert start.startswith(overlong.head)


def test_overlong_line_keeps_its_place() -> None:
    inbox = Inbox(SMALL)
    inbox.add_data(b"1\n23456")
    assert inbox.pending
    assert inbox.next() == (b"1", None, KEEP, None)
    assert inbox.pending
    ((overlong, _),) = drained(inbox)
    assert isinstance(overlong, Overlong)
    assert not inbox.pending


def test_cleared_inbox_is_empty() -> None:
    inbox = Inbox(Limits())
    inbox.add_data(b"1\n2\n3")
    inbox.add_message("4", via=None, principal=KEEP)
    inbox.clear()
    assert drained(inbox) == []
    assert (inbox.pending, inbox.unfinished) == (False, b"")


def test_unfinished_line_continues_in_a_restored_inbox() -> None:
    first, second = Inbox(Limits()), Inbox(Limits())
    first.add_data(b"one\ntw")
    assert drained(first) == [(b"one", None)]
    second.load(first.unfinished, skipping=first.skipping)
    second.add_data(b"o\n")
    assert drained(second) == [(b"two", None)]


def test_restored_inbox_skips_the_rest_of_an_overlong_line() -> None:
    limits = Limits(message_bytes=4, resync=True)
    first, second = Inbox(limits), Inbox(limits)
    first.add_data(b"123456")
    assert len(drained(first)) == 1
    assert (first.skipping, first.unfinished) == (True, b"")
    second.load(first.unfinished, skipping=first.skipping)
    second.add_data(b"789\nok\n")
    assert drained(second) == [(b"ok", None)]
    second.add_data(b"123456\nok\n")
    assert [type(text) for text, _ in drained(second)] == [Overlong, bytes]


def test_head_returns_the_beginning_of_a_text() -> None:
    assert head("x" * 1000) == "x" * QUOTE
    assert head(b"\xff" + "ü".encode() * 1000) == "\ufffd" + "ü" * (QUOTE - 1)


def test_restarted_inbox_accepts_input() -> None:
    inbox = Inbox(Limits())
    inbox.add_data(b"half a li")
    inbox.add_message("a", None, KEEP)
    inbox.end()
    inbox.restart()
    inbox.add_data(b"whole\n")
    assert (inbox.ended, inbox.next(), inbox.next()) == (False, (b"whole", None, KEEP, None), None)


def test_channel_of_whole_messages_makes_no_framer() -> None:
    inbox = Inbox(Limits())
    inbox.load(b"", skipping=False)
    inbox.add_message("x", via=1, principal=KEEP)
    inbox.end()
    assert drained(inbox) == [("x", 1)]
    assert (inbox.pending, inbox.unfinished, inbox.skipping) == (False, b"", False)
