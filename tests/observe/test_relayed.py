"""Recordings of relayed traffic, read."""

from __future__ import annotations

import pytest

from mcpio.errors import LocalProtocolError
from mcpio.observe.relayed import Passage, is_relayed, read_relayed

HEADER = '{"relayed":1,"target":"server"}\n'


def test_header_is_told_from_others() -> None:
    assert is_relayed(HEADER)
    assert not is_relayed('{"recording":1}\n')
    assert not is_relayed("[]")
    assert not is_relayed("nonsense")


def test_blank_lines_are_left_out() -> None:
    lines = [HEADER, "\n", '{"at":1,"from":"server","text":"{}","via":2}\n']
    assert list(read_relayed(lines)) == [Passage(at=1.0, from_client=False, text="{}", via=2)]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (['{"relayed":2}\n'], "the recording has version 2; this library reads up to 1"),
        (['{"relayed":"x"}\n'], "malformed recording: line 1"),
        ([HEADER, "{"], "malformed recording: line 2"),
        ([HEADER, "[]"], "malformed recording: line 2"),
        ([HEADER, '{"from":"client"}'], "malformed recording: line 2"),
        ([HEADER, '{"at":1,"from":"client","text":1}'], "malformed recording: line 2"),
        ([HEADER, '{"at":1,"other":1}'], "malformed recording: line 2"),
    ],
)
def test_malformed_line_is_named(lines: list[str], message: str) -> None:
    with pytest.raises(LocalProtocolError, match=message):
        list(read_relayed(lines))
