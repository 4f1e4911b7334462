"""A message broker for MQTT, Debian's ``mosquitto``, on a port of this machine, for as long as a test needs it."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

CONFIGURATION = """
listener {port} 127.0.0.1
allow_anonymous true
persistence false
set_tcp_nodelay true
log_type information
log_dest stderr
"""


@contextlib.contextmanager
def running_broker(program: str) -> Iterator[int]:
    """Run a broker for a block; give its port."""
    with tempfile.TemporaryDirectory() as directory, contextlib.ExitStack() as stack:
        for _ in range(5):  # Somebody else may take the port that was free.
            with socket.create_server(("127.0.0.1", 0)) as found:
                port: int = found.getsockname()[1]
            place = Path(directory, "mosquitto.conf")
            place.write_text(CONFIGURATION.format(port=port), encoding="utf-8")
            process = stack.enter_context(subprocess.Popen([program, "-c", str(place)], stderr=subprocess.PIPE))
            stack.callback(process.kill)
            assert process.stderr is not None
            if any(b"running" in line for line in process.stderr):
                # Nobody reads what else it says, which is little.
                yield port
                return
        raise RuntimeError("the broker did not start")
