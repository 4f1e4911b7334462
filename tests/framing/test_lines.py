from __future__ import annotations

import itertools
import sys
import tracemalloc
from collections.abc import Callable
from functools import partial

import pytest
from counting import processor_seconds
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from mcpio.framing.lines import DEFAULT_MAX_LINE_BYTES, LineFramer, Overlong

MIB = 1024 * 1024


def drained(framer: LineFramer) -> list[bytes | Overlong]:
    lines = []
    while (line := framer.next_line()) is not None:
        lines.append(line)
    return lines


def lines_of(
    *pieces: bytes | bytearray, limit: int = 100, resync: bool = False, eof: bool = True
) -> list[bytes | Overlong]:
    """Return what comes out when every piece is pulled out before the next is fed."""
    framer = LineFramer(limit, resync=resync)
    lines = []
    for piece in pieces:
        framer.receive(piece)
        lines += drained(framer)
    if eof:
        framer.receive_eof()
        lines += drained(framer)
        assert framer.at_end
    return lines


@pytest.mark.req("STDIO-02")
@pytest.mark.req("STDIO-03")
@pytest.mark.parametrize(
    ("data", "lines"),
    [
        (b"", []),
        (b"a\nb\n", [b"a", b"b"]),
        (b"a\r\nb\r\n", [b"a", b"b"]),
        (b"a\nb", [b"a", b"b"]),
        (b"a\nb\r", [b"a", b"b"]),
        (b"\n\r\n \t\r\n\na\n\n", [b"a"]),
        (b" ", []),
        (b"\r", []),
        (b"a\rb\n", [b"a\rb"]),
        (b"a\r\r\n", [b"a\r"]),
        (b" a \n", [b" a "]),
        ("a\u2028b\u2029c\x85d\x0be\x0cf\x1cg\n".encode(), ["a\u2028b\u2029c\x85d\x0be\x0cf\x1cg".encode()]),
        (b"\x00\xff\n", [b"\x00\xff"]),
    ],
)
def test_only_a_newline_ends_a_line(data: bytes, lines: list[bytes]) -> None:
    assert lines_of(data) == lines
    assert lines_of(*(data[n : n + 1] for n in range(len(data)))) == lines


def test_unfinished_line_is_not_returned() -> None:
    framer = LineFramer()
    framer.receive(b"one\ntw")
    assert drained(framer) == [b"one"]
    assert framer.unfinished == b"tw"
    framer.receive(b"o")
    assert framer.next_line() is None
    assert (framer.unfinished, framer.buffered, framer.pending) == (b"two", 3, False)
    framer.receive(b"\r\n")
    assert (framer.unfinished, framer.buffered, framer.pending) == (b"", 5, True)
    assert framer.next_line() == b"two"
    assert (framer.buffered, framer.pending, framer.at_end) == (0, False, False)


def test_framer_continues_an_unfinished_line_of_another() -> None:
    framer = LineFramer()
    framer.receive(b'{"a":1')
    restored = LineFramer()
    restored.receive(framer.unfinished)
    restored.receive(b"}\n")
    assert drained(restored) == [b'{"a":1}']


def test_the_end_of_input_comes_after_the_last_line() -> None:
    framer = LineFramer()
    framer.receive(b"one\ntwo")
    framer.receive_eof()
    framer.receive_eof()
    framer.receive(b"ignored\n")
    seen = [(framer.at_end, framer.next_line()) for _ in range(2)]
    assert seen == [(False, b"one"), (False, b"two")]
    assert framer.at_end
    assert framer.next_line() is None
    assert (framer.unfinished, framer.buffered) == (b"", 0)


def test_end_of_empty_input_is_recorded() -> None:
    assert LineFramer().at_end is False
    framer = LineFramer()
    framer.receive_eof()
    assert framer.at_end
    assert framer.next_line() is None


def test_lines_keep_their_order_when_not_pulled() -> None:
    framer = LineFramer(8, resync=True)
    for piece in (b"a\nb\n", b"c\n", b"d\ne", b"f\n", b"123456789", b"0\ng\n", b"h\n", b"i"):
        framer.receive(piece)
    assert framer.buffered == 16
    assert drained(framer) == [b"a", b"b", b"c", b"d", b"ef", Overlong(9, b"123456789"), b"g", b"h"]
    assert framer.buffered == 1


