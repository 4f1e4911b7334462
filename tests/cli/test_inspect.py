"""``mcpio inspect``: what it gives its page."""

from __future__ import annotations

import argparse
import shlex
from typing import Any

import pytest
import trio

from mcpio import Context, Server
from mcpio.cli import lock, main
from mcpio.cli.arguments import read_words
from mcpio.cli.exit_status import Exit
from mcpio.cli.inspect import Recording, _drift, _opener, _words, without_secrets
from mcpio.observe import Recorder, Redactor, Tap, add_tap
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


def test_recording_is_of_the_newest_connection_and_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcpio.cli.inspect.RECORDED", 5)
    recording = Recording()
    recording.begin()
    recording.write("one\n")
    assert recording.lines() == ["one\n"]
    recording.write("two\n")
    with pytest.raises(ValueError, match="the recording is longer than 0 MiB: use --record FILE"):
        recording.lines()
    recording.begin()
    assert (recording.lines(), recording.is_second) == ([], True)
    assert without_secrets(recording.lines()) == ""


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
    assert "--sampling takes ask, refuse or a file; cannot read '/none/said.txt'" in capsys.readouterr().err


def test_missing_lock_file_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", "the server", "--locked", "/none/mcpio.lock"]) == Exit.USAGE
    assert "cannot read /none/mcpio.lock" in capsys.readouterr().err
