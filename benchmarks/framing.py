"""Framing: time for 1 MiB and for 64 MiB and their ratio, the cost of a line and of a message, and memory.

    python benchmarks/framing.py

The ratio has to stay within 80 (64 would be exactly linear), and an endless line within its limit plus 1 MiB.

The figure for 1 MiB is a 64th of framing it 64 times and keeping what comes out, as long as the 64 MiB are kept. Both
then write to fresh memory. A loop over 1 MiB alone would write to the same warm megabyte again and again, and compare
the processor's cache with the system's page faults.
"""

from __future__ import annotations

import sys
import time
import tracemalloc
from collections.abc import Callable

from harness import arguments

from mcpio.framing.json import LIBRARIES
from mcpio.framing.jsonrpc import encode_result, parse
from mcpio.framing.lines import LineFramer, Overlong

MIB = 1024 * 1024
PIECE = 64 * 1024
CALL = (
    b'{"jsonrpc":"2.0","id":12345,"method":"tools/call","params":{"name":"echo","arguments":{"text":"hello"},'
    b'"_meta":{"progressToken":"tok-12345"}}}'
)
RESULT = {"content": [{"type": "text", "text": "hello"}], "isError": False}


def main() -> int:
    """Print the figures."""
    options = arguments(__doc__, rounds=9).parse_args()
    best = Best(options.rounds)
    print(f"{sys.implementation.name} {sys.version.split()[0]}, JSON by {' and '.join(LIBRARIES)}")
    missed = [*show_linearity(best), *show_memory()]
    show_costs(best)
    print(f"verdict: {'all targets met' if not missed else 'MISSED: ' + ', '.join(missed)}")
    return 1 if options.check and missed else 0


def show_linearity(best: Best) -> list[str]:
    """Print what 1 MiB and 64 MiB take, and return what is not linear."""
    print(f"\n{'':<40}{'1 MiB':>12}{'64 MiB':>12}{'ratio (target 80)':>20}")
    missed = []
    for title, cut in (
        ("one line, in pieces of 64 KiB", one_line),
        ("142-byte lines, in one piece", one_piece),
        ("142-byte lines, in pieces of 64 KiB", pieces),
    ):
        small, large = seconds(best, cut(MIB), 64), seconds(best, cut(64 * MIB), 1)
        ratio = large / small
        print(f"{title:<40}{small * 1000:>9.2f} ms{large * 1000:>9.1f} ms{ratio:>20.1f}")
        if ratio > 80:
            missed.append(title)
    return missed


def show_memory() -> list[str]:
    """Print what a framer holds, and return what is too much."""
    print()
    missed = []
    for limit in (MIB, 16 * MIB):
        extra = endless(limit) - limit
        title = f"an endless line, limit {limit // MIB} MiB"
        print(f"{title}: at most {extra / 1024:.0f} KiB more than the limit (target 1024)")
        if extra > MIB:
            missed.append(title)
    print(f"an idle framer: {sys.getsizeof(LineFramer())} bytes")
    return missed


def show_costs(best: Best) -> None:
    """Print what a line and a message cost."""
    print()
    whole = (CALL + b"\n") * 10_000
    show("next_line, of 10,000 lines in one piece", best(lambda: frame([whole])) / 10_000)
    framer = LineFramer()
    show("receive and next_line, line by line", best.of_many(lambda: line_by_line(framer)))
    show("parse of a 142-byte tools/call", best.of_many(lambda: parse(CALL)))
    show("encode_result of a small result", best.of_many(lambda: encode_result(12345, RESULT)))


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


def seconds(best: Best, data: list[bytes], times: int) -> float:
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


class Best:
    """The processor time that the quickest of several rounds takes, in seconds."""

    def __init__(self, rounds: int) -> None:
        self._rounds = rounds

    def __call__(self, work: Callable[[], object]) -> float:
        """Return the time of one call."""
        times = []
        for _ in range(self._rounds):
            start = time.process_time()
            work()
            times.append(time.process_time() - start)
        return min(times)

    def of_many(self, work: Callable[[], object], loops: int = 20_000) -> float:
        """Return the time of one call, as a part of many: for what is too short to be timed alone."""

        def repeat() -> None:
            for _ in range(loops):
                work()

        return self(repeat) / loops


def show(title: str, figure: float) -> None:
    """Print a time in microseconds."""
    print(f"{title:<44}{figure * 1e6:6.2f} us")


if __name__ == "__main__":
    sys.exit(main())
