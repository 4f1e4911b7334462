from __future__ import annotations

from collections.abc import Sequence

import trio

from mcpio._drivers.stdio import MAX_LINE, TAIL_SIZE
from mcpio.trio._descriptors import StderrReader


class Source:
    """Gives out the pieces it was made with; an exception among them is raised."""

    def __init__(self, pieces: Sequence[bytes | Exception]) -> None:
        self.pieces = list(pieces)
        self.closed = False

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        await trio.lowlevel.checkpoint()
        piece = self.pieces.pop(0) if self.pieces else b""
        if isinstance(piece, Exception):
            raise piece
        return piece

    def close(self) -> None:
        self.closed = True


def read(*pieces: bytes | Exception) -> tuple[list[str], str]:
    """Read the pieces to their end; give the lines and the tail."""
    lines: list[str] = []
    source = Source(pieces)
    reader = StderrReader(source, lines.append)
    assert not reader.ended.is_set()
    trio.run(reader.run)
    assert source.closed
    assert reader.ended.is_set()
    return lines, reader.tail


def test_lines_are_reassembled_from_any_pieces() -> None:
    assert read(b"one\ntw", b"o\r\n\nthr", b"ee") == (["one", "two", "", "three"], "one\ntwo\r\n\nthree")
    assert read("ü".encode()[:1], "ü\n".encode()[1:], b"\xff\n") == (["ü", "\ufffd"], "ü\n\ufffd\n")


def test_overlong_line_is_passed_in_parts() -> None:
    lines, tail = read(b"x" * (MAX_LINE - 1), b"yy", b"z")
    assert lines == ["x" * (MAX_LINE - 1) + "yy", "z"]
    assert tail == "x" * (TAIL_SIZE - 3) + "yyz"


def test_the_tail_begins_with_a_whole_line_and_stays_small() -> None:
    _, tail = read(*(b"line %d\n" % number for number in range(10_000)))
    assert tail.startswith("line ")
    assert tail.endswith("line 9999\n")
    assert TAIL_SIZE - 20 < len(tail) <= TAIL_SIZE


def test_broken_stream_ends_reading() -> None:
    assert read(b"before", trio.BrokenResourceError("gone")) == (["before"], "before")


def test_reader_without_a_stream_has_ended() -> None:
    reader = StderrReader(None, None)
    assert reader.ended.is_set()
    trio.run(reader.run)
    assert reader.tail == ""


def test_failing_function_is_not_called_again() -> None:
    calls: list[str] = []

    def fail(line: str) -> None:
        calls.append(line)
        raise ZeroDivisionError

    reader = StderrReader(Source([b"one\ntwo\n", b"three"]), fail)
    trio.run(reader.run)
    assert calls == ["one"]
    assert reader.tail == "one\ntwo\nthree"
