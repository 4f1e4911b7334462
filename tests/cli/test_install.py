"""``mcpio config`` and ``mcpio install``: what is written into each host's file, under a false home directory.

``golden/SYSTEM.txt`` has every file that installing into all hosts leaves behind on that system. To write them anew
after a change of the table: ``MCPIO_WRITE_GOLDEN=1 pytest tests/cli/test_install.py``, and look at the difference.
"""

from __future__ import annotations

import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mcpio.app import ServerEntry, ServersConfig
from mcpio.cli import install, main
from mcpio.cli import targets as hosts
from mcpio.cli.exit_status import Exit
from mcpio.cli.targets import HOSTS, Directories

GOLDEN = Path(__file__).parent / "golden"

SERVER = """
import os
from mcpio import Server

if "OVEN" not in os.environ and os.path.exists(os.path.join(os.path.dirname(__file__), "needs-oven")):
    raise SystemExit("there is no OVEN")
server = Server("kitchen", "1")
"""

Home = Path


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """Return a false home directory; the working directory is ``project`` in it, and ``PATH`` is ``bin`` in it."""
    (tmp_path / "project").mkdir()
    (tmp_path / "bin").mkdir()
    (tmp_path / "project" / "kitchen.py").write_text(SERVER)
    _program(tmp_path, "bake", "exit 1")
    monkeypatch.chdir(tmp_path / "project")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    _on("linux", tmp_path, monkeypatch)
    return tmp_path