def test_reusing_the_fed_buffer_changes_no_line() -> None:
    framer = LineFramer()
    buffer = bytearray(b"one\ntw")
    framer.receive(buffer)
    buffer[:] = b"XXXXXX"
    framer.receive(b"o\n")
    assert drained(framer) == [b"one", b"two"]
    assert all(type(line) is bytes for line in lines_of(bytearray(b"a\nb")))


@pytest.mark.req("SEC-10")
@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_the_limit_is_the_longest_line_accepted(end: bytes) -> None:
    assert lines_of(b"12345" + end, limit=5) == [b"12345"]
    assert lines_of(b"123456" + end, limit=5) == [Overlong(6, b"123456")]
    assert LineFramer()._max == DEFAULT_MAX_LINE_BYTES == 16 * MIB


@pytest.mark.req("SEC-10")
def test_nothing_comes_after_an_overlong_line() -> None:
    framer = LineFramer(5)
    framer.receive(b"a\n1234567\nb\nc")
    framer.receive(b"d\n")
    assert framer.next_line() == b"a"
    assert framer.next_line() == Overlong(6, b"123456")
    framer.receive(b"e\n")
    assert framer.next_line() is None
    assert (framer.buffered, framer.unfinished, framer.pending, framer.at_end) == (0, b"", False, False)
    framer.receive_eof()
    assert framer.at_end


@pytest.mark.req("SEC-10")
def test_an_overlong_line_is_reported_before_it_ends() -> None:
    framer = LineFramer(5)
    framer.receive(b"123")
    assert framer.next_line() is None
    framer.receive(b"456")
    assert (framer.pending, framer.buffered) == (True, 0)
    assert framer.next_line() == Overlong(6, b"123456")
    framer.receive(b"\nb\n")
    assert framer.next_line() is None


@pytest.mark.req("SEC-10")
def test_resync_continues_after_the_overlong_line() -> None:
    framer = LineFramer(5, resync=True)
    framer.receive(b"1234567")
    assert framer.next_line() == Overlong(6, b"123456")
    framer.receive(b"8" * 1000)
    assert framer.next_line() is None
    assert (framer.buffered, framer.unfinished, framer.skipping) == (0, b"", True)
    framer.receive(b"9\nb\n")
    assert framer.next_line() == b"b"
    assert (framer.buffered, framer.unfinished, framer.skipping) == (0, b"", False)
    framer.receive(b"1234567\nc\n")
    assert drained(framer) == [Overlong(6, b"123456"), b"c"]


def test_a_framer_may_start_inside_an_overlong_line() -> None:
    framer = LineFramer(5, resync=True, skipping=True)
    framer.receive(b"678\na\n")
    assert drained(framer) == [b"a"]


def test_an_overlong_line_at_the_end_of_input_is_reported_once() -> None:
    assert lines_of(b"a\n1234567", limit=5) == [b"a", Overlong(6, b"123456")]
    assert lines_of(b"a\n1234567", limit=5, resync=True) == [b"a", Overlong(6, b"123456")]


@pytest.mark.parametrize("piece", [1, 100, 150, 300, 5000])
def test_the_head_is_the_first_200_bytes(piece: int) -> None:
    line = bytes(range(32, 127)) * 10
    pieces = [line[n : n + piece] for n in range(0, len(line), piece)]
    assert lines_of(*pieces, limit=400) == [Overlong(401, line[:200])]
    assert lines_of(*pieces, limit=5) == [Overlong(6, line[:6])]


def test_overlong_is_frozen() -> None:
    overlong = Overlong(6, b"123456")
    with pytest.raises(AttributeError):
        overlong.head = b""  # type: ignore[misc]  # the point of the test
    assert repr(overlong) == "Overlong(size_seen=6, head=b'123456')"


STREAMS = st.lists(st.sampled_from([b"\n", b"\r\n", b"\r", b" ", b"a", b"bc", b"defg", b"h" * 7]), max_size=30).map(
    b"".join
)
CUTS = st.lists(st.integers(0, 120), max_size=12)


