"""Replay of recordings: a fresh engine gets the same calls and gives the same events (P5, P15)."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import Any, Final

import attrs

from mcpio.codec import codec
from mcpio.engine.batches import BatchItem
from mcpio.engine.client import ClientConnection
from mcpio.engine.connection import ANY, Connection
from mcpio.engine.keep_alive import KeepAlive
from mcpio.engine.limits import DEFAULT, Default, Limits, Timeout
from mcpio.engine.options import Options
from mcpio.engine.server import ServerConnection
from mcpio.engine.table import Phase, Role
from mcpio.errors import (
    ConnectFailed,
    ConnectionLost,
    LocalProtocolError,
    McpError,
    RequestError,
    UnexpectedResponse,
)
from mcpio.events import CloseReason, Event, IncomingId, OutgoingId
from mcpio.framing.json import JsonError, dumps, loads
from mcpio.observe.recording import VERSION, said_bytes
from mcpio.revisions import LATEST_HANDSHAKE, REV_2026_07_28, Revision
from mcpio.types.custom import RawNotification, RawRequest
from mcpio.types.discovery import DiscoverResult
from mcpio.types.lifecycle import ClientCapabilities, Implementation
from mcpio.types.subscriptions import SubscriptionFilter

__all__ = ["Replay", "ReplayedCall", "replay"]


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


def _as_it_is(value: Any) -> Any:
    return value


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
