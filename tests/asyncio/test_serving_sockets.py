"""``serve_tcp`` and ``serve_unix`` on asyncio: the future that tells where they listen, and virtual time."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from asynciokitted import running
from carriers import added, make_server
from runners import run_by
from streams import each_loop, run, run_in_real_time

from mcpio import Server
from mcpio.asyncio import open_unix, serve_tcp, serve_unix

__all__ = ["each_loop"]

pytestmark = pytest.mark.usefixtures("each_loop")


@asynccontextmanager
async def broken(server: Server) -> AsyncIterator[None]:
    if not server.sessions:
        raise KeyError("lifespan")
    yield


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        ("taken port", OSError),
        ("file in the way", FileExistsError),
        ("unknown option", TypeError),
        ("lifespan", KeyError),
    ],
)
def test_future_of_a_server_that_cannot_begin_is_cancelled(fault: str, error: type[Exception], tmp_path: Path) -> None:
    path = tmp_path / "s"
    wrong: Any = {"max_connection": 1}

    async def main() -> None:
        started = asyncio.get_running_loop().create_future()
        with socket.create_server(("127.0.0.1", 0)) as taken:
            if fault == "file in the way":
                path.write_text("no socket")
            serve = {
                "taken port": partial(serve_tcp, make_server(), taken.getsockname()[1]),
                "file in the way": partial(serve_unix, make_server(), path),
                "unknown option": partial(serve_tcp, make_server(), **wrong),
                "lifespan": partial(serve_unix, Server("s", lifespan=broken), path),
            }[fault]
            with pytest.raises(error):
                await serve(started=started)
        assert started.cancelled()

    run_in_real_time(main)
    assert [each.read_text() for each in tmp_path.iterdir()] == ["no socket"] * (fault == "file in the way")


@run_by(run)
async def test_client_with_a_first_message_stays_connected(tmp_path: Path) -> None:
    serve = partial(serve_unix, make_server(), tmp_path / "s", first_message_timeout=1)
    async with running(serve), open_unix(tmp_path / "s") as client:
        await asyncio.sleep(5)
        assert await added(client, 1, 1) == 2
