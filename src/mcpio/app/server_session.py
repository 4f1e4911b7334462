# ruff: noqa: SLF001 - sessions, scopes and servers have methods for one another that programs have no use for
"""One session of a server: the handlers of its requests, and the state kept for its client."""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Mapping
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeAlias

from mcpio import types  # what belongs to one feature is loaded when a call needs it
from mcpio._checks import is_scope
from mcpio.app.changes import LISTS, resource_topic
from mcpio.app.reporting import unwrap_group
from mcpio.app.runtime import STRANGERS, checked_grace
from mcpio.app.session import Handler, Session
from mcpio.engine.table import Phase
from mcpio.errors import (
    ErrorCode,
    InsufficientScope,
    LocalProtocolError,
    NoBackChannel,
    RequestError,
    URLElicitationRequired,
)
from mcpio.events import CloseReason, ConnectionClosed, Initialized, NotificationReceived, RequestReceived
from mcpio.methods import METHODS, declares, official_name
from mcpio.revisions import Era
from mcpio.types.features import LOGGING_LEVELS, LoggingLevel, LoggingMessageNotification, at_least

if TYPE_CHECKING:
    from mcpio.app.asking import RootList
    from mcpio.app.contracts import InputRequired
    from mcpio.app.reporting import LogOutlet
    from mcpio.app.rounds import Flow
    from mcpio.app.runtime import Driver
    from mcpio.app.server import Server
    from mcpio.app.tasks.receiver import TaskReceiver
    from mcpio.engine.server import ServerConnection
    from mcpio.events import IncomingId
    from mcpio.types.base import InputRequiredResult

__all__ = ["LogFilter", "NotificationHandler", "ServerSession", "checked_level"]

LogFilter: TypeAlias = "Callable[[ServerSession, LoggingMessageNotification], LoggingMessageNotification | None]"
"""Takes an outgoing log message, and returns it, another in its place, or ``None`` to drop it (LOG-07). A plain
function, called without waiting. If it raises, the message is dropped and the failure is reported."""
NotificationHandler: TypeAlias = "Callable[[ServerSession, Any], None]"
"""Takes the session and the typed notification; ``None`` for ``notifications/initialized``. A plain function."""


