"""``mcpio serve --reload``: real processes that are replaced behind a session that stays."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from mcpio import Client
from mcpio.cli import main, reloading
from mcpio.cli.exit_status import Exit
from mcpio.cli.reloading import Sources
from mcpio.errors import RequestError
from mcpio.trio import open_stdio
from mcpio.types import ToolListChangedNotification

SERVER = """
import os, sys
import trio
from mcpio import Server

server = Server("kitchen", "1")

@server.tool
def {tool}() -> str:
    return "{text}"

@server.tool
async def wait() -> str:
    await trio.sleep_forever()

@server.tool
def die() -> str:
    os._exit(3)
"""


def _run(work: Any) -> None:
    trio.run(work, clock=trio.testing.MockClock(autojump_threshold=0))


def test_changes_noticed_once_they_are_complete(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for folder in ("pkg", ".git", "__pycache__", "env"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.py").write_text("")
    (tmp_path / "env/pyvenv.cfg").write_text("")
    (tmp_path / "notes.txt").write_text("")
    sources = Sources(str(tmp_path))

    async def waits(expected: float) -> None:
        started = trio.current_time()
        await sources.changed()
        assert trio.current_time() - started == pytest.approx(expected)

    async def main() -> None:
        with trio.move_on_after(60) as scope:
            for other in (".git/a.py", "__pycache__/a.py", "env/a.py", "notes.txt"):
                (tmp_path / other).write_text("changed")
            await sources.changed()
        assert scope.cancelled_caught
        (tmp_path / "pkg/a.py").write_text("changed")
        await waits(1.0)
        (tmp_path / "new.py").symlink_to("nowhere")  # cannot be looked at
        (tmp_path / "pkg/a.py").unlink()
        await waits(1.0)
        async with trio.open_nursery() as nursery:
            (tmp_path / "b.py").write_text("1")
            nursery.start_soon(waits, 2.0)
            await trio.sleep(0.75)
            (tmp_path / "b.py").write_text("1 and 2")
            await trio.sleep(0.5)
            (tmp_path / "c.py").write_text("")

    _run(main)
    assert capsys.readouterr().err == "".join(
        f"mcpio: {name} changed: starting the server again\n" for name in ("pkg/a.py", "pkg/a.py", "b.py")
    )


def test_number_of_files_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reloading, "MAX_FILES", 3)
    for number in range(5):
        (tmp_path / f"{number}.py").write_text("")
    assert len(Sources(str(tmp_path))._seen) == 3


def test_number_of_folders_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reloading, "MAX_FOLDERS", 3)
    for number in range(5):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "a.py").write_text("")
    assert len(Sources(str(tmp_path))._seen) == 2  # the first folder is their parent


def test_session_kept_while_the_process_is_replaced(tmp_path: Path) -> None:
    file = tmp_path / "kitchen.py"

    def write(tool: str, text: str) -> None:
        file.write_text(SERVER.format(tool=tool, text=text))
        # Whatever the resolution of the file system's times is, this is another.
        os.utime(file, ns=(time.time_ns(), file.stat().st_mtime_ns + 1_000_000_000))

    async def tools(client: Client) -> list[str]:
        return [tool.name async for tool in client.tools()]

    async def main() -> None:
        changed: list[trio.Event] = [trio.Event()]
        lines: list[str] = []
        kept: list[trio.Event] = [trio.Event()]

        def said(line: str) -> None:
            lines.append(line)
            if "the old one stays" in line:
                kept[0].set()

        async def until_kept() -> None:
            await kept[0].wait()
            kept[0] = trio.Event()

        def notified(notification: Any) -> None:
            if isinstance(notification, ToolListChangedNotification):
                changed[0].set()

        async def until_changed() -> None:
            await changed[0].wait()
            changed[0] = trio.Event()

        hurried = "from mcpio.cli import main, reloading; reloading.INTERVAL = 0.02; main()"
        command = [sys.executable, "-c", hurried, "serve", "kitchen.py:server", "--reload"]
        async with open_stdio(command, cwd=tmp_path, on_notification=notified, stderr=said) as client:
            assert client.server.info.name == "kitchen"
            assert await tools(client) == ["bake", "wait", "die"]
            async with trio.open_nursery() as nursery:

                async def doomed() -> None:
                    with pytest.raises(RequestError, match="replaced by a newer one"):
                        await client.call_tool("wait")

                nursery.start_soon(doomed)
                write("fry", "fried")
                await until_changed()
            assert await tools(client) == ["fry", "wait", "die"]
            # A file with a mistake: the old server stays.
            file.write_text("oh no")
            await until_kept()
            assert any("SyntaxError" in line for line in lines)
            assert (await client.call_tool("fry")).text == "fried"
            # A server that died is started again; the file can be read again by then.
            write("boil", "boiled")
            await until_changed()
            with pytest.raises(RequestError, match="the server behind this proxy is gone"):
                await client.call_tool("die")
            assert (await client.call_tool("boil")).text == "boiled"
            # One that speaks garbage
            file.write_text("print('garbage'); import os; os.write(1, b'garbage\\n'); os._exit(0)")
            await until_kept()
            assert (await client.call_tool("boil")).text == "boiled"
        assert any(line == "mcpio: kitchen.py changed: starting the server again" for line in lines)

    (tmp_path / "kitchen.py").write_text(SERVER.format(tool="bake", text="baked"))
    trio.run(main)


def test_file_that_cannot_be_served_fails_at_once(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "kitchen.py").write_text("x = 1")
    assert main(["serve", str(tmp_path / "kitchen.py"), "--reload"]) == Exit.NOT_LOADED
    said = capfd.readouterr().err
    assert "has no 'server'. It has no Server." in said
    assert "mcpio: --reload: the handshake failed" in said
