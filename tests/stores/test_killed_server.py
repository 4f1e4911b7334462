"""A server that is killed in the middle of its tasks: the next one knows all of them (TASK-33)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

SERVER = Path(__file__).with_name("digging_server.py")
HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}


@pytest.fixture
def start() -> Iterator[Callable[[Path], Conversation]]:
    """Start servers, and leave none behind."""
    started: list[Conversation] = []

    def begin(folder: Path) -> Conversation:
        started.append(Conversation(folder))
        return started[-1]

    yield begin
    for each in started:
        each.end(signal.SIGKILL)


class Conversation:
    """A server's process, and a client's side by hand."""

    def __init__(self, folder: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, SERVER, folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        self._next = 0
        capabilities = self.ask("initialize", **HELLO)["capabilities"]
        assert capabilities["tasks"]["list"] == {}
        self._write(method="notifications/initialized")

    def _write(self, **message: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        self._process.stdin.flush()

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """Ask, and return the result or the error."""
        assert self._process.stdout is not None
        self._next += 1
        self._write(id=self._next, method=method, params=params)
        for line in self._process.stdout:
            message = json.loads(line)
            if message.get("id") == self._next:
                found: dict[str, Any] = message.get("result") or message["error"]
                return found
        raise AssertionError(self._process.communicate()[1].decode())

    def begin(self, tool: str, name: str) -> str:
        """Call a tool as a task, and return the id."""
        found = self.ask("tools/call", name=tool, arguments={"name": name}, task={"ttl": 600_000})
        id: str = found["task"]["taskId"]
        return id

    def until(self, id: str, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Poll until a task is as it should be."""
        while not wanted(task := self.ask("tasks/get", taskId=id)):
            pass
        return task

    def end(self, how: signal.Signals | None) -> int:
        """End the process, ``None`` by closing its input, and return its exit status."""
        assert self._process.stdin is not None
        if how is not None:
            self._process.send_signal(how)
        self._process.stdin.close()
        code = self._process.wait(20)
        for stream in (self._process.stdout, self._process.stderr):
            assert stream is not None
            stream.close()
        return code


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such signals")
@pytest.mark.req("TASK-09", "TASK-14", "TASK-21")
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, None], ids=["killed", "terminated", "left"])
def test_tasks_survive_a_killed_process(
    start: Callable[[Path], Conversation], tmp_path: Path, how: signal.Signals | None
) -> None:
    first = start(tmp_path)
    (tmp_path / "done").touch()
    done, cut, resumed = first.begin("dig", "done"), first.begin("dig", "cut"), first.begin("drill", "resumed")
    stopped = first.begin("drill", "stopped")
    first.until(done, lambda task: task["status"] == "completed")
    first.until(cut, lambda task: task.get("statusMessage") == "at work")
    assert first.ask("tasks/cancel", taskId=stopped)["status"] == "cancelled"
    assert first.end(how) == {None: 0, signal.SIGKILL: -9, signal.SIGTERM: 143}[how]

    second = start(tmp_path)
    tasks = {task["taskId"]: task["status"] for task in second.ask("tasks/list")["tasks"]}
    assert list(tasks) == [done, cut, resumed, stopped]
    assert tasks[done] == "completed"
    assert second.ask("tasks/result", taskId=done)["content"] == [{"type": "text", "text": "done at once"}]
    failed = second.until(cut, lambda task: task["status"] == "failed")
    assert failed["statusMessage"] in ("The server was restarted before the task was over", ENDED)
    second.until(resumed, lambda task: task.get("statusMessage") == "again")
    (tmp_path / "resumed").touch()
    assert second.ask("tasks/result", taskId=resumed)["content"] == [{"type": "text", "text": "resumed again"}]
    assert second.ask("tasks/get", taskId=stopped)["status"] == "cancelled"
    assert second.end(None) == 0


META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}},
}


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such signals")
@pytest.mark.req("XTASK-05", "XTASK-14")
def test_stateless_client_finds_its_tasks_after_a_kill(start: Callable[[Path], Conversation], tmp_path: Path) -> None:
    first = start(tmp_path)

    def begin(server: Conversation, tool: str, name: str) -> str:
        created = server.ask("tools/call", name=tool, arguments={"name": name}, _meta=META)
        assert created["resultType"] == "task"
        id: str = created["taskId"]
        return id

    def state(server: Conversation, id: str, unlike: str) -> dict[str, Any]:
        while (found := server.ask("tasks/get", taskId=id, _meta=META))["status"] == unlike:
            pass
        return found

    done, cut, resumed = begin(first, "dig", "done"), begin(first, "dig", "cut"), begin(first, "drill", "resumed")
    (tmp_path / "done").touch()
    assert state(first, done, "working")["status"] == "completed"
    assert first.end(signal.SIGKILL) == -9

    second = start(tmp_path)
    assert state(second, done, "working")["result"]["content"] == [{"type": "text", "text": "done at once"}]
    failed = state(second, cut, "working")
    assert (failed["status"], failed["error"]["code"]) == ("failed", -32603)
    assert failed["statusMessage"] == "The server was restarted before the task was over"
    (tmp_path / "resumed").touch()
    assert state(second, resumed, "working")["result"]["content"] == [{"type": "text", "text": "resumed again"}]
    assert second.end(None) == 0


ENDED = "What the task ran in has ended"
"""What a task says that failed in a process which could still say so."""
