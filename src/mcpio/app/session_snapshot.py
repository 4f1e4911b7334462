"""A session as a value (P12): the engine's snapshot, and the state of the application layer.

Running handlers and waiting callers cannot be part of it. The requests of those handlers are in the engine's part, so
that they can be served again; our requests whose callers are gone are cancelled.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypeVar

import attrs

from mcpio.engine.connection import Connection
from mcpio.engine.options import Options
from mcpio.errors import ErrorCode, LocalProtocolError, RequestError
from mcpio.events import Event

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
        for name in ("engine", "state"):
            if not isinstance(values.get(name), Mapping):
                raise LocalProtocolError(f"malformed snapshot: expected an object @ snapshot.{name}")
        transport = values.get("transport", {})
        if not isinstance(transport, Mapping):
            raise LocalProtocolError("malformed snapshot: expected an object @ snapshot.transport")
        return cls(values["engine"], values["state"], transport)

    def connection(self, cls: type[C], now: float, *, options: Options | None, principal: Hashable = None) -> C:
        """Return the restored connection. Raises as the engine's ``restore`` does."""
        return cls.restore(self.engine, now, options=options, principal=principal)


def save(session: PeerSession, state: Mapping[str, Any]) -> dict[str, Any]:
    """Return a session as a value that JSON can express. Raises as the engine's ``snapshot`` does."""
    engine = session.connection.snapshot(session.driver.now(), cookies=lambda _: None)
    saved = {"session": VERSION, "engine": engine, "state": dict(state)}
    # Few transports have state: most are gone when their session moves.
    save_transport = getattr(session.driver, "save_transport", None)
    return saved if save_transport is None else {**saved, "transport": save_transport()}


def resume(session: PeerSession, handle: Callable[[Event], None], unanswered: UnansweredPolicy) -> None:
    """Complete a restored connection: serve or fail the peer's requests, and cancel this side's."""
    check_unanswered(unanswered)
    connection = session.connection
    # Their callers were in the process that made the snapshot.
    for id in connection.pending.outgoing:
        connection.cancel_request(id, "nobody waits for it any more")
    for request in connection.unanswered:
        event = request.event if unanswered == "again" else None
        if event is None:
            data = {"reason": "interrupted"}
            connection.send_error(request.id, RequestError(ErrorCode.INTERNAL_ERROR, "Interrupted: ask again", data))
        else:
            handle(event)


def check_unanswered(policy: UnansweredPolicy) -> None:
    """Raise ValueError if it is not a policy."""
    if policy not in ("again", "fail"):
        raise ValueError(f"unanswered must be 'again' or 'fail', not {policy!r:.100}")
