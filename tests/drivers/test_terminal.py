from __future__ import annotations

import io
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from mcpio._drivers.login import LineReader, read_line


@contextmanager
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Put a terminal in the place of standard input, and give the file that types on it."""
    keyboard, device = os.openpty()
    with os.fdopen(device, "r") as stdin, os.fdopen(keyboard, "wb", buffering=0) as typing:
        monkeypatch.setattr(sys, "stdin", stdin)
        yield typing


def test_line_is_read_while_the_question_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    with terminal(monkeypatch) as typing:
        reader = LineReader()
        typing.write(b"one\ntwo\n")
        assert [reader.read(), reader.read()] == ["one\n", "two\n"]
        typing.write(b"\x04")
        assert reader.read() == ""
        reader.close()
        reader.close()
        assert reader.read() is None


def test_closed_reader_takes_no_line(monkeypatch: pytest.MonkeyPatch) -> None:
    with terminal(monkeypatch) as typing:
        reader, lines = LineReader(), list[str | None]()
        waiting = threading.Event()
        wait = reader._wait

        def waits() -> bool:
            waiting.set()
            return wait()

        monkeypatch.setattr(reader, "_wait", waits)
        thread = threading.Thread(target=lambda: lines.append(reader.read()))
        thread.start()
        assert waiting.wait(10)
        reader.close()
        thread.join(10)
        assert lines == [None]
        typing.write(b"mine\n")
        assert sys.stdin.readline() == "mine\n"


def test_question_that_is_cancelled_takes_no_line(monkeypatch: pytest.MonkeyPatch) -> None:
    with terminal(monkeypatch) as typing:

        async def main() -> str | None:
            threads: Any = partial(trio.to_thread.run_sync, abandon_on_cancel=True)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(read_line, threads)
                await trio.testing.wait_all_tasks_blocked(0.01)
                nursery.cancel_scope.cancel()
            typing.write(b"mine\n")
            return await read_line(threads)

        assert trio.run(main) == "mine\n"


@pytest.mark.parametrize("kind", ["file", "object"])
def test_input_that_is_no_terminal_is_read_at_once(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "input"
    path.write_text("line\n")
    with open(path) as file:
        monkeypatch.setattr(sys, "stdin", file if kind == "file" else io.StringIO("line\n"))
        reader = LineReader()
        assert [reader.read(), reader.read()] == ["line\n", ""]
        reader.close()
