"""A server over HTTP that is killed in the middle of a stream: its client goes on with the next one (P4, P12)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trio
from runners import run_by

from mcpio import RequestError
from mcpio.http.client import HttpClientOptions
from mcpio.trio import open_http

SERVER = Path(__file__).with_name("streaming_server.py")


class Process:
    """A server's process."""

    def __init__(self, folder: Path, port: int, unanswered: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, SERVER, folder, str(port), unanswered], stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())

    def end(self, how: signal.Signals) -> None:
        self._process.send_signal(how)
        self._process.wait(20)
        assert self._process.stdout is not None
        self._process.stdout.close()


@pytest.fixture
def start() -> Iterator[Callable[[Path, int, str], Process]]:
    """Start servers, and leave none behind."""
    started: list[Process] = []

    def begin(folder: Path, port: int, unanswered: str) -> Process:
        started.append(Process(folder, port, unanswered))
        return started[-1]

    yield begin
    for each in started:
        each.end(signal.SIGKILL)


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such signals")
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM], ids=["killed", "terminated"])
@pytest.mark.parametrize("unanswered", ["again", "fail"])
@run_by(trio.run)
async def test_client_continues_with_the_next_process(
    start: Callable[[Path, int, str], Process], tmp_path: Path, unanswered: str, how: signal.Signals
) -> None:
    first = await trio.to_thread.run_sync(start, tmp_path, 0, unanswered)
    under_way = trio.Event()

    async def change_servers() -> None:
        await under_way.wait()
        await trio.to_thread.run_sync(first.end, how)
        await trio.to_thread.run_sync(start, tmp_path, first.port, unanswered)
        (tmp_path / "go").touch()

    options = HttpClientOptions(reconnect_after=0.2, reconnect_tries=30, reconnect_at_most=0.5)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(change_servers)
        async with open_http(f"http://127.0.0.1:{first.port}/mcp", http=options, era="handshake") as client:
            outcome = ""
            try:
                result = await client.call_tool("dig", on_progress=lambda *_: under_way.set(), timeout=40)
                outcome = result.text
            except RequestError as error:
                outcome = f"{error.code} {error.data}"
            assert outcome == ("run 2" if unanswered == "again" else "-32603 {'reason': 'interrupted'}")
            # The session goes on.
            assert (await client.call_tool("dig")).text == ("run 3" if unanswered == "again" else "run 2")
