"""``mcpio serve`` finds the server that the command line means, or says why there is none."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from mcpio.cli import main
from mcpio.cli.exit_status import Exit, Failure
from mcpio.cli.serve import MODULE_NAME, load

SOURCE = """
from __future__ import annotations
import dataclasses
from mcpio import Server
print("imported")
server = Server("first")
other = Server("second")

@dataclasses.dataclass
class Box:
    width: int

@other.tool
def size(box: Box) -> int: return box.width
if __name__ == "__main__":
    raise SystemExit("served by itself")
"""


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the working directory, with a module in it; what gets imported is forgotten afterwards."""
    (tmp_path / "workshop.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in ("workshop", "broken", "needy", MODULE_NAME):
        monkeypatch.setitem(sys.modules, name, sys)
        monkeypatch.delitem(sys.modules, name)
    return tmp_path


@pytest.mark.parametrize(
    ("reference", "name"),
    [
        ("workshop", "first"),
        ("workshop:server", "first"),
        ("workshop:other", "second"),
        ("workshop.py", "first"),
        ("./workshop.py:other", "second"),
    ],
)
def test_server_loaded(desk: Path, reference: str, name: str) -> None:
    assert load(reference).info.name == name


def test_absolute_path_with_a_colon_loaded(desk: Path) -> None:
    folder = desk / "a:b"
    folder.mkdir()
    (folder / "workshop.py").write_text(SOURCE)
    assert load(str(folder / "workshop.py")).info.name == "first"
    assert load(f"{folder / 'workshop.py'}:other").info.name == "second"


def test_file_imports_its_neighbours(desk: Path) -> None:
    folder = desk / "sub"
    folder.mkdir()
    (folder / "helper_of_this_test.py").write_text("NAME = 'near'")
    (folder / "main.py").write_text(
        "from helper_of_this_test import NAME\nfrom mcpio import Server\nserver = Server(NAME)"
    )
    assert load("sub/main.py").info.name == "near"


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        ("nowhere", "there is no module 'nowhere'"),
        ("nowhere.server:server", "there is no module 'nowhere'"),
        ("nowhere.py", "there is no file 'nowhere.py'"),
        ("", "there is no module ''"),
        (":server", "there is no module ''"),
        ("./workshop", "there is no module './workshop'"),
        ("workshop:srver", "workshop has no 'srver'. Did you mean 'server'"),
        ("workshop:Box", "'Box' in workshop is a type, not an mcpio Server. It has the Server 'server' and 'other'."),
        ("workshop:Bax", "workshop has no 'Bax'. It has the Server 'server' and 'other'. Write workshop:server."),
        ("dataclasses:feld", "dataclasses has no 'feld'. Did you mean 'field' or 'fields'? It has no Server."),
    ],
)
def test_missing_server_explained(desk: Path, reference: str, said: str) -> None:
    with pytest.raises(Failure) as caught:
        load(reference)
    assert caught.value.message.startswith(said)
    assert caught.value.status is Exit.NOT_LOADED


@pytest.mark.parametrize("reference", ["broken", "broken.py"])
def test_failing_module_shows_its_part_of_the_traceback(desk: Path, reference: str) -> None:
    (desk / "broken.py").write_text("def f():\n    1 / 0\nf()\n")
    with pytest.raises(Failure) as caught:
        load(reference)
    lines = caught.value.message.splitlines()
    assert lines[0] == f"importing {reference} failed:"
    assert "broken.py" in lines[2]
    assert lines[-1] == "ZeroDivisionError: division by zero"
    assert "mcpio" not in caught.value.message


@pytest.mark.parametrize("reference", ["broken", "broken.py"])
def test_module_that_exits_is_refused(desk: Path, reference: str) -> None:
    (desk / "broken.py").write_text("raise SystemExit(0)")
    with pytest.raises(
        Failure, match=f"^importing {reference} ended the program: it raised SystemExit\\(0\\)$"
    ) as caught:
        load(reference)
    assert caught.value.status is Exit.NOT_LOADED


@pytest.mark.parametrize("raised", ["KeyboardInterrupt", "BaseExceptionGroup('', [KeyboardInterrupt()])"])
def test_interrupt_during_import_propagates(raised: str, desk: Path) -> None:
    (desk / "broken.py").write_text(f"raise {raised}")
    assert main(["serve", "broken"]) == 130


