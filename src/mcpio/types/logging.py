"""Log messages from a server to its client."""

from __future__ import annotations

from typing import Any, ClassVar, Final, Literal, get_args

from mcpio.revisions import REV_2025_11_25, Revision
from mcpio.types._fields import payload
from mcpio.types.messages import NotificationPayload, RequestPayload

__all__ = ["LOGGING_LEVELS", "LoggingLevel", "LoggingMessageNotification", "SetLevelRequest", "at_least"]

LoggingLevel = Literal["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]

LOGGING_LEVELS: Final[tuple[LoggingLevel, ...]] = get_args(LoggingLevel)
"""Every level, the least severe first, as in RFC 5424 (LOG-02)."""


def at_least(level: LoggingLevel, threshold: LoggingLevel) -> bool:
    """Whether a message of ``level`` passes when ``threshold`` is the least severe one wanted (LOG-03)."""
    return _RANKS[level] >= _RANKS[threshold]


_RANKS = {level: rank for rank, level in enumerate(LOGGING_LEVELS)}


@payload
class SetLevelRequest(RequestPayload):
    """Ask for log messages of a level and above."""

    UNTIL: ClassVar[Revision] = REV_2025_11_25

    level: LoggingLevel


@payload
class LoggingMessageNotification(NotificationPayload):
    """A log message. ``data`` is any JSON value (LOG-05); it never holds secrets (LOG-07)."""

    level: LoggingLevel
    data: Any
    logger: str | None = None
