"""The path of a call through a server as a ladder: which part calls which, and who wakes whom."""

from __future__ import annotations

from typing import Final

from sequence_svg import Arrow, Note, Row, draw_sequence

from mcpio import ServerConnection
from mcpio._drivers.actor import Actor

__all__ = ["draw_path"]

_PEER: Final = "peer"
_ACTOR: Final = "actor\n(driver)"
_ENGINE: Final = "engine"
_SESSION: Final = "session\n(app)"
_HANDLER: Final = "registry,\nhandler"


def draw_path() -> str:
    """Return an ``<svg>`` element. The calls that it names exist."""
    engine, turn = ServerConnection, Actor._turn  # noqa: SLF001 - the page is about the inside of the driver
    rows: list[Row] = [
        Arrow(_PEER, _ACTOR, ("bytes",)),
        Arrow(_ACTOR, _ENGINE, (_call(engine.receive_data),)),
        Note(f"a turn of the actor, {_call(turn)}: it acts on all that has happened"),
        Arrow(_ACTOR, _ENGINE, (_call(engine.next_event),)),
        Arrow(_ENGINE, _ACTOR, ("RequestReceived",)),
        Arrow(_ACTOR, _SESSION, ("handle()",)),
        Arrow(_SESSION, _HANDLER, ("find, validate, call",)),
        Note("the handler runs: at once, in a task or in a thread"),
        Arrow(_HANDLER, _SESSION, ("return value",)),
        Arrow(_SESSION, _ENGINE, (_call(engine.send_result),)),
        Arrow(_SESSION, _ACTOR, (f"{_call(Actor.wake)}: there is output",)),
        Note("at once, or in the next turn"),
        Arrow(_ACTOR, _ENGINE, (_call(engine.data_to_send),)),
        Arrow(_ACTOR, _PEER, ("bytes",)),
        Note("what was written may make room: the writer wakes the actor again"),
    ]
    title = (
        "The path of a call: the actor gives bytes to the engine and events to the session, and is woken for the answer"
    )
    return draw_sequence((_PEER, _ACTOR, _ENGINE, _SESSION, _HANDLER), rows, title, width=640)


def _call(function: object) -> str:
    return f"{function.__name__}()"  # type: ignore[attr-defined]  # functions have names
