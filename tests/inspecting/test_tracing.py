"""A recording becomes one page: whole, without secrets, and with nothing that ends its script."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from mcpio.cli import main
from mcpio.cli.exit_status import Exit
from mcpio.framing.lines import Overlong
from mcpio.inspecting.pages import page_of, traced
from mcpio.observe import Recorder, Redactor, add_tap
from mcpio.observe.relayed import RelayRecorder
from mcpio.testing import pair
from mcpio.types import CustomRequest


def recorded(*params: dict[str, str]) -> list[str]:
    lines: list[str] = []
    link = pair()
    add_tap(link.client, Recorder(lines.append), 0.0)
    link.handshake()
    for each in params:
        link.client.send_request(CustomRequest("x/y", each), now=link.now)
        link.run()
    return lines


def data_of(page: str) -> dict[str, Any]:
    (found,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)
    value: dict[str, Any] = json.loads(found)
    return value


def test_recording_becomes_a_ladder() -> None:
    described = traced(recorded({"a": "b"}), title="rec")
    assert [(each["from"], each["kind"], each.get("method")) for each in described["entries"]] == [
        ("client", "request", "initialize"),
        ("server", "result", "initialize"),
        ("client", "notification", "notifications/initialized"),
        ("client", "request", "x/y"),
        ("server", "error", "x/y"),
    ]
    assert '"a":"b"' in described["texts"][3]
    assert described["facts"] == "recorded by the client"


def test_markup_stays_text_and_secrets_are_removed() -> None:
    hostile = "</script><script>alert(1)</script><!--"
    page = page_of(traced(recorded({"note": hostile, "token": "abcdefgh"}), title=hostile))
    assert hostile not in page
    assert "alert(1)</script>" not in page
    assert "abcdefgh" not in page
    assert page.count("</script>") == 2
    found = data_of(page)
    assert found["title"] == hostile
    assert json.loads(found["texts"][3])["params"] == {"note": hostile, "token": "[redacted]"}


def test_page_loads_nothing() -> None:
    page = page_of(traced(recorded(), title="rec"))
    assert "import " not in page.split('<script type="module">')[1]
    assert not re.search(r"(?:src|href)=.?(?:http|/)", page.split('id="data"')[0])
    assert "default-src 'none'" in page
    assert re.search(r"script-src 'sha256-[\w+/=]+'", page)


def test_command_writes_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recording = tmp_path / "rec.jsonl"
    recording.write_text("".join(recorded()), encoding="utf-8")
    assert main(["trace", str(recording)]) == Exit.DONE
    assert capsys.readouterr().out == f"{recording}.html: 3 messages\n"
    assert data_of((tmp_path / "rec.jsonl.html").read_text(encoding="utf-8"))["title"] == "rec.jsonl"
    assert main(["trace", str(recording), "-o", str(tmp_path / "none" / "page.html")]) == Exit.UNWRITABLE
    assert main(["trace", str(tmp_path / "none")]) == Exit.NOT_FOUND
    recording.write_text("{}\n", encoding="utf-8")
    assert main(["trace", str(recording)]) == Exit.PROTOCOL


def test_recording_of_a_relay_becomes_a_ladder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines: list[str] = []
    recorder = RelayRecorder(lines.append, "http://127.0.0.1:1/mcp", 0.0, redactor=Redactor())
    sessions: list[dict[str, str]] = [{}, {"mcp-session-id": "1"}, {}]
    for via, session in enumerate(sessions, 1):
        recorder.head(True, {"method": "POST", "target": "/mcp", "headers": session}, via, via)
        recorder.message(True, b'{"jsonrpc":"2.0","id":1,"method":"ping"}', via, via)
    for via in (1, 2):
        recorder.head(False, {"status": 200, "headers": {}}, 4, via)
        recorder.message(False, b'{"jsonrpc":"2.0","id":1,"result":{}}', via + 5, via)
    recorder.head(True, {"method": "GET", "target": "/mcp", "headers": {}}, 8, 4)
    recorder.head(False, {"status": 405, "headers": {}}, 8, 4)
    recorder.message(False, Overlong(101, b"{"), 9)
    recorder.note("the end", 10)
    described = traced(lines, title="relayed")
    assert described["facts"] == "recorded by a relay"
    entries = described["entries"]
    assert [entry["kind"] for entry in entries] == ["request"] * 3 + ["result"] * 2 + ["note", "note", "long", "note"]
    assert [(entry["of"], entry["took"]) for entry in entries[3:5]] == [(1, 5.0), (2, 5.0)]
    texts = ["GET /mcp", "HTTP 405", "a message of over 101 bytes", "the end"]
    assert [entry["head"] for entry in entries[5:]] == texts
    path = tmp_path / "rec"
    path.write_text("".join(lines), encoding="utf-8")
    assert main(["trace", str(path)]) == Exit.DONE
    assert capsys.readouterr().out == f"{path}.html: 6 messages\n"  # without the three notes
