"""Recorded conversations, replayed byte for byte: the same calls give the same events, output and final state.

A file under ``recordings`` is a recording as ``Recorder`` writes it. Each event has its content beside its name, as
``described`` returns it, and the last line holds the connection's final snapshot (null where none can be taken). To
add one, record a conversation with ``record`` below.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import pytest

from mcpio.codec import codec
from mcpio.engine.connection import Connection
from mcpio.errors import ConnectionLost, LocalProtocolError, McpError
from mcpio.events import Event
from mcpio.framing.json import dumps, loads
from mcpio.observe.recording import Recorder, Replay
from mcpio.observe.tap import add_tap
from mcpio.revisions import LATEST_HANDSHAKE, Revision
from mcpio.types._fields import Payload

FILES = sorted((Path(__file__).parent / "recordings").glob("*.jsonl"))


def described(event: Event) -> Any:
    """Return the content of an event as JSON: payloads in their wire form, errors as their class and text."""
    context = getattr(event, "context", None)
    revision = LATEST_HANDSHAKE if context is None else context.revision
    return {field.name: _described(getattr(event, field.name), revision) for field in attrs.fields(type(event))}


def _described(value: Any, revision: Revision) -> Any:
    if isinstance(value, Revision):
        return value.name
    if isinstance(value, McpError) and not isinstance(value, ConnectionLost):
        return f"{type(value).__name__}: {value} {getattr(value, 'code', '')}"
    if isinstance(value, BaseException):
        # A recording keeps the text of an exception that the program gave, not its class.
        return type(value).__name__ if isinstance(value, McpError) else "an exception"
    if isinstance(value, Payload):
        return {"type": type(value).__name__, **codec(revision).encode(value)}
    if attrs.has(type(value)):
        return {field.name: _described(getattr(value, field.name), revision) for field in attrs.fields(type(value))}
    if value is None or isinstance(value, int | float | str | dict | list):
        return value
    return str(value)


class Describing(Recorder):
    """Writes the content of each event, too."""

    def event(self, event: Event, now: float) -> None:
        self._entry("next_event", {"event": type(event).__name__, "content": described(event)}, now)


def final_state(connection: Connection, now: float) -> Any:
    """Return the snapshot of a connection; ``None`` where none can be taken."""
    try:
        return connection.snapshot(now)
    except LocalProtocolError:
        return None


def record(connection: Connection, now: float = 0.0) -> list[str]:
    """Return the lines of a recording of ``connection``, which grows with each call. Append ``last_line`` to it."""
    lines: list[str] = []
    add_tap(connection, Describing(lines.append), now)
    return lines


def last_line(connection: Connection, now: float) -> str:
    return dumps({"final": final_state(connection, now)}).decode() + "\n"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_recorded_conversation_is_replayed_byte_for_byte(path: Path) -> None:
    *lines, last = path.read_text().splitlines(keepends=True)
    replay = Replay(lines)
    now = 0.0
    for step in replay:
        now = step.at
        assert step.differs is None, f"line {step.line}: {step.verb}: {step.differs}"
        if step.event is not None:
            content = loads(dumps(described(step.event)))
            assert content == step.arguments["content"], f"line {step.line}: {step.verb}"
    assert loads(dumps({"final": final_state(replay.connection, now)})) == loads(last)


def test_there_are_recordings_of_both_roles() -> None:
    roles = {loads(path.read_text().partition("\n")[0])["role"] for path in FILES}
    assert roles == {"client", "server"}
