"""Recordings of a connection, and their replay."""

from __future__ import annotations

import enum
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from math import isfinite
from typing import TYPE_CHECKING, Any, Final

import attrs

from mcpio._checks import called
from mcpio.codec import codec
from mcpio.engine.client import ClientConnection
from mcpio.engine.connection import ANY, Connection
from mcpio.engine.dialect import BatchItem
from mcpio.engine.limits import DEFAULT, Default, Limits, Timeout
from mcpio.engine.options import KeepAlive, Options
from mcpio.engine.server import ServerConnection
from mcpio.engine.stateless_engine import StatelessEngine
from mcpio.engine.table import Phase, Role
from mcpio.errors import ConnectFailed, ConnectionLost, LocalProtocolError, McpError, RequestError, UnexpectedResponse
from mcpio.events import CloseReason, Event, IncomingId, OutgoingId
from mcpio.framing.json import JsonError, dumps, loads
from mcpio.framing.lines import LineFramer, Overlong
from mcpio.observe.tap import Tap
from mcpio.revisions import LATEST_HANDSHAKE, REV_2026_07_28, Revision
from mcpio.types.base import RawNotification, RawRequest
from mcpio.types.features import ClientCapabilities, DiscoverResult, Implementation, SubscriptionFilter

if TYPE_CHECKING:
    from mcpio.observe.tap import Redactor


# ------------------------------------------------------------------------------------------------------------ recording
# Recordings of conversations, to be replayed: the same calls give the same events (P5, P15).
# A recording has one JSON value on each line. The first line is the header: the version of the layout, the role, the
# options, and the connection's snapshot where the recording begins. Each further line is one call on the connection:
# the name of the verb, the time ``at``, its arguments, and the output that it returned. Of an event only the name is
# written: ``mcpio.observe.recording`` makes the events again.

VERSION: Final = 1
"""The version of the layout that this library writes, and the newest that it reads."""


