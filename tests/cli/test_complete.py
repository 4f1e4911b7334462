"""Completion: what may follow the words that are typed, and the scripts in real shells."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mcpio.cli import complete, main
from mcpio.cli.exit_status import Exit
from mcpio.cli.targets import Directories

SERVER = """
from typing import Literal
from mcpio import Server

server = Server("kitchen", "1")

@server.tool
def bake(kind: Literal["rye", "wheat and oats"], hot: bool = False) -> str:
    return kind

@server.tool
def boil() -> str:
    return "egg"

@server.prompt
def greet(who: str, how: str = "") -> str:
    return who

@server.resource("bench://notes")
def notes() -> str:
    return "notes"
"""


def _workspace(folder: Path) -> Path:
    """Make a working directory with a server and a configuration; the cache and the home are beside it."""
    work = folder / "project"
    work.mkdir()
    (work / "kitchen.py").write_text(SERVER)
    servers = {"mcpServers": {"kitchen": {"command": "bake"}, "town": {"url": "http://town/mcp"}}}
    (work / "mcp.json").write_text(json.dumps(servers))
    (folder / ".cursor").mkdir()
    (folder / ".cursor/mcp.json").write_text(json.dumps(servers))
    return work


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return one working directory for most tests, so that its server is listed once."""
    return _workspace(tmp_path_factory.mktemp("complete"))


