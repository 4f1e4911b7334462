"""``mcpio inspect``: what it gives its page."""

from __future__ import annotations

import argparse
import errno
import re
import shlex
from pathlib import Path
from typing import Any, Literal

import pytest
import trio

from mcpio import Context, Server
from mcpio.cli import lock, main
from mcpio.cli.arguments import prepare, read_words
from mcpio.cli.command_line import _parse
from mcpio.cli.exit_status import Exit
from mcpio.cli.inspect import Recording, _drift, _opener, _words, without_secrets
from mcpio.cli.output import recorder
from mcpio.inspecting.ladder import Ladder, LadderTap
from mcpio.observe import Recorder, Redactor, Tap, add_tap
from mcpio.testing import pair
from mcpio.trio import memory_client


@pytest.mark.parametrize("after", [None, ["python", "a b.py"]])
def test_command_line_makes_the_same_call(after: list[str] | None) -> None:
    options = argparse.Namespace(after=after, target="@desktop/my notes")
    words = shlex.split(_words(options, ["--cwd", "place"], "bake it", {"kind": 'r"ye', "count": [1, None]}))
    server, tail = (["@desktop/my notes"], []) if after is None else ([], ["--", *after])
    first = ["mcpio", "call", "--cwd", "place", *server, "bake it"]
    assert words[: len(first)] == first
    given = words[len(first) : len(words) - len(tail)]
    assert words[len(words) - len(tail) :] == tail
    assert [(each.name, each.text, each.is_json) for each in read_words(given)] == [
        ("kind", '"r\\"ye"', True),
        ("count", "[1,null]", True),
    ]


@pytest.mark.parametrize("after", [None, ["python", "a b.py"]])
def test_copied_command_parses_as_the_call(after: list[str] | None) -> None:
    options = argparse.Namespace(after=after, target="@desktop/my notes")
    arguments = {"$(x)": "a\x7f\u202e'$(y)", "a b": None, "'": "é", "q:": 1, '"': [True]}
    copied = _words(options, [], "bake it;'`!", arguments)
    assert copied.isprintable()
    parsed = _parse("call", shlex.split(copied)[2:])
    assert (parsed.after, parsed.inherit_env, parsed.record) == (after, False, None)
    name, *pairs = parsed.words[1:] if after is None else parsed.words
    assert name == "bake it;'`!"
    assert prepare({}, read_words(pairs), of=name).arguments == arguments


@pytest.mark.parametrize(
    "name", ["--inherit-env", "--record=x", "-e", "--", "x\x03\nreboot", "x\x7f", "\x1b[201~", "x\\'$(reboot)"]
)
def test_names_that_a_command_cannot_hold_are_not_copied(name: str) -> None:
    options = argparse.Namespace(after=None, target="server")
    with pytest.raises(ValueError, match="cannot hold"):
        _words(options, [], name, {})
    with pytest.raises(ValueError, match="cannot hold"):
        _words(options, [], "bake", {name: 1})


@pytest.mark.parametrize("name", ["", "a=b"])
def test_argument_names_that_a_command_cannot_express_are_not_copied(name: str) -> None:
    with pytest.raises(ValueError, match="equals sign"):
        _words(argparse.Namespace(after=None, target="server"), [], "bake", {name: 1})


@pytest.mark.parametrize(
    ("given", "expression"),
    [
        ({"server": ["a", "b c"]}, "open_stdio(['a', 'b c'])"),
        (
            {"server": ["a"], "env": [("LANG", "C"), ("API_KEY", "x")], "cwd": "place"},
            "open_stdio(['a'], env={'LANG': 'C', 'API_KEY': os.environ['API_KEY']}, cwd='place')",
        ),
        ({"url": "unix:/a/b"}, "open_unix('/a/b')"),
        ({"url": "tcp://localhost:1"}, "open_tcp('localhost', 1)"),
        (
            {"url": "http://localhost", "header": [("Cookie", "a=b")]},
            "open_http('http://localhost', http=HttpClientOptions(headers={'Cookie': os.environ['COOKIE']}))",
        ),
        ({"url": "ws://h/mcp", "header": [("X-A", "1")]}, "open_websocket('ws://h/mcp', headers={'X-A': '1'})"),
    ],
)
def test_copied_test_opens_the_same_server(given: dict[str, Any], expression: str) -> None:
    plain: dict[str, Any] = {"url": None, "env": [], "header": [], "auth": None, "inherit_env": False, "cwd": None}
    imports, found = _opener(argparse.Namespace(**{**plain, **given}))
    assert found == expression
    names: dict[str, Any] = {}
    exec("\n".join(imports), names)
    assert found.partition("(")[0] in names
    assert ("os" in names) == ("os.environ" in found)


def test_drift_has_both_sides() -> None:
    server = Server("s")

    @server.tool
    def cut(a: int) -> int:
        """Cut."""
        return a

    async def main() -> None:
        async with memory_client(server) as client:
            locked = await lock.definitions(client)
            assert await _drift(locked, client) == []
            locked["tools"]["cut"]["definition"]["description"] = "Saw."
            locked["tools"]["gone"] = {"definition": {"name": "gone"}}
            changed, gone = await _drift(locked, client)
            assert (changed["name"], gone["name"], gone["new"]) == ("tools: cut", "tools: gone", None)
            assert '"description": "Saw."' in changed["old"]
            assert '"description": "Cut."' in changed["new"]

    trio.run(main)


