"""Drawing the limits of memory: the levels of the output that waits for a peer, and what one peer's memory holds."""

from __future__ import annotations

from typing import Final

from picture import picture, text

from mcpio.engine.channel import STALL
from mcpio.engine.limits import Held, Limits

__all__ = ["draw_gauge"]

WIDTH: Final = 420
LINE: Final = 17
STEP: Final = 60
_HOLDS: Final = {
    "input": "input that was not acted on yet",
    "bodies": "bodies of HTTP requests that arrive",
    "requests": "parameters of running requests",
    "output": "messages that wait to be written",
    "unwritten": "output that the transport has taken",
    "own": "requests of this side that wait",
    "replay": "events kept to resume a stream",
    "subscriptions": "subscriptions",
}


def draw_gauge() -> str:
    """Return an ``<svg>`` element. Its numbers are the defaults."""
    limits = Limits()
    half_peer, half_queue = limits.peer_bytes // 2, limits.queued_bytes // 2
    levels = [
        (f"half of peer_bytes: {_mib(half_peer)}", "handlers that run wait with their results"),
        (f"queued_bytes: {_mib(limits.queued_bytes)}", f"a peer that reads nothing for {STALL:g} s is disconnected"),
        (f"half of queued_bytes: {_mib(half_queue)}", "requests to the peer raise OutputFull"),
        (f"high_water: {_mib(limits.high_water)}", "requests of the peer are not taken any more"),
        ("0", "requests are taken and answered"),
    ]
    body = [text("Output that waits for one peer", 12, 26, bold=True)]
    top, bottom = 44, 44 + STEP * (len(levels) - 1) + 14
    body.append(
        f'<path d="M20 {top} V{bottom} H44 V{top} M26 {top + 6} L32 {top - 2} L38 {top + 6} M32 {top} V{bottom}"/>'
    )
    for number, (name, what) in enumerate(levels):
        y = top + 14 + STEP * number
        body += [f'<path d="M14 {y} H54"/>', text(name, 64, y + 4, bold=True), text(what, 64, y + 4 + LINE)]
    y = bottom + 58
    body += [text(f"What peer_bytes holds: {_mib(limits.peer_bytes)} for one peer", 12, y, bold=True)]
    y += 16
    assert _HOLDS.keys() == set(Held.__slots__)
    for what in _HOLDS.values():
        body += [f'<rect x="14" y="{y}" width="270" height="24"/>', text(what, 22, y + 16)]
        y += 24
    notes = [
        "While running requests take half of it, further ones wait.",
        "Above it, bodies of HTTP requests get status 503.",
    ]
    body += [text(line, 14, y + 22 + LINE * number) for number, line in enumerate(notes)]
    y += 22 + LINE
    return picture("Levels of the output that waits for a peer, and what its memory holds", WIDTH, y + 10, body)


def _mib(size: int) -> str:
    return f"{size >> 20} MiB"
