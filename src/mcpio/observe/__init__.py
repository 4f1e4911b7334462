"""Observers of a connection: taps, recordings and their replay, redaction of secrets.

Observers stand above the engine and change nothing of what passes a connection.
"""

from typing import TYPE_CHECKING

from mcpio._lazy import lazy_names

if TYPE_CHECKING:
    from mcpio.observe.recording import Recorder as Recorder
    from mcpio.observe.recording import Replay as Replay
    from mcpio.observe.recording import ReplayedCall as ReplayedCall
    from mcpio.observe.recording import replay as replay
    from mcpio.observe.tap import SECRET_NAMES as SECRET_NAMES
    from mcpio.observe.tap import SECRET_PATTERNS as SECRET_PATTERNS
    from mcpio.observe.tap import Observation as Observation
    from mcpio.observe.tap import Redacting as Redacting
    from mcpio.observe.tap import Redactor as Redactor
    from mcpio.observe.tap import Tap as Tap
    from mcpio.observe.tap import add_tap as add_tap

    __all__: list[str]
else:
    __all__, __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "recording": "Recorder Replay ReplayedCall replay",
            "tap": "Observation Redacting Redactor SECRET_NAMES SECRET_PATTERNS Tap add_tap",
        },
    )
