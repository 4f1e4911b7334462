"""The parsers of HTTP/1.1: what surrounds requests, and that both read the same requests in the same bytes."""

from __future__ import annotations

import itertools
import random
import subprocess
import sys
from collections.abc import Iterator

import pytest

from mcpio._drivers import http_parsers as parsers
from mcpio._drivers.http_parsers import (
    BadRequest,
    H11Parser,
    HttptoolsParser,
    ParsedHead,
    Parser,
    ParserEvent,
    ParserMark,
    ParserName,
    new_parser,
)

UPGRADE = b"GET /a HTTP/1.1\r\nhost: x\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n"
NEXT = b"POST /b HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\nok"

both = pytest.mark.parametrize("name", ["h11", "httptools"])


def events(parser: Parser) -> list[ParserEvent | str]:
    found: list[ParserEvent | str] = []
    while (event := parser.next_event()) is not None:
        found.append(event.target if isinstance(event, ParsedHead) else event)
        if isinstance(event, ParserMark):
            break
    return found


@both
@pytest.mark.parametrize("cuts", [(len(UPGRADE),), (10, len(UPGRADE) - 1), (len(UPGRADE) + 3,), ()])
def test_upgrade_request_leaves_later_bytes_to_take_rest(name: ParserName, cuts: tuple[int, ...]) -> None:
    parser, data = new_parser(name, 1000), UPGRADE + b"\x81\x85frames"
    ends = [0, *cuts, len(data)]
    head = None
    for start, end in itertools.pairwise(ends):
        parser.feed(data[start:end])
        head = head or parser.next_event()
    assert isinstance(head, ParsedHead)
    assert parser.take_rest() == b"\x81\x85frames"


@both
def test_upgrade_after_another_request_leaves_its_own_later_bytes(name: ParserName) -> None:
    parser = new_parser(name, 1000)
    parser.feed(NEXT + UPGRADE.replace(b"\r\n\r\n", b"\r\ncontent-length: 0\r\n\r\n") + b"\x81\x85frames")
    assert events(parser) == ["/b", b"ok", ParserMark.END]
    parser.next_cycle()
    assert isinstance(parser.next_event(), ParsedHead)
    assert parser.take_rest() == b"\x81\x85frames"


@both
def test_upgrade_request_alone_leaves_no_bytes(name: ParserName) -> None:
    parser = new_parser(name, 1000)
    parser.feed(UPGRADE)
    assert isinstance(parser.next_event(), ParsedHead)
    assert parser.take_rest() == b""


@both
@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize("closes", [True, False])
def test_ignored_upgrade_reads_the_next_request(name: ParserName, at_once: bool, closes: bool) -> None:
    parser = new_parser(name, 1000)
    for data in (UPGRADE + NEXT,) if at_once else (UPGRADE, NEXT[:9], NEXT[9:]):
        parser.feed(data)
    if closes:
        parser.feed(b"")
    assert events(parser) == ["/a", ParserMark.END]
    assert parser.has_more
    parser.next_cycle()
    assert events(parser) == ["/b", b"ok", ParserMark.END]
    parser.next_cycle()
    assert events(parser) == ([ParserMark.CLOSED] if closes else [])


def test_missing_httptools_names_the_extra_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parsers, "HAS_HTTPTOOLS", False)
    with pytest.raises(ImportError, match=r"needs httptools: install mcpio\[httptools\]"):
        new_parser("httptools", 1000)


def test_auto_parser_is_httptools_where_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(new_parser("auto", 1000), HttptoolsParser)
    monkeypatch.setattr(parsers, "HAS_HTTPTOOLS", False)
    assert isinstance(new_parser("auto", 1000), H11Parser)


def test_parsers_import_without_httptools() -> None:
    code = "import sys; sys.modules['httptools'] = None; from mcpio._drivers.http_parsers import new_parser as new; "
    code += "print(type(new('auto', 1000)).__name__)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "H11Parser"


@both
@pytest.mark.parametrize("line_end", [b"\r\n", b"\n", b"\r\n\r\n"])
@pytest.mark.parametrize("size", [1, 7, 1000])
def test_empty_lines_before_a_request_are_skipped(name: ParserName, line_end: bytes, size: int) -> None:
    parser, data = new_parser(name, 1000), line_end + NEXT + line_end + NEXT + line_end
    found: list[ParserEvent | str] = []
    for start in range(0, len(data), size):
        parser.feed(data[start : start + size])
        while new := events(parser):
            found += new
            if new[-1] is ParserMark.END:
                parser.next_cycle()
    assert not parser.has_more
    parser.feed(b"")
    found += events(parser)
    assert [event for event in found if not isinstance(event, bytes)] == [
        "/b",
        ParserMark.END,
        "/b",
        ParserMark.END,
        ParserMark.CLOSED,
    ]


# One answer, whichever library reads (RFC 9110, RFC 9112)

