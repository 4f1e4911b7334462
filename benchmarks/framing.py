"""Framing: time for 1 MiB and for 64 MiB and their ratio, the cost of a line and of a message, and memory.

    python benchmarks/framing.py

The ratio has to stay under 80 (64 would be exactly linear), and an endless line within its limit plus 1 MiB.

The figure for 1 MiB is a 64th of framing it 64 times and keeping what comes out, as long as the 64 MiB are kept. Both
then write to fresh memory. A loop over 1 MiB alone would write to the same warm megabyte again and again, and compare
the processor's cache with the system's page faults.
"""

from __future__ import annotations

import sys
import time
import tracemalloc
from collections.abc import Callable

from mcpio.framing.json import BACKEND
from mcpio.framing.jsonrpc import encode_result, parse
from mcpio.framing.lines import LineFramer, Overlong

MIB = 1024 * 1024
PIECE = 64 * 1024
ROUNDS = 9
CALL = (
    b'{"jsonrpc":"2.0","id":12345,"method":"tools/call","params":{"name":"echo","arguments":{"text":"hello"},'
    b'"_meta":{"progressToken":"tok-12345"}}}'
)
RESULT = {"content": [{"type": "text", "text": "hello"}], "isError": False}


def main() -> None:
    """Print the figures."""
    print(f"{sys.implementation.name} {sys.version.split()[0]}, JSON by {BACKEND}")
    print(f"\n{'':<40}{'1 MiB':>12}{'64 MiB':>12}{'ratio':>8}")
    for title, cut in (
        ("one line, in pieces of 64 KiB", one_line),
        ("142-byte lines, in one piece", one_piece),
        ("142-byte lines, in pieces of 64 KiB", pieces),
    ):
        small, large = seconds(cut(MIB), 64), seconds(cut(64 * MIB), 1)
        print(f"{title:<40}{small * 1000:>9.2f} ms{large * 1000:>9.1f} ms{large / small:>8.1f}")
    print()
    whole = (CALL + b"\n") * 10_000
    show("next_line, of 10,000 lines in one piece", best(lambda: frame([whole])) / 10_000)
    framer = LineFramer()
    show("receive and next_line, line by line", each(lambda: line_by_line(framer)))
    show("parse of a 142-byte tools/call", each(lambda: parse(CALL)))
    show("encode_result of a small result", each(lambda: encode_result(12345, RESULT)))
    print()
    for limit in (MIB, 16 * MIB):
        extra = endless(limit) - limit
        print(f"an endless line, limit {limit // MIB} MiB: at most {extra / 1024:.0f} KiB more than the limit")
    print(f"an idle framer: {sys.getsizeof(LineFramer())} bytes")


def one_line(size: int) -> list[bytes]:
    """Return one line in pieces."""
    return [b"x" * PIECE] * (size // PIECE) + [b"\n"]


def one_piece(size: int) -> list[bytes]:
    """Return many lines in one piece."""
    return [(CALL + b"\n") * (size // len(CALL + b"\n"))]


def pieces(size: int) -> list[bytes]:
    """Return many lines in pieces that end anywhere."""
    (whole,) = one_piece(size)
    return [whole[start : start + PIECE] for start in range(0, len(whole), PIECE)]


def seconds(data: list[bytes], times: int) -> float:
    """Return the time for all the data, framed so many times."""
    return best(lambda: [frame(data) for _ in range(times)]) / times


def frame(data: list[bytes]) -> bytes | Overlong | None:
    """Feed data to a new framer, take out every line, and return the last."""
    framer = LineFramer(128 * MIB)
    last = None
    for piece in data:
        framer.receive(piece)
        while (line := framer.next_line()) is not None:
            last = line
    return last


def line_by_line(framer: LineFramer) -> None:
    """Feed one line and take it out, as a driver does whose peer waits for each answer."""
    framer.receive(CALL + b"\n")
    while framer.next_line() is not None:
        pass


def endless(limit: int) -> int:
    """Return the most bytes held at a time while a line twice as long as the limit comes in."""
    tracemalloc.start()
    framer = LineFramer(limit)
    for _ in range(2 * limit // PIECE):
        framer.receive(bytes(PIECE))
        framer.next_line()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def best(work: Callable[[], object]) -> float:
    """Return the seconds of the quickest of several rounds."""
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def each(work: Callable[[], object], loops: int = 20_000) -> float:
    """Return the seconds of one call."""

    def repeat() -> None:
        for _ in range(loops):
            work()

    return best(repeat) / loops


def show(title: str, figure: float) -> None:
    """Print a time in microseconds."""
    print(f"{title:<44}{figure * 1e6:6.2f} us")


if __name__ == "__main__":
    main()
