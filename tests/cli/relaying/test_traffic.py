"""The lines that a relay shows, and what it records."""

from __future__ import annotations

import errno
import functools
import json
import time
from typing import Any

import pytest

from mcpio.cli import main
from mcpio.cli.relaying import traffic
from mcpio.cli.relaying.traffic import MOST_BYTES, Direction, Traffic, small_ladder
from mcpio.observe.relayed import RelayRecorder, read_relayed
from mcpio.observe.tap import Redactor

NOON = time.mktime((2026, 11, 24, 12, 0, 0, 0, 0, -1))


class Seen:
    """Traffic, with the lines shown of it."""

    def __init__(self, recorder: RelayRecorder | None = None) -> None:
        self.now = 0.0
        self.lines: list[str] = []
        self.traffic = Traffic(
            self.lines.append,
            small_ladder(lambda: self.now),
            recorder,
            clock=lambda: self.now,
            wall=lambda: NOON + self.now,
        )
        self.client = Direction(self.traffic, from_client=True)
        self.server = Direction(self.traffic, from_client=False)

    def said(self) -> list[str]:
        """Return the lines without their times, with single spaces."""
        return [" ".join(line.split()[1:]) for line in self.lines]


def _line(**message: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n"


def test_request_and_its_answer_are_joined() -> None:
    seen = Seen()
    seen.client.passed(_line(id=1, method="tools/call", params={"name": "echo"}))
    seen.now = 0.0125
    seen.server.passed(_line(method="notifications/progress", params={}))
    seen.server.passed(_line(id=1, result={}))
    assert seen.lines == [
        f"12:00:00.000 --> {'#1 tools/call echo':58} {'79 B':>10}",
        f"12:00:00.012 <-- {'notifications/progress':58} {'68 B':>10}",
        f"12:00:00.012 <-- {'#1 tools/call echo: result, 12.5 ms':58} {'41 B':>10}",
    ]


def test_outcomes_are_told_apart() -> None:
    seen = Seen()
    for id in (1, "1", 2, 3):
        seen.client.passed(_line(id=id, method="ping"))
    seen.now = 2.5
    seen.server.passed(_line(id="1", result={"isError": True}))
    seen.server.passed(_line(id=2, error={"code": -32601, "message": "no\nsuch"}))
    seen.server.passed(_line(id=1, result={}))
    seen.server.passed(_line(id=1, result={}))
    seen.server.passed(_line(id=3, method="roots/list"))
    seen.client.passed(_line(id=3, result={}))
    assert [line.rpartition(" ")[0].rpartition(" ")[0] for line in seen.said()[4:]] == [
        '<-- #"1" ping: tool error, 2.50 s',
        '<-- #2 ping: error {"code":-32601,"message":"no\\nsuch"}, 2.50 s',
        "<-- #1 ping: result, 2.50 s",
        "<-- #1: result, to no request seen",
        "<-- #3 roots/list",
        "--> #3 roots/list: result, 0.0 ms",
    ]


def test_what_is_no_message_is_shown_as_such() -> None:
    seen = Seen()
    seen.server.passed(b"Server started\n")
    seen.client.passed(b'[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","method":"x"}]\n')
    seen.client.passed(b'{"jsonrpc":')
    seen.client.ended()
    assert seen.said()[0].startswith("<-- not a message: ")
    assert seen.said()[1] == "--> batch of 2 messages 73 B"
    assert seen.said()[2].startswith("--> not a message: ")
    assert seen.said()[3] == "--- end of input"


def test_long_message_is_shown_by_its_beginning() -> None:
    seen = Seen()
    seen.client.passed(_line(id=1, method="tools/call", params={"name": "big"}))
    seen.server.passed(b'{"jsonrpc":"2.0","id":1,"result":{"text":"' + b"x" * MOST_BYTES)
    seen.server.passed(b'"}}\n')
    seen.server.passed(b"y" * (MOST_BYTES + 1) + b"\n")
    seen.server.passed(_line(method="x"))
    assert seen.said()[1:] == [
        f"<-- #1 tools/call big: result, 0.0 ms over {MOST_BYTES} B",
        f"<-- a long message: {'y' * 60}... over {MOST_BYTES} B",
        "<-- x 33 B",
    ]


def test_hostile_text_stays_on_its_line() -> None:
    seen = Seen()
    seen.client.passed(_line(id="\x1b[2J" * 30, method="a\nb" * 100, params={"name": "\u202egnp"}))
    assert len(seen.lines) == 1
    assert seen.lines[0].isprintable()
    assert len(seen.lines[0]) < 300


def test_secrets_are_not_shown() -> None:
    seen = Seen()
    uri = "https://user:hunter22@example.com/?token=abcdef"
    seen.client.passed(_line(id=1, method="resources/read", params={"uri": uri}))
    seen.server.passed(_line(id=1, error={"code": 1, "message": "Bearer abcdefghijklmnop"}))
    assert not {"hunter22", "abcdef"} & set(" ".join(seen.lines).replace("=", " ").replace(":", " ").split())
    assert "abcdefghijklmnop" not in seen.lines[1]


def test_unanswered_requests_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traffic, "MOST_OPEN", 10)
    seen = Seen()
    for id in range(11):
        seen.traffic.message(True, _line(id=id, method="ping"))
    seen.traffic.message(False, _line(id=0, result={}))
    seen.traffic.message(False, _line(id=1, result={}))
    assert "no request seen" in seen.lines[-2]
    assert "#1 ping: result" in seen.lines[-1]


