"""The memory of a connection of an HTTP server that the ledger does not count."""

from __future__ import annotations

import gc
import json
import socket
import ssl
import tracemalloc
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from certificates import serving_as, trusting
from eachloop import EachLoop, Here
from stateless import meta

from mcpio import Server

KIB = 1024
COUNT = 4
FLOOD = b"POST /mcp HTTP/1.1\r\nhost: localhost\r\nx: " + b"a" * 2000 * KIB

MOST = {("trio", False): 256, ("trio", True): 512, ("asyncio", False): 640, ("asyncio", True): 1536}
"""KiB of each connection, by the loop and whether it has TLS, as in docs/limits.md. OpenSSL's memory is not counted."""


@pytest.mark.long
@pytest.mark.parametrize("has_tls", [False, True], ids=["plain", "tls"])
def test_connection_of_a_client_that_pipelines_without_end_holds_what_the_docs_say(
    each_loop: EachLoop, tmp_path: Path, has_tls: bool
) -> None:
    server = Server("s", "1")
    secured: dict[str, Any] = {"ssl_context": serving_as("localhost")} if has_tls else {}
    clients: list[socket.socket] = []
    running: list[None] = []

    async def main(here: Here) -> None:
        @server.tool
        async def wait() -> None:
            running.append(None)
            await here.forever()

        async def flood(count: int) -> None:
            """Connect clients that make a call and send more until they are held up."""
            clients.clear()
            expected = len(running) + count
            for _ in range(count):
                client = socket.socket(socket.AF_UNIX)
                client.connect(str(tmp_path / "s"))
                if has_tls:
                    wrap = partial(trusting().wrap_socket, client, server_hostname="localhost")
                    client = await here.runtime.to_thread(wrap)
                client.sendall(call())
                client.setblocking(False)
                clients.append(client)
            while len(running) < expected:
                await here.sleep(0.01)
            idle = 0
            while idle < 10:
                idle += 1
                for client in clients:
                    try:
                        client.send(FLOOD)
                        idle = 0
                    except (BlockingIOError, ssl.SSLWantWriteError):
                        pass
                await here.sleep(0.005)

        async with here.listening("http", server, unix=tmp_path / "s", **secured) as (_, scope):
            await flood(1)
            first = clients[0]
            gc.collect()
            counted = server.ledger.total
            tracemalloc.start()
            try:
                await flood(COUNT)
                gc.collect()
                held = tracemalloc.get_traced_memory()[0]
            finally:
                tracemalloc.stop()
            held -= server.ledger.total - counted
            for client in (first, *clients):
                client.close()
            scope.cancel()
        assert 100 * KIB < held / COUNT <= MOST["trio" if here.is_trio else "asyncio", has_tls] * KIB

    each_loop.run(main)


def call() -> bytes:
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "wait", "_meta": meta()}}
    data = json.dumps(body).encode()
    fields = {
        "host": "localhost",
        "content-type": "application/json",
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": "2026-07-28",
        "mcp-method": "tools/call",
        "mcp-name": "wait",
        "content-length": str(len(data)),
    }
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return f"POST /mcp HTTP/1.1\r\n{head}\r\n".encode() + data
