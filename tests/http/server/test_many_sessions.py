"""Ten thousand sessions, opened and abandoned: bounded, over in time, and nothing left of them (SEC-10)."""

from __future__ import annotations

import contextlib
import gc
import json
import os
from pathlib import Path

import pytest
from httpwire import MemoryWire

from mcpio import Limits, Options, Server
from mcpio.http.model import HttpOptions

SESSIONS = 10_000
IDLE = 1800.0

PARAMS = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
HELLO = json.dumps({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": PARAMS}).encode()


def resident() -> int:
    """Return the bytes of memory that this process holds."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def open_and_abandon(wire: MemoryWire, count: int) -> None:
    """Open sessions of clients that are never heard of again."""
    headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
    for _ in range(count):
        with contextlib.suppress(StopIteration):
            wire.ask("POST", "/mcp", headers, HELLO).send(None)
        (exchange,) = wire.exchanges.values()
        assert exchange.status == 200
        wire.exchanges.clear()


@pytest.mark.req("SEC-10")
def test_idle_sessions_expire_and_free_their_memory() -> None:
    wire = MemoryWire(Server("many", "1"), HttpOptions(session_idle=IDLE))
    open_and_abandon(wire, 100)
    step(wire, IDLE + 1)
    gc.collect()
    live, peaks = len(gc.get_objects()), []
    for _ in range(2):
        open_and_abandon(wire, SESSIONS)
        assert len(wire.host.machine.sessions) == SESSIONS
        peaks.append(resident())
        step(wire, IDLE + 1)
        assert wire.host.machine.sessions == ()
        gc.collect()
        assert len(gc.get_objects()) < live + 100
    assert peaks[1] <= peaks[0] * 1.05


@pytest.mark.req("SEC-10")
def test_beyond_the_limit_the_one_that_was_idle_for_longest_makes_room() -> None:
    server = Server("many", "1", options=Options(limits=Limits(sessions=50)))
    wire = MemoryWire(server, HttpOptions())
    open_and_abandon(wire, 50)
    first, *_ = wire.host.machine.sessions
    open_and_abandon(wire, 1)
    sessions = wire.host.machine.sessions
    assert (len(sessions), first in sessions) == (50, False)


def step(wire: MemoryWire, seconds: float) -> None:
    """Let time pass."""
    with contextlib.suppress(StopIteration):
        wire.pass_time(seconds).send(None)
