"""Observers of a connection: taps, recordings and their replay, redaction of secrets.

Observers stand above the engine and change nothing of what passes a connection.
"""

from typing import TYPE_CHECKING

from mcpio._lazy import names_by_use

if TYPE_CHECKING:
    from mcpio.observe.recording import Recorder
    from mcpio.observe.redaction import SECRET_NAMES, SECRET_PATTERNS, Redacting, Redactor
    from mcpio.observe.replayer import Replay, ReplayedCall, replay
    from mcpio.observe.tap import Observation, Tap, add_tap

__all__ = [
    "SECRET_NAMES",
    "SECRET_PATTERNS",
    "Observation",
    "Recorder",
    "Redacting",
    "Redactor",
    "Replay",
    "ReplayedCall",
    "Tap",
    "add_tap",
    "replay",
]

_HOME = {
    "recording": "Recorder",
    "redaction": "SECRET_NAMES SECRET_PATTERNS Redacting Redactor",
    "replayer": "Replay ReplayedCall replay",
    "tap": "Observation Tap add_tap",
}

if not TYPE_CHECKING:
    __getattr__, __dir__ = names_by_use(__name__, _HOME)