@pytest.mark.req("STDIO-03")
@pytest.mark.parametrize("piece", [4, 65_536])
@given(STREAMS, CUTS, st.integers(0, 9), st.booleans(), st.booleans())
@settings(max_examples=examples(300))
def test_any_split_gives_the_same_lines(
    piece: int, data: bytes, cuts: list[int], limit: int, resync: bool, pull: bool
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mcpio.framing.lines._PIECE", piece)
        check_split(data, cuts, limit, resync, pull)


def check_split(data: bytes, cuts: list[int], limit: int, resync: bool, pull: bool) -> None:
    places = sorted({0, len(data), *(min(cut, len(data)) for cut in cuts)})
    pieces = [data[a:b] for a, b in itertools.pairwise(places)]
    whole = lines_of(data, limit=limit, resync=resync)
    if pull:
        assert lines_of(*pieces, limit=limit, resync=resync) == whole
    else:
        framer = LineFramer(limit, resync=resync)
        for piece in pieces:
            framer.receive(piece)
        framer.receive_eof()
        assert drained(framer) == whole
    assert whole == _by_the_book(data, limit, resync)


def _by_the_book(data: bytes, limit: int, resync: bool) -> list[bytes | Overlong]:
    """Return the lines as the documentation defines them, the short way."""
    lines: list[bytes | Overlong] = []
    for raw in data.split(b"\n"):
        line = raw.removesuffix(b"\r")
        if len(line) > limit:
            lines.append(Overlong(limit + 1, line[: limit + 1][:200]))
            if not resync:
                break
        elif line.strip():
            lines.append(line)
    return lines


@pytest.mark.parametrize("size", [2, 1000, 65_000, 65_536, 100_000])
def test_a_long_line_comes_back_whole_from_pieces_of_any_size(size: int) -> None:
    line = bytes(range(32, 127)) * 2000
    pieces = [line[n : n + size] for n in range(0, len(line), size)]
    mixed = [line[:1], line[1:70_000], line[70_000:70_003], line[70_003:]]
    for way in (pieces, mixed):
        assert lines_of(*way, b"\nnext\n", limit=MIB) == [line, b"next"]
        assert lines_of(*way, b"\n", limit=MIB) == [line]
        assert lines_of(*way, b"\r", b"\n", limit=MIB) == [line]
        assert lines_of(*way, b"more\r\nnext\n", limit=len(line)) == [Overlong(len(line) + 1, line[:200])]
        framer = LineFramer(MIB)
        for piece in way:
            framer.receive(piece)
        assert framer.unfinished == line
        assert framer.buffered == len(line)


def test_a_long_blank_line_is_left_out() -> None:
    assert lines_of(b" " * 100_000, b"\na\n", limit=MIB) == [b"a"]


def test_time_is_linear_in_the_size() -> None:
    def work(size: int) -> None:
        lines_of(*[b"x" * 64] * (size // 64), b"\n", limit=size)
        lines_of(b"x\n" * (size // 16), limit=size)

    small = processor_seconds([partial(work, MIB // 8)] * 5)
    large = processor_seconds([partial(work, 2 * MIB)] * 3)
    # 16 is linear, 256 quadratic.
    assert large < 80 * small


# Memory


def _peak(work: Callable[[], object]) -> int:
    """Return the most bytes that were allocated at one time."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.req("SEC-10")
@pytest.mark.parametrize("resync", [False, True])
@pytest.mark.parametrize("size", [16, 1000, 65_536])
@pytest.mark.parametrize("pulls", [False, True])
def test_an_endless_line_costs_no_more_than_its_limit_and_a_mebibyte(resync: bool, size: int, pulls: bool) -> None:
    limit = MIB // 4
    framer = LineFramer(limit, resync=resync)
    piece = b"x" * size

    def feed() -> None:
        for _ in range(3 * limit // size):
            framer.receive(piece)
            if pulls:
                framer.next_line()

    assert _peak(feed) < limit + 140_000
    assert framer.buffered == 0
    assert framer.skipping is resync


def test_lines_not_pulled_cost_little_more_than_their_bytes() -> None:
    framer = LineFramer()

    def feed() -> None:
        for _ in range(20_000):
            framer.receive(b"a\n")

    assert _peak(feed) < 2 * 40_000
    assert framer.buffered == 40_000


def test_an_idle_framer_is_small() -> None:
    framer = LineFramer()
    framer.receive(b"one\ntw")
    framer.receive(b"o\n")
    assert drained(framer) == [b"one", b"two"]
    assert framer._queue is None
    assert framer._parts is None
    assert framer._ready == b""
    assert sys.getsizeof(framer) <= 200


def test_last_line_without_a_newline_is_known_as_cut() -> None:
    framer = LineFramer()
    framer.receive(b"whole\ncut")
    framer.receive_eof()
    assert (framer.next_line(), framer.is_cut) == (b"whole", False)
    assert (framer.next_line(), framer.is_cut) == (b"cut", True)
    whole = LineFramer()
    whole.receive(b"whole\n")
    whole.receive_eof()
    assert (whole.next_line(), whole.is_cut) == (b"whole", False)
