"""Outgoing log messages: redacted, and limited in number."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol

import attrs

from mcpio.app.awaitables import failure_of
from mcpio.app.contracts import PeerSession
from mcpio.app.reporting import Throttle
from mcpio.app.schema.plain import to_json
from mcpio.errors import InvalidMessage
from mcpio.framing.json import dumps
from mcpio.types._fields import EMPTY
from mcpio.types.logging import LoggingLevel, LoggingMessageNotification

if TYPE_CHECKING:
    from mcpio.events import IncomingId
    from mcpio.observe.redaction import Redactor

__all__ = ["LogOutlet", "redact_secrets"]


def redact_secrets(session: Any, message: LoggingMessageNotification) -> LoggingMessageNotification:
    """Return a log message without secrets, as ``Redactor()`` finds them.

    Members with names such as ``password`` or ``api_key`` are redacted at any depth, and values that look like tokens.
    This is the default filter of a server; your filter may call it. Secrets without a telling name or a
    well-known form are not found.
    """
    found = _redactor().message(message.data)
    return message if found is message.data else attrs.evolve(message, data=found)


class _Reporting(Protocol):
    def report(self, message: str, error: BaseException | None) -> None:
        """Report a failure to the operator."""


class LoggingSession(PeerSession, Protocol):
    """A server session, as far as its log messages need it."""

    @property
    def driving(self) -> _Reporting:
        """The drivers' side of the session."""

    def tell(self, notification: Any, *, related_to: IncomingId | None = None) -> bool:
        """Send a notification if the client can take it."""


class LogOutlet:
    """Sends the log messages of one session."""

    __slots__ = ("_session", "_throttle")

    def __init__(self, session: LoggingSession, rate: float) -> None:
        self._session = session
        self._throttle = Throttle(rate, rate)

    @property
    def dropped(self) -> int:
        """The number of messages dropped beyond the rate."""
        return self._throttle.held_back

    def send(
        self,
        log_filter: Callable[[Any, LoggingMessageNotification], LoggingMessageNotification | None] | None,
        level: LoggingLevel,
        data: Any,
        logger: str | None,
        related_to: IncomingId | None,
        meta: Mapping[str, Any] | None = None,
    ) -> None:
        """Send a message, unless it exceeds the rate or the filter drops it."""
        session = self._session
        if not self._throttle.admits(session.driver.now()):
            return
        chosen = log_filter or redact_secrets
        try:
            message = chosen(session, LoggingMessageNotification(level, _sayable(data), logger, meta=meta or EMPTY))
        except BaseException as error:
            session.driving.report("the log filter failed, and the message was kept in", failure_of(error))
            return
        if message is None:
            return
        # A handler that is being cancelled may still log; the request is over, but the client may want the message.
        is_over = related_to is not None and not session.connection.is_pending(related_to)
        session.tell(message, related_to=None if is_over else related_to)


def _sayable(data: Any) -> Any:
    """Return a value as plain JSON, or else its ``repr``: logging must not fail."""
    try:
        plain = to_json(data)
        dumps(plain)  # only this finds surrogates, as in names of files, and integers that are too long
    except (InvalidMessage, ValueError):
        return _described(data)
    return plain


def _described(data: Any) -> str:
    try:
        return repr(data).encode("utf-8", "backslashreplace").decode()
    except Exception:  # a faulty __repr__, or a value that is nested too deeply
        return object.__repr__(data)


@cache
def _redactor() -> Redactor:
    from mcpio.observe.redaction import Redactor  # only servers that log need it

    return Redactor()
