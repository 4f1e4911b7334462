"""The verbs of a connection: how each call is written in JSON, read again, and made.

Recordings write the calls that a tap is told of, replay makes them again, and conversation scripts make theirs too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import isfinite
from typing import TYPE_CHECKING, Any, Final

import attrs

from mcpio.codec import codec
from mcpio.engine.connection import ANY, Connection
from mcpio.engine.dialect import BatchItem
from mcpio.engine.limits import DEFAULT, Default, Timeout
from mcpio.engine.table import Role
from mcpio.errors import ConnectFailed, ConnectionLost, InvalidMessage, McpError, RequestError, UnexpectedResponse
from mcpio.events import CloseReason, IncomingId, OutgoingId
from mcpio.framing.json import dumps, loads
from mcpio.revisions import LATEST_HANDSHAKE, REV_2026_07_28, Revision
from mcpio.types.base import RawNotification, RawRequest
from mcpio.types.features import ClientCapabilities, DiscoverResult, Implementation, SubscriptionFilter

if TYPE_CHECKING:
    from mcpio.observe.tap import Redactor


# ------------------------------------------------------------------------------------------------------------ arguments


def _as_it_is(value: Any) -> Any:
    return value


@attrs.frozen
class Kind:
    """A kind of argument: how it is written in JSON and read, and how secrets are removed from it first."""

    write: Callable[[Any], Any] = _as_it_is
    read: Callable[[Any], Any] = _as_it_is
    redact: Callable[[Redactor, str, Any], Any] | None = None
    """Takes the name of the argument too, at which paths start."""


def write_bytes(data: bytes | None) -> Any:
    """Return bytes in JSON: as text, or ``{"hex": …}`` if they are not UTF-8."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"hex": data.hex()}


def _read_bytes(raw: Any) -> bytes | None:
    return raw.encode() if isinstance(raw, str) else None if raw is None else bytes.fromhex(raw["hex"])


def _write_text(text: bytes | str | None) -> Any:
    if isinstance(text, bytes):
        written = write_bytes(text)
        return {"bytes": written} if isinstance(written, str) else written
    if text is not None and any("\ud800" <= character <= "\udfff" for character in text):
        # JSON cannot hold lone surrogates, but a caller may feed them.
        return {"utf-16": text.encode("utf-16-le", "surrogatepass").hex()}
    return text


def _read_text(raw: Any) -> bytes | str | None:
    if raw is None or isinstance(raw, str):
        return raw
    if "utf-16" in raw:
        return bytes.fromhex(raw["utf-16"]).decode("utf-16-le", "surrogatepass")
    return raw["bytes"].encode() if "bytes" in raw else bytes.fromhex(raw["hex"])


def _redact_text(redactor: Redactor, name: str, text: bytes | str | None) -> Any:
    return redactor.text(text) if isinstance(text, str) else None if text is None else redactor.data(text)


def _redact_chunks(redactor: Redactor, name: str, chunks: Iterable[bytes | None]) -> list[bytes | None]:
    return [None if chunk is None else redactor.data(chunk[:-1]) + b"\n" for chunk in chunks]


def _write_seconds(value: float | None) -> float | None:
    return value if value is None or isfinite(value) else None


def _write_timeout(timeout: Timeout | float | Default | None) -> Any:
    if isinstance(timeout, Default):
        return "default"
    return [timeout.total, timeout.idle] if isinstance(timeout, Timeout) else _write_seconds(timeout)


def _read_timeout(raw: Any) -> Timeout | float | Default | None:
    if raw == "default":
        return DEFAULT
    return Timeout(*raw) if isinstance(raw, list) else raw


def _write_cause(cause: BaseException | str | None) -> str | None:
    return cause if cause is None or isinstance(cause, str) else f"{type(cause).__name__}: {cause}"


def _redact_cause(redactor: Redactor, name: str, cause: BaseException | None) -> str | None:
    return None if cause is None else redactor.text(f"{type(cause).__name__}: {cause}")


def write_cookie(cookie: Any) -> int | str | None:
    """Return a cookie that JSON can hold; ``None`` for any other."""
    return cookie if cookie.__class__ in (int, str) else None


def read_revision(raw: Any) -> Revision:
    """Return the revision of a name. Raises ValueError if there is none."""
    revision = Revision.parse(raw)
    if revision is None:
        raise ValueError(f"the revision must be one of the protocol, not {raw!r:.200}")
    return revision


