"""Play a conversation script against a client engine, a server engine, or a pair."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeAlias, assert_never

import attrs

from mcpio.codec import codec
from mcpio.engine.client import ClientConnection
from mcpio.engine.connection import Connection
from mcpio.engine.limits import DEFAULT, Default, Timeout
from mcpio.engine.server import ServerConnection
from mcpio.engine.table import Phase, Role
from mcpio.errors import InvalidMessage, LocalProtocolError, NoBackChannel, RequestError
from mcpio.events import Event, IncomingId, OutgoingId, RequestReceived
from mcpio.framing.json import dumps, loads
from mcpio.framing.jsonrpc import encode_notification, encode_request, encode_result
from mcpio.methods import METHODS, TASK_EXTENSION_METHODS, Method, method_of
from mcpio.observe.verbs import VERBS
from mcpio.revisions import LATEST_HANDSHAKE, STATELESS_REVISIONS, Era, Revision
from mcpio.testing.engine_pair import Chunking, piece, whole
from mcpio.testing.script import (
    Act,
    At,
    DeadlineIs,
    EventIs,
    Flow,
    Handshake,
    Location,
    Lost,
    NoEvent,
    PhaseIs,
    Script,
    ScriptError,
    Step,
    Wire,
    is_complete,
    mismatch,
)
from mcpio.types.base import (
    META_CLIENT_CAPABILITIES,
    META_CLIENT_INFO,
    META_PROTOCOL_VERSION,
    META_SERVER_INFO,
    CustomNotification,
    CustomRequest,
    InputRequiredResult,
)
from mcpio.types.features import ClientCapabilities, Implementation, ServerCapabilities
from mcpio.types.tasks import CreatedTask

if TYPE_CHECKING:
    from mcpio.events import Event

Between: TypeAlias = Callable[[Connection, float], Connection]
"""Called with an engine and the time between two lines; returns the engine to continue with."""


class ScriptFailed(AssertionError):
    """An engine deviated from the script. The text starts with file and line, and ends with the preceding steps."""


def play(
    script: Script,
    engines: frozenset[Role] | None = None,
    *,
    revision: Revision | None = None,
    chunk: Chunking | None = whole,
    between: Between | None = None,
) -> None:
    """Play a script. Raises ScriptFailed if an engine deviates from it, ScriptError if the script is wrong.

    ``engines`` is one of ``script.engines`` and ``revision`` one of ``script.revisions``, by default the first of each.
    ``chunk`` cuts what is fed, as in ``pair``; with ``None`` the channel has message boundaries of its own. ``between``
    is called with each engine and the time before every line that makes something happen, and returns the engine to go
    on with: the same one, or one restored from its snapshot.
    """
    player = Player(script, revision or script.revisions[0], chunk, between)
    player.play(engines or script.engines[0])


class Player:
    """Plays one script over bytes or messages. Subclasses carry messages over other transports."""

    def __init__(self, script: Script, revision: Revision, chunk: Chunking | None, between: Between | None) -> None:
        self._script = script
        self._revision = revision
        self._chunk = chunk
        self._between = between
        self._now = 0.0
        self._sides: dict[Role, Side] = {}
        self._stalled: set[Role] = set()
        self._log: list[str] = []

    def play(self, engines: frozenset[Role]) -> None:
        """Play the script with these engines; the script plays the others."""
        for role in (Role.CLIENT, Role.SERVER):
            if role in engines:
                self._sides[role] = Side(role, self._engine(role))
        for step in self._script.steps:
            self._take(step)
        self._check_quiet("the end of the script")

    def _engine(self, role: Role) -> Connection:
        setup = self._script.setups[role]
        info = Implementation(role.value, "1")
        decode = codec(LATEST_HANDSHAKE).decode
        if role is Role.SERVER:
            return ServerConnection(info, decode(setup.capabilities, ServerCapabilities), options=setup.options)
        revisions = tuple(each for each in setup.options.revisions if each <= self._revision)
        options = attrs.evolve(setup.options, revisions=revisions)
        return ClientConnection(info, decode(setup.capabilities, ClientCapabilities), options=options)

    # Steps

    def _take(self, step: Step) -> None:
        match step:
            case Wire():
                self._wire(step)
            case At():
                self._begin(step.location)
                self._advance_to(step.time)
            case Handshake():
                self._begin(step.location)
                self._handshake(step)
            case Flow():
                self._begin(step.location)
                (self._stalled.add if step.stalled else self._stalled.discard)(step.role)
                self._settle()
            case Lost():
                self._begin(step.location)
                for side in self._sides.values():
                    side.connection.connection_lost(None, self._now)
                self._settle()
            case Act() | EventIs() | NoEvent() | DeadlineIs() | PhaseIs():
                if step.role in self._sides:
                    self._take_of(self._sides[step.role], step)
            case _:
                assert_never(step)

    def _take_of(self, side: Side, step: Act | EventIs | NoEvent | DeadlineIs | PhaseIs) -> None:
        match step:
            case Act():
                self._begin(step.location)
                self._act(side, step)
            case EventIs():
                self._expect_event(side, step)
            case NoEvent():
                side.listed = True
            case DeadlineIs():
                due = side.connection.next_deadline()
                if due != step.time:
                    self._fail(step.location, f"the {side.role.value} wants to be woken at {due}, not {step.time}")
            case PhaseIs():
                phase = side.connection.phase
                if phase is not step.phase:
                    self._fail(step.location, f"the {side.role.value} is {phase.value}, not {step.phase.value}")
            case _:
                assert_never(step)

    def _begin(self, location: Location) -> None:
        """Check that the previous step left nothing unlisted, before the next one."""
        self._check_quiet(str(location))
        for side in self._sides.values():
            side.events.clear()
            side.listed = False
            if self._between is not None:
                side.connection = self._between(side.connection, self._now)

    def _check_quiet(self, location: str) -> None:
        for side in self._sides.values():
            if side.sent:
                self._fail(location, f"before this the {side.role.value} sent {_text(side.sent[0])}")
            if side.listed and side.events:
                self._fail(location, f"before this the {side.role.value} reported {_brief(side.events[0])}")

    # Actions

    def _act(self, side: Side, act: Act) -> None:
        before = _state(side.connection, self._now)
        self._log.append(f"{side.role.value} {act.verb} {' '.join(map(str, act.arguments))}")
        try:
            perform(side, act, self._now)
        except (LocalProtocolError, NoBackChannel) as error:
            if act.refused is None or act.refused not in str(error):
                self._fail(act.location, f"refused: {error}", error)
            if before != _state(side.connection, self._now):
                self._fail(act.location, "refused, but the state is another", error)
        else:
            if act.refused is not None:
                self._fail(act.location, "this was not refused")
        self._settle()

    def _handshake(self, step: Handshake) -> None:
        if self._revision.era is not Era.HANDSHAKE:
            raise ScriptError(f"{step.location}: {self._revision} has no handshake: the client can adopt it")
        for side in self._sides.values():
            if side.connection.phase is not Phase.NEW:
                raise ScriptError(f"{step.location}: the conversation has begun already")
        if Role.CLIENT in self._sides:
            self._open_as_client(self._sides[Role.CLIENT], step.location)
        else:
            self._open_as_server(self._sides[Role.SERVER])
        self._settle()
        for side in self._sides.values():
            side.sent.clear()
            side.events.clear()
            if side.connection.phase is not Phase.OPERATING:
                self._fail(step.location, f"the {side.role.value} is {side.connection.phase.value} after the handshake")

    def _open_as_client(self, client: Side, location: Location) -> None:
        perform(client, Act(location, Role.CLIENT, "initialize", (), {}), self._now)
        self._settle()
        if Role.SERVER not in self._sides:
            result = {
                "protocolVersion": self._revision.name,
                "capabilities": self._script.setups[Role.SERVER].capabilities,
                "serverInfo": {"name": "server", "version": "1"},
            }
            self._feed(client, encode_result(client.connection.pending.outgoing[0], result) + b"\n")

    def _open_as_server(self, server: Side) -> None:
        for line in self._opening():
            self._feed(server, line)

    def _opening(self) -> tuple[bytes, bytes]:
        """Return the parameters of the client's ``initialize``."""
        params = {
            "protocolVersion": self._revision.name,
            "capabilities": self._script.setups[Role.CLIENT].capabilities,
            "clientInfo": {"name": "client", "version": "1"},
        }
        initialized = encode_notification("notifications/initialized", None)
        return encode_request(1, "initialize", params) + b"\n", initialized + b"\n"

    def _advance_to(self, when: float) -> None:
        while (due := self._next_deadline()) is not None and due <= when:
            self._now = max(self._now, due)
            for side in self._sides.values():
                side.connection.handle_timeout(self._now)
            self._settle()
        self._now = when
        self._log.append(f"at {when:g}")

    def _next_deadline(self) -> float | None:
        due = [time for side in self._sides.values() if (time := side.connection.next_deadline()) is not None]
        return min(due, default=None)

    # Bytes

    def _wire(self, step: Wire) -> None:
        if step.stateless:
            try:
                step = attrs.evolve(step, message=self._enveloped(step.message))
            except (AttributeError, TypeError):
                raise ScriptError(f"{step.location}: an envelope needs params or a result that is an object") from None
        if step.sender in self._sides:
            self._expect_sent(self._sides[step.sender], step)
            return
        self._begin(step.location)
        (side,) = self._sides.values()
        if step.text is None and step.message is None:
            self._feed(side, None)
        elif step.text is not None:
            self._feed(side, step.text + b"\n")
        elif is_complete(step.message):
            self._feed(side, dumps(step.message) + b"\n")
        else:
            raise ScriptError(f"{step.location}: a message that the script sends is written out in full")
        self._settle()

    def _enveloped(self, message: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a message with what the stateless era adds to it; its own members win."""
        if "method" in message:
            newest = self._revision if self._revision.era is Era.STATELESS else STATELESS_REVISIONS[-1]
            meta = {
                META_PROTOCOL_VERSION: newest.name,
                META_CLIENT_CAPABILITIES: self._script.setups[Role.CLIENT].capabilities,
                META_CLIENT_INFO: {"name": "client", "version": "1"},
            }
            name, members = "params", {}
        else:
            meta, name = {META_SERVER_INFO: {"name": "server", "version": "1"}}, "result"
            members = {"resultType": "complete"}
        own = message.get(name, {})
        return {**message, name: {**members, **own, "_meta": {**meta, **own.get("_meta", {})}}}

    def _feed(self, side: Side, data: bytes | None) -> None:
        if self._chunk is None:
            side.connection.receive_message(None if data is None else data.removesuffix(b"\n"), self._now)
            return
        if data is None:
            side.connection.receive_data(None, self._now)
        while data:
            size = piece(self._chunk, side.fed, len(data))
            side.connection.receive_data(data[:size], self._now)
            side.fed += size
            data = data[size:]
            self._drain(side)

    def _settle(self) -> None:
        """Drain events and deliver output until nothing more happens."""
        busy = True
        while busy:
            busy = False
            for side in self._sides.values():
                busy = self._drain(side) or busy
                for chunk in () if side.role in self._stalled else self._pull(side.connection):
                    self._carry(side, chunk)
                    busy = True
                if side.connection.phase is Phase.CLOSED and not side.over:
                    # A side that ends without a half-close still closes its stream.
                    self._carry_end(side)
                    busy = True

    def _pull(self, connection: Connection) -> list[bytes | None]:
        if self._chunk is not None:
            return connection.data_to_send()
        closing = connection.phase is Phase.CLOSING
        chunks: list[bytes | None] = []
        while (message := connection.next_message()) is not None:
            chunks.append(message.text + b"\n")
        if closing and connection.phase is Phase.CLOSED:
            chunks.append(None)
        return chunks

    def _carry(self, side: Side, chunk: bytes | None) -> None:
        self._log.append(f"{_ARROWS[side.role]} {_text(chunk)}")
        side.sent.append(chunk)
        if chunk is None:
            self._carry_end(side)
        elif (other := self._other(side)) is not None:
            self._feed(other, chunk)

    def _carry_end(self, side: Side) -> None:
        side.over = True
        other = self._other(side)
        if other is not None:
            self._feed(other, None)

    def _other(self, side: Side) -> Side | None:
        return self._sides.get(Role.SERVER if side.role is Role.CLIENT else Role.CLIENT)

    def _drain(self, side: Side) -> bool:
        events = side.drain()
        self._log += [f"{side.role.value}: {_brief(event)}" for event in events]
        return bool(events)

    # Expectations

    def _expect_sent(self, side: Side, step: Wire) -> None:
        if not side.sent:
            self._fail(step.location, f"the {side.role.value} sent nothing")
        sent = side.sent.pop(0)
        fault = _difference(step, sent)
        if fault is not None:
            self._fail(step.location, f"the {side.role.value} sent {_text(sent)}: {fault}")

    def _expect_event(self, side: Side, step: EventIs) -> None:
        side.listed = True
        if not side.events:
            self._fail(step.location, f"the {side.role.value} reported nothing")
        event = side.events.pop(0)
        if type(event).__name__ != step.name:
            self._fail(step.location, f"the {side.role.value} reported {_brief(event)}")
        for path, pattern in step.members.items():
            fault = _member_fault(event, path, pattern)
            if fault is not None:
                self._fail(step.location, f"{_brief(event)}: {fault}")

    def _fail(self, location: Location | str, what: str, cause: BaseException | None = None) -> NoReturn:
        before = "".join(f"\n    {line}" for line in self._log[-20:])
        raise ScriptFailed(f"{location}: {what}\n  before it, latest last:{before}") from cause


_ARROWS = {Role.CLIENT: "C>", Role.SERVER: "S>"}


def _state(connection: Connection, now: float) -> dict[str, Any] | None:
    """Return the snapshot, or ``None`` if none is allowed now."""
    try:
        return connection.snapshot(now)
    except LocalProtocolError:
        return None


def _difference(step: Wire, sent: bytes | None) -> str | None:
    if sent is None or (step.text is None and step.message is None):
        return None if sent is None and step.text is None and step.message is None else "expected otherwise"
    if step.text is not None:
        return None if sent == step.text + b"\n" else f"expected {step.text.decode()}"
    return mismatch(step.message, loads(sent))


def _text(chunk: bytes | None) -> str:
    return "end" if chunk is None else chunk.decode().rstrip("\n")


def _brief(event: Event) -> str:
    """Return an event as a script line: its class and members, without the raw message."""
    names = [name for name in type(event).__annotations__ if name not in ("raw", "context")]
    return f"{type(event).__name__}({', '.join(f'{name}={_shown(getattr(event, name))}' for name in names)})"


def _member_fault(event: Event, path: str, pattern: Any) -> str | None:
    try:
        value = _shown(_member(event, path))
    except (AttributeError, LookupError, TypeError, ValueError):
        return f"it has no {path}"
    if type(pattern) is int and type(value) is float and not path.startswith("raw"):
        # Compare times as numbers: the spelling (1 or 1.0) matters only on the wire.
        return mismatch(float(pattern), value, path)
    return mismatch(pattern, value, path)


def _member(value: Any, path: str) -> Any:
    for name in path.split("."):
        if isinstance(value, Mapping):
            value = value[name]
        elif isinstance(value, Sequence) and not isinstance(value, str):
            value = value[int(name)]
        else:
            value = getattr(value, name)
    return value


def _shown(value: Any) -> Any:
    """Return a value in script notation: JSON unchanged, other objects by their class name."""
    if value is None or isinstance(value, str | bool | float):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, Revision):
        return value.name
    if isinstance(value, Mapping):
        return {key: _shown(each) for key, each in value.items()}
    if isinstance(value, Sequence):
        return [_shown(each) for each in value]
    return type(value).__name__


# ---------------------------------------------------------------------------------------------------------------- sides


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
            raise ScriptError(f"{act.location}: no request with id {wire_id!r} came to the {self.role.value}")
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
        raise ScriptError(f"{act.location}: the {self.role.value} sent no request with the cookie {cookie!r}")


def perform(side: Side, act: Act, now: float) -> None:
    """Perform an act. Raises the engine's exception for a wrong call, and ScriptError if the script is wrong."""
    try:
        _perform(side, act, now)
    except (InvalidMessage, TypeError) as error:  # TypeError: an argument of another type, such as a list for an id
        raise ScriptError(f"{act.location}: {error}") from error


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