class Recorder(Tap):
    """A tap that writes a recording.

    ``write`` takes each line, with its newline; a file's ``write`` will do. If it raises, the recording ends and the
    connection goes on. ``redactor`` removes secrets first: input is then written in whole lines, not in the pieces in
    which it came. A recording cannot begin where a snapshot is refused.

    Cookies that are neither strings nor integers are left out, and so are the principal and options that are functions.
    A ``via`` of another type is written as its ``repr``.
    """

    def __init__(self, write: Callable[[str], object], *, redactor: Redactor | None = None) -> None:
        self._write = called("write", write, "(line)")
        self._redactor = redactor
        self._lines = LineFramer()
        self._began = 0.0
        self._awaits_end = False
        # Whether a message was read since the last event, so that a pull without one may have acted on it.
        self._has_read = False

    def opened(self, connection: Connection | StatelessEngine, now: float) -> None:
        """Write the header. Raises ``LocalProtocolError`` if a snapshot is refused, or a redactor meets half a line."""
        snapshot = connection.snapshot(now, cookies=_scalar)
        if self._redactor is not None:
            if snapshot["unfinished"] or snapshot["skipping"]:
                raise LocalProtocolError("a recording without secrets begins between two lines")
            snapshot = self._redactor.message(snapshot)
            limits = connection.options.limits
            self._lines = LineFramer(limits.message_bytes, resync=limits.resync)
        self._began = now
        header = {"recording": VERSION, "role": connection.role.value, "at": now}
        self._put({**header, "options": said_options(connection.options), "snapshot": snapshot})

    def message_received(self, text: bytes, via: Hashable, now: float) -> None:
        """Remember that the pull under way acts on a message."""
        self._has_read = True

    def event(self, event: Event, now: float) -> None:
        """Write the name of a pulled event."""
        self._has_read = False
        self._entry("next_event", {"event": type(event).__name__}, now)

    def called(self, verb: str, arguments: Mapping[str, Any], now: float) -> None:
        """Write a call."""
        if verb == "receive_data":
            self._awaits_end = self._awaits_end or arguments["data"] is None
            for said in self._fed(arguments["data"]):
                self._entry(verb, said, now)
            return
        if verb == "receive_message":
            self._awaits_end = self._awaits_end or arguments["text"] is None
        elif verb == "next_event":
            # A pull without an event changes nothing, unless it finds the end, or a message that is acted on quietly,
            # such as the answer that has a client initialize.
            if not (self._awaits_end or self._has_read):
                return
            self._awaits_end = self._has_read = False
        elif verb == "fail_request" and isinstance(error := arguments["error"], UnexpectedResponse):
            arguments = {**arguments, "status": error.status}  # a client that opens goes by it
        self._entry(verb, self._said(arguments), now)

    def _fed(self, data: bytes | None) -> Iterator[dict[str, Any]]:
        """Yield input as it is written: in whole lines if secrets must be found in it."""
        if self._redactor is None:
            yield {"data": said_bytes(data)}
            return
        if data is None:
            self._lines.receive_eof()
        else:
            self._lines.receive(data)
        while (line := self._lines.next_line()) is not None:
            if isinstance(line, Overlong):
                yield {"overlong": line.size_seen}
            else:
                yield {"data": said_bytes(self._redactor.data(line) + b"\n")}
        if data is None:
            yield {"data": None}

    def _said(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        if self._redactor is not None:
            arguments = {**arguments, **_redacted(self._redactor, arguments)}
        return {name: _SAID.get(name, _as_it_is)(value) for name, value in arguments.items()}

    def _entry(self, verb: str, said: Mapping[str, Any], now: float) -> None:
        self._put({"at": now if isfinite(now) else self._began, "do": verb, **said})

    def _put(self, value: dict[str, Any]) -> None:
        self._write(dumps(value).decode() + "\n")


def _redacted(redactor: Redactor, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments that may contain secrets, redacted. Paths start at the message that they are part of."""
    found: dict[str, Any] = {}
    for name, value in arguments.items():
        if name == "text" and value is not None:
            found[name] = redactor.text(value) if isinstance(value, str) else redactor.data(value)
        elif name == "chunks":
            found[name] = [None if chunk is None else redactor.data(chunk[:-1]) + b"\n" for chunk in value]
        elif name in ("params", "message", "reason"):
            found[name] = redactor.message({name: value})[name]
        elif name == "items":
            found[name] = [{**item, **_redacted(redactor, item)} for item in value]
        elif name in ("cause", "error") and value is not None:
            found[name] = redactor.text(f"{type(value).__name__}: {value}")
    return found


def said_options(options: Options) -> dict[str, Any]:
    """Return the options that differ from their defaults, as JSON. Functions are left out."""
    default = Options()
    values = {field.name: getattr(options, field.name) for field in attrs.fields(Options)}
    return {
        name: _said_option(value)
        for name, value in values.items()
        if value != getattr(default, name) and not callable(value)
    }


def said_bytes(data: bytes | None) -> Any:
    """Return bytes in JSON: as text, or ``{"hex": …}`` if they are not UTF-8."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"hex": data.hex()}


def _said_option(value: Any) -> Any:
    if isinstance(value, Revision):
        return value.name
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, tuple | frozenset):
        items = [_said_option(each) for each in value]
        return sorted(items) if isinstance(value, frozenset) else items
    return attrs.asdict(value) if attrs.has(type(value)) else value


def _as_it_is(value: Any) -> Any:
    return value


def _said_text(text: bytes | str | None) -> Any:
    if isinstance(text, bytes):
        said = said_bytes(text)
        return {"bytes": said} if isinstance(said, str) else said
    if text is not None and any("\ud800" <= character <= "\udfff" for character in text):
        # JSON cannot hold lone surrogates, but a caller may feed them.
        return {"utf-16": text.encode("utf-16-le", "surrogatepass").hex()}
    return text


def _said_chunks(chunks: Iterable[bytes | None]) -> list[Any]:
    return [said_bytes(chunk) for chunk in chunks]


def _said_seconds(value: float | None) -> float | None:
    return value if value is None or isfinite(value) else None


def _said_timeout(timeout: Timeout | float | Default | None) -> Any:
    if isinstance(timeout, Default):
        return "default"
    return [timeout.total, timeout.idle] if isinstance(timeout, Timeout) else _said_seconds(timeout)


def _said_cause(cause: BaseException | str | None) -> str | None:
    return cause if cause is None or isinstance(cause, str) else f"{type(cause).__name__}: {cause}"


def _said_items(items: Iterable[Mapping[str, Any]]) -> list[Any]:
    return [{name: _SAID.get(name, _as_it_is)(value) for name, value in item.items()} for item in items]


def _said_via(via: Any) -> int | str | None:
    return via if via is None or via.__class__ in (int, str) else repr(via)


def _scalar(cookie: Any) -> int | str | None:
    return cookie if cookie.__class__ in (int, str) else None


_SAID: Final[Mapping[str, Callable[[Any], Any]]] = {
    "cause": _said_cause,
    "chunks": _said_chunks,
    "cookie": _scalar,
    "error": _said_cause,
    "grace": _said_seconds,
    "items": _said_items,
    "text": _said_text,
    "timeout": _said_timeout,
    "via": _said_via,
}


# ------------------------------------------------------------------------------------------------------------- replayer
# Replay of recordings: a fresh engine gets the same calls and gives the same events (P5, P15).


@attrs.frozen
class ReplayedCall:
    """One replayed call and its outcome."""

    line: int
    """Its line in the recording; the header is line 1."""
    at: float
    """Its time, in seconds on the recorded clock."""
    verb: str
    """The name of the verb."""
    arguments: Mapping[str, Any]
    """The recorded arguments and output."""
    event: Event | None
    """The event that it returned, if any."""
    sent: tuple[bytes | None, ...]
    """The output that it returned; ``None`` is the half-close."""
    phase: Phase
    """The connection's phase after it."""
    differs: str | None
    """The difference from the recording, or ``None``."""


class Replay:
    """Replays a recording on a fresh connection, call by call. Iterate over it, once."""

    connection: Connection
    """The engine, as the last call left it."""
    role: Role
    """The recorded side."""

    def __init__(self, lines: Iterable[str], *, options: Options | None = None, principal: Hashable = None) -> None:
        """Read the header. ``options`` and ``principal`` supply what a recording leaves out.

        Raises ``LocalProtocolError`` for a malformed header or a newer version; so do later calls, with the line, for
        a malformed line.
        """
        self._lines = enumerate(lines, 1)
        header = _header(next(self._lines, (1, ""))[1])
        self.role = Role(header["role"])
        cls: type[Connection] = ClientConnection if self.role is Role.CLIENT else ServerConnection
        chosen = options or _read_options(header["options"])
        self.connection = cls.restore(header["snapshot"], header["at"], options=chosen, principal=principal)

    def __iter__(self) -> Iterator[ReplayedCall]:
        """Replay the calls one by one."""
        for number, line in self._lines:
            if line.strip():
                yield self._step(number, line)

    def events(self) -> list[Event]:
        """Replay the remaining calls, and return the events."""
        return [step.event for step in self if step.event is not None]

    def _step(self, number: int, line: str) -> ReplayedCall:
        connection = self.connection
        try:
            entry = loads(line)
            verb, at = entry.pop("do"), float(entry.pop("at"))
            act = _VERBS[verb]
        except JsonError as error:
            raise LocalProtocolError(f"malformed recording: line {number}: {error.reason}") from error
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise LocalProtocolError(f"malformed recording: line {number}: no call") from error
        try:
            event, sent, differs = act(connection, entry, at)
        except McpError as error:
            # The call succeeded when it was recorded, so the engine has diverged.
            event, sent, differs = None, (), f"refused: {error}"
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise LocalProtocolError(f"malformed recording: line {number}: {verb}: {error!r:.200}") from error
        return ReplayedCall(number, at, verb, entry, event, sent, connection.phase, differs)


def replay(lines: Iterable[str], *, options: Options | None = None, principal: Hashable = None) -> list[Event]:
    """Return the events of a recording, replayed by a fresh engine. See ``Replay``."""
    return Replay(lines, options=options, principal=principal).events()


# The header


def _header(line: str) -> dict[str, Any]:
    try:
        header = loads(line)
    except JsonError:
        header = None
    if not isinstance(header, dict) or header.get("recording").__class__ is not int:
        raise LocalProtocolError("not a recording: the first line is not a header")
    if header["recording"] > VERSION:
        raise LocalProtocolError(f"the recording has version {header['recording']}; this library reads up to {VERSION}")
    wrong = [name for name, kinds in _HEADER.items() if header.get(name).__class__ not in kinds]
    if wrong or header["role"] not in (role.value for role in Role):
        raise LocalProtocolError(f"malformed recording: the header has no proper {(wrong or ['role'])[0]}")
    return header


_HEADER: Final[Mapping[str, tuple[type, ...]]] = {
    "role": (str,),
    "at": (int, float),
    "options": (dict,),
    "snapshot": (dict,),
}


def _read_options(said: Mapping[str, Any]) -> Options:
    try:
        return Options(**{name: _OPTIONS.get(name, _as_it_is)(value) for name, value in said.items()})
    except (TypeError, ValueError, AttributeError) as error:
        raise LocalProtocolError(f"malformed recording: the options: {error}") from error


def _read_profile(said: Any) -> Any:
    from mcpio.profiles import Profile

    return Profile(said)


def _read_revisions(said: Iterable[str]) -> tuple[Revision, ...]:
    found = tuple(Revision.parse(name) for name in said)
    if None in found:
        raise ValueError(f"{said!r:.200} are not all revisions")
    return found  # type: ignore[return-value]  # none of them is None


_OPTIONS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "revisions": _read_revisions,
    "keep_alive": lambda said: KeepAlive(**said),
    "limits": lambda said: Limits(**said),
    "request_timeout": lambda said: Timeout(**said),
    "custom_methods": frozenset,
    "profiles": lambda said: frozenset(map(_read_profile, said)),
    "emit_profile": _read_profile,
}

