"""Recordings of relayed traffic, read."""

from __future__ import annotations

import pytest

from mcpio.errors import LocalProtocolError
from mcpio.framing.lines import Overlong
from mcpio.observe.relayed import Passage, RelayRecorder, is_relayed, read_relayed
from mcpio.observe.tap import Redactor

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


def test_what_is_recorded_is_read_again_without_secrets() -> None:
    lines = list[str]()
    recorder = RelayRecorder(lines.append, "server", 10.0, redactor=Redactor())
    recorder.message(True, b'{"id":1}', 10.5)
    recorder.message(False, Overlong(101, b"x"), 11.0, via=2)
    recorder.head(True, {"method": "POST", "headers": {"authorization": "Bearer s3cret"}}, 11.5, via=2)
    recorder.note("the server ended", 12.0)
    assert is_relayed(lines[0])
    assert "s3cret" not in "".join(lines)
    message, overlong, head, note = read_relayed(lines)
    assert message == Passage(at=0.5, from_client=True, text='{"id":1}')
    assert overlong == Passage(at=1.0, from_client=False, overlong=101, via=2)
    assert (head.at, head.from_client, head.via) == (1.5, True, 2)
    assert note == Passage(at=2.0, from_client=False, note="the server ended")
