"""A task that outlives its server: the server keeps it in a file, and takes it up again.

``long_task.py FOLDER`` is the server. Alone, it is a client that kills it in the middle.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from pathlib import Path

import trio

from mcpio import CallToolRequest, Context, Server
from mcpio.app import TaskOptions
from mcpio.stores import SqliteStore
from mcpio.trio import open_stdio, serve_stdio


async def serve(folder: Path) -> None:
    with SqliteStore(folder / "tasks.db") as store:
        server = Server("printer", "1.0", tasks=TaskOptions(store=store))

        @server.tool(name="print", task_support="required", resume=True)
        async def print_pages(pages: int, ctx: Context) -> str:
            """Print pages, one after the other."""
            task = ctx.task
            assert task is not None  # it is required
            paper = folder / "paper.txt"
            printed = len(paper.read_text()) if task.is_resumed else 0
            for page in range(printed, pages):
                await trio.sleep(0.1)
                paper.write_text("#" * (page + 1))
                task.say(f"{page + 1} printed")
            return f"{pages} pages{', taken up again' if task.is_resumed else ''}"

        await serve_stdio(server)


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, folder]
        async with open_stdio(command) as client:
            task = await client.start_task(CallToolRequest("print", {"pages": 10}))
            async for state in task:
                if state.status_message is not None:
                    print(f"killed while {state.status}")
                    break
            os.kill(client.child.pid, signal.SIGKILL)

        async with open_stdio(command) as client:
            result = await client.task(task.id).result()
            print(result.text)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        trio.run(serve, Path(sys.argv[1]))
    else:
        trio.run(main)
