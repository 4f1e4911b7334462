"""How long the drivers wait for a peer, a transport or a store when a session ends."""

from __future__ import annotations

from typing import Final

__all__ = [
    "FINAL_READ_TIMEOUT",
    "FINAL_WRITE_TIMEOUT",
    "STORE_TIMEOUT",
    "TRANSPORT_CANCEL_TIMEOUT",
    "TRANSPORT_CLOSE_TIMEOUT",
]

FINAL_READ_TIMEOUT: Final = 1.0
"""Seconds to continue reading after writing failed: the last answers of a dead peer may still arrive."""

FINAL_WRITE_TIMEOUT: Final = 0.5
"""Seconds for a cancelled session to notify its peer of cancelled requests."""

TRANSPORT_CANCEL_TIMEOUT: Final = 0.5
"""Seconds for a transport to end a read and a write that were cancelled, before it is closed under them."""

TRANSPORT_CLOSE_TIMEOUT: Final = 1.0
"""Seconds for a transport to close gracefully before it is closed forcefully."""

STORE_TIMEOUT: Final = 1.0
"""Seconds for a store, at the end, to record how sessions or tasks ended."""
