"""One session of a server: which function serves which request, and what the session remembers of its client."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mcpio.app.context import Context
from mcpio.app.session import Handler, Session
from mcpio.engine.table import Phase
from mcpio.errors import ErrorCode, LocalProtocolError, NoBackChannel, RequestError
from mcpio.events import ConnectionClosed, Initialized, NotificationReceived, RequestReceived
from mcpio.types.logging import LoggingLevel, LoggingMessageNotification, at_least

if TYPE_CHECKING:
    from mcpio.app.runtime import Driver
    from mcpio.app.server import Server
    from mcpio.engine.server import ServerConnection
    from mcpio.events import IncomingId

__all__ = ["ServerSession"]


class ServerSession(Session):
    """A client, as the server sees it."""

    def __init__(self, server: Server, connection: ServerConnection, driver: Driver, state: Any = None) -> None:
        """``state`` is what the server's lifespan gave."""
        super().__init__(connection, driver)
        self.server = server
        self.state = state
        self.log_level: LoggingLevel = server.log_level
        self.subscriptions: set[str] | None = None
        server.sessions.add(self)

    def log(
        self, level: LoggingLevel, data: Any, logger: str | None = None, *, related_to: IncomingId | None = None
    ) -> None:
        """Send a log message, any JSON value, unless the client asked for graver ones only (LOG-03).

        Left out, too, when the request that it belongs to is over, or the connection is.
        """
        if at_least(level, self.log_level):
            self.tell(LoggingMessageNotification(level, data, logger), related_to=related_to)

    def tell(self, notification: Any, *, related_to: IncomingId | None = None) -> bool:
        """Notify, if the client can take it; return whether it could. For what nobody is to fail for."""
        try:
            self.notify(notification, related_to=related_to)
        except (LocalProtocolError, NoBackChannel):
            return False
        return True

    @property
    def is_operating(self) -> bool:
        """Whether the handshake is done and the end has not begun."""
        return self.connection.phase is Phase.OPERATING

    def _handler_for(self, event: RequestReceived) -> Handler:
        handler = self.server.handlers.get(event.raw["method"])
        if handler is None:
            raise RequestError(ErrorCode.METHOD_NOT_FOUND, f"Method not found: {event.raw['method']:.100}")
        return handler

    def _scope_for(self, event: RequestReceived) -> Context:
        return Context(self, event)

    def _handle_notification(self, event: NotificationReceived | Initialized) -> None:
        self.server.handle_notification(self, event)

    def _handle_end(self, event: ConnectionClosed) -> None:
        super()._handle_end(event)
        self.server.sessions.discard(self)