# The verbs: each returns the event that was pulled, the output, and the difference from the recording


_Outcome = tuple[Event | None, tuple[bytes | None, ...], str | None]
_NOTHING: Final[_Outcome] = (None, (), None)


def _feed(connection: Connection, entry: Mapping[str, Any], now: float) -> _Outcome:
    if "overlong" in entry:
        # Its bytes were not kept: any line of that length is refused in the same way.
        connection.receive_data(b"x" * entry["overlong"] + b"\n", now)
    else:
        connection.receive_data(None if entry["data"] is None else _bytes(entry["data"]), now)
    return _NOTHING


def _feed_message(connection: Connection, entry: Mapping[str, Any], now: float) -> _Outcome:
    connection.receive_message(_text(entry["text"]), now, via=entry["via"])
    return _NOTHING


def _lose(connection: Connection, entry: Mapping[str, Any], now: float) -> _Outcome:
    connection.connection_lost(_cause(entry["cause"]), now)
    return _NOTHING


def _pull(connection: Connection, entry: Mapping[str, Any], now: float) -> _Outcome:
    event = connection.next_event()
    wanted, got = entry.get("event"), None if event is None else type(event).__name__
    return event, (), None if wanted == got else f"{got or 'no event'}, where there was {wanted or 'none'}"


