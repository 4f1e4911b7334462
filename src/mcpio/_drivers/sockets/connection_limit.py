"""How many connections a server may have at once."""

from __future__ import annotations

from typing import Final

from mcpio._checks import required
from mcpio._drivers import report

__all__ = ["MAX_CONNECTIONS", "capped_connections", "max_open_files"]

MAX_CONNECTIONS: Final = 768
"""The default number of connections, which the usual limit of 1024 open files allows."""

RESERVED_FILES: Final = 0.25
"""The share of the files that the process may open which is left to everything but connections."""


def capped_connections(connections: int) -> int:
    """Return ``connections``, lowered where the process may not open that many files, which is logged.

    Raises TypeError if it is not an int, and ValueError if it is negative.
    """
    if required("max_connections", connections, int) < 0:
        raise ValueError(f"max_connections= must be 0 or more, not {connections}")
    most = max_open_files()
    allowed = connections if most is None else max(1, int(most * (1 - RESERVED_FILES)))
    if connections <= allowed:
        return connections
    why = f"the process may open {most} files (ulimit -n)"
    report(f"max_connections is {allowed} instead of {connections}: {why}", None)
    return allowed


def max_open_files() -> int | None:
    """Return how many files this process may have open at once; ``None`` for no limit, as on Windows."""
    try:
        import resource
    except ModuleNotFoundError:
        return None
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else soft
