"""The reference server of the protocol's makers, ``server-everything``, and what our client hears of it."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any, Protocol, Unpack

import trio

from mcpio import CallToolResult, Client
from mcpio.app import ClientOptions
from mcpio.trio import open_http, open_stdio
from mcpio.types import LoggingMessageNotification

MODES = {"stdio": "", "streamableHttp": "/mcp", "sse": "/sse"}
"""The ways in which it serves, and the paths that it serves at."""

PLAIN_TOOLS = {
    "echo",
    "get-annotated-message",
    "get-env",
    "get-resource-links",
    "get-resource-reference",
    "get-structured-content",
    "get-sum",
    "get-tiny-image",
    "gzip-file-as-resource",
    "simulate-research-query",
    "toggle-simulated-logging",
    "toggle-subscriber-updates",
    "trigger-long-running-operation",
}
"""What it offers to every client."""

ASKING_TOOLS = {
    "get-roots-list",
    "trigger-elicitation-request",
    "trigger-elicitation-request-async",
    "trigger-sampling-request",
    "trigger-sampling-request-async",
    "trigger-url-elicitation",
}
"""What it offers to a client that can be asked for all there is."""

START = 20.0
"""Seconds that it may take to listen."""


class Heard:
    """What the server told."""

    def __init__(self) -> None:
        self.logs: list[LoggingMessageNotification] = []
        self.told: list[Any] = []
        self._news = trio.Event()

    def log(self, message: LoggingMessageNotification) -> None:
        self.logs.append(message)
        self._news.set()

    def tell(self, notification: Any) -> None:
        self.told.append(notification)
        self._news.set()

    async def until(self, is_there: Callable[[], bool]) -> None:
        """Wait until something is true, looking whenever there is news."""
        while not is_there():
            self._news = trio.Event()
            await self._news.wait()


class Talk(Protocol):
    """Runs a conversation with the server."""

    def __call__(
        self, conversation: Callable[[Client, Heard], Awaitable[None]], **options: Unpack[ClientOptions]
    ) -> None: ...


def text_of(result: CallToolResult) -> str:
    """Return the text of a result that is no failure."""
    assert not result.is_error, result.text
    return result.text


async def report_of(client: Client, tool: str, arguments: dict[str, Any] | None = None) -> str:
    """Call a tool that does not fail, and return its text."""
    return text_of(await client.call_tool(tool, arguments))


class Everything:
    """The server in all its ways to serve: a process for each client of stdio, one for all clients over HTTP."""

    def __init__(self, directory: Path) -> None:
        node = shutil.which("node")
        assert node is not None, "the peers need Node"
        package = directory / "node_modules" / "@modelcontextprotocol" / "server-everything"
        self._command = [node, str(package / "dist" / "index.js")]
        self._ports: dict[str, int] = {}
        self._stack = ExitStack()

    def close(self) -> None:
        """End the processes that serve HTTP."""
        self._stack.close()

    def open(self, mode: str, **options: Unpack[ClientOptions]) -> AbstractAsyncContextManager[Client]:
        """Give a client of it."""
        if mode == "stdio":
            return open_stdio(self._command, **options)
        if mode not in self._ports:
            self._ports[mode] = self._stack.enter_context(serving([*self._command, mode]))
        return open_http(f"http://127.0.0.1:{self._ports[mode]}{MODES[mode]}", **options)


@contextmanager
def serving(command: list[str]) -> Iterator[int]:
    """Run a server on a free port, and give the port when it listens."""
    with socket.create_server(("127.0.0.1", 0)) as found:
        port: int = found.getsockname()[1]
    environment: Mapping[str, str] = {**os.environ, "PORT": str(port)}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until_it_listens(port, process)
        yield port
    finally:
        process.terminate()
        process.wait()


def wait_until_it_listens(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            assert process.poll() is None, "the server has ended"
            assert time.monotonic() < deadline, f"the server does not listen after {START:g} s"
            time.sleep(0.02)  # there is nothing to wait for: it is another program's process
        else:
            return
