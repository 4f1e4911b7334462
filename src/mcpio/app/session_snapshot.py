"""A session as a value (P12): the engine's snapshot, and the state of the application layer.

Running handlers and waiting callers cannot be part of it. The requests of those handlers are, so that they can be
served again; our requests whose callers are gone are cancelled.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypeVar

import attrs

from mcpio.codec import codec
from mcpio.engine.connection import Connection
from mcpio.engine.options import Options
from mcpio.engine.pending import Unanswered
from mcpio.errors import ErrorCode, InvalidMessage, LocalProtocolError, RequestError
from mcpio.events import Event, RequestContext, RequestReceived
from mcpio.methods import METHODS
from mcpio.types.custom import CustomRequest

if TYPE_CHECKING:
    from mcpio.app.contracts import PeerSession

__all__ = ["VERSION", "SavedSession", "UnansweredPolicy", "check_unanswered", "resume", "save"]

VERSION: Final = 1
"""The version of the layout that this library writes, and the newest that it reads."""

UnansweredPolicy: TypeAlias = Literal["again", "fail"]
"""How to continue the peer's unanswered requests: run their handlers ``again`` from the beginning, or ``fail`` them
with -32603 and ``data.reason`` "interrupted"."""

C = TypeVar("C", bound=Connection)


@attrs.frozen
class SavedSession:
    """The snapshot of a session, checked as far as the engine does not check it itself."""

    engine: Mapping[str, Any]
    """The snapshot of the connection."""
    running: Mapping[str, Mapping[str, Any]]
    """The peer's requests that were running, as they came, by our id."""
    state: Mapping[str, Any]
    """The state that the kind of session adds."""
    transport: Mapping[str, Any] = attrs.field(factory=dict)
    """The state that the transport adds, if it can resume."""

    @classmethod
    def read(cls, snapshot: Any) -> SavedSession:
        """Parse a snapshot. Raises LocalProtocolError for a newer version, and if it is not a snapshot."""
        values = snapshot if isinstance(snapshot, Mapping) else {}
        version = values.get("session")
        if version.__class__ is not int or version < 1:
            raise LocalProtocolError("not the snapshot of a session: it has no version")
        if version > VERSION:
            raise LocalProtocolError(f"the snapshot has version {version}; this library reads up to {VERSION}")
        for name in ("engine", "running", "state"):
            if not isinstance(values.get(name), Mapping):
                raise LocalProtocolError(f"malformed snapshot: expected an object @ snapshot.{name}")
        running: Mapping[str, Any] = values["running"]
        for id, message in running.items():
            if not isinstance(message, Mapping) or not isinstance(message.get("params", {}), Mapping):
                raise LocalProtocolError(f"malformed snapshot: expected a request @ snapshot.running[{id!r:.40}]")
        transport = values.get("transport", {})
        if not isinstance(transport, Mapping):
            raise LocalProtocolError("malformed snapshot: expected an object @ snapshot.transport")
        return cls(values["engine"], running, values["state"], transport)

    def connection(self, cls: type[C], now: float, *, options: Options | None, principal: Hashable = None) -> C:
        """Return the restored connection. Raises as the engine's ``restore`` does."""
        return cls.restore(self.engine, now, options=options, principal=principal)


def save(session: PeerSession, running: Mapping[int, Mapping[str, Any]], state: Mapping[str, Any]) -> dict[str, Any]:
    """Return a session as a value that JSON can express. Raises as the engine's ``snapshot`` does."""
    engine = session.connection.snapshot(session.driver.now(), cookies=lambda _: None)
    saved = {
        "session": VERSION,
        "engine": engine,
        "running": {str(id): dict(message) for id, message in running.items()},
        "state": dict(state),
    }
    # Few transports have state: most are gone when their session moves.
    save_transport = getattr(session.driver, "save_transport", None)
    return saved if save_transport is None else {**saved, "transport": save_transport()}


def resume(
    session: PeerSession,
    handle: Callable[[Event], None],
    running: Mapping[str, Mapping[str, Any]],
    unanswered: UnansweredPolicy,
) -> None:
    """Complete a restored connection: serve or fail the peer's requests, and cancel this side's."""
    check_unanswered(unanswered)
    connection = session.connection
    # Their callers were in the process that made the snapshot.
    for id in connection.pending.outgoing:
        connection.cancel_request(id, "nobody waits for it any more")
    for request in connection.unanswered:
        message = running.get(str(int(request.id)))
        event = _received(request, message) if unanswered == "again" and message is not None else None
        if event is None:
            data = {"reason": "interrupted"}
            connection.send_error(request.id, RequestError(ErrorCode.INTERNAL_ERROR, "Interrupted: ask again", data))
        else:
            handle(event)


def check_unanswered(policy: UnansweredPolicy) -> None:
    """Raise ValueError if it is not a policy."""
    if policy not in ("again", "fail"):
        raise ValueError(f"unanswered must be 'again' or 'fail', not {policy!r:.100}")


def _received(request: Unanswered, message: Mapping[str, Any]) -> RequestReceived | None:
    """Return the event of a request in the snapshot, ``None`` if it can no longer be decoded."""
    came = request.context
    params = dict(message.get("params", {}))
    method = METHODS.get(request.method)
    try:
        payload = (
            CustomRequest(request.method, params)
            if method is None
            else codec(came.revision).decode(params, method.params_type)
        )
    except InvalidMessage:
        return None
    context = RequestContext(
        came.era, came.revision, came.capabilities, came.info, came.log_level, came.principal, request.via
    )
    return RequestReceived(request.id, payload, context, {"method": request.method, **message}, False)