def _on(system: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    app_data = str(home / "AppData/Roaming") if system == "win32" else ""
    directories = Directories(system, str(home), str(home / "project"), app_data)
    monkeypatch.setattr(Directories, "here", classmethod(lambda cls: directories))


def _program(home: Path, name: str, then: str = "exit 0") -> None:
    """Put a program into ``PATH`` that records its arguments, one a line, and its end."""
    path = home / "bin" / name
    path.write_text(f'#!/bin/sh\nprintf "%s\\n" {name} "$@" . >> "{home}/called"\n{then}\n')
    path.chmod(0o755)


def _files(home: Path) -> str:
    """Return all files below the false home that hosts read, with their contents."""
    skipped = {home / "project" / "kitchen.py", home / "bin" / "bake", home / "bin" / "claude", home / "bin" / "codex"}
    parts = [
        f"== {path.relative_to(home)}\n{path.read_text()}"
        for path in sorted(home.rglob("*"))
        if path.is_file() and path not in skipped
    ]
    return "".join(parts).replace(str(home), "HOME")


@pytest.mark.parametrize("system", ["linux", "darwin", "win32"])
def test_config_of_every_host_equals_its_golden_file(
    system: str, home: Home, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _on(system, home, monkeypatch)
    _program(home, "claude")
    _program(home, "codex")
    for host in HOSTS:
        for scope in ("user", "project"):
            words = ["install", host.name, "bake --hot", "--name", "kitchen", "-e", "OVEN=old one", "--scope", scope]
            status = main([*words, "--yes", "--no-trial"])
            said = capsys.readouterr()
            if status == Exit.DONE:
                continue
            assert status == Exit.USAGE
            if "has no file for a project" not in said.err:
                (home / f"printed-{host.name}-{scope}").write_text(said.out + said.err)
    found = _files(home)
    golden = GOLDEN / f"{system}.txt"
    if os.environ.get("MCPIO_WRITE_GOLDEN"):
        golden.parent.mkdir(exist_ok=True)
        golden.write_text(found)
    assert found == golden.read_text()


def test_written_entries_read_back(home: Home) -> None:
    for host in HOSTS:
        if host.syntax != "yaml":
            text = hosts.snippet(host, "kitchen", ServerEntry(command=("bake", "a\tb\"'\\ ü"), env={"A b": "c\nd"}))
            config = ServersConfig.parse(text, syntax=host.syntax)
            assert config["kitchen"].command == ("bake", "a\tb\"'\\ ü")
            assert config["kitchen"].env == {"A b": "c\nd"}
        if host.url_key is not None and host.syntax != "yaml":
            entry = ServerEntry(url="https://town/mcp", headers={"X-Key": "k"})
            assert ServersConfig.parse(hosts.snippet(host, "town", entry), syntax=host.syntax)["town"] == entry


def _settings(home: Home, text: str) -> Path:
    path = home / ".cursor" / "mcp.json"
    path.parent.mkdir()
    path.write_text(text)
    return path


def _install(*words: str, host: str = "cursor") -> int:
    return main(["install", host, *words, "--yes", "--no-trial"])


def test_other_members_kept_and_undone(home: Home) -> None:
    servers = '    "mcpServers": {\n        "a": {\n            "command": "x"\n        }\n    },\n'
    before = '{\n    "theme": "därk",\n' + servers + '    "z": 1\n}\n'
    path = _settings(home, before)
    path.chmod(0o600)
    assert _install("bake", "--name", "b") == Exit.DONE
    data = json.loads(path.read_text())
    assert list(data) == ["theme", "mcpServers", "z"]
    assert list(data["mcpServers"]) == ["a", "b"]
    assert path.read_text().startswith('{\n    "theme": "därk"')
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.with_name("mcp.json.mcpio-backup").read_text() == before
    assert _install("--uninstall", "--name", "b") == Exit.DONE
    assert path.read_text() == before
    assert {each.name for each in path.parent.iterdir()} == {"mcp.json", "mcp.json.mcpio-backup"}


def test_linked_file_stays_a_link(home: Home) -> None:
    (home / "dotfiles").mkdir()
    (home / "dotfiles/mcp.json").write_text("{}")
    (home / ".cursor").mkdir()
    (home / ".cursor/mcp.json").symlink_to(home / "dotfiles/mcp.json")
    assert _install("bake") == Exit.DONE
    assert (home / ".cursor/mcp.json").is_symlink()
    assert "bake" in (home / "dotfiles/mcp.json").read_text()


@pytest.mark.parametrize("link", ["mcp.json", "mcp.json.mcpio-backup", "mcp.json.mcpio-new", "."])
@pytest.mark.parametrize("is_dangling", [False, True])
def test_no_link_of_a_project_is_followed(
    home: Home, link: str, is_dangling: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(install, "LOCK_TIMEOUT", 0.1)
    folder, target = Path.cwd() / ".cursor", home / "secret"
    if link == ".":
        target.mkdir()
        folder.symlink_to(target)
    else:
        folder.mkdir()
        if link != "mcp.json":
            (folder / "mcp.json").write_text("{}")
        if not is_dangling:
            target.write_text("mine")
        (folder / link).symlink_to(target)
    status = _install("bake", "--scope", "project")
    assert status == (Exit.DONE if link.endswith("backup") else Exit.UNWRITABLE if link.endswith("new") else Exit.USAGE)
    if link == ".":
        assert list(target.iterdir()) == []
    else:
        assert target.exists() is not is_dangling
        assert is_dangling or target.read_text() == "mine"
    if link.endswith("backup"):
        assert not (folder / link).is_symlink()
        assert (folder / link).read_text() == "{}"


def test_link_for_a_backup_of_a_user_is_replaced(home: Home) -> None:
    path = _settings(home, "{}")
    (home / "secret").write_text("mine")
    path.with_name("mcp.json.mcpio-backup").symlink_to(home / "secret")
    assert _install("bake") == Exit.DONE
    assert (home / "secret").read_text() == "mine"


def test_pipe_in_the_place_of_the_file_is_refused(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    path = _settings(home, "")
    path.unlink()
    os.mkfifo(path)
    assert _install("bake") == Exit.USAGE
    assert "must be a regular file" in capsys.readouterr().err


def test_installs_at_once_all_count(home: Home) -> None:
    path = _settings(home, '{"mcpServers": {}}')
    with ThreadPoolExecutor(8) as pool:
        statuses = list(pool.map(lambda number: _install("bake", "--name", f"s{number}"), range(8)))
    assert statuses == [Exit.DONE] * 8
    assert sorted(json.loads(path.read_text())["mcpServers"]) == [f"s{number}" for number in range(8)]
    assert {each.name for each in path.parent.iterdir()} == {"mcp.json", "mcp.json.mcpio-backup"}


def test_file_that_another_process_changes_for_long_is_left_alone(
    home: Home, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(install, "LOCK_TIMEOUT", 0.1)
    path = _settings(home, "{}")
    path.with_name("mcp.json.mcpio-new").touch()
    assert _install("bake") == Exit.UNWRITABLE
    assert "mcpio-new exists: wait for the other mcpio install, or remove it" in capsys.readouterr().err
    assert path.read_text() == "{}"


def test_text_that_utf_8_cannot_write_is_refused(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    path = _settings(home, "{}")
    assert _install("bake", "-e", "A=\udc80") == Exit.USAGE
    assert "text that UTF-8 cannot write" in capsys.readouterr().err
    assert path.read_text() == "{}"
    assert {each.name for each in path.parent.iterdir()} == {"mcp.json"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"mcpServers": {},\n"mcpServers": {}}', 'mcp.json, line 2: "mcpServers" is there twice: remove one of them'),
        ('{"mcpServers": {}, } // mine', "has comments, which mcpio would lose: change it yourself"),
        (
            "{oops",
            "mcp.json is not JSON: line 1, column 2: Expecting property name enclosed in double",
        ),
        ("[" * 100_000, "mcp.json is nested too deeply"),
        ("[]", "must be an object, and its mcpServers one too, for Cursor to read it"),
        ('{"mcpServers": []}', "must be an object, and its mcpServers one too"),
    ],
)
def test_file_that_cannot_be_changed_left_alone(
    text: str, said: str, home: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    path = _settings(home, text)
    assert _install("bake") == Exit.USAGE
    assert said in capsys.readouterr().err
    assert path.read_text() == text


def test_unwritable_file_explained(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    (home / ".cursor").write_text("a file")
    assert _install("bake") == Exit.USAGE
    assert f"cannot read {home}/.cursor/mcp.json: Not a directory" in capsys.readouterr().err
    (home / ".gemini").mkdir()
    (home / ".gemini/settings.json").symlink_to(home / ".cursor" / "x")
    (home / ".cursor").unlink()
    (home / ".cursor").symlink_to("/proc/none")
    assert _install("bake", host="gemini") == Exit.UNWRITABLE
    assert "cannot write" in capsys.readouterr().err


def test_missing_entry_not_removed(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    _settings(home, '{"mcpServers": {"kitchen": {}}}')
    assert _install("--uninstall", "--name", "kitchn") == Exit.NOT_FOUND
    assert "it has kitchen. Did you mean 'kitchen'?" in capsys.readouterr().err
    assert _install("--uninstall") == Exit.USAGE
    assert _install("--uninstall", "kitchen.py", host="gemini") == Exit.NOT_FOUND
    assert "it has none" in capsys.readouterr().err


def test_own_command_of_a_host_used(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    _program(home, "claude")
    _program(home, "codex", "exit 3")
    assert _install("bake --hot", "--name", "k", "-e", "A=1", host="claude-code") == Exit.DONE
    entry = {"type": "stdio", "command": f"{home}/bin/bake", "args": ["--hot"], "env": {"A": "1"}}
    called = ["claude", "mcp", "add-json", "k", json.dumps(entry, ensure_ascii=False), "-s", "user", "."]
    assert (home / "called").read_text().splitlines() == called
    assert _install("--uninstall", "--name", "k", host="claude-code") == Exit.DONE
    assert (home / "called").read_text().splitlines()[len(called) :] == [
        "claude",
        "mcp",
        "remove",
        "k",
        "-s",
        "user",
        ".",
    ]
    capsys.readouterr()
    assert _install("bake", host="codex") == Exit.REFUSED
    assert "codex exited with status 3" in capsys.readouterr().err


def test_command_of_a_host_that_does_not_start_is_reported(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    (home / "bin/claude").write_text("no program")
    (home / "bin/claude").chmod(0o700)
    assert _install("bake", host="claude-code") == Exit.NOT_EXECUTABLE
    assert f"cannot start {home}/bin/claude: Exec format error" in capsys.readouterr().err


def test_missing_command_of_a_host_prints_what_to_add(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["bake"], ["--uninstall", "--name", "bake"]):
        assert _install(*words, host="claude-code") == Exit.USAGE
        said = capsys.readouterr()
        assert "bake" in said.out
        assert "there is no 'claude' in PATH" in said.err
    assert _install("https://town/mcp", host="codex") == Exit.USAGE
    assert 'url = "https://town/mcp"' in capsys.readouterr().out
    assert _install("--uninstall", "--name", "bake", host="zed") == Exit.USAGE
    assert "remove this yourself" in capsys.readouterr().err


def test_dry_run_changes_nothing(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["install", "cursor", "kitchen.py", "--dry-run", "--no-trial"]) == Exit.DONE
    assert f'+      "command": "{sys.executable}"' in capsys.readouterr().out
    assert not (home / ".cursor").exists()


def test_same_entry_changes_nothing(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    assert _install("bake") == Exit.DONE
    capsys.readouterr()
    assert _install("bake") == Exit.DONE
    assert capsys.readouterr().out == f"{home}/.cursor/mcp.json says so already\n"


def test_no_answer_means_no(home: Home, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert main(["install", "cursor", "bake", "--no-trial"]) == Exit.USAGE
    assert "there is no terminal to ask on" in capsys.readouterr().err
    monkeypatch.setattr(install, "is_terminal", lambda stream: True)
    for answer, status in (("\n", Exit.USAGE), ("n\n", Exit.USAGE), ("Yes\n", Exit.DONE)):
        reading, writing = os.pipe()
        os.write(writing, answer.encode())
        os.close(writing)
        with open(reading) as typed:
            monkeypatch.setattr(sys, "stdin", typed)
            assert main(["install", "cursor", "bake", "--no-trial"]) == status
    assert (home / ".cursor/mcp.json").exists()


def test_file_that_its_host_changed_meanwhile_is_left_alone(
    home: Home, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = _settings(home, "{}")

    def confirm() -> None:
        path.write_text('{"theme": "dark"}')

    monkeypatch.setattr(install, "_confirm", confirm)
    assert main(["install", "cursor", "bake", "--no-trial"]) == Exit.UNWRITABLE
    assert "was changed meanwhile" in capsys.readouterr().err
    assert path.read_text() == '{"theme": "dark"}'


def test_byte_order_mark_and_line_ends_of_windows_are_taken(home: Home) -> None:
    path = _settings(home, "")
    path.write_bytes(b'\xef\xbb\xbf{\r\n  "theme": "dark"\r\n}\r\n')
    assert _install("bake", "--name", "b") == Exit.DONE
    written = path.read_bytes()
    assert written.startswith(b"\xef\xbb\xbf" + b'{\r\n  "theme": "dark",\r\n')
    assert written.count(b"\n") == written.count(b"\r\n")


def test_trial_starts_as_a_host_does(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["install", "cursor", "kitchen.py", "--yes"]
    assert main(words) == Exit.DONE
    assert capsys.readouterr().err.startswith("kitchen starts in an empty environment, and answers\n")
    (home / "project/needs-oven").touch()
    assert main([*words, "--name", "b"]) == Exit.SERVER_DIED
    said = capsys.readouterr().err
    assert said.startswith(
        "mcpio: nothing done: the server does not start as a host starts it, with an empty environment"
    )
    assert "there is no OVEN" in said
    assert "b" not in json.loads((home / ".cursor/mcp.json").read_text())["mcpServers"]
    assert main([*words, "-e", "OVEN=hot"]) == Exit.DONE
    assert main([*words, "-e", "OVEN=${env:NOT_SET_HERE}"]) == Exit.USAGE
    assert "needs the variable NOT_SET_HERE" in capsys.readouterr().err


def test_trial_keeps_the_environment_unchanged(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OVEN", "hot")  # which a host would not have
    (home / "project/needs-oven").touch()
    assert main(["install", "cursor", "kitchen.py", "--yes"]) == Exit.SERVER_DIED
    assert os.environ["OVEN"] == "hot"


def test_values_in_a_project_file_warned_of(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--scope", "project", "-e", "KEY=secret", "-e", "OTHER=${env:OTHER}"]
    assert _install("bake", *words) == Exit.DONE
    assert "warning: KEY would stand in " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["install", "cursr", "bake"], Exit.USAGE, "no host 'cursr'. Did you mean 'cursor'?"),
        (["install", "emacs", "bake"], Exit.USAGE, "no host 'emacs'. mcpio knows claude-code, claude-desktop, cursor,"),
        (["install", "claude-desktop", "https://x/mcp"], Exit.USAGE, "Claude Desktop's file takes programs only"),
        (["install", "goose", "bake", "--scope", "project"], Exit.USAGE, "Goose has no file for a project"),
        (["install", "cursor"], Exit.USAGE, "no server given"),
        (["install", "cursor", ""], Exit.NO_PROGRAM, "there is no program ''"),
        (["config", "no-such-program-here"], Exit.NO_PROGRAM, "there is no program 'no-such-program-here'; looked in"),
        (
            ["config", "bake", "--name", "a b"],
            Exit.USAGE,
            "--name must be at most 64 letters, digits, - and _, and not begin with -, not 'a b'",
        ),
        (["config", "bake", "--name=--scope"], Exit.USAGE, "--name must be at most 64 letters"),
        (["config", "https://[/mcp"], Exit.USAGE, "https://[/mcp: Invalid IPv6 URL"),
        (["config", "https://x/mcp", "-e", "A=1"], Exit.USAGE, "--env is for servers that are started"),
        (["config", "https://x/mcp", "--relay"], Exit.USAGE, "--relay is for servers that are started, not for https"),
        (
            ["config", "https://x/$(reboot)", "--relay"],
            Exit.USAGE,
            "--relay is for servers that are started, not for https://x/$(reboot): run mcpio relay 'https://x/$(reboot)'",
        ),
    ],
)
def test_wrong_command_line_explained(
    words: list[str], status: Exit, said: str, home: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == status
    assert capsys.readouterr().err.startswith(f"mcpio: {said}")


@pytest.mark.parametrize(
    ("server", "name"),
    [
        ("kitchen.py", "kitchen"),
        ("kitchen.py:server", "kitchen"),
        ("bake kitchen.py", "bake"),
        ("https://town.example:8000/mcp", "town-example"),
        ("mcp.json:village", "village"),
        ("mcp.json", "village"),
        ("@cursor/village", "village"),
        ("@village", "village"),
    ],
)
def test_entry_printed_with_absolute_paths(
    server: str, name: str, home: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    text = '{"mcpServers": {"village": {"command": "bake", "args": ["kitchen.py:server", "--hot"], "disabled": true}}}'
    (home / "project/mcp.json").write_text(text)
    (home / ".cursor").mkdir()
    (home / ".cursor/mcp.json").write_text(text)
    assert main(["config", server]) == Exit.DONE
    said = capsys.readouterr()
    ((got, entry),) = json.loads(said.out)["mcpServers"].items()
    assert got == name
    assert "command" not in entry or Path(entry["command"]).is_absolute()
    paths = [word for word in entry.get("args", []) if "kitchen" in word]
    assert all(path.startswith(f"{home}/project/kitchen.py") for path in paths)
    assert said.err == ""


def test_relay_stands_before_the_server(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["install", "cursor", "kitchen.py", "--relay", "--yes"]) == Exit.DONE
    assert "starts in an empty environment, and answers" in capsys.readouterr().err
    entry = json.loads((home / ".cursor/mcp.json").read_text())["mcpServers"]["kitchen"]
    serve = [sys.executable, "-m", "mcpio", "serve", f"{home}/project/kitchen.py"]
    assert [entry["command"], *entry["args"]] == [sys.executable, "-m", "mcpio", "relay", "--", *serve]


def test_config_names_the_file_it_belongs_to(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "bake", "--for", "zed"]) == Exit.DONE
    said = capsys.readouterr()
    assert "context_servers" in said.out
    assert said.err == f"for {home}/.config/zed/settings.json or {home}/project/.zed/settings.json\n"


def test_directories_of_this_machine_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "conf"))
    monkeypatch.chdir(tmp_path)
    assert Directories.here().path("{home} {project} {config}") == f"{tmp_path} {tmp_path} {tmp_path}/conf"