def _write(connection: Connection, entry: Mapping[str, Any], now: float) -> _Outcome:
    chunks = connection.data_to_send(entry["max_bytes"])
    same = [said_bytes(chunk) for chunk in chunks] == entry["chunks"]
    return None, tuple(chunks), None if same else "what is to be written"


def _write_message(connection: Connection, entry: Mapping[str, Any], now: float) -> _Outcome:
    message = connection.next_message(via=entry.get("via", ANY))
    text = None if message is None else message.text
    same = text == _text(entry["text"])
    return None, () if text is None else (text,), None if same else "what is to be written"


def _let_time_pass(connection: Connection, entry: Mapping[str, Any], now: float) -> _Outcome:
    connection.handle_timeout(now)
    return _NOTHING


def _close(connection: Connection, entry: Mapping[str, Any], now: float) -> _Outcome:
    connection.close(now, grace=entry["grace"])
    return _NOTHING


def _abort(connection: Connection, entry: Mapping[str, Any], now: float) -> _Outcome:
    reason = CloseReason[entry.get("close_reason", CloseReason.ABORTED.name)]
    connection.abort(_cause(entry["cause"]), reason=reason)
    return _NOTHING


def _buffer(connection: Connection, entry: Mapping[str, Any], now: float) -> _Outcome:
    connection.set_unwritten(entry["size"])
    return _NOTHING


