"""Observers of a connection: taps, recordings and their replay, redaction of secrets.

Observers stand above the engine and change nothing of what passes a connection.
"""

from typing import TYPE_CHECKING

from mcpio._lazy import lazy_names

if TYPE_CHECKING:
    from mcpio.observe.recording import Recorder as Recorder
    from mcpio.observe.redaction import SECRET_NAMES as SECRET_NAMES
    from mcpio.observe.redaction import SECRET_PATTERNS as SECRET_PATTERNS
    from mcpio.observe.redaction import Redacting as Redacting
    from mcpio.observe.redaction import Redactor as Redactor
    from mcpio.observe.replayer import Replay as Replay
    from mcpio.observe.replayer import ReplayedCall as ReplayedCall
    from mcpio.observe.replayer import replay as replay
    from mcpio.observe.tap import Observation as Observation
    from mcpio.observe.tap import Tap as Tap
    from mcpio.observe.tap import add_tap as add_tap

    __all__: list[str]
else:
    __all__, __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "recording": "Recorder",
            "redaction": "SECRET_NAMES SECRET_PATTERNS Redacting Redactor",
            "replayer": "Replay ReplayedCall replay",
            "tap": "Observation Tap add_tap",
        },
    )
