from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mcpio.cli import main
from mcpio.cli.demo.view import View
from mcpio.cli.exit_status import Exit, Failure
from mcpio.cli.output import recorder
from mcpio.cli.replay import show
from mcpio.engine.client import ClientConnection
from mcpio.engine.connection import Connection
from mcpio.engine.table import Role
from mcpio.framing.lines import Overlong
from mcpio.observe.recording import Recorder
from mcpio.observe.relayed import RelayRecorder
from mcpio.observe.tap import Redactor, add_tap
from mcpio.testing import pair
from mcpio.types import PingRequest


def recordings() -> dict[Role, list[str]]:
    link = pair()
    lines: dict[Role, list[str]] = {Role.CLIENT: [], Role.SERVER: []}
    sides: tuple[Connection, ...] = (link.client, link.server)
    for side in sides:
        add_tap(side, Recorder(lines[side.role].append))
    link.handshake()
    link.client.send_request(PingRequest(), now=link.now)
    link.advance(2.0)
    link.server.receive_message("[]", link.now)
    link.client.close(link.now)
    link.run()
    return lines


def shown(lines: list[str]) -> list[str]:
    out: list[str] = []
    assert show(lines, View(out.append, 200, colour=False)) == Exit.DONE
    return [" ".join(str(line).split()) for line in out]


def test_recording_shown_like_the_demo() -> None:
    found = recordings()
    client, server = shown(found[Role.CLIENT]), shown(found[Role.SERVER])
    assert client[2:6] == [
        'operating --> {"jsonrpc":"2.0","method":"notifications/initialized"}',
        'operating --> {"jsonrpc":"2.0","id":2,"method":"ping"}',
        'operating <-- {"jsonrpc":"2.0","id":2,"result":{}}',
        "closed --> (end of output)",
    ]
    assert client[-1] == "Done: 5 messages in 2.0 s; recorded by the client."
    assert server[4] == '<-- {"jsonrpc":"2.0","id":2,"result":{}} operating'
    assert "--> [] operating" in server
    assert server[-1].endswith("recorded by the server.")


@pytest.mark.parametrize("columns", [200, 60])
def test_notes_of_a_relay_are_shown_and_not_counted(columns: int) -> None:
    lines: list[str] = []
    recorder = RelayRecorder(lines.append, "server", 0.0, redactor=Redactor())
    recorder.message(True, b'{"jsonrpc":"2.0","id":1,"method":"ping"}', 0.0)
    recorder.note("the connection is cut", 1.0)
    recorder.message(False, Overlong(101, b"{"), 2.0)
    out: list[str] = []
    assert show(lines, View(out.append, columns, colour=False)) == Exit.DONE
    assert [" ".join(line.split()) for line in out] == [
        '--> {"jsonrpc":"2.0","id":1,"method":"ping"}',
        "--- the connection is cut",
        "<-- (over 101 bytes)",
        "",
        "Done: 2 messages in 2.0 s; recorded by a relay.",
    ]


def test_different_outcome_fails() -> None:
    lines = recordings()[Role.CLIENT]
    changed = [line.replace("Negotiated", "Initialized") for line in lines]
    with pytest.raises(Failure, match="next_event: Negotiated, where there was Initialized") as caught:
        show(changed, View(lambda text: None, 80, colour=False))
    assert caught.value.status is Exit.PROTOCOL


def test_empty_recording_shown() -> None:
    assert shown(recordings()[Role.CLIENT][:1])[-1] == "Done: 0 messages in 0.0 s; recorded by the client."


def test_command_shows_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "recording"
    path.write_text("".join(recordings()[Role.CLIENT]), encoding="utf-8")
    assert main(["replay", str(path)]) == Exit.DONE
    assert "5 messages" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("content", "status", "said"),
    [
        (None, Exit.NOT_FOUND, "cannot read"),
        (b"{}", Exit.PROTOCOL, "not a recording"),
        (b"\xff", Exit.PROTOCOL, "utf-8"),
    ],
)
def test_unreadable_recording_fails(
    content: bytes | None, status: Exit, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "recording"
    if content is not None:
        path.write_bytes(content)
    assert main(["replay", str(path)]) == status
    assert said in capsys.readouterr().err


@pytest.mark.long
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="the system has no disk that is always full")
def test_failed_output_is_not_reported_as_a_file_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "recording"
    path.write_text("".join(recordings()[Role.CLIENT]), encoding="utf-8")
    command = [sys.executable, "-m", "mcpio", "replay", str(path)]
    with open("/dev/full", "w") as disk:
        full = subprocess.run(command, stdout=disk, stderr=subprocess.PIPE)
    assert (full.returncode, full.stderr) == (Exit.UNWRITABLE, b"mcpio: cannot write: No space left on device\n")
    reading, writing = os.pipe()
    os.close(reading)
    unread = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE)
    os.close(writing)
    assert (unread.returncode, unread.stderr) == (Exit.OUTPUT_CLOSED, b"")


def test_recorded_conversation_is_redacted(tmp_path: Path) -> None:
    path = tmp_path / "recording"
    with recorder(str(path)) as tap:
        assert tap is not None
        connection = ClientConnection(pair().client.info)
        add_tap(connection, tap)
        connection.receive_data(b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"password":"hunter2"}}\n', 0.0)
    lines = path.read_text(encoding="utf-8").splitlines()
    assert "hunter2" not in lines[1]
    assert json.loads(lines[0])["role"] == "client"
    with recorder(None) as nothing:
        assert nothing is None


def test_record_file_is_no_link_but_to_a_device(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "secret")
    with pytest.raises(Failure, match="cannot write"), recorder(str(tmp_path / "link")):
        pass
    assert (tmp_path / "secret").read_text() == "mine"
    (tmp_path / "null").symlink_to("/dev/null")
    with recorder(str(tmp_path / "null")) as tap:
        assert tap is not None


def test_unwritable_record_file_fails(tmp_path: Path) -> None:
    with pytest.raises(Failure, match="cannot write"), recorder(str(tmp_path)):
        pass
