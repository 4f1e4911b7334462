"""One side of a scripted conversation: its engine, and the acts that a script can perform on it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from mcpio.codec import codec
from mcpio.engine.connection import Connection
from mcpio.engine.limits import DEFAULT, Default, Timeout
from mcpio.errors import InvalidMessage, RequestError
from mcpio.events import Event, IncomingId, OutgoingId, RequestReceived
from mcpio.methods import METHODS, TASK_EXTENSION_METHODS, Method, method_of
from mcpio.observe.verbs import VERBS
from mcpio.revisions import LATEST_HANDSHAKE, STATELESS_REVISIONS, Era, Revision
from mcpio.testing.script import Act, ScriptError
from mcpio.types.base import CustomNotification, CustomRequest, InputRequiredResult
from mcpio.types.tasks import CreatedTask

if TYPE_CHECKING:
    from mcpio.engine.table import Role


class Side:
    """An engine in a conversation, with its output and events that the script has not checked yet."""

    def __init__(self, role: Role, connection: Connection) -> None:
        self.role = role
        self.connection = connection
        self.sent: list[bytes | None] = []
        """Lines that the engine wrote; ``None`` is the end."""
        self.events: list[Event] = []
        """Events that the engine reported."""
        self.listed = False
        """Whether the script lists the events since the last step."""
        self.fed = 0
        """The number of bytes received."""
        self.over = False
        """Whether the other side was notified that this one closed its output."""
        self._requests: dict[tuple[type, int | str], RequestReceived] = {}
        self._cookies: dict[Any, OutgoingId] = {}

    def drain(self) -> list[Event]:
        """Drain the engine's events."""
        events = list(self.connection.events())
        for event in events:
            self.take(event)
        return events

    def take(self, event: Event) -> None:
        """Record an event of the engine."""
        if isinstance(event, RequestReceived):
            wire_id = event.raw["id"]
            self._requests[type(wire_id), wire_id] = event
        self.events.append(event)

    def request(self, act: Act, wire_id: Any) -> RequestReceived:
        """Return the latest request of the other side with that wire id."""
        event = self._requests.get((type(wire_id), wire_id))
        if event is None:
            raise ScriptError(f"{act.place}: no request with id {wire_id!r} came to the {self.role.value}")
        return event

    def keep(self, cookie: Any, id: OutgoingId) -> None:
        """Record the id of a request of this side by its cookie."""
        self._cookies[cookie] = id

    def own(self, act: Act, cookie: Any) -> OutgoingId:
        """Return the id of the request with that cookie; an unknown integer is taken as an id."""
        if cookie in self._cookies:
            return self._cookies[cookie]
        if type(cookie) is int:
            return OutgoingId(cookie)
        raise ScriptError(f"{act.place}: the {self.role.value} sent no request with the cookie {cookie!r}")


def perform(side: Side, act: Act, now: float) -> None:
    """Perform an act. Raises the engine's exception for a wrong call, and ScriptError if the script is wrong."""
    try:
        _perform(side, act, now)
    except (InvalidMessage, TypeError) as error:  # TypeError: an argument of another type, such as a list for an id
        raise ScriptError(f"{act.place}: {error}") from error


def _perform(side: Side, act: Act, now: float) -> None:
    connection, options = side.connection, act.options
    match act.verb, act.arguments:
        case (("initialize" | "negotiate" | "adopt" | "log_level"), arguments):
            _open(side, act, *arguments, now=now)
        case "request", (method, *params):
            _request(side, act, _payload(method, params, CustomRequest, _era(side, act)), now)
        case "cancel", (cookie, *reason):
            connection.cancel_request(side.own(act, cookie), *reason)
        case "notify", (method, *params):
            notification = _payload(method, params, CustomNotification, _era(side, act))
            connection.send_notification(notification, related_to=_related(side, act))
        case "answer", (wire_id, result):
            event = side.request(act, wire_id)
            connection.send_result(event.id, _result(event, result))
        case "error", (wire_id, code, message, *data):
            connection.send_error(side.request(act, wire_id).id, RequestError(code, message, *data))
        case "progress", (wire_id, value):
            connection.send_progress(side.request(act, wire_id).id, value, **options)
        case "acknowledge", (wire_id, honoured):
            members = {"id": side.request(act, wire_id).id, "honoured": honoured}
            VERBS["acknowledge"].play(connection, members, now)
        case "close", _:
            connection.close(now, **options)
        case _:
            connection.abort()


def _open(side: Side, act: Act, argument: Any = None, *, now: float) -> None:
    """Perform an act that only clients have."""
    cookie = act.options.get("cookie")
    arguments: dict[str, Any] = {"timeout": act.options.get("timeout", "default"), "cookie": cookie}
    if act.verb == "negotiate":
        arguments["over_http"] = False
    elif act.verb == "adopt":
        arguments = {"revision": _STATELESS.revision.name, "discovered": argument}
    elif act.verb == "log_level":
        arguments = {"level": argument}
    id = VERBS["send_initialize" if act.verb == "initialize" else act.verb].play(side.connection, arguments, now)
    if act.verb == "initialize":
        side.keep(cookie, id)


def _request(side: Side, act: Act, payload: Any, now: float) -> None:
    cookie = act.options.get("cookie")
    id = side.connection.send_request(
        payload,
        now=now,
        timeout=_timeout(act.options),
        cookie=cookie,
        related_to=_related(side, act),
        progress=act.options.get("progress", False),
    )
    side.keep(cookie, id)


def _timeout(options: Mapping[str, Any]) -> Timeout | Default:
    if "timeout" in options or "idle" in options:
        return Timeout(options.get("timeout", Timeout().total), options.get("idle"))
    return DEFAULT


def _related(side: Side, act: Act) -> IncomingId | None:
    return side.request(act, act.options["related"]).id if "related" in act.options else None


def _era(side: Side, act: Act) -> Era:
    """Return the era of a side's message: the era of the client's opening, or of the request that it is related to."""
    if "related" in act.options:
        return side.request(act, act.options["related"]).context.era
    revision = side.connection.revision
    return Era.HANDSHAKE if revision is None else revision.era


def _payload(name: str, params: list[Any], custom: type[CustomRequest | CustomNotification], era: Era) -> Any:
    """Return the payload of a method; ``custom`` if the protocol does not have it."""
    raw = params[0] if params else {}
    method = METHODS.get(name)
    if method is None or (era is Era.STATELESS and name in TASK_EXTENSION_METHODS):
        return custom(name, raw)
    return codec(_revision(method, era)).decode(raw, method.params_type)


def _result(event: RequestReceived, raw: Any) -> Any:
    if isinstance(event.request, CustomRequest):
        return raw
    method, era = method_of(event.request), event.context.era
    kind = raw.get("resultType") if era is Era.STATELESS else None
    result_type = method.result_type if kind is None else _OTHER_RESULTS.get(kind, method.result_type)
    return codec(_revision(method, era)).decode(raw, result_type)


def _revision(method: Method, era: Era) -> Revision:
    """Return the revision in which to read a script's message: the newest of the era that has the method."""
    newest = LATEST_HANDSHAKE if era is Era.HANDSHAKE else _STATELESS.revision
    return newest if method.exists_in(newest) else method.since


_STATELESS: Final = codec(STATELESS_REVISIONS[-1])
_OTHER_RESULTS: Final = {"input_required": InputRequiredResult, "task": CreatedTask}
"""The types of results that are not the final one of their method, by ``resultType``."""
