"""What a proxy has started is ended: with its attempt, and with its process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from eachloop import EachLoop, Here

from mcpio import Client, Server


class Kitchens:
    """Opens a server that is another one each time. The next one stalls when it is asked for ``stalls``."""

    def __init__(self, here: Here) -> None:
        self._here = here
        self.clients: list[Client] = []
        self.stalls = ""
        self.stalled = here.event()
        self._replace = here.event()

    async def watch(self) -> None:
        await self._replace.wait()
        self._replace = self._here.event()

    async def replace(self) -> None:
        """Have the server replaced, as far as no time need pass."""
        self._replace.set()
        await self._here.settle()

    @asynccontextmanager
    async def __call__(self, **options: Any) -> AsyncIterator[Client]:
        server, number = Server("kitchen", "1"), len(self.clients)
        stalls = self.stalls

        @server.middleware
        async def stall(ctx: Any, request: Any, call_next: Any) -> Any:
            if ctx.method == stalls:
                self.stalled.set()
                await self._here.forever()
            return await call_next(request)

        @server.tool
        def which() -> str:
            return str(number)

        @server.resource("bench://notes")
        def notes() -> str:
            return ""

        async with self._here.drivers.memory_client(server, **options) as client:
            self.clients.append(client)
            yield client

    @property
    def alive(self) -> list[int]:
        return [number for number, client in enumerate(self.clients) if not client.connection.closed]


async def which(client: Client) -> str:
    return (await client.call_tool("which")).text


@pytest.mark.parametrize("method", ["logging/setLevel", "resources/subscribe"])
def test_replacement_that_stalls_after_its_handshake_is_ended(each_virtual_loop: EachLoop, method: str) -> None:
    async def main(here: Here) -> None:
        kitchens = Kitchens(here)
        server = here.drivers.proxy(kitchens, watch=kitchens.watch)
        async with here.drivers.memory_client(server) as client:
            await client.set_log_level("error")
            await client.subscribe_resource("bench://notes")
            old = await which(client)
            kitchens.stalls = method
            for _ in range(3):
                await kitchens.replace()
                await kitchens.stalled.wait()
                await here.sleep(16)
                await here.settle()
                assert [str(each) for each in kitchens.alive] == [old]
                assert await which(client) == old
            kitchens.stalls = ""
            await kitchens.replace()
            assert await which(client) != old
            assert len(kitchens.alive) == 1

    each_virtual_loop.run(main, virtual=True)


@pytest.mark.parametrize("method", ["logging/setLevel", "resources/subscribe"])
def test_cancelled_request_ends_the_server_that_it_opened(each_virtual_loop: EachLoop, method: str) -> None:
    async def main(here: Here) -> None:
        kitchens = Kitchens(here)
        async with here.drivers.memory_client(here.drivers.proxy(kitchens)) as client:
            await client.set_log_level("error")
            await client.subscribe_resource("bench://notes")
            await kitchens.clients[-1].aclose()
            kitchens.stalls = method
            with here.scope(5):
                await which(client)
            await here.settle()
            assert kitchens.alive == []
            kitchens.stalls = ""
            await which(client)
            assert len(kitchens.alive) == 1

    each_virtual_loop.run(main, virtual=True)


CHILD = """
import os, signal, sys, time
if "deaf" in sys.argv:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
from mcpio import Server
from mcpio.trio import serve_stdio
import trio

server = Server("child", "1")

@server.tool
def hang() -> None:
    print(os.getpid(), flush=True, file=sys.stderr)
    while True:
        time.sleep(1)

trio.run(serve_stdio, server)
"""

PROXY = """
import sys
from functools import partial
from mcpio.{loop} import open_stdio, proxy, serve_stdio

child = [sys.executable, *sys.argv[1:]]
server = proxy(partial(open_stdio, child, close_grace=0.3, terminate_grace=0.3))
{run}
"""

RUNS = {
    "trio": "import trio; trio.run(serve_stdio, server)",
    "asyncio": "import asyncio; asyncio.run(serve_stdio(server))",
}


@pytest.mark.skipif(sys.platform == "win32", reason="it has no such signals")
@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("child", ["hanging", "deaf"])
@pytest.mark.parametrize("loop", ["trio", "asyncio"])
def test_signal_ends_a_proxy_together_with_a_child_that_hangs(
    tmp_path: Path, loop: str, child: str, signum: signal.Signals
) -> None:
    (tmp_path / "child.py").write_text(CHILD)
    program = PROXY.format(loop=loop, run=RUNS[loop])
    command = [sys.executable, "-c", program, str(tmp_path / "child.py"), child]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **pipes) as process:  # type: ignore[call-overload]  # all are the same
        try:
            for message in HELLO:
                process.stdin.write(f"{message}\n")
            process.stdin.flush()
            pid = int(process.stderr.readline())
            process.send_signal(signum)
            assert process.wait(10) == 128 + signum
        finally:
            process.kill()
    assert is_over(pid)


def request(method: str, id: int | None = None, **params: Any) -> str:
    numbered = {} if id is None else {"id": id}
    return json.dumps({"jsonrpc": "2.0", **numbered, "method": method, "params": params})


HELLO = (
    request("initialize", 0, protocolVersion="2025-11-25", capabilities={}, clientInfo={"name": "c", "version": "1"}),
    request("notifications/initialized"),
    request("tools/call", 1, name="hang", arguments={}),
)


def is_over(pid: int) -> bool:
    """Whether a process ended, or does so within a second: what is killed is gone only when the kernel is done."""
    for _ in range(100):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        if Path(f"/proc/{pid}/stat").exists() and Path(f"/proc/{pid}/stat").read_text().split(") ")[1][0] == "Z":
            return True
        time.sleep(0.01)
    return False