def _client(connection: Connection, does: str) -> ClientConnection:
    if not isinstance(connection, ClientConnection):
        raise TypeError(f"only a client {does}")
    return connection


def _server(connection: Connection, does: str) -> ServerConnection:
    if not isinstance(connection, ServerConnection):
        raise TypeError(f"only a server {does}")
    return connection


def _initialize(connection: Connection, entry: Mapping[str, Any], now: float) -> _Outcome:
    client = _client(connection, "initializes")
    client.send_initialize(now=now, timeout=_timeout(entry["timeout"]), cookie=entry["cookie"])
    return _NOTHING


def _negotiate(connection: Connection, entry: Mapping[str, Any], now: float) -> _Outcome:
    client = _client(connection, "negotiates")
    client.over_http = entry["over_http"]
    client.negotiate(now, timeout=_timeout(entry["timeout"]), cookie=entry["cookie"])
    return _NOTHING


def _adopt(connection: Connection, entry: Mapping[str, Any], now: float) -> _Outcome:
    client = _client(connection, "adopts a revision")
    (revision,) = _read_revisions([entry["revision"]])
    discovered = entry["discovered"]
    client.adopt(revision, None if discovered is None else codec(revision).decode(discovered, DiscoverResult))
    return _NOTHING


def _set_log_level(connection: Connection, entry: Mapping[str, Any], now: float) -> _Outcome:
    _client(connection, "sets the level of its log messages").log_level = entry["level"]
    return _NOTHING


def _ask(connection: Connection, entry: Mapping[str, Any], now: float) -> _Outcome:
    connection.send_request(
        RawRequest(entry["method"], entry["params"]),
        now=now,
        timeout=_timeout(entry["timeout"]),
        cookie=entry["cookie"],
        related_to=_incoming(entry["related_to"]),
        progress=entry["progress"],
    )
    return _NOTHING


def _ask_together(connection: Connection, entry: Mapping[str, Any], now: float) -> _Outcome:
    items = [
        BatchItem(
            (RawRequest if item["waits"] else RawNotification)(item["method"], item["params"]),
            _timeout(item["timeout"]),
            item["cookie"],
            item["progress"],
        )
        for item in entry["items"]
    ]
    connection.send_batch(items, now=now, related_to=_incoming(entry["related_to"]))
    return _NOTHING


def _fail(connection: Connection, entry: Mapping[str, Any], now: float) -> _Outcome:
    # The outcome of a probe depends on the kind of the error.
    said, status = entry["error"], entry.get("status")
    error: McpError = ConnectionLost(said)
    if status is not None:
        error = UnexpectedResponse(status, said)
    elif not said.startswith("ConnectionLost:"):
        error = ConnectFailed(said)
    connection.fail_request(OutgoingId(entry["id"]), error, now)
    return _NOTHING


def _declare(connection: Connection, entry: Mapping[str, Any], now: float) -> _Outcome:
    kind = type(connection.capabilities)
    connection.capabilities = codec(LATEST_HANDSHAKE).decode(entry["capabilities"], kind)
    return _NOTHING


def _skip_handshake(connection: Connection, entry: Mapping[str, Any], now: float) -> _Outcome:
    server = _server(connection, "assumes a handshake")
    (revision,) = _read_revisions([entry["revision"]])
    decode, capabilities, info = codec(revision).decode, entry["capabilities"], entry["info"]
    server.skip_handshake(
        revision,
        capabilities=None if capabilities is None else decode(capabilities, ClientCapabilities),
        info=None if info is None else decode(info, Implementation),
    )
    return _NOTHING