def test_recording_has_every_message_without_secrets(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    written: list[str] = []
    seen = Seen(RelayRecorder(written.append, "server", 0.0, redactor=Redactor()))
    seen.now = 1.5
    seen.client.passed(_line(id=1, method="login", params={"password": "hunter22"}))
    seen.server.passed(b"\xff\xfe\n" + b"y" * (MOST_BYTES + 1) + b"\n")
    seen.traffic.head(True, "POST", {"method": "POST", "headers": {"Authorization": "Bearer abc"}}, 1)
    seen.server.ended()
    passages = list(read_relayed(written))
    assert [(each.at, each.from_client, each.overlong, each.note) for each in passages] == [
        (1.5, True, None, None),
        (1.5, False, None, None),
        (1.5, False, MOST_BYTES + 1, None),
        (1.5, True, None, None),
        (1.5, False, None, "end of output"),
    ]
    assert json.loads(passages[0].text or "")["params"] == {"password": "[redacted]"}
    assert passages[1].text == "[redacted]"
    assert passages[3].http == {"method": "POST", "headers": {"Authorization": "[redacted]"}}
    assert passages[3].via == 1
    file = tmp_path / "recording"
    file.write_text("".join(written))
    assert main(["replay", str(file)]) == 0
    shown = capsys.readouterr().out
    assert "hunter22" not in shown
    assert "--- end of output" in shown
    assert "recorded by a relay" in shown


def test_failed_recording_ends_and_the_lines_go_on() -> None:
    def write(text: str) -> None:
        if '"from"' in text:
            raise OSError(errno.ENOSPC, "No space left on device")

    seen = Seen(RelayRecorder(write, "server", 0.0, redactor=Redactor()))
    seen.client.passed(_line(method="x") * 2)
    assert seen.said() == ["--> x 33 B", "--- the recording ends here: No space left on device", "--> x 33 B"]


def test_fault_of_the_display_ends_only_that() -> None:
    written: list[str] = []
    seen = Seen(RelayRecorder(written.append, "server", 0.0, redactor=Redactor()))

    def fail(line: str) -> None:
        if "-->" in line:
            raise ValueError("no room")
        seen.lines.append(line)

    seen.traffic._show = fail
    seen.client.passed(_line(method="x") * 2)
    seen.traffic.note("done")
    assert seen.said() == ["--- this display ends here: ValueError('no room')"]
    assert len(written) == 4


def test_requests_of_an_ended_scope_do_not_wait() -> None:
    seen = Seen()
    for scope in (" 1", " 11"):
        seen.traffic.message(True, _line(id=1, method="ping"), scope)
    seen.traffic.forget(" 1")
    seen.traffic.message(False, _line(id=1, result={}), " 1")
    seen.traffic.message(False, _line(id=1, result={}), " 11")
    assert "no request seen" in seen.lines[-2]
    assert "#1 ping: result, " in seen.lines[-1]


def test_nothing_is_shown_where_nothing_is_asked_for() -> None:
    written: list[str] = []
    quiet = Traffic(None, None, RelayRecorder(written.append, "server", 0.0, redactor=Redactor()))
    quiet.message(True, b"{}")
    quiet.note("done")
    assert len(written) == 3


def test_recording_that_cannot_begin_ends_alone() -> None:
    def full(text: str) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    written: list[str] = []
    seen = Seen()
    for write in (full, written.append):
        seen.traffic.record(functools.partial(RelayRecorder, write, "server", 0.0, redactor=Redactor()))
    seen.client.passed(_line(method="x"))
    assert seen.said() == ["--- the recording ends here: No space left on device", "--> x 33 B"]
    assert len(written) == 2


def test_recording_that_fails_leaves_the_others() -> None:
    def write(text: str) -> None:
        if '"from"' in text:
            raise OSError(errno.ENOSPC, "No space left on device")

    written: list[str] = []
    seen = Seen()
    for each in (write, written.append):
        seen.traffic.record(functools.partial(RelayRecorder, each, "server", 0.0, redactor=Redactor()))
    seen.client.passed(_line(method="x") * 2)
    assert seen.said() == ["--> x 33 B", "--- the recording ends here: No space left on device", "--> x 33 B"]
    assert len(written) == 3
