"""A server over HTTP whose sessions outlive its process: its tool ends when a file is there.

It says its port on standard output.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import trio

from mcpio import Context, Server
from mcpio.stores import SqliteStore
from mcpio.trio import serve_http


async def main(folder: Path, port: int, unanswered: Any) -> None:
    server = Server("mine")

    @server.tool
    async def dig(ctx: Context) -> str:
        runs = folder / "runs"
        runs.touch()
        runs.write_text(runs.read_text() + "x")
        ctx.progress(len(runs.read_text()))
        while not (folder / "go").exists():  # noqa: ASYNC110 - the file comes from another process
            await trio.sleep(0.005)
        return f"run {len(runs.read_text())}"

    with SqliteStore(folder / "sessions.db") as store:
        async with trio.open_nursery() as nursery:
            listening = await nursery.start(lambda task_status: serving(server, port, store, unanswered, task_status))
            print(listening.port, flush=True)


async def serving(server: Server, port: int, store: SqliteStore, unanswered: Any, task_status: Any) -> None:
    await serve_http(
        server, port=port, store=store, unanswered=unanswered, handle_signals=True, task_status=task_status
    )


if __name__ == "__main__":
    trio.run(main, Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