@pytest.fixture
def here(shared: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Enter the shared working directory."""
    return _entered(shared, monkeypatch)


@pytest.fixture
def apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Enter a working directory for one test."""
    return _entered(_workspace(tmp_path), monkeypatch)


def _entered(work: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(work)
    monkeypatch.setenv("XDG_CACHE_HOME", str(work.parent / "cache"))
    directories = Directories("linux", str(work.parent), str(work))
    monkeypatch.setattr(Directories, "here", classmethod(lambda cls: directories))
    monkeypatch.setattr(complete, "CACHED", 600)
    return work


def _completed(line: str, capsys: pytest.CaptureFixture[str], shell: str = "fish") -> list[str]:
    assert main(["complete", shell, line]) == Exit.DONE
    return capsys.readouterr().out.splitlines()


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("mcpio re", ["read", "relay", "replay"]),
        ("mcpio nonsense a", []),
        ("mcpio call --ti", ["--timeout"]),
        ("mcpio call kitchen.py b", ["bake", "boil"]),
        ("mcpio call --timeout 5 -q kitchen.py bo", ["boil"]),
        ("mcpio call kitchen.py bake ", ["hot=", "hot=false", "hot=true", "kind=", "kind=rye"]),
        ("mcpio call kitchen.py bake kind=rye h", ["hot=", "hot=false", "hot=true"]),
        ("mcpio call kitchen.py none ", []),
        ("mcpio prompt kitchen.py greet ", ["how=", "who="]),
        ("mcpio read kitchen.py be", ["bench://notes"]),
        ("mcpio list kitchen.py ", []),
        ("mcpio list mcp.json:t", ["mcp.json:town"]),
        ("mcpio list none.json:", []),
        ("mcpio list @cur", ["@cursor/kitchen", "@cursor/town"]),
        ("mcpio list kit", []),  # files are the shell's
        ("mcpio call no-such-program x", []),
        ("mcpio install cl", ["claude-code", "claude-desktop"]),
        ("mcpio install cursor mcp.json:k", ["mcp.json:kitchen"]),
        ("mcpio install cursor kitchen.py --scope ", ["project", "user"]),
        ("mcpio config kitchen.py --for z", ["zed"]),
        ("mcpio config kitchen.py --name ", []),
        ("mcpio complete kitchen.py", []),
    ],
)
def test_next_words_found(line: str, found: list[str], here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _completed(line, capsys) == found


def test_every_command_offered(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert {"call", "install", "complete"} <= set(_completed("mcpio ", capsys))


def test_bash_gets_what_follows_its_own_breaks(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _completed("mcpio call kitchen.py bake kind=", capsys, "bash") == ["rye"]
    assert _completed("mcpio call kitchen.py bake 'kind=r", capsys, "bash") == ["rye"]
    assert _completed("mcpio list mcp.json:", capsys, "bash") == ["kitchen", "town"]
    assert _completed("mcpio list @cursor/k", capsys, "bash") == ["cursor/kitchen"]


def test_listing_kept_for_a_minute(
    apart: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[str] = []

    def run(command: list[str], **options: object) -> subprocess.CompletedProcess[bytes]:
        started.append(command[-1])
        return subprocess.CompletedProcess(command, 0, b'{"tools": [{"name": "boil"}]}')

    monkeypatch.setattr(subprocess, "run", run)
    for _ in range(3):
        assert _completed("mcpio call kitchen.py bo", capsys) == ["boil"]
    assert started == ["kitchen.py"]
    (file,) = (apart.parent / "cache/mcpio/complete").iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    os.utime(file, (1, 1))
    assert _completed("mcpio call kitchen.py bo", capsys) == ["boil"]
    assert len(started) == 2
    file.write_text("{broken")
    assert _completed("mcpio call kitchen.py bo", capsys) == ["boil"]
    monkeypatch.setenv("XDG_CACHE_HOME", str(apart / "kitchen.py"))  # no folder
    assert _completed("mcpio call kitchen.py bo", capsys) == []


@pytest.mark.parametrize("shell", list(complete.SCRIPTS))
def test_names_that_a_shell_or_the_command_interprets_are_not_offered(
    shell: str, here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    hostile = [
        "a\nb",
        "\x1b[2J",
        "--inherit-env",
        "--record=",
        *(f"a{each}b" for each in " $`\"'\\;&|<>(){}[]*?!~#^\t"),
    ]
    properties = {name: {"enum": hostile} for name in (*hostile, "kind")}
    tools = [{"name": name, "inputSchema": {"properties": properties}} for name in (*hostile, "fine", "größe")]
    monkeypatch.setattr(complete, "_listing", lambda target: {"tools": tools})
    assert _completed("mcpio call kitchen.py ", capsys, shell) == ["fine", "größe"]
    assert _completed("mcpio call kitchen.py --inherit-e", capsys, shell) == ["--inherit-env"]  # the option
    assert _completed('mcpio call kitchen.py fine "', capsys, shell) == [
        "kind=",
        "kind=--inherit-env",
        "kind=--record=",
    ]


def test_malformed_items_do_not_hide_the_others(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    properties = {"size": {"enum": "large"}, "kind": {"enum": ["a"]}, "odd": 5}
    tools = [5, {"name": "bake", "inputSchema": {"properties": properties}}, {"name": "bare", "inputSchema": 5}]
    prompts = [{"name": "greet", "arguments": [5, {"name": "who"}]}, {"name": "bare", "arguments": 5}]
    monkeypatch.setattr(complete, "_listing", lambda target: {"tools": tools, "prompts": prompts})
    for line, found in (
        ("mcpio call x ", ["bake", "bare"]),
        ("mcpio call x bake ", ["kind=", "kind=a", "odd=", "size="]),
        ("mcpio call x bare ", []),
        ("mcpio prompt x greet ", ["who="]),
        ("mcpio prompt x bare ", []),
    ):
        assert main(["complete", "fish", line]) == 0
        assert capsys.readouterr().out.split() == found


def test_help_of_the_command_tells_how_to_switch_it_on(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["complete", "--help"])
    assert 'eval "$(mcpio complete bash)"' in capsys.readouterr().out
    for shell, script in complete.SCRIPTS.items():
        assert main(["complete", shell]) == Exit.DONE
        assert capsys.readouterr().out == script


IN_SHELLS = {
    "bash": 'eval "$(mcpio complete bash)"; COMP_LINE=$1; COMP_POINT=${#1}; _mcpio; printf "%s\\n" "${COMPREPLY[@]}"',
    "fish": "mcpio complete fish | source; complete -C $argv[1]",
}


@pytest.mark.parametrize("shell", [shell for shell in IN_SHELLS if shutil.which(shell)])
def test_script_completes_in_the_shell(shell: str, here: Path) -> None:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    words = [shell, "-c", IN_SHELLS[shell], *(["bash"] if shell == "bash" else []), "mcpio call kitchen.py bo"]
    run = subprocess.run(words, env={**os.environ, "PATH": path}, capture_output=True, text=True, timeout=30)
    assert run.stdout == "boil\n"
