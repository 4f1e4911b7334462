"""Clients of a process that may open no more files. ``tests/systems/kills.py`` tries servers."""

from __future__ import annotations

import os
import re
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from eachloop import EachLoop, Here

from mcpio.errors import ConnectFailed

resource: Any = pytest.importorskip("resource", reason="files are counted on POSIX")


@contextmanager
def no_more_files() -> Iterator[None]:
    """Let this process open no file for the length of the block."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    first_unused = os.dup(0)
    os.close(first_unused)
    resource.setrlimit(resource.RLIMIT_NOFILE, (first_unused, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("kind", ["http", "websocket", "tcp", "unix", "stdio"])
def test_client_that_may_open_no_file_fails_to_connect_and_leaks_none(
    kind: str, each_loop: EachLoop, tmp_path: Path
) -> None:
    async def main(here: Here) -> None:
        async def fail() -> str:
            with pytest.raises(ConnectFailed) as failed:
                async with getattr(here.drivers, f"open_{kind}")(*address):
                    pytest.fail("it connected")
            return str(failed.value)

        await fail()  # now everything is loaded
        before = len(os.listdir("/dev/fd"))
        for _ in range(2):
            with no_more_files():
                # uvloop does not say why a process could not be started.
                assert re.search("oo many open files|Unknown error -1", await fail())
        assert len(os.listdir("/dev/fd")) == before

    with socket.socket() as on_port, socket.socket(socket.AF_UNIX) as on_path:
        on_port.bind(("127.0.0.1", 0))
        on_path.bind(str(tmp_path / "socket"))
        port = on_port.getsockname()[1]
        addresses: dict[str, tuple[Any, ...]] = {
            "http": (f"http://127.0.0.1:{port}/mcp",),
            "websocket": (f"ws://127.0.0.1:{port}/mcp",),
            "tcp": ("127.0.0.1", port),
            "unix": (tmp_path / "socket",),
            "stdio": ([sys.executable, "-c", ""],),
        }
        address = addresses[kind]
        each_loop.run(main)