AS_IT_IS: Final = Kind()
BYTES: Final = Kind(write_bytes, _read_bytes)
TEXT: Final = Kind(_write_text, _read_text, _redact_text)
CHUNKS: Final = Kind(lambda chunks: [write_bytes(chunk) for chunk in chunks], redact=_redact_chunks)
JSON: Final = Kind(redact=lambda redactor, name, value: redactor.message({name: value})[name])
CAUSE: Final = Kind(_write_cause, lambda raw: None if raw is None else Exception(raw), _redact_cause)
ERROR: Final = Kind(_write_cause, redact=_redact_cause)
SECONDS: Final = Kind(_write_seconds)
TIMEOUT: Final = Kind(_write_timeout, _read_timeout)
COOKIE: Final = Kind(write_cookie)
VIA: Final = Kind(lambda via: via if via is None or via.__class__ in (int, str) else repr(via))
INCOMING: Final = Kind(read=lambda raw: None if raw is None else IncomingId(raw))
OUTGOING: Final = Kind(read=OutgoingId)
REVISION: Final = Kind(read=read_revision)
EVENT: Final = Kind(lambda event: None if event is None else type(event).__name__)

_ITEM: Final = {
    "method": AS_IT_IS,
    "params": JSON,
    "waits": AS_IT_IS,
    "timeout": TIMEOUT,
    "cookie": COOKIE,
    "progress": AS_IT_IS,
}


def write_all(kinds: Mapping[str, Kind], arguments: Mapping[str, Any], redactor: Redactor | None) -> dict[str, Any]:
    """Return arguments in JSON, without their secrets if there is a redactor."""
    if redactor is not None:
        arguments = {
            name: value if (redact := kinds[name].redact) is None else redact(redactor, name, value)
            for name, value in arguments.items()
        }
    return {name: kinds[name].write(value) for name, value in arguments.items()}


def _read_item(raw: Mapping[str, Any]) -> BatchItem:
    payload = (RawRequest if raw["waits"] else RawNotification)(raw["method"], raw["params"])
    return BatchItem(payload, _read_timeout(raw["timeout"]), raw["cookie"], raw["progress"])


ITEMS: Final = Kind(
    lambda items: [write_all(_ITEM, item, None) for item in items],
    lambda raw: [_read_item(item) for item in raw],
    lambda redactor, name, items: [
        {**item, "params": JSON.redact(redactor, "params", item["params"])}  # type: ignore[misc]  # it is set
        for item in items
    ],
)


# ---------------------------------------------------------------------------------------------------------------- verbs


class Verb:
    """A verb: its arguments, how it is called with them, and what it returns."""

    def __init__(
        self,
        call: Callable[..., Any],
        *,
        role: Role | None = None,
        returns: tuple[str, Kind] | None = None,
        **arguments: Kind,
    ) -> None:
        """``call`` takes the connection, the time, and the arguments by name. ``returns`` is recorded with them."""
        self.role = role
        self.returns = returns
        self.arguments = arguments
        self.kinds = {**arguments, **dict([returns] if returns is not None else [])}
        """What is written of a call."""
        self._call = call

    def play(self, connection: Connection, raw: Mapping[str, Any], now: float) -> Any:
        """Make the call that was written, and return its result.

        Raises as the verb does, and TypeError, ValueError, KeyError or AttributeError for what no call is written as.
        """
        if self.role is not None and connection.role is not self.role:
            raise TypeError(f"only a {self.role.value} has this verb")
        arguments = {name: kind.read(raw[name]) for name, kind in self.arguments.items() if name in raw}
        return self._call(connection, now, **arguments)


def _receive_data(connection: Connection, now: float, *, overlong: int | None = None, **raw: bytes | None) -> None:
    # The bytes of an overlong line were not kept: any line of that length is refused in the same way.
    connection.receive_data(raw["data"] if overlong is None else b"x" * overlong + b"\n", now)


def _next_message(connection: Connection, now: float, *, via: Any = ANY) -> bytes | None:
    message = connection.next_message(via=via)
    return None if message is None else message.text


def _negotiate(connection: Any, now: float, *, over_http: bool, **arguments: Any) -> None:
    connection.over_http = over_http
    connection.negotiate(now, **arguments)


def _adopt(connection: Any, now: float, *, revision: Revision, discovered: Any) -> None:
    connection.adopt(revision, None if discovered is None else codec(revision).decode(discovered, DiscoverResult))


def _set_log_level(connection: Any, now: float, *, level: Any) -> None:
    connection.log_level = level


def _set_capabilities(connection: Connection, now: float, *, capabilities: Any) -> None:
    connection.capabilities = codec(LATEST_HANDSHAKE).decode(capabilities, type(connection.capabilities))


def _skip_handshake(connection: Any, now: float, *, revision: Revision, capabilities: Any, info: Any) -> None:
    decode = codec(revision).decode
    connection.skip_handshake(
        revision,
        capabilities=None if capabilities is None else decode(capabilities, ClientCapabilities),
        info=None if info is None else decode(info, Implementation),
    )


def _fail_request(
    connection: Connection,
    now: float,
    *,
    id: OutgoingId,
    error: str,
    status: int | None = None,
    refusal: Mapping[str, Any] | None = None,
) -> None:
    # The outcome of a probe depends on the kind of the error.
    made: McpError
    if status is not None:
        made = UnexpectedResponse(status, error)
    elif refusal is not None:
        made = RequestError(**refusal)
    elif error.startswith("InvalidMessage:"):
        made = InvalidMessage("", error)
    else:
        made = ConnectionLost(error) if error.startswith("ConnectionLost:") else ConnectFailed(error)
    connection.fail_request(id, made, now)


