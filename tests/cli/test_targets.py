"""Targets: every way to name a server on a command line, and what is said of one that names none."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from mcpio.app import ServerEntry
from mcpio.cli import main
from mcpio.cli.exit_status import Exit, Failure
from mcpio.cli.targets import Directories, Target, resolve, where_else

SERVER = '''
import os
from mcpio import Server

server = Server("kitchen", "1")
other = Server("pantry", "1")

@server.tool
def bake(kind: str) -> str:
    """Bake a loaf."""
    return f"one {kind} loaf, {os.environ.get('HEAT')}"
'''


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a working directory with a server and a configuration, and a home beside it."""
    work = tmp_path / "work"
    work.mkdir()
    (tmp_path / "home").mkdir()
    (work / "kitchen.py").write_text(SERVER)
    _write(
        work / "mcp.json", {"kitchen": {"command": "bake", "env": {"A": "${A}"}}, "town": {"url": "http://town/mcp"}}
    )
    _write(work / "one.json", {"kitchen": {"command": sys.executable, "args": ["-m", "mcpio", "serve", "kitchen.py"]}})
    monkeypatch.chdir(work)
    return work


def _write(path: Path, servers: Mapping[str, Any], key: str = "mcpServers") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({key: servers}))


def _directories(here: Path) -> Directories:
    return Directories("linux", str(here.parent / "home"), str(here))


def _resolve(text: str, here: Path, **environ: str) -> Target:
    return resolve(text, environ, _directories(here))


def _failure(text: str, here: Path, **environ: str) -> tuple[Exit, str]:
    with pytest.raises(Failure) as caught:
        _resolve(text, here, **environ)
    return caught.value.status, caught.value.message


def test_file_served_as_serve_would(here: Path) -> None:
    for text in ("kitchen.py", "kitchen.py:other", str(here / "kitchen.py")):
        target = _resolve(text, here)
        assert target.entry.command == (sys.executable, "-m", "mcpio", "serve", text)
        assert target.inherit_env


def test_entry_of_a_configuration_found(here: Path) -> None:
    assert _resolve("mcp.json:kitchen", here, A="1").entry == ServerEntry(command=("bake",), env={"A": "1"})
    assert _resolve("./mcp.json:town", here).entry.url == "http://town/mcp"
    assert _resolve("one.json", here).entry.command[0] == sys.executable


def test_url_and_command_taken_as_given(here: Path) -> None:
    assert _resolve("http://x/mcp", here).entry.url == "http://x/mcp"
    assert _resolve("python 'my server.py'", here).entry.command == ("python", "my server.py")
    assert _resolve("bake", here).entry.command == ("bake",)


@pytest.mark.parametrize(
    ("text", "status", "said"),
    [
        ("kitchn.py", Exit.NO_PROGRAM, "there is no file 'kitchn.py'; looked in {here}. Did you mean 'kitchen.py'?"),
        ("no/such.json:x", Exit.NO_PROGRAM, "there is no file 'no/such.json'; looked in {here}/no."),
        ("mcp.json", Exit.USAGE, "mcp.json has the servers kitchen, town: write mcp.json:kitchen"),
        ("mcp.json:twn", Exit.NOT_FOUND, "no server 'twn' in mcp.json; it has kitchen, town. Did you mean 'town'?"),
        (
            "mcp.json:kitchen",
            Exit.USAGE,
            "mcp.json: the server 'kitchen': env.A needs the variable A, which is not set",
        ),
        ("bad.json", Exit.USAGE, "bad.json is not JSON: line 1, column 2: "),
        ("none.json", Exit.NOT_FOUND, "none.json names no server"),
        ("goose.yaml", Exit.USAGE, "goose.yaml is YAML, which mcpio does not read"),
        ("folder.py", Exit.NO_PROGRAM, "the server must be a file or a command, not the directory 'folder.py'"),
        ("python 'x", Exit.USAGE, "cannot split the server's command"),
    ],
)
def test_unknown_target_explained(here: Path, text: str, status: Exit, said: str) -> None:
    (here / "bad.json").write_text("{x}")
    (here / "goose.yaml").write_text("extensions: {}")
    (here / "folder.py").mkdir()
    _write(here / "none.json", {})
    got, message = _failure(text, here)
    assert got is status
    assert message.startswith(said.format(here=here))


