"""A server over standard input and output whose tasks outlive its process: its tools end when a file is there."""

from __future__ import annotations

import sys
from pathlib import Path

import trio

from mcpio import Context, Server
from mcpio.app import TaskOptions
from mcpio.engine.options import Options
from mcpio.revisions import REVISIONS
from mcpio.stores import SqliteStore
from mcpio.trio import serve_stdio


async def main(folder: Path) -> None:
    with SqliteStore(folder / "tasks.db") as store:
        options = Options(revisions=REVISIONS)
        server = Server("mine", options=options, tasks=TaskOptions(store=store, poll_interval=0.01, task_after=0.0))

        async def work(ctx: Context, name: str) -> str:
            assert ctx.task is not None
            ctx.task.say("again" if ctx.task.is_resumed else "at work")
            while not (folder / name).exists():  # noqa: ASYNC110 - the file comes from another process
                await trio.sleep(0.005)
            return f"{name} {'again' if ctx.task.is_resumed else 'at once'}"

        server.tool(work, name="dig", task_support="optional")
        server.tool(work, name="drill", task_support="optional", resume=True)
        await serve_stdio(server)


if __name__ == "__main__":
    trio.run(main, Path(sys.argv[1]))