def _reset_session(connection: Connection, entry: Mapping[str, Any], now: float) -> _Outcome:
    _client(connection, "starts anew").reset_session(now)
    return _NOTHING


def _hold(connection: Connection, entry: Mapping[str, Any], now: float) -> _Outcome:
    _client(connection, "stops the time of its requests").hold(now)
    return _NOTHING


def _release(connection: Connection, entry: Mapping[str, Any], now: float) -> _Outcome:
    _client(connection, "stops the time of its requests").release(now)
    return _NOTHING


def _cancel(connection: Connection, entry: Mapping[str, Any], now: float) -> _Outcome:
    connection.cancel_request(OutgoingId(entry["id"]), entry["reason"])
    return _NOTHING


def _respond(connection: Connection, entry: Mapping[str, Any], now: float) -> _Outcome:
    id, text = IncomingId(entry["id"]), _bytes(entry["text"]["bytes"])
    message = loads(text)
    if "error" in message:
        error = message["error"]
        connection.send_error(id, RequestError(error["code"], error["message"], error.get("data")))
        return _NOTHING
    # Reuse the exact bytes if possible: a raw result may be formatted in another way than ours.
    before = b'{"jsonrpc":"2.0","id":%b,"result":' % dumps(message["id"])
    is_ours = text.startswith(before)
    connection.send_raw_result(id, text[len(before) : -1] if is_ours else dumps(message["result"]))
    return _NOTHING


def _report(connection: Connection, entry: Mapping[str, Any], now: float) -> _Outcome:
    connection.send_progress(IncomingId(entry["id"]), entry["progress"], entry["total"], entry["message"])
    return _NOTHING


def _acknowledge(connection: Connection, entry: Mapping[str, Any], now: float) -> _Outcome:
    server = _server(connection, "acknowledges subscriptions")
    honoured = codec(REV_2026_07_28).decode(entry["honoured"], SubscriptionFilter)
    server.acknowledge(IncomingId(entry["id"]), honoured)
    return _NOTHING


def _notify(connection: Connection, entry: Mapping[str, Any], now: float) -> _Outcome:
    notification = RawNotification(entry["method"], entry["params"])
    connection.send_notification(notification, related_to=_incoming(entry["related_to"]))
    return _NOTHING


_VERBS: Final[Mapping[str, Callable[[Connection, dict[str, Any], float], _Outcome]]] = {
    "receive_data": _feed,
    "receive_message": _feed_message,
    "connection_lost": _lose,
    "next_event": _pull,
    "data_to_send": _write,
    "next_message": _write_message,
    "handle_timeout": _let_time_pass,
    "set_unwritten": _buffer,
    "close": _close,
    "abort": _abort,
    "send_initialize": _initialize,
    "negotiate": _negotiate,
    "adopt": _adopt,
    "log_level": _set_log_level,
    "send_request": _ask,
    "send_batch": _ask_together,
    "fail_request": _fail,
    "capabilities": _declare,
    "skip_handshake": _skip_handshake,
    "assume": _skip_handshake,  # its name in recordings of version 0.1
    "reset_session": _reset_session,
    "start_anew": _reset_session,
    "hold": _hold,
    "release": _release,
    "cancel_request": _cancel,
    "respond": _respond,
    "send_progress": _report,
    "send_notification": _notify,
    "acknowledge": _acknowledge,
}


# Arguments, read


def _bytes(said: Any) -> bytes:
    return said.encode() if isinstance(said, str) else bytes.fromhex(said["hex"])


def _text(said: Any) -> bytes | str | None:
    if said is None or isinstance(said, str):
        return said
    if "utf-16" in said:
        return bytes.fromhex(said["utf-16"]).decode("utf-16-le", "surrogatepass")
    return said["bytes"].encode() if "bytes" in said else bytes.fromhex(said["hex"])


def _timeout(said: Any) -> Timeout | float | Default | None:
    if said == "default":
        return DEFAULT
    return Timeout(*said) if isinstance(said, list) else said


def _incoming(said: int | None) -> IncomingId | None:
    return None if said is None else IncomingId(said)


def _cause(said: str | None) -> Exception | None:
    return None if said is None else Exception(said)