def test_unreadable_configuration_explained(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: str, environ: Mapping[str, str]) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("mcpio.cli.targets.read_config", refuse)
    assert _failure("mcp.json", here) == (Exit.USAGE, "cannot read 'mcp.json': Permission denied")


def test_names_of_hosts_found(here: Path) -> None:
    home = here.parent / "home"
    _write(home / ".config/Claude/claude_desktop_config.json", {"kitchen": {"command": "bake"}})
    _write(home / ".cursor/mcp.json", {"kitchen": {"command": "bake"}, "town": {"command": "a"}, "@x/y": {"url": "u"}})
    _write(here / ".vscode/mcp.json", {"town": {"command": "b"}}, key="servers")
    assert _resolve("@claude-desktop/kitchen", here).entry.command == ("bake",)
    assert _resolve("@kitchen", here).entry.command == ("bake",)  # the same in both
    assert _resolve("@vscode/town", here).entry.command == ("b",)
    assert _resolve("@@x/y", here).entry.url == "u"
    assert _failure("@town", here) == (
        Exit.USAGE,
        "several hosts have a server 'town': write @cursor/town or @vscode/town",
    )


def test_missing_name_of_a_host_explained(here: Path) -> None:
    home = here.parent / "home"
    _write(home / ".cursor/mcp.json", {"kitchen": {"command": "bake"}})
    (home / ".gemini").mkdir()
    (home / ".gemini/settings.json").write_text('{"theme": "dark"}')  # without servers, which is no fault
    (home / ".claude.json").write_text("[")
    status, message = _failure("@kitchn", here)
    assert status is Exit.NOT_FOUND
    assert message == (
        "no server 'kitchn' in the configuration of any host\n"
        f"  {home}/.cursor/mcp.json has kitchen\n"
        f"  not read: {home}/.claude.json is not JSON: line 1, column 2: Expecting value\n"
        "  Did you mean 'kitchen'?"
    )
    (home / ".claude.json").unlink()
    status, message = _failure("@zed/kitchen", here)
    assert message == "no server 'kitchen' in the configuration of zed\n  no file of zed has servers here"


@pytest.mark.parametrize(
    ("text", "status", "part"),
    [
        ("@", Exit.USAGE, "'@' names no server: write @HOST/NAME or @NAME"),
        ("@zed/", Exit.USAGE, "'@zed/' names no server: write @HOST/NAME or @NAME"),
        ("@zed", Exit.NOT_FOUND, "  zed is a host: write @zed/NAME"),
        ("@oven/x", Exit.NOT_FOUND, "  'oven' is not a host that mcpio knows.\n"),
        ("@cursr/x", Exit.NOT_FOUND, "  'cursr' is not a host that mcpio knows. Did you mean 'cursor'?\n"),
    ],
)
def test_mistaken_name_of_a_host_explained(text: str, status: Exit, part: str, here: Path) -> None:
    found, message = _failure(text, here)
    assert found is status
    assert part in f"{message}\n"


def test_missing_program_names_the_searched_directories(here: Path) -> None:
    _write(here.parent / "home/.cursor/mcp.json", {"kitchen": {"command": "bake"}})
    directories = _directories(here)
    assert where_else("oven-x", {"PATH": "/bin"}, directories) == "; looked in PATH, which is /bin"
    assert where_else("kitchen", {}, directories).endswith(". A host has a server of that name: write @cursor/kitchen")
    assert where_else("./oven", {}, directories) == ""
    assert "is called by a URL" in where_else("localhost:80", {}, directories)


@pytest.mark.long
def test_file_and_configuration_called(
    here: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HEAT", "220")
    assert main(["call", "kitchen.py", "bake", "kind=rye"]) is Exit.DONE
    assert capfd.readouterr().out == "one rye loaf, 220\n"
    assert main(["call", "one.json:kitchen", "bake", "kind=rye", "-e", "HEAT=90"]) is Exit.DONE
    assert capfd.readouterr().out == "one rye loaf, 90\n"
    assert main(["list", "kitchen.py:missing"]) is Exit.SERVER_DIED
    assert "kitchen.py has no 'missing'. It has the Server 'server' and 'other'" in capfd.readouterr().err
