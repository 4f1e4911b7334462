"""Programs that serve at a socket that the test opened: nobody has to guess a port, or when they are ready."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def serving(program: Path, *arguments: str) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Run a program with its arguments and the descriptor of the socket; give the URL of the site, and the process."""
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listening:
        descriptor, port = listening.fileno(), listening.getsockname()[1]
        command = [sys.executable, str(program), *arguments, str(descriptor)]
        process = subprocess.Popen(command, pass_fds=[descriptor], stderr=subprocess.PIPE)
    with process:
        try:
            yield f"http://127.0.0.1:{port}", process
        finally:
            process.kill()
