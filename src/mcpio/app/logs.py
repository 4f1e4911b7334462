"""Log messages on their way to a client: what is secret stays here, and so does what is too much."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol

import attrs

from mcpio.app.contracts import PeerSession
from mcpio.app.reporting import Throttle
from mcpio.app.schema.plain import to_json
from mcpio.errors import InvalidMessage
from mcpio.types._fields import EMPTY
from mcpio.types.logging import LoggingLevel, LoggingMessageNotification

if TYPE_CHECKING:
    from mcpio.events import IncomingId
    from mcpio.observe.redaction import Redactor

__all__ = ["LogOutlet", "redact_secrets"]


def redact_secrets(session: Any, message: LoggingMessageNotification) -> LoggingMessageNotification:
    """Return a log message without its secrets, as ``Redactor()`` finds them.

    It goes by the names of members, such as ``password`` or ``api_key``, however deep, and by what tokens look like.
    This is what servers do unless they have a filter of their own, which may well call it. A secret that has neither
    a telling name nor a well-known form is for you to leave out.
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
    """The log messages of one session."""

    __slots__ = ("_session", "_throttle")

    def __init__(self, session: LoggingSession, rate: float) -> None:
        self._session = session
        self._throttle = Throttle(rate, rate)

    @property
    def dropped(self) -> int:
        """How many were more than may go out in a second."""
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
        """Send a message, unless it is one too many or the server's filter keeps it in."""
        session = self._session
        if not self._throttle.admits(session.driver.now()):
            return
        chosen = log_filter or redact_secrets
        try:
            message = chosen(session, LoggingMessageNotification(level, _sayable(data), logger, meta=meta or EMPTY))
        except Exception as error:
            session.driving.report("the log filter failed, and the message was kept in", error)
            return
        if message is None:
            return
        # What a handler logs while it is being cancelled belongs to no request any more, but the client may want it.
        is_over = related_to is not None and not session.connection.is_pending(related_to)
        session.tell(message, related_to=None if is_over else related_to)


def _sayable(data: Any) -> Any:
    """Return a value as plain JSON, or else its ``repr``: nobody is to fail for a log message."""
    try:
        return to_json(data)
    except InvalidMessage:
        return repr(data)


@cache
def _redactor() -> Redactor:
    from mcpio.observe.redaction import Redactor  # for those who log

    return Redactor()
