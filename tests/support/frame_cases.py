"""What is sent to WebSocket's frame layer, and what is to come of it, by the numbers of the Autobahn test suite.

That suite wants its texts back as they were. Here a text is a ``ping`` of MCP whose id is the text in question, and
what comes back is the id. Sizes are those of whole messages. Families 2 to 7 are complete, the others have the sizes
that differ in their frames. Where the suite takes more than one outcome ("non-strict", "informational"), so do these; a
number with a letter is a case that the suite does not have.

| family | about |
|---|---|
| 1 | text of every length of the length, whole and chopped; binary messages, which MCP has not: 1003 |
| 2 | pings, and pongs that nobody asked for |
| 3, 4 | reserved bits and opcodes |
| 5 | fragments, control frames between them, and what continues nothing |
| 6 | UTF-8, cut anywhere, and what is none |
| 7 | the end: orders, codes, reasons |
| 9, 10 | large messages, many messages, many fragments |
| 12, 13 | compression: in ``test_frame_compression.py`` |
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import attrs
from rawframes import BINARY, CLOSE, PING, PONG, Frame, Pace, close, fragments, rest, text

__all__ = ["CASES", "LARGE_CASES", "Case", "ping_of", "sized"]


@attrs.frozen
class Case:
    """What a peer sends, and what it is to hear."""

    number: str
    frames: tuple[Frame, ...]
    answers: tuple[str, ...] = ()
    """The texts that come back."""
    pongs: tuple[bytes, ...] = ()
    closes: tuple[int | None, ...] = ()
    """The codes of which one closes the connection then; without any, it goes on."""
    pace: Pace = "at once"
    may_miss: bool = False
    """Whether some of the answers may be missing."""


def ping_of(said: str) -> bytes:
    """Return a request that is answered with the same text."""
    return json.dumps({"jsonrpc": "2.0", "id": said, "method": "ping"}, ensure_ascii=False).encode()


def sized(size: int) -> str:
    """Return the text with which a request has so many bytes."""
    return "*" * (size - len(ping_of("")))


def ping(payload: bytes = b"") -> Frame:
    """Return a ping of WebSocket."""
    return Frame(PING, payload)


def pong(payload: bytes = b"") -> Frame:
    """Return a pong."""
    return Frame(PONG, payload)


def said(word: str) -> Frame:
    """Return a request in one frame."""
    return text(ping_of(word))


GREEK = "\u03ba\u1f79\u03c3\u03bc\u03b5"
HELLO = ping_of("hello")
HALVES = HELLO[:20], HELLO[20:]
BROKEN = (1002,)
PACES: tuple[Pace, ...] = ("at once", "by frames", "by bytes")


def _family_1() -> Iterator[Case]:
    for number, size in enumerate((125, 126, 127, 128, 65_535, 65_536), 2):
        yield Case(f"1.1.{number}", (text(ping_of(sized(size))),), (sized(size),))
    yield Case("1.1.8", (text(ping_of(sized(65_536))),), (sized(65_536),), pace=997)
    for number, size in enumerate((0, 125, 126, 127, 128, 65_535, 65_536), 1):
        yield Case(f"1.2.{number}", (Frame(BINARY, b"\xfe" * size),), closes=(1003,))
    yield Case("1.2.8", (Frame(BINARY, b"\xfe" * 65_536),), closes=(1003,), pace=997)


def _family_2() -> Iterator[Case]:
    ten = tuple(b"payload-%d" % number for number in range(10))
    binary, longest = b"\x00\xff\xfe\xfd\xfc\xfb\x00\xff", b"\xfe" * 125
    yield Case("2.1", (ping(),), pongs=(b"",))
    yield Case("2.2", (ping(b"Hello, world!"),), pongs=(b"Hello, world!",))
    yield Case("2.3", (ping(binary),), pongs=(binary,))
    yield Case("2.4", (ping(longest),), pongs=(longest,))
    yield Case("2.5", (ping(b"\xfe" * 126),), closes=BROKEN)
    yield Case("2.6", (ping(longest),), pongs=(longest,), pace="by bytes")
    yield Case("2.7", (pong(),))
    yield Case("2.8", (pong(b"unsolicited"),))
    yield Case("2.9", (pong(b"unsolicited"), ping(b"asked")), pongs=(b"asked",))
    yield Case("2.10", tuple(map(ping, ten)), pongs=ten)
    yield Case("2.11", tuple(map(ping, ten)), pongs=ten, pace="by bytes")


def _family_3() -> Iterator[Case]:
    first, after = said("first"), ping()
    yield Case("3.1", (text(HELLO, rsv=1),), closes=BROKEN)
    for rsv, pace in zip((2, 3, 4), PACES, strict=True):
        bad = text(HELLO, rsv=rsv)
        yield Case(f"3.{rsv}", (first, bad, after), ("first",), closes=BROKEN, pace=pace)
    yield Case("3.5", (Frame(BINARY, b"\x00\xff", rsv=5),), closes=BROKEN)
    yield Case("3.6", (Frame(PING, b"ping", rsv=6),), closes=BROKEN)
    yield Case("3.7", (Frame(CLOSE, close().payload, rsv=7),), closes=BROKEN)


def _family_4() -> Iterator[Case]:
    for number, opcode in enumerate(range(3, 8), 1):
        yield from _reserved(f"4.1.{number}", opcode, number)
    for number, opcode in enumerate(range(11, 16), 1):
        yield from _reserved(f"4.2.{number}", opcode, number)


def _reserved(name: str, opcode: int, number: int) -> Iterator[Case]:
    bad = Frame(opcode, b"payload" if number % 2 == 0 else b"")
    if number <= 2:
        yield Case(name, (bad,), closes=BROKEN)
    else:
        yield Case(name, (said("first"), bad, ping()), ("first",), closes=BROKEN, pace=PACES[number - 3])


def _family_5() -> Iterator[Case]:
    first, last = text(HALVES[0], fin=False), rest(HALVES[1])
    yield Case("5.1", (Frame(PING, b"one", fin=False), rest(b"two")), closes=BROKEN)
    yield Case("5.2", (Frame(PONG, b"one", fin=False), rest(b"two")), closes=BROKEN)
    for number, pace in enumerate(PACES):
        yield Case(f"5.{3 + number}", (first, last), ("hello",), pace=pace)
        yield Case(f"5.{6 + number}", (first, ping(b"between"), last), ("hello",), (b"between",), pace=pace)
        stray = rest(b"nothing to continue"), said("after")
        yield Case(f"5.{9 + number}", stray, closes=BROKEN, pace=pace)
        unfinished = rest(b"nothing to continue", fin=False), said("after")
        yield Case(f"5.{12 + number}", unfinished, closes=BROKEN, pace=pace)
    after = first, last, rest(b"nothing to continue", fin=False), said("after")
    yield Case("5.15", after, ("hello",), closes=BROKEN)
    yield Case("5.16", (rest(b"nothing", fin=False), first, last) * 2, closes=BROKEN)
    yield Case("5.17", (rest(b"nothing"), first, last) * 2, closes=BROKEN)
    yield Case("5.18", (first, text(HALVES[1])), closes=BROKEN)
    five = fragments(HELLO, len(HELLO) // 5 + 1)
    mixed = *five[:2], ping(b"one"), *five[2:4], ping(b"two"), *five[4:]
    yield Case("5.19", mixed, ("hello",), (b"one", b"two"))
    yield Case("5.20", mixed, ("hello",), (b"one", b"two"), pace="by frames")
    yield Case("5.20a", (first, close()), closes=(1000,))
    yield Case("5.20b", (text(b"", fin=False), *[rest(b"", fin=False)] * 1000, text(HELLO)), closes=BROKEN)


def _family_6() -> Iterator[Case]:
    yield Case("6.1.3", (text(b"", fin=False), rest(HELLO, fin=False), rest(b"")), ("hello",))
    word = "Hello-µ@ßöäüàá-UTF-8!!"
    whole = ping_of(word)
    start = whole.index(b"Hello")
    yield Case("6.2.1", (text(whole),), (word,))
    yield Case("6.2.2", (text(whole[: start + 12], fin=False), rest(whole[start + 12 :])), (word,))
    yield Case("6.2.3", fragments(whole, 1), (word,))
    yield Case("6.2.4", fragments(ping_of(GREEK), 1), (GREEK,))
    surrogate = GREEK.encode() + b"\xed\xa0\x80edited"
    yield Case("6.3.1", (text(_bad(surrogate)),), closes=(1007,))
    yield Case("6.3.2", fragments(_bad(surrogate), 1), closes=(1007,))
    good, beyond = _bad(GREEK.encode()).removesuffix(TAIL), b"\xf4\x90\x80\x80edited"
    # Three times it has to be said as soon as it shows: what would complete the message never comes.
    yield Case("6.4.1", (text(good, fin=False), rest(beyond, fin=False)), closes=(1007,), pace="by frames")
    yield Case("6.4.2", (text(good, fin=False), rest(beyond[:2], fin=False)), closes=(1007,), pace="by frames")
    for family, sequences in enumerate(VALID, 5):
        for number, valid in enumerate(sequences, 1):
            yield Case(f"6.{family}.{number}", (text(ping_of(valid)),), (valid,))
    for family, invalid in INVALID.items():
        for number, octets in enumerate(invalid, 1):
            yield Case(f"6.{family}.{number}x", (text(_bad(octets)),), closes=(1007,))


TAIL = b'","method":"ping"}'


def _bad(octets: bytes) -> bytes:
    return b'{"jsonrpc":"2.0","id":"' + octets + TAIL


VALID = (
    ("hello$world", "hello¢world", "hello€world", "hello𤭢world", GREEK),  # 6.5
    tuple(GREEK[:size] for size in range(1, 6)),  # 6.6: those prefixes that end with a code point
    ("\u0080", "\u0800", "\U00010000", "\x7f", "\u07ff", "\uffff", "\U0010ffff"),  # 6.7, 6.9
    ("\ud7ff", "\ue000", "\ufffd", "\U0010ffff"),  # 6.11
    ("\ufffe", "\uffff", "\U0001fffe", "\U0001ffff", "\U000efffe", "\U0010fffe", "\ufdd0"),  # 6.22: no characters
    ("\ufeff", "\u2028", "\u200d", "🏳️‍🌈"),  # 6.23, and what trips others
)
INVALID: dict[int, tuple[bytes, ...]] = {
    6: tuple(GREEK.encode()[:size] for size in (1, 3, 4, 6, 8, 10)),
    8: (b"\xf8\x88\x80\x80\x80", b"\xfc\x84\x80\x80\x80\x80"),
    10: (b"\xf7\xbf\xbf\xbf", b"\xfb\xbf\xbf\xbf\xbf", b"\xfd\xbf\xbf\xbf\xbf\xbf"),
    11: (b"\xf4\x90\x80\x80",),
    12: (b"\x80", b"\xbf", b"\x80\xbf", b"\x80\xbf\x80", b"\x80\xbf\x80\xbf", bytes(range(0x80, 0xBF))),
    13: tuple(bytes([lead, 0x20]) for lead in (0xC0, 0xC2, 0xDF, 0xE0, 0xEF, 0xF0, 0xF7, 0xF8, 0xFB, 0xFC, 0xFD)),
    14: (b"\xc0", b"\xe0\x80", b"\xf0\x80\x80", b"\xf8\x80\x80\x80", b"\xdf", b"\xef\xbf", b"\xf7\xbf\xbf"),
    15: (b"\xc0\xe0\x80\xf0\x80\x80\xf8\x80\x80\x80\xfc\x80\x80\x80\x80",),
    16: (b"\xfe", b"\xff", b"\xfe\xfe\xff\xff"),
    17: (b"\xc0\xaf", b"\xe0\x80\xaf", b"\xf0\x80\x80\xaf", b"\xf8\x80\x80\x80\xaf", b"\xfc\x80\x80\x80\x80\xaf"),
    18: (b"\xc1\xbf", b"\xe0\x9f\xbf", b"\xf0\x8f\xbf\xbf", b"\xf8\x87\xbf\xbf\xbf", b"\xfc\x83\xbf\xbf\xbf\xbf"),
    19: (b"\xc0\x80", b"\xe0\x80\x80", b"\xf0\x80\x80\x80", b"\xf8\x80\x80\x80\x80", b"\xfc\x80\x80\x80\x80\x80"),
    20: tuple(
        b"\xed" + octets for octets in (b"\xa0\x80", b"\xad\xbf", b"\xae\x80", b"\xaf\xbf", b"\xb0\x80", b"\xbf\xbf")
    ),
    21: (b"\xed\xa0\x80\xed\xb0\x80", b"\xed\xad\xbf\xed\xbf\xbf", b"\xed\xaf\xbf\xed\xbf\xbf"),
}
"""What is no UTF-8, by the families of the suite."""


def _family_7() -> Iterator[Case]:
    clean = (1000,)
    first, last = text(HALVES[0], fin=False), rest(HALVES[1])
    yield Case("7.1.1", (said("last"), close()), ("last",), closes=clean, may_miss=True)
    yield Case("7.1.2", (close(), close()), closes=clean)
    yield Case("7.1.3", (close(), ping(b"too late")), closes=clean)
    yield Case("7.1.4", (close(), said("too late")), closes=clean)
    yield Case("7.1.5", (first, close(), last), closes=clean)
    large = sized(262_144)
    yield Case("7.1.6", (text(ping_of(large)), close(), ping()), (large,), closes=clean, may_miss=True)
    yield Case("7.3.1", (close(None),), closes=(None, 1000))
    yield Case("7.3.2", (Frame(CLOSE, b"a"),), closes=BROKEN)
    yield Case("7.3.3", (close(),), closes=clean)
    yield Case("7.3.4", (close(1000, "Hello World!"),), closes=clean)
    yield Case("7.3.5", (close(1000, "*" * 123),), closes=clean)
    yield Case("7.3.6", (close(1000, "*" * 124),), closes=BROKEN)
    yield Case("7.5.1", (close(1000, b"\xce\xba\xed\xa0\x80edited"),), closes=(1002, 1007))
    valid = (1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 3000, 3999, 4000, 4999)
    for number, code in enumerate(valid, 1):
        yield Case(f"7.7.{number}", (close(code),), closes=(1000, code))
    invalid = (0, 999, 1004, 1005, 1006, 1016, 1100, 2000, 2999, 1015)
    for number, code in enumerate(invalid, 1):
        yield Case(f"7.9.{number}", (close(code),), closes=BROKEN)
    for number, code in enumerate((5000, 65_535), 1):
        yield Case(f"7.13.{number}", (close(code),), closes=BROKEN)


CASES: tuple[Case, ...] = tuple(
    case
    for family in (_family_1, _family_2, _family_3, _family_4, _family_5, _family_6, _family_7)
    for case in family()
)


def _large() -> Iterator[Case]:
    kib, mib = 1024, 1024 * 1024
    for number, size in enumerate((64 * kib, 256 * kib, mib, 4 * mib, 8 * mib, 16 * mib), 1):
        yield Case(f"9.1.{number}", (text(ping_of(sized(size))),), (sized(size),))
    for number, piece in enumerate((64, 256, kib, 4 * kib, 16 * kib, 64 * kib, 256 * kib), 1):
        size = min(4 * mib, 4096 * piece)
        yield Case(f"9.3.{number}", fragments(ping_of(sized(size)), piece), (sized(size),))
    for number, chop in enumerate((64, 128, 256, 512, kib, 2 * kib), 1):
        size = 1024 * chop
        yield Case(f"9.5.{number}", (text(ping_of(sized(size))),), (sized(size),), pace=chop)
    for number, size in enumerate((64, 256, kib, 4 * kib, 16 * kib), 2):
        words = tuple(f"{count:04}{sized(size - 4)}" for count in range(200))
        yield Case(f"9.7.{number}", tuple(map(said, words)), words)
    yield Case("10.1.1", fragments(ping_of(sized(65_536)), 1300), (sized(65_536),))


LARGE_CASES: tuple[Case, ...] = tuple(_large())
