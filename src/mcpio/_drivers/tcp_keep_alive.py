"""TCP keep-alive: how a driver notices a peer whose machine vanished."""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import Any, Final

__all__ = ["TCP_KEEP_ALIVE", "set_tcp_keep_alive"]

TCP_KEEP_ALIVE: Final = 60.0
"""Seconds of silence before the first TCP keep-alive probe, by default."""

MOST: Final = 32767
"""The longest time in seconds that every system accepts."""

INTERVAL: Final = 15.0
"""Seconds between two keep-alive probes; after four without an answer, the connection is lost."""


def set_tcp_keep_alive(connected: Any, seconds: float) -> None:
    """Enable TCP keep-alive on a socket, after that many seconds of silence. Does nothing to a Unix socket."""
    if connected.family not in (socket.AF_INET, socket.AF_INET6):
        return
    times = {"TCP_KEEPIDLE": seconds, "TCP_KEEPALIVE": seconds, "TCP_KEEPINTVL": INTERVAL, "TCP_KEEPCNT": 4}
    with suppress(OSError):  # The peer is gone already.
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in times.items():
            if hasattr(socket, name):  # Which options exist depends on the system.
                connected.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), int(min(max(1, value), MOST)))
