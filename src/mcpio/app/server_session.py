"""One session of a server: which function serves which request, and what the session remembers of its client."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final

from mcpio import types  # what belongs to one feature is loaded when a call needs it
from mcpio.app.context import Context
from mcpio.app.session import Handler, Session
from mcpio.errors import ErrorCode, LocalProtocolError, NoBackChannel, RequestError
from mcpio.events import CloseReason, ConnectionClosed, Initialized, NotificationReceived, RequestReceived
from mcpio.methods import declares, official_name
from mcpio.types.logging import LOGGING_LEVELS, LoggingLevel, at_least

if TYPE_CHECKING:
    from mcpio.app.logs import LogOutlet
    from mcpio.app.roots import RootList
    from mcpio.app.runtime import Driver
    from mcpio.app.server import Server
    from mcpio.engine.server import ServerConnection
    from mcpio.events import IncomingId

__all__ = ["ServerSession", "checked_level"]


class ServerSession(Session):
    """A client, as the server sees it."""

    connection: ServerConnection
    server: Server
    """What it is served by."""
    state: Any
    """What the server's ``lifespan`` gave; ``None`` without one."""
    log_level: LoggingLevel
    """The least level of log messages that this client gets (LOG-08)."""
    undelivered: int
    """How many notifications for everybody, of lists and resources that changed, this client did not get (P11): they
    were not declared to it, its session was not open yet, or not any more."""

    _SLOW_FIX: ClassVar[str] = "make its function async, or register it with blocking=True to run it in a thread"

    def __init__(self, server: Server, connection: ServerConnection, driver: Driver, state: Any = None) -> None:
        """Use ``Server.session``, which remembers the session for what is told to all."""
        super().__init__(connection, driver)
        self.server = server
        self.state = state
        self.log_level = server.log_level
        self.undelivered = 0
        self._subscriptions: dict[str, None] | None = None
        self._root_list: RootList | None = None
        self._thread_pool = server.thread_pool
        self._fault_reports = server.fault_reports
        self._log_outlet: LogOutlet | None = None

    def notify_elicitation_complete(self, id: str) -> bool:
        """Tell the client that what its user was sent to a web address for is done; return whether that was news.

        A second time nothing is sent (ELIC-16). Raises as ``notify`` does, and ``LocalProtocolError`` for an id that
        this client was never sent, or so long ago that it is forgotten.
        """
        if self._visits is None or id not in self._visits:
            raise LocalProtocolError(f"this client was never sent the elicitation {id!r:.100}")
        if self._visits.is_done(id):
            return False
        self.notify(types.ElicitationCompleteNotification(id))
        return self._visits.finish(id)

    def begin_visit(self, id: str) -> bool:
        """Record that the client is being sent an elicitation; return whether it is news. The sender calls this."""
        return self._begin_visit(id)

    def withdraw_visit(self, id: str) -> None:
        """Forget an elicitation that could not be sent."""
        if self._visits is not None:
            self._visits.withdraw(id)

    def has_visit(self, id: str) -> bool:
        """Whether this client was sent the elicitation."""
        return self._visits is not None and id in self._visits

    @property
    def root_list(self) -> RootList | None:
        """The client's roots as far as they are known; ``None`` for a client that would not tell of changes."""
        if self._root_list is None:
            peer = self.connection.peer
            if peer is not None and declares(peer.capabilities, ("roots", "list_changed")):
                from mcpio.app.roots import RootList

                self._root_list = RootList()
        return self._root_list

    @property
    def subscriptions(self) -> tuple[str, ...]:
        """The URIs of the resources that the client wants to hear of when they change, in order."""
        return tuple(self._subscriptions or ())

    def log(
        self,
        level: LoggingLevel,
        data: Any,
        logger: str | None = None,
        *,
        related_to: IncomingId | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> None:
        """Send a log message, unless the client asked for graver ones only (LOG-03).

        ``data`` is any value that JSON can say, or else goes out as its ``repr``. ``Server.log_filter`` sees it first.
        It goes the way of the request that it belongs to; over HTTP, once that is over, to the session's general
        stream. Left out when the connection is over, where there is no such stream (HTTP without sessions), and beyond
        ``Limits.logs_per_second``. ``meta`` is the message's ``_meta``. ``ValueError`` for a level that there is not.
        """
        if at_least(checked_level(level), self.log_level):
            if self._log_outlet is None:
                from mcpio.app.logs import LogOutlet

                self._log_outlet = LogOutlet(self)
            self._log_outlet.send(level, data, logger, related_to, meta)

    @property
    def dropped_logs(self) -> int:
        """How many log messages were too many: for one second, or for a client that reads slowly."""
        return self.connection.dropped_logs + (0 if self._log_outlet is None else self._log_outlet.dropped)

    def tell(self, notification: Any, *, related_to: IncomingId | None = None) -> bool:
        """Notify, if the client can take it; return whether it could. For what nobody is to fail for.

        What cannot be said at all is reported.
        """
        try:
            self.notify(notification, related_to=related_to)
        except LocalProtocolError as error:
            if error.__cause__ is not None:
                self.driver.report(f"a {type(notification).__name__} cannot be sent", error)
            return False
        except NoBackChannel:
            return False
        return True

    def tell_as_all(self, notification: Any) -> bool:
        """Notify of what everybody is told, count it where that cannot be, and return whether it could."""
        told = self.tell(notification)
        if not told:
            self.undelivered += 1
            self.server.undelivered += 1
        return told

    # For drivers

    def settle(self) -> None:
        """Account for what is held for the client: see ``Server.ledger``."""
        super().settle()
        # After the end a driver may still settle what it was writing. An entry made then would never be removed.
        size = 0 if self.connection.closed else self.connection.held.total
        self.server.ledger.settle(self, size, self._end_overloaded)

    def _end_overloaded(self) -> None:
        self.connection.abort(reason=CloseReason.OVERLOADED)
        self.driver.wake()

    # For the server's handlers

    def subscribe(self, uri: str) -> None:
        """Note that the client wants to hear of a resource; a second time changes nothing (RES-09)."""
        if self._subscriptions is None:
            self._subscriptions = {}
        if uri in self._subscriptions:
            return
        limits, held = self.server.options.limits, self.connection.held
        size = sys.getsizeof(uri) + _SUBSCRIPTION_COST
        if len(self._subscriptions) >= limits.subscriptions:
            data = {"reason": "too many subscriptions", "limit": limits.subscriptions}
            raise RequestError(ErrorCode.INTERNAL_ERROR, "Too many subscriptions", data)
        if held.subscriptions + size > limits.subscription_bytes:
            data = {"reason": "the subscriptions take too much memory", "limit": limits.subscription_bytes}
            raise RequestError(ErrorCode.INTERNAL_ERROR, "Too many subscriptions", data)
        self._subscriptions[uri] = None
        held.subscriptions += size

    def unsubscribe(self, uri: str) -> None:
        """Note that the client wants to hear no more of a resource."""
        if self._subscriptions is not None and uri in self._subscriptions:
            del self._subscriptions[uri]
            self.connection.held.subscriptions -= sys.getsizeof(uri) + _SUBSCRIPTION_COST

    def is_subscribed(self, uri: str) -> bool:
        """Whether the client wants to hear of a resource."""
        return self._subscriptions is not None and uri in self._subscriptions

    # What the base class asks

    def _save_state(self) -> dict[str, Any]:
        visits = {} if self._visits is None else {"visits": self._visits.save()}
        return {"log_level": self.log_level, "subscriptions": list(self.subscriptions), **visits}

    def _load_state(self, state: Mapping[str, Any]) -> None:
        level, uris = state.get("log_level", self.log_level), state.get("subscriptions", [])
        if not isinstance(level, str) or level not in LOGGING_LEVELS:
            raise LocalProtocolError("malformed snapshot: expected a log level @ snapshot.state.log_level")
        if not isinstance(uris, list) or not all(isinstance(uri, str) for uri in uris):
            raise LocalProtocolError("malformed snapshot: expected URIs @ snapshot.state.subscriptions")
        visits = state.get("visits", {})
        if not isinstance(visits, Mapping) or not all(isinstance(is_done, bool) for is_done in visits.values()):
            raise LocalProtocolError("malformed snapshot: expected elicitations by id @ snapshot.state.visits")
        self.log_level = level
        self._subscriptions = dict.fromkeys(uris) or None
        self.connection.held.subscriptions = sum(sys.getsizeof(uri) + _SUBSCRIPTION_COST for uri in set(uris))
        for id, is_done in visits.items():
            self._begin_visit(id)
            if is_done and self._visits is not None:
                self._visits.finish(id)

    def _handler_for(self, event: RequestReceived) -> Handler:
        handler = self.server.handlers.get(official_name(event.request, event.raw["method"]))
        if handler is None:
            raise RequestError(ErrorCode.METHOD_NOT_FOUND, f"Method not found: {event.raw['method']:.100}")
        layers = self.server.middlewares
        return self._wrapped(event, handler, layers) if layers else handler

    def _scope_for(self, event: RequestReceived) -> Context:
        return Context(self, event)

    def _handle_notification(self, event: NotificationReceived | Initialized) -> None:
        method = event.raw["method"]
        if method == "notifications/roots/list_changed" and self._root_list is not None:
            self._root_list.forget()
        callback = self.server.notification_handlers.get(method)
        if callback is not None:
            notification = event.notification if isinstance(event, NotificationReceived) else None
            self._call_back(f"the handler of {method}", callback, self, notification)

    def _handle_end(self, event: ConnectionClosed) -> None:
        super()._handle_end(event)
        self.server.forget(self)
        self.server.ledger.settle(self, 0, self._end_overloaded)


_SUBSCRIPTION_COST: Final = 128
"""Bytes that a subscription costs beside its URI."""


def checked_level(level: Any) -> LoggingLevel:
    """Return a level; ``ValueError`` for one that there is not."""
    if level in LOGGING_LEVELS:
        found: LoggingLevel = level
        return found
    raise ValueError(f"there is no log level {level!r:.100}: there are {', '.join(LOGGING_LEVELS)}")
