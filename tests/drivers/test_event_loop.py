"""What the drivers of all event loops share about their streams."""

from __future__ import annotations

import errno
import os
import socket
import ssl

import pytest
from eachloop import Here, on_each_loop

from mcpio._drivers.event_loop import reason_of

REFUSED = os.strerror(errno.ECONNREFUSED)


def all_refused() -> OSError:
    """Return what an event loop raises if every address of a name refuses."""
    attempts = [
        OSError(errno.ECONNREFUSED, f"Error connecting to ({host!r}, 1): {REFUSED}") for host in ("::1", "127.0.0.1")
    ]
    error = OSError("all attempts to connect to localhost:1 failed")
    error.__cause__ = ExceptionGroup("all attempts failed", attempts)
    return error


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (all_refused(), REFUSED),
        (FileNotFoundError(errno.ENOENT, "no", "/run/s"), os.strerror(errno.ENOENT)),
        (OSError("no route"), "no route"),
        (ssl.SSLError(1, "certificate verify failed"), "certificate verify failed"),
        (socket.gaierror(1, "no such host"), "[Errno 1] no such host"),
        (ValueError(), "ValueError"),
    ],
)
def test_reason_names_the_deepest_cause_once(error: Exception, reason: str) -> None:
    assert reason_of(error) == reason


@pytest.mark.parametrize("sends", [b"", b"x"], ids=["end", "input"])
@on_each_loop
async def test_stream_is_readable_before_the_loop_has_seen_what_came(here: Here, sends: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        stream = await here.loop.open_stream("127.0.0.1", listener.getsockname()[1], None)
        peer, _ = listener.accept()
        with peer:
            await here.sleep(0)
            assert not here.loop.is_readable(stream)
            # No other task runs from here on.
            peer.sendall(sends) if sends else peer.shutdown(socket.SHUT_RDWR)
            assert here.loop.is_readable(stream)
            await here.loop.abort(stream)