@pytest.mark.parametrize("reference", ["broken", "broken.py"])
def test_exception_group_shows_the_modules_part_of_the_traceback(desk: Path, reference: str) -> None:
    (desk / "broken.py").write_text("raise BaseExceptionGroup('two', [GeneratorExit('a'), ValueError('b')])\n")
    with pytest.raises(Failure) as caught:
        load(reference)
    assert caught.value.status is Exit.NOT_LOADED
    lines = caught.value.message.splitlines()
    assert lines[0] == f"importing {reference} failed:"
    assert "  | BaseExceptionGroup: two (2 sub-exceptions)" in lines
    assert "    | ValueError: b" in lines
    assert "mcpio" not in caught.value.message


UNGUARDED = """
from functools import partial
import trio
from mcpio import Server
from mcpio.trio import memory_client, serve_http, serve_stdio
server = Server("first")

async def main():
    async with trio.open_nursery() as nursery:
        await nursery.start(serve_http, server)

"""


@pytest.mark.parametrize("reference", ["broken", "broken.py"])
@pytest.mark.parametrize(
    "line", ["trio.run(serve_stdio, server)", "trio.run(partial(serve_http, server, port=0))", "trio.run(main)"]
)
def test_module_that_serves_on_import_is_refused(
    line: str, reference: str, desk: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (desk / "broken.py").write_text(UNGUARDED + line)
    assert main(["serve", reference, "--http", "0"]) is Exit.NOT_LOADED
    said = capfd.readouterr().err
    place = "broken.py" if reference == "broken.py" else desk / "broken.py"
    assert said == (
        f"mcpio: {reference} serves while it is imported, at line 12 of {place}:\n  {line}\n"
        "Move this line under if __name__ == '__main__'\n"
    )


def test_module_may_run_an_event_loop_on_import(desk: Path) -> None:
    (desk / "broken.py").write_text(UNGUARDED + "trio.run(trio.sleep, 0)")
    assert load("broken").info.name == "first"


def test_missing_import_inside_the_module_shows_a_traceback(desk: Path) -> None:
    (desk / "needy.py").write_text("import nowhere_at_all")
    with pytest.raises(Failure) as caught:
        load("needy")
    assert caught.value.message.splitlines()[-1] == "ModuleNotFoundError: No module named 'nowhere_at_all'"


def test_output_of_the_module_goes_to_standard_error(
    desk: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    served = []

    async def serve(server: object, **_: object) -> None:
        served.append(server)

    monkeypatch.setattr("mcpio.trio.serve_stdio", serve)
    assert main(["serve", "workshop", "--stdio"]) is Exit.DONE
    assert len(served) == 1
    assert capfd.readouterr() == ("", "imported\n")


def test_terminal_input_prints_a_hint(
    desk: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    async def serve(server: object, **_: object) -> None:
        return

    monkeypatch.setattr("mcpio.trio.serve_stdio", serve)
    monkeypatch.setattr(type(sys.stdin), "isatty", lambda _: True)
    assert main(["serve", "workshop"]) is Exit.DONE
    assert "mcpio: serving 'first' on standard input, which is a terminal\n" in capfd.readouterr().err


@pytest.mark.parametrize("words", [[], ["--loop", "asyncio"], ["--tcp", "0"]])
def test_server_with_scopes_is_refused_in_one_line(
    words: list[str], desk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "from mcpio import Server\nserver = Server('x', '1')\n@server.tool(scopes='a')\ndef x() -> str: ...\n"
    (desk / "scoped.py").write_text(text)
    assert main(["serve", "scoped.py", *words]) is Exit.NOT_LOADED
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("mcpio: mcpio serve cannot grant the scopes that scoped.py asks for")


def test_load_failure_fails_the_command(desk: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "nowhere"]) is Exit.NOT_LOADED
    assert capfd.readouterr() == ("", "mcpio: there is no module 'nowhere'\n")


@pytest.mark.long
@pytest.mark.parametrize(("options", "expected"), [([], ""), (["--log-level", "info"], " INFO mine: hello\n")])
def test_log_level_of_all_loggers_is_an_option(tmp_path: Path, options: list[str], expected: str) -> None:
    file = tmp_path / "logging_server.py"
    file.write_text(
        'import logging\nfrom mcpio import Server\nserver = Server("x")\nlogging.getLogger("mine").info("hello")\n'
    )
    command = [sys.executable, "-m", "mcpio", "serve", str(file), *options]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True)
    assert done.stderr[23:] == expected
    assert done.stdout == ""
