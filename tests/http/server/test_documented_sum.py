"""The most memory that the defaults allow is what docs/limits.md says."""

from __future__ import annotations

from pathlib import Path

from mcpio._drivers.socket_server import MAX_CONNECTIONS
from mcpio.engine.limits import Limits

ROOT = Path(__file__).parents[3]
MIB = 1024 * 1024
CONNECTION = 256 * 1024
"""The most bytes in the buffers of a connection, on Trio without TLS."""


def test_maximum_memory_with_the_defaults_is_documented() -> None:
    limits = Limits()
    parts = (limits.total_bytes, limits.peer_bytes, MAX_CONNECTIONS * CONNECTION)
    total, peer, buffers = (size // MIB for size in parts)
    said = " ".join((ROOT / "docs/limits.md").read_text().split())
    assert (
        f"at most {sum(parts) // MIB:,} MiB for its clients on Trio: {total:,} MiB of "
        f"`total_bytes`, {peer} MiB of `peer_bytes`, and {buffers} MiB for {MAX_CONNECTIONS} connections"
    ) in said


def test_longest_message_fits_into_replay_bytes() -> None:
    limits = Limits()
    assert limits.replay_bytes >= 2 * limits.message_bytes