class ServerSession(Session):
    """One client, as its server sees it."""

    connection: ServerConnection
    server: Server
    """The ``Server``."""
    state: Any
    """The value that the server's ``lifespan`` yielded; ``None`` without one."""
    log_level: LoggingLevel
    """The least severe level of log messages that this client gets (LOG-08)."""
    undelivered: int
    """How many broadcasts, of changed lists and resources, this client did not get (P11): they were not declared to it,
    its session was not open yet, or it had ended."""

    is_one_request: bool = False
    """Whether it is one request over HTTP that belongs to no session."""

    _hears_of_lists: bool = True
    """Whether the changes of lists are sent to it."""

    mounted_states: Mapping[Any, Any] = MappingProxyType({})
    """The values that the lifespans of mounted servers yielded, by server."""

    _SLOW_ADVICE: ClassVar[str] = "make its function async, or register it with blocking=True to run it in a thread"

    def __init__(
        self,
        server: Server,
        connection: ServerConnection,
        driver: Driver,
        state: Any = None,
        *,
        new_scope: Callable[[Any, RequestReceived], Any],
    ) -> None:
        """Use ``Server.session``, which also adds the session to the receivers of broadcasts."""
        super().__init__(connection, driver, new_scope)
        self.server = server
        self.state = state
        self.log_level = server.log_level or "info"
        self.undelivered = 0
        self._subscriptions: dict[str, None] | None = None
        self._root_list: RootList | None = None
        self._thread_pool = server.thread_pool
        self._fault_reports = server.fault_reports
        self._kept = server._pages.texts
        self._log_outlet: LogOutlet | None = None

    is_open: bool = True
    """Whether it serves a client; one that has ended is forgotten by its server."""

    def thread_account_of(self, event: RequestReceived) -> Hashable:
        """Return the key that the threads of one request are counted under."""
        is_stranger = self.is_one_request and event.context.principal is None
        return STRANGERS if is_stranger else self.account_of(event)

    def _task_receiver(self) -> TaskReceiver | None:
        tasks: TaskReceiver | None = self.server.tasks
        return tasks

    def notify_elicitation_complete(self, id: str) -> bool:
        """Notify the client that its user has finished at a web address; return False if it knew (ELIC-16).

        Raises as ``notify`` does, and LocalProtocolError if this client was never sent the elicitation, or so long ago
        that it is forgotten.
        """
        if self._url_elicitations is None or id not in self._url_elicitations:
            raise LocalProtocolError(f"this client was never sent the elicitation {id!r:.100}")
        if self._url_elicitations.is_done(id):
            return False
        self.notify(types.ElicitationCompleteNotification(id))
        return self._url_elicitations.finish(id)

    @property
    def subscriptions(self) -> tuple[str, ...]:
        """The URIs of the resources that the client is subscribed to, in order."""
        return tuple(self._subscriptions or ())

    def is_subscribed(self, uri: str) -> bool:
        """Whether the client is subscribed to a resource."""
        return self._subscriptions is not None and uri in self._subscriptions

    def log(
        self,
        level: LoggingLevel,
        data: Any,
        logger: str | None = None,
        *,
        related_to: IncomingId | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> None:
        """Send a log message, unless the client asked for more severe ones only (LOG-03).

        Also dropped when the connection is over, where there is no stream for it (HTTP without sessions), and beyond
        ``Limits.logs_per_second``. Raises ValueError if the level is unknown.

        Args:
            level: Its severity.
            data: Any value that JSON can express, or else its ``repr`` is sent. ``Server.log_filter`` sees it first.
            logger: The name of the logger.
            related_to: The request that it belongs to. After the answer to that request, the message goes to the
                session's general stream.
            meta: Its ``_meta``.

        """
        if at_least(checked_level(level), self.log_level):
            self._outlet().send(self.server.log_filter, level, data, logger, related_to, meta)

    def log_statelessly(self, level: LoggingLevel, data: Any, logger: str | None, event: RequestReceived) -> None:
        """Send a log message for an unanswered stateless request that asked for its level (GONE-04).

        Raises ValueError if the level is unknown.
        """
        wanted: Any = event.context.log_level
        checked_level(level)
        if wanted is not None and at_least(level, wanted) and self.connection.is_pending(event.id):
            self._outlet_of(event).send(self.server.log_filter, level, data, logger, event.id)

    def _outlet(self) -> LogOutlet:
        if self._log_outlet is None:
            from mcpio.app.reporting import LogOutlet

            self._log_outlet = LogOutlet(self, self.server.options.limits.logs_per_second)
        return self._log_outlet

    def _outlet_of(self, event: RequestReceived) -> LogOutlet:
        """Return what sends the log messages of a request's client."""
        del event
        return self._outlet()

    @property
    def dropped_logs(self) -> int:
        """How many log messages were dropped: beyond the rate, or because the client reads slowly."""
        return self.connection.stats.dropped_logs + (0 if self._log_outlet is None else self._log_outlet.dropped)

    def hear(self, notification: Any) -> bool:
        """Send a notification that goes to many sessions. Count it where that is impossible; return whether it went."""
        was_sent = self.tell(notification)
        if not was_sent:
            self.undelivered += 1
            self.server.undelivered += 1
        return was_sent

    def tell(self, notification: Any, *, related_to: IncomingId | None = None) -> bool:
        """Send a notification if the client can take it; return whether it could.

        For notifications whose loss must not make the sender fail. A malformed one is reported.
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

    # Methods of the base class

    def _save_state(self) -> dict[str, Any]:
        visits = {} if self._url_elicitations is None else {"visits": self._url_elicitations.save()}
        return {"log_level": self.log_level, "subscriptions": list(self.subscriptions), **visits}

    def _load_state(self, state: Mapping[str, Any]) -> None:
        """Restore a snapshot's state, after checking all of it. Raises LocalProtocolError if it is malformed."""
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
        self.server.audience.add(self, map(resource_topic, uris))
        self.connection.held.subscriptions = sum(sys.getsizeof(uri) + _SUBSCRIPTION_COST for uri in set(uris))
        for id, is_done in visits.items():
            elicitations = self._known_url_elicitations()
            elicitations.begin(id)
            if is_done:
                elicitations.finish(id)

    def _handler_for(self, event: RequestReceived) -> Handler:
        """Return the handler of a request within its rounds and middleware. Raises RequestError without one."""
        server = self.server
        # The name as it came is nearly always the protocol's; only dialects have others.
        wire_method = event.raw["method"]
        handler = server.handlers.get(
            wire_method if wire_method in METHODS else official_name(event.request, wire_method)
        )
        if handler is None:
            raise RequestError(ErrorCode.METHOD_NOT_FOUND, f"Method not found: {wire_method:.100}")
        if server.scope_rules is not None:
            # Before the first wait, while the status of an HTTP response can still say so.
            method = official_name(event.request, wire_method)
            new_scope = partial(self._new_scope, self, event)
            server.scope_rules.check(method, event.request, event.context.principal, new_scope)
        layers = server.middlewares
        if event.context.era is Era.STATELESS:
            if self._hears_of_lists and not self.is_one_request and self.connection.phase is Phase.NEW:
                # Without a handshake no broadcast can be sent here. One may still follow, on the same connection.
                self._hears_of_lists = False
                server.audience.remove(self, (LISTS,))
            tools = server.tools
            # A function of its arguments only has no way to ask by, but to return what it asks.
            if (
                layers
                or wire_method != "tools/call"
                or handler != tools.call
                or not tools.takes_arguments_only(event.request)
            ):
                row = METHODS.get(wire_method)
                if row is not None and row.may_ask:
                    return self._in_rounds(handler)
        return self._in_layers(handler) if layers else handler

    def _in_layers(self, handler: Handler) -> Handler:
        from mcpio.app.middleware import wrapped

        return wrapped(handler, self.server.middlewares)

    def _in_rounds(self, handler: Handler) -> Handler:
        """Return the handler within the middleware, and both within the rounds of a call."""
        from mcpio.app.rounds import in_layers, in_rounds

        if self.server.middlewares:
            handler = self._in_layers(in_layers(handler))
        return in_rounds(handler, self._begin_round)

    def _begin_round(self, scope: Any, request: Any) -> Flow:
        """Give a context the answers that came with its request, and the state of earlier rounds."""
        from mcpio.app.rounds import Flow

        runtime, carried = self.driver.runtime, None
        if request.request_state is not None:
            from mcpio.app.rounds import StateRejected, call_of, invalid_request_state

            event = scope._event
            call = partial(call_of, event, self.server.info.name)
            try:
                carried = self.server.states.open(request.request_state, call, runtime.wall_clock())
            except StateRejected as error:
                self._report_request(event, f"the request state of {{}} was rejected: {error}", None, kind="state")
                raise invalid_request_state() from None
        flow = Flow(runtime, request.input_responses, carried)
        scope._flow = flow
        return flow

    async def _ask_first(self, event: RequestReceived, scope: Any, questions: InputRequired) -> Any:
        from mcpio.app.rounds import check_one_form, run_again_with_answers

        if event.context.era is Era.STATELESS:
            check_one_form(scope._own_flow, questions)
            return self._input_required(event, scope._own_flow, questions)
        handler = self._handler_for(event)
        return await run_again_with_answers(scope, questions, lambda: handler(scope, event.request))

    def _input_required(self, event: RequestReceived, flow: Flow, questions: InputRequired) -> InputRequiredResult:
        """Return the result that asks a stateless client, with the state for the next round."""
        from mcpio.app.rounds import call_of, result_of

        if flow.missed >= _TOO_MANY_MISSES:
            advice = "ask by what the arguments say, give it a key=, or wrap what differs in ctx.once"
            self._report_request(event, f"the handler of {{}} asks something else each time: {advice}", None)
        carried, state = flow.to_carry(questions.state), None
        if carried is not None:
            states, runtime = self.server.states, self.driver.runtime
            if not states.is_shared and event.context.via is not None:
                advice = "give Server(states=RequestStates(keys=[...])) where several processes serve one address"
                self._report(f"a request state was sealed with a key that only this process has: {advice}", None)
            call = call_of(event, self.server.info.name)
            state = states.seal(carried, call, runtime.wall_clock(), runtime.entropy)
        client: Any = event.context.capabilities
        return result_of(questions, client, state)

    def _fail(self, event: RequestReceived, scope: Any, error: BaseException) -> None:
        """Answer a request whose handler failed. Missing scopes set the HTTP status too; visits become questions."""
        failure = unwrap_group(error)
        if isinstance(failure, InsufficientScope):
            refuse = getattr(self.driver, "refuse", None)
            # No token could have a text that is no scope, so no challenge asks for it.
            if refuse is not None and all(map(is_scope, failure.scopes)):
                refuse(event.context.via, event.id, failure.scopes)
        elif isinstance(failure, URLElicitationRequired) and event.context.era is Era.STATELESS:
            from mcpio.app.rounds import visits

            try:
                self._answer(event, self._input_required(event, scope._own_flow, visits(failure)))
            except Exception as fault:
                error = fault  # the client cannot show it, or the question is malformed
            else:
                return
        super()._fail(event, scope, error)

    def _handle_notification(self, event: NotificationReceived | Initialized) -> None:
        method = event.raw["method"]
        if isinstance(event, Initialized):
            self._hears_of_lists = True
            self.server.audience.add(self, (LISTS,))
        if method == "notifications/roots/list_changed" and self._root_list is not None:
            self._root_list.forget()
        callback = self.server.notification_handlers.get(method)
        if callback is not None:
            notification = event.notification if isinstance(event, NotificationReceived) else None
            self._call_back(f"the handler of {method}", callback, self, notification)

    def _handle_end(self, event: ConnectionClosed) -> None:
        super()._handle_end(event)
        # Broadcasts and the ledger would otherwise keep the session in memory.
        self.server.forget(self)
        self.server.ledger.settle(self, 0, ServerSession._end_overloaded)

    def _end_overloaded(self) -> None:
        self.connection.abort(reason=CloseReason.OVERLOADED)
        self.driver.wake()

    # For the driver, the server and handlers

    def _settle(self) -> None:
        """Update the accounts of held memory: see ``Server.ledger``."""
        if self._room is not None:
            self._note_room()
        # A driver may settle once more after the end; an entry made then would never be removed from the ledger.
        size = self.connection.held.total if self.ended is None else 0
        self.server.ledger.settle(self, size, ServerSession._end_overloaded)

    def _has_elicitation(self, id: str) -> bool:
        """Whether this client was sent an elicitation at a web address."""
        return self._url_elicitations is not None and id in self._url_elicitations

    def _known_roots(self) -> RootList | None:
        """Return the cached roots of the client; ``None`` for a client that would not report changes."""
        if self._root_list is None:
            peer = self.connection.peer
            if peer is not None and declares(peer.capabilities, ("roots", "list_changed")):
                from mcpio.app.asking import RootList

                self._root_list = RootList()
        return self._root_list

    def _subscribe(self, uri: str) -> None:
        """Subscribe the client to a resource. Subscribing twice has no further effect (RES-09).

        Raises RequestError beyond ``Limits.subscriptions`` or ``Limits.subscription_bytes``.
        """
        if self._subscriptions is None:
            self._subscriptions = {}
        if uri in self._subscriptions:
            return
        # Two limits, since a limit of the number alone would admit URIs of any length.
        limits, held = self.server.options.limits, self.connection.held
        size = sys.getsizeof(uri) + _SUBSCRIPTION_COST
        if len(self._subscriptions) >= limits.subscriptions:
            data = {"reason": "too many subscriptions", "limit": limits.subscriptions}
            raise RequestError(ErrorCode.INTERNAL_ERROR, "Too many subscriptions", data)
        if held.subscriptions + size > limits.subscription_bytes:
            data = {"reason": "the subscriptions take too much memory", "limit": limits.subscription_bytes}
            raise RequestError(ErrorCode.INTERNAL_ERROR, "Too many subscriptions", data)
        self._subscriptions[uri] = None
        self.server.audience.add(self, (resource_topic(uri),))
        held.subscriptions += size

    def _unsubscribe(self, uri: str) -> None:
        """End the client's subscription to a resource."""
        if self._subscriptions is not None and uri in self._subscriptions:
            del self._subscriptions[uri]
            self.server.audience.remove(self, (resource_topic(uri),))
            self.connection.held.subscriptions -= sys.getsizeof(uri) + _SUBSCRIPTION_COST


class StatelessSession(ServerSession):
    """The session of all stateless requests of one HTTP server. It knows no client: each request describes its own."""

    connection: Any
    """The ``StatelessEngine``."""

    is_one_request = True

    def __init__(self, *arguments: Any, **options: Any) -> None:
        """Take what ``ServerSession`` does."""
        super().__init__(*arguments, **options)
        self._outlets: dict[Hashable, LogOutlet] = {}
        self._dropped_before = 0

    @property
    def is_open(self) -> bool:  # type: ignore[override]  # of other sessions always true
        """Whether any request runs."""
        serving: bool = self.connection.is_serving
        return serving

    def account_of(self, event: RequestReceived) -> Hashable:
        """Return the key that a request is counted under: its principal, or the call itself."""
        context = event.context
        return context.via if context.principal is None else ("principal", context.principal)

    def close(self, grace: float = 5.0) -> None:
        """Do nothing: there is no connection, and a request ends with its answer."""
        checked_grace(grace)

    async def aclose(self, grace: float = 5.0) -> None:
        """Do nothing, as ``close``."""
        checked_grace(grace)

    def _outlet_of(self, event: RequestReceived) -> LogOutlet:
        """Return what sends the log messages of a client, and limits their rate."""
        account, outlets = self.account_of(event), self._outlets
        outlet = outlets.pop(account, None)
        if outlet is None:
            from mcpio.app.reporting import LogOutlet

            outlet = LogOutlet(self, self.server.options.limits.logs_per_second)
            if len(outlets) >= _MOST_OUTLETS:
                self._dropped_before += outlets.pop(next(iter(outlets))).dropped
        outlets[account] = outlet  # the last: the first is the one that was not used for longest
        return outlet

    @property
    def dropped_logs(self) -> int:
        """How many log messages were dropped: beyond the rate, or because a client reads slowly."""
        unread: int = self.connection.stats.dropped_logs
        return unread + self._dropped_before + sum(each.dropped for each in self._outlets.values())


_MOST_OUTLETS: Final = 1024
"""Clients whose rate of log messages is remembered."""

_TOO_MANY_MISSES: Final = 2
"""Rounds whose answers match no question before the operator is warned: one may be due to a new version."""

_SUBSCRIPTION_COST: Final = 128
"""Bytes that a subscription costs in addition to its URI."""


def checked_level(level: Any) -> LoggingLevel:
    """Return a log level. Raises ValueError if it is unknown."""
    if level in LOGGING_LEVELS:
        checked: LoggingLevel = level
        return checked
    raise ValueError(f"level must be one of {', '.join(LOGGING_LEVELS)}, not {level!r:.100}")
