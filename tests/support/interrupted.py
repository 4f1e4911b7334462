"""Programs with a client that are ended from outside, or by a callback, in the middle of what they do."""

from __future__ import annotations

import contextlib
import inspect
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Self

import trio
from carriers import CARRIERS
from counting import PACKAGE

from mcpio import Client, Context, Server
from mcpio.revisions import Era
from mcpio.trio import (
    connect_http,
    connect_stdio,
    connect_tcp,
    connect_unix,
    connect_websocket,
    memory_client,
    open_http,
    open_stdio,
    open_tcp,
    open_unix,
    open_websocket,
)

__all__ = ["KINDS", "Interruption", "Open", "asking_server", "converse", "round_trip", "served"]

KINDS = ("memory", "stdio", "tcp", "unix", "http", "websocket")


CHILD = """
import json, sys

def say(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)

for line in sys.stdin:
    message = json.loads(line)
    id, method = message.get("id"), message.get("method")
    if method == "initialize":
        info = {"name": "child", "version": "1"}
        say(id=id, result={"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info})
    elif method == "server/discover":
        say(id=id, error={"code": -32601, "message": "Method not found"})
    elif method == "ping":
        say(id=id, result={})
    elif method == "tools/call":
        print("asked", file=sys.stderr, flush=True)
        say(method="notifications/progress", params={"progressToken": id, "progress": 1})
        say(id=-id, method="roots/list")
    elif "result" in message:
        say(id=-id, result={"content": []})
"""
"""A server that starts in no time, as its imports are few."""

Open = Callable[..., AbstractAsyncContextManager[Client]]
"""Takes options of the client."""


def asking_server() -> Server:
    """Return a server with a tool that reports progress, and asks its client for roots."""
    server = Server("asking", "1.0")

    @server.tool
    async def ask(ctx: Context) -> None:
        ctx.progress(1)
        await ctx.roots()

    return server


async def round_trip(client: Client) -> None:
    """Wait for the answer to a request that every server answers."""
    await (client.discover() if client.era is Era.STATELESS else client.ping())


async def converse(client: Client, on_progress: Callable[..., None] = lambda *_: None) -> None:
    """Do a little of everything."""
    await round_trip(client)
    with trio.CancelScope() as scope:
        scope.cancel()
        await client.call_tool("ask")
    await client.call_tool("ask", on_progress=on_progress)


@contextmanager
def served(kind: str, directory: Path) -> Iterator[tuple[Open, Open]]:
    """Serve in a thread, and give what opens a client for a block, by ``open_`` and by ``connect_``.

    In memory there is only the first. Over TCP and standard input and output the two speak the handshake era.
    """
    if kind == "memory":
        yield partial(memory_client, asking_server()), partial(memory_client, asking_server())
        return
    if kind == "stdio":
        command = [sys.executable, "-S", "-c", CHILD]
        yield (
            partial(open_stdio, command, close_grace=0.2),
            _connected(partial(connect_stdio, command, close_grace=0.2)),
        )
        return
    with _Site(kind, directory) as at:
        how: dict[str, tuple[Any, Any]] = {
            "tcp": (open_tcp, connect_tcp),
            "unix": (open_unix, connect_unix),
            "http": (open_http, connect_http),
            "websocket": (open_websocket, connect_websocket),
        }
        where = (at.host, at.port) if kind == "tcp" else (directory / "s",) if kind == "unix" else (at.url,)
        opens, connects = how[kind]
        era: dict[str, Any] = {"era": "handshake"} if kind == "tcp" else {}
        yield partial(opens, *where, **era), _connected(partial(connects, *where, **era))


def _connected(connect: Callable[..., Any]) -> Open:
    @asynccontextmanager
    async def block(**options: Any) -> AsyncIterator[Client]:
        async with trio.open_nursery() as nursery:
            client = await connect(nursery=nursery, **options)
            yield client
            await client.aclose()

    return block


class _Site:
    """A server in a thread of its own, which what happens to the main thread does not touch."""

    def __init__(self, kind: str, directory: Path) -> None:
        self._kind = kind
        self._directory = directory
        self._has_started = threading.Event()
        self._thread = threading.Thread(target=trio.run, args=(self._main,), daemon=True)

    def __enter__(self) -> Any:
        self._thread.start()
        assert self._has_started.wait(10)
        return self._at

    def __exit__(self, *_: object) -> None:
        self._token.run_sync_soon(self._scope.cancel)
        self._thread.join(10)

    async def _main(self) -> None:
        carrier = CARRIERS[self._kind]
        assert carrier is not None
        async with trio.open_nursery() as nursery:
            serve = partial(carrier.serve, asking_server(), **carrier.where(self._directory))
            self._at = await nursery.start(serve)
            self._token, self._scope = trio.lowlevel.current_trio_token(), nursery.cancel_scope
            self._has_started.set()


PAUSED = inspect.CO_COROUTINE | inspect.CO_GENERATOR
"""Functions that may begin in the middle."""


class Interruption:
    """Sends SIGINT to this process at the n-th call of a function of mcpio in this thread.

    Signals are acted on where functions begin, among other places; but not where a coroutine or a generator goes on, or
    is closed.
    """

    def __init__(self, at: int = 0) -> None:
        """``at`` 0 is for never, and to count."""
        self.calls = 0
        self.places: dict[tuple[CodeType | None, int, CodeType], int] = {}
        """The number of the first call of each function from each line."""
        self._at = at

    def __enter__(self) -> Self:
        sys.setprofile(self._profile)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _profile(self, frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(PACKAGE) and not code.co_flags & PAUSED:
            self.calls += 1
            caller = frame.f_back
            self.places.setdefault((caller and caller.f_code, caller.f_lineno if caller else 0, code), self.calls)
            if self.calls == self._at:
                sys.setprofile(None)
                signal.raise_signal(signal.SIGINT)


def be_interrupted(kind: str, directory: str, moments: int) -> None:
    """Be a program that a Ctrl-C ends, again and again, as soon after its client is there as the round says."""
    with served(kind, Path(directory)) as (opens, _):

        async def main(delay: float) -> None:
            async with opens(roots=()) as client:
                timer = threading.Timer(delay, os.kill, (os.getpid(), signal.SIGINT))
                timer.start()
                # Python drops an interrupt that comes while it collects garbage.
                with trio.move_on_after(2):
                    while True:
                        await converse(client)

        for moment in range(moments):
            with contextlib.suppress(KeyboardInterrupt):
                trio.run(main, moment * 0.0013)
            print(moment, flush=True)