STRICT: dict[str, tuple[bytes, int]] = {
    "equal lengths twice": (b"POST /a HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\ncontent-length: 2\r\n\r\n{}", 400),
    "equal lengths in a list": (b"POST /a HTTP/1.1\r\nhost: x\r\ncontent-length: 2, 2\r\n\r\n{}", 400),
    "a length of 19 digits": (b"POST /a HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000000000000000\r\n\r\n", 413),
    "bare LF everywhere": (b"GET /a HTTP/1.1\nhost: x\n\n", 400),
    "bare LF, and no end": (b"GET /a HTTP/1.1\nhost: x\r\n", 400),
    "bare LF after a field": (b"GET /a HTTP/1.1\r\nhost: x\n\r\n", 400),
    "bare LF at the end": (b"GET /a HTTP/1.1\r\nhost: x\r\n\n", 400),
    "a folded line": (b"GET /a HTTP/1.1\r\nhost: x\r\nx: a\r\n b\r\n\r\n", 400),
    "two spaces after the method": (b"GET  /a HTTP/1.1\r\nhost: x\r\n\r\n", 400),
    "two spaces after the target": (b"GET /a  HTTP/1.1\r\nhost: x\r\n\r\n", 400),
    "a control character": (b"GET /a HTTP/1.1\r\nhost: x\r\nx: \x01\r\n\r\n", 400),
    "a CR in a line": (b"GET /a HTTP/1.1\r\nhost: x\r\nx: a\rb\r\n\r\n", 400),
    "a space before the colon": (b"GET /a HTTP/1.1\r\nhost : x\r\n\r\n", 400),
    "a relative target": (b"GET a HTTP/1.1\r\nhost: x\r\n\r\n", 400),
    "no version": (b"GET /a\r\n\r\n", 400),
    "HTTP/1.2": (b"GET /a HTTP/1.2\r\nhost: x\r\n\r\n", 505),
    "HTTP/2.0": (b"PRI * HTTP/2.0\r\n\r\n", 505),
    "an unknown method": (b"FOO /a HTTP/1.1\r\nhost: x\r\n\r\n", 501),
    "a method in small letters": (b"get /a HTTP/1.1\r\nhost: x\r\n\r\n", 501),
    "chunked twice": (b"POST /a HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked, chunked\r\n\r\n", 501),
    "chunked in two lines": (
        b"POST /a HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n",
        400,
    ),
    "TLS": (b"\x16\x03\x01\x02", 400),
    "a long head": (b"GET /a HTTP/1.1\r\nhost: x\r\nx: " + b"y" * 1000 + b"\r\n\r\n", 431),
}


@both
@pytest.mark.parametrize("after", [b"", NEXT], ids=["first", "second"])
@pytest.mark.parametrize("case", STRICT)
def test_ambiguous_head_is_rejected_by_either_parser(name: ParserName, case: str, after: bytes) -> None:
    data, status = STRICT[case]
    told = reading(name, after + data, ())
    assert told[-1] == status
    assert len(told) == (4 if after else 1)


def reading(name: ParserName, data: bytes, cuts: tuple[int, ...]) -> list[object]:
    """Return what a parser tells of requests that come in pieces; the status comes last if it refuses one."""
    told: list[object] = []
    try:
        for event in _told(new_parser(name, 1000), [*map(data.__getitem__, _slices(len(data), cuts)), b""]):
            if isinstance(event, bytes) and isinstance(told[-1], bytes):
                told[-1] += event
            else:
                told.append(event)
    except BadRequest as refusal:
        told.append(refusal.status)
    return told


def _told(parser: Parser, pieces: list[bytes]) -> Iterator[ParserEvent]:
    keeps_alive = True
    for piece in pieces:
        parser.feed(piece)
        while (event := parser.next_event()) is not None:
            yield event
            if isinstance(event, ParsedHead):
                keeps_alive = event.keeps_alive
            elif event is ParserMark.END and keeps_alive:
                parser.next_cycle()
            elif isinstance(event, ParserMark):
                return


def _slices(size: int, cuts: tuple[int, ...]) -> list[slice]:
    return [slice(start, end) for start, end in itertools.pairwise([0, *cuts, size])]


REQUESTS = [
    b'POST /a?b=c HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nAccept: a, b;c="d"\r\n\r\n{}',
    b"POST http://x/a HTTP/1.0\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc",
    b"POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2;e=f\r\n{}\r\n0\r\nT: u\r\n\r\n",
    b"POST /a HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: 2\r\n\r\n{}",
    b"OPTIONS * HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n\r\n",
]
ODD = [
    *(bytes([each]) for each in b' \t\r\n:,;/*0A\0\x01\x7f\x80"#%<\\|{[@+-'),
    *(b"\r\n", b"\r\n ", b"2.0", b"Host: y\r\n", b"Content-Length: 2\r\n", b"Connection: close\r\n"),
    *(b"Transfer-Encoding: chunked\r\n", b"\r\n\r\n"),
]


def mutated(chance: random.Random) -> tuple[bytes, tuple[int, ...]]:
    """Return one or two requests with a few bytes of them changed, and where to cut them."""
    data = b"".join(chance.choices(REQUESTS, k=chance.randint(1, 2)))
    for _ in range(chance.randint(1, 3)):
        at = chance.randrange(len(data))
        data = data[:at] + chance.choice([b"", *ODD]) + data[at + chance.randint(0, 2) :]
    return data, tuple(sorted(chance.sample(range(1, len(data)), chance.randint(0, 3))))


@pytest.mark.parametrize("seed", range(8))
def test_both_parsers_read_the_same_requests_in_mutated_bytes(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(50):
        data, cuts = mutated(chance)
        h11, httptools = reading("h11", data, cuts), reading("httptools", data, cuts)
        if b"chunked" in data:
            # Chunks have corners where one library is stricter, but what both take is the same.
            shared = min(len(h11), len(httptools)) - 1
            assert h11[: shared - 1] == httptools[: shared - 1], data
            assert h11 == httptools or isinstance(h11[-1], int) or isinstance(httptools[-1], int), data
        else:
            assert h11 == httptools, data