def headers(lines: list[str]) -> int:
    return sum('"recording":1' in line for line in lines)


def test_recording_in_memory_keeps_the_newest_connection_and_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    recording = Recording()
    with pytest.raises(ValueError, match="nothing is recorded yet"):
        recording.lines()
    link = pair()
    for _ in range(2):
        recording.add_to(link.client, 0.0)
    assert headers(recording.lines()) == 2
    header = recording.lines()[0]
    monkeypatch.setattr("mcpio.cli.inspect.RECORDED", 2 * len(header))
    recording.write("later\n")
    assert recording.lines() == [header, "later\n"]
    for line in (header, "more\n"):
        recording.write(line)
        with pytest.raises(ValueError, match="the recording is longer than 0 MiB: use --record FILE"):
            recording.lines()
    recording.add_to(link.client, 0.0)
    assert recording.lines() == [header]


def test_recording_goes_on_with_the_next_connection(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    server = Server("s")

    @server.tool
    def log_in(password: str) -> str:
        """Log in."""
        return "done"

    path = tmp_path / "rec"

    async def main_() -> str:
        with recorder(str(path)) as file:
            recording = Recording(file)
            tap = LadderTap(Ladder(trio.current_time), also=recording.add_to)
            eras: tuple[Literal["handshake", "stateless"], ...] = ("handshake", "stateless")
            for era in eras:
                async with memory_client(server, tap=tap, era=era) as client:
                    await client.call_tool("log_in", {"password": "hunter2"})
            return without_secrets(recording.lines())

    assert trio.run(main_) == path.read_text(encoding="utf-8")
    assert headers(path.read_text(encoding="utf-8").splitlines()) == 2
    assert "hunter" not in path.read_text(encoding="utf-8")
    assert main(["replay", str(path)]) == Exit.DONE
    shown = capsys.readouterr().out
    assert shown.count("--- a new connection") == 1
    assert (shown.count('"method":"tools/call"'), shown.count('"method":"initialize"')) == (2, 1)
    assert main(["trace", str(path)]) == Exit.DONE
    sent = re.search(r"Done: (\d+) messages", shown)
    assert sent is not None
    assert capsys.readouterr().out == f"{path}.html: {sent[1]} messages\n"


def test_failed_write_ends_the_recording_and_not_the_connection(caplog: pytest.LogCaptureFixture) -> None:
    written: list[str] = []

    def write(line: str) -> None:
        written.append(line)
        raise OSError(errno.ENOSPC, "No space left on device")

    async def connect() -> None:
        tap = LadderTap(Ladder(trio.current_time), also=Recording(Recorder(write)).add_to)
        for _ in range(2):
            async with memory_client(Server("s"), tap=tap) as client:
                assert client.server.info.name == "s"

    trio.run(connect)
    assert len(written) == 1
    assert [record.getMessage() for record in caplog.records] == ["the recording ends here: No space left on device"]


def test_saved_recording_equals_one_that_was_made_without_secrets() -> None:
    server = Server("s")

    @server.tool
    async def log_in(ctx: Context, password: str) -> dict[str, str]:
        """Log in."""
        ctx.progress(1, 2)
        return {"api_key": password}

    kept: list[str] = []
    redacted: list[str] = []

    class Both(Tap):
        def opened(self, connection: Any, now: float) -> None:
            add_tap(connection, Recorder(kept.append), now)
            add_tap(connection, Recorder(redacted.append, redactor=Redactor()), now)

    async def main() -> None:
        for era in ("handshake", "stateless"):
            kept.clear()
            redacted.clear()
            async with memory_client(server, tap=Both(), era=era) as client:
                await client.call_tool("log_in", {"password": "hunter2"})
            assert "hunter2" in "".join(kept)
            assert "hunter2" not in "".join(redacted)
            assert without_secrets(kept) == "".join(redacted)

    trio.run(main)


def test_recording_that_the_engine_does_not_replay_is_not_saved() -> None:
    kept: list[str] = []

    class Kept(Tap):
        def opened(self, connection: Any, now: float) -> None:
            add_tap(connection, Recorder(kept.append), now)

    async def main() -> None:
        async with memory_client(Server("s"), tap=Kept(), era="handshake"):
            pass

    trio.run(main)
    at = next(number for number, line in enumerate(kept) if '"event":"Negotiated"' in line)
    kept[at] = kept[at].replace("Negotiated", "RequestFailed")
    with pytest.raises(ValueError, match=f"line {at + 1}: next_event: Negotiated, .* use --record FILE"):
        without_secrets(kept)


@pytest.mark.parametrize("words", [["--port", "x"], ["--port", "70000"]])
def test_wrong_port_is_refused(words: list[str]) -> None:
    with pytest.raises(SystemExit):
        main(["inspect", "server", *words])


def test_missing_sampling_file_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", "the server", "--sampling", "/none/said.txt"]) == Exit.USAGE
    assert "--sampling must be ask, refuse or a readable file, not '/none/said.txt'" in capsys.readouterr().err


def test_missing_lock_file_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", "the server", "--locked", "/none/mcpio.lock"]) == Exit.USAGE
    assert "cannot read /none/mcpio.lock" in capsys.readouterr().err
