"""What stands around requests: what follows one for another protocol, and empty lines."""

from __future__ import annotations

import itertools
import sys

import pytest

from mcpio.trio._http_parsers import Fed, HeadRead, Mark, Parser, ParserName, new_parser

UPGRADE = b"GET /a HTTP/1.1\r\nhost: x\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n"
NEXT = b"POST /b HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\nok"

both = pytest.mark.parametrize("name", ["h11", "httptools"])


def events(parser: Parser) -> list[Fed | str]:
    found: list[Fed | str] = []
    while (event := parser.next_event()) is not None:
        found.append(event.target if isinstance(event, HeadRead) else event)
        if isinstance(event, Mark):
            break
    return found


@both
@pytest.mark.parametrize("cuts", [(len(UPGRADE),), (10, len(UPGRADE) - 1), (len(UPGRADE) + 3,), ()])
def test_what_follows_the_head_can_be_taken(name: ParserName, cuts: tuple[int, ...]) -> None:
    parser, data = new_parser(name, 1000), UPGRADE + b"\x81\x85frames"
    ends = [0, *cuts, len(data)]
    head = None
    for start, end in itertools.pairwise(ends):
        parser.feed(data[start:end])
        head = head or parser.next_event()
    assert isinstance(head, HeadRead)
    assert parser.take_rest() == b"\x81\x85frames"


@both
def test_what_follows_the_second_of_two_requests_is_not_that_of_the_first(name: ParserName) -> None:
    parser = new_parser(name, 1000)
    parser.feed(NEXT + UPGRADE.replace(b"\r\n\r\n", b"\r\ncontent-length: 0\r\n\r\n") + b"\x81\x85frames")
    assert events(parser) == ["/b", b"ok", Mark.END]
    parser.next_cycle()
    assert isinstance(parser.next_event(), HeadRead)
    assert parser.take_rest() == b"\x81\x85frames"


@both
def test_nothing_follows_the_head(name: ParserName) -> None:
    parser = new_parser(name, 1000)
    parser.feed(UPGRADE)
    assert isinstance(parser.next_event(), HeadRead)
    assert parser.take_rest() == b""


@both
@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize("closes", [True, False])
def test_whoever_does_not_take_it_reads_on(name: ParserName, at_once: bool, closes: bool) -> None:
    parser = new_parser(name, 1000)
    for data in (UPGRADE + NEXT,) if at_once else (UPGRADE, NEXT[:9], NEXT[9:]):
        parser.feed(data)
    if closes:
        parser.feed(b"")
    assert events(parser) == ["/a", Mark.END]
    assert parser.has_more
    parser.next_cycle()
    assert events(parser) == ["/b", b"ok", Mark.END]
    parser.next_cycle()
    assert events(parser) == ([Mark.CLOSED] if closes else [])


def test_a_parser_that_is_not_installed_is_refused_with_the_way_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "mcpio.trio._httptools", raising=False)
    monkeypatch.setitem(sys.modules, "httptools", None)
    with pytest.raises(ImportError, match=r"this parser needs httptools: pip install 'mcpio\[httptools\]'"):
        new_parser("httptools", 1000)


@both
@pytest.mark.parametrize("line_end", [b"\r\n", b"\n", b"\r\n\r\n"])
@pytest.mark.parametrize("size", [1, 7, 1000])
def test_empty_lines_before_a_request_are_none_of_it(name: ParserName, line_end: bytes, size: int) -> None:
    parser, data = new_parser(name, 1000), line_end + NEXT + line_end + NEXT + line_end
    found: list[Fed | str] = []
    for start in range(0, len(data), size):
        parser.feed(data[start : start + size])
        while new := events(parser):
            found += new
            if new[-1] is Mark.END:
                parser.next_cycle()
    assert not parser.has_more
    parser.feed(b"")
    found += events(parser)
    assert [event for event in found if not isinstance(event, bytes)] == ["/b", Mark.END, "/b", Mark.END, Mark.CLOSED]
