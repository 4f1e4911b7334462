"""``mcpio inspect``: what it gives its page."""

from __future__ import annotations

import argparse
import shlex

import pytest
import trio

from mcpio import Server
from mcpio.cli import lock, main
from mcpio.cli.arguments import read_words
from mcpio.cli.exit_status import Exit
from mcpio.cli.inspect import _drift, _Recording, _words
from mcpio.trio import memory_client


@pytest.mark.parametrize("after", [None, ["python", "a b.py"]])
def test_command_line_makes_the_same_call(after: list[str] | None) -> None:
    options = argparse.Namespace(after=after, target="@desktop/my notes")
    words = shlex.split(_words(options, "bake it", {"kind": 'r"ye', "count": [1, None]}))
    server, tail = (["@desktop/my notes"], []) if after is None else ([], ["--", *after])
    first = ["mcpio", "call", *server, "bake it"]
    assert words[: len(first)] == first
    given = words[len(first) : len(words) - len(tail)]
    assert words[len(words) - len(tail) :] == tail
    assert [(each.name, each.text, each.is_json) for each in read_words(given)] == [
        ("kind", '"r\\"ye"', True),
        ("count", "[1,null]", True),
    ]


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
    recording = _Recording()
    recording.begin()
    recording.write("one\n")
    with pytest.raises(ValueError, match="too long"):
        recording.write("two\n")
    recording.begin()
    assert (recording.text(), recording.is_second) == ("", True)


@pytest.mark.parametrize("words", [["--port", "x"], ["--port", "70000"]])
def test_wrong_port_is_refused(words: list[str]) -> None:
    with pytest.raises(SystemExit):
        main(["inspect", "server", *words])


def test_missing_lock_file_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", "the server", "--locked", "/none/mcpio.lock"]) == Exit.USAGE
    assert "cannot read /none/mcpio.lock" in capsys.readouterr().err
