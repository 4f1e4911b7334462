"""The memory of a connection of an HTTP server that the ledger does not count."""

from __future__ import annotations

import gc
import json
import socket
import tracemalloc
from pathlib import Path

import pytest
from eachloop import EachLoop, Here
from stateless import meta

from mcpio import Server

KIB = 1024
COUNT = 4
FLOOD = b"POST /mcp HTTP/1.1\r\nhost: localhost\r\nx: " + b"a" * 2000 * KIB


@pytest.mark.long
def test_connection_of_a_client_that_pipelines_without_end_holds_what_the_docs_say(
    each_loop: EachLoop, tmp_path: Path
) -> None:
    server = Server("s", "1")
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
                client.setblocking(False)
                client.sendall(call())
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
                    except BlockingIOError:
                        pass
                await here.sleep(0.005)

        async with here.listening("http", server, unix=tmp_path / "s") as (_, scope):
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
        assert 100 * KIB < held / COUNT <= (256 if here.is_trio else 640) * KIB

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