def _respond(connection: Connection, now: float, *, id: IncomingId, text: bytes) -> None:
    message = loads(text)
    if "error" in message:
        error = message["error"]
        connection.send_error(id, RequestError(error["code"], error["message"], error.get("data")))
        return
    # Reuse the exact bytes if possible: a raw result may be formatted in another way than ours.
    before = b'{"jsonrpc":"2.0","id":%b,"result":' % dumps(message["id"])
    is_ours = text.startswith(before)
    connection.send_raw_result(id, text[len(before) : -1] if is_ours else dumps(message["result"]))


VERBS: Final[Mapping[str, Verb]] = {
    "receive_data": Verb(_receive_data, data=BYTES, overlong=AS_IT_IS),
    "receive_message": Verb(lambda c, now, text, via: c.receive_message(text, now, via=via), text=TEXT, via=VIA),
    "connection_lost": Verb(lambda c, now, cause: c.connection_lost(cause, now), cause=CAUSE),
    "next_event": Verb(lambda c, now: c.next_event(), returns=("event", EVENT)),
    "data_to_send": Verb(
        lambda c, now, max_bytes: c.data_to_send(max_bytes), max_bytes=AS_IT_IS, returns=("chunks", CHUNKS)
    ),
    "next_message": Verb(_next_message, via=VIA, returns=("text", TEXT)),
    "set_unwritten": Verb(lambda c, now, size: c.set_unwritten(size), size=AS_IT_IS),
    "handle_timeout": Verb(lambda c, now: c.handle_timeout(now)),
    "close": Verb(lambda c, now, grace: c.close(now, grace=grace), grace=SECONDS),
    "abort": Verb(
        lambda c, now, cause, close_reason: c.abort(cause, reason=CloseReason[close_reason]),
        cause=CAUSE,
        close_reason=AS_IT_IS,
    ),
    "send_initialize": Verb(
        lambda c, now, **arguments: c.send_initialize(now=now, **arguments),
        role=Role.CLIENT,
        timeout=TIMEOUT,
        cookie=COOKIE,
    ),
    "negotiate": Verb(_negotiate, role=Role.CLIENT, timeout=TIMEOUT, cookie=COOKIE, over_http=AS_IT_IS),
    "adopt": Verb(_adopt, role=Role.CLIENT, revision=REVISION, discovered=AS_IT_IS),
    "log_level": Verb(_set_log_level, role=Role.CLIENT, level=AS_IT_IS),
    "send_request": Verb(
        lambda c, now, method, params, **more: c.send_request(RawRequest(method, params), now=now, **more),
        method=AS_IT_IS,
        params=JSON,
        timeout=TIMEOUT,
        cookie=COOKIE,
        related_to=INCOMING,
        progress=AS_IT_IS,
    ),
    "send_batch": Verb(
        lambda c, now, items, related_to: c.send_batch(items, now=now, related_to=related_to),
        items=ITEMS,
        related_to=INCOMING,
    ),
    "cancel_request": Verb(lambda c, now, id, reason: c.cancel_request(id, reason), id=OUTGOING, reason=JSON),
    "fail_request": Verb(_fail_request, id=OUTGOING, error=ERROR, status=AS_IT_IS, refusal=JSON),
    "send_notification": Verb(
        lambda c, now, method, params, related_to: c.send_notification(
            RawNotification(method, params), related_to=related_to
        ),
        method=AS_IT_IS,
        params=JSON,
        related_to=INCOMING,
    ),
    "respond": Verb(_respond, id=INCOMING, text=TEXT),
    "send_progress": Verb(
        lambda c, now, id, progress, total, message: c.send_progress(id, progress, total, message),
        id=INCOMING,
        progress=AS_IT_IS,
        total=AS_IT_IS,
        message=JSON,
    ),
    "acknowledge": Verb(
        lambda c, now, id, honoured: c.acknowledge(id, codec(REV_2026_07_28).decode(honoured, SubscriptionFilter)),
        role=Role.SERVER,
        id=INCOMING,
        honoured=AS_IT_IS,
    ),
    "capabilities": Verb(_set_capabilities, capabilities=AS_IT_IS),
    "skip_handshake": Verb(_skip_handshake, role=Role.SERVER, revision=REVISION, capabilities=AS_IT_IS, info=AS_IT_IS),
    "reset_session": Verb(lambda c, now: c.reset_session(now), role=Role.CLIENT),
    "hold": Verb(lambda c, now: c.hold(now), role=Role.CLIENT),
    "release": Verb(lambda c, now: c.release(now), role=Role.CLIENT),
}
"""Each verb that a tap is told of, by the name that it is told."""
