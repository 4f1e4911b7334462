"""A Redis server for a test, on a port of this machine, with nothing on disk."""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
from collections.abc import Iterator

import pytest


@contextlib.contextmanager
def redis_server(port: int = 0) -> Iterator[str]:
    """Run a server, on a free port unless one is given, and give its URL."""
    program = shutil.which("redis-server")
    assert program is not None, "there is no Redis: Debian's package redis-server has it"
    with socket.create_server(("127.0.0.1", port)) as free:
        port = free.getsockname()[1]
    command = [program, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                if "Ready to accept connections" in line:
                    break
            else:
                pytest.fail(f"{program} did not start on port {port}")
            yield f"redis://127.0.0.1:{port}"
        finally:
            process.terminate()
