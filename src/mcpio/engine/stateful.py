"""A connection as a value (P12): written out between two messages, and taken up again in another process."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Self

from mcpio.codec import codec
from mcpio.engine.channel import CLOSE_TIMER
from mcpio.engine.groups import Groups
from mcpio.engine.options import Options
from mcpio.engine.payloads import encode
from mcpio.engine.table import Phase
from mcpio.errors import InvalidMessage, LocalProtocolError
from mcpio.events import CloseReason, RequestContext
from mcpio.revisions import HANDSHAKE_REVISIONS, LATEST_HANDSHAKE
from mcpio.types.lifecycle import Implementation

if TYPE_CHECKING:
    from mcpio.engine.snapshot import SessionState

__all__ = ["Stateful"]


class Stateful(Groups):
    """What a connection remembers, as JSON can hold it."""

    __slots__ = ()

    _capabilities_type: ClassVar[type[Any]]
    _peer_capabilities_type: ClassVar[type[Any]]

    def snapshot(self, now: float, *, cookies: Callable[[Any], int | str | None] | None = None) -> dict[str, Any]:
        """Return the session as a value that JSON can hold (P12).

        Deadlines are kept as remaining seconds. ``cookies`` returns what is to stand for a cookie. Raises
        ``LocalProtocolError`` while events or output are undrained, after the end, and when a cookie or a ``via`` is
        neither a string nor an integer.
        """
        from mcpio.engine.snapshot import dump  # few connections are ever written out

        if self._phase is Phase.CLOSED:
            raise LocalProtocolError("a closed connection has no state worth keeping")
        if self.has_events or self._inbox.pending or (self._inbox.ended and not self._end_received):
            raise LocalProtocolError("drain the events before taking a snapshot")
        if self.wants_write:
            raise LocalProtocolError("write the output before taking a snapshot")
        _check_scalars([request.via for request in (*self._outgoing, *self._incoming)], "via")
        state = self._save(now)
        if cookies is not None:
            state = state.with_cookies(cookies)
        _check_scalars(state.cookies, "cookie")
        return dump(state)

    @classmethod
    def restore(
        cls, snapshot: Mapping[str, Any], now: float, *, options: Options | None = None, principal: Hashable = None
    ) -> Self:
        """Return a connection that goes on where ``snapshot`` left off; ``now`` is on the new caller's clock.

        Requests of our own keep their ids, cookies and remaining time; those of the peer are in ``unanswered``.
        Raises ``LocalProtocolError`` for a snapshot that is malformed, of the other role, or from a newer version.
        """
        from mcpio.engine.snapshot import load  # few connections are ever written out

        state = load(snapshot)
        if state.role != cls.role.value:
            raise LocalProtocolError(f"a snapshot of a {state.role} cannot be restored as a {cls.role.value}")
        try:
            own = codec(LATEST_HANDSHAKE).decode
            connection = cls(
                own(state.info, Implementation),
                own(state.capabilities, cls._capabilities_type),
                options=options or Options(),
            )
            connection._load(state, now, principal)
        except (InvalidMessage, KeyError, ValueError, OverflowError) as error:
            raise LocalProtocolError(f"malformed snapshot: {error}") from error
        return connection

    def _save(self, now: float) -> SessionState:
        from mcpio.engine.snapshot import SessionState  # few connections are ever written out

        context, own, settled = self._context, codec(LATEST_HANDSHAKE), self._codec
        outgoing, retired = self._outgoing.save(now)
        close_at = self._timers.get(CLOSE_TIMER)
        return SessionState(
            role=self.role.value,
            phase=self._phase.name,
            revision=None if context is None else context.revision.name,
            info=encode(own, self.info),
            capabilities=encode(own, self.capabilities),
            instructions=self.instructions,
            peer_info=None if context is None else encode(settled, context.info),
            peer_capabilities=None if context is None else encode(settled, context.capabilities),
            peer_instructions=self._instructions,
            log_level=None if context is None else context.log_level,
            outgoing=outgoing,
            retired=retired,
            next_outgoing=int(self._outgoing.next_id),
            incoming=self._incoming.save(),
            finished=self._incoming.save_finished(),
            answered=self._incoming.save_answered(),
            next_incoming=int(self._incoming.next_id),
            unfinished=self._inbox.unfinished.hex(),
            skipping=self._inbox.skipping,
            ended=self._inbox.ended,
            reason=self._reason.name,
            close_left=None if close_at is None else close_at - now,
            dropped_logs=self._outbox.dropped_logs,
            tasks=[] if self._tasks is None else self._tasks.save(now),
            batches=[] if self._batches is None else self._batches.save(),
        )

    def _load(self, state: SessionState, now: float, principal: Hashable) -> None:
        self._now = now
        self._enter(Phase[state.phase])
        self._reason = CloseReason[state.reason]
        self._set_instructions(state.instructions, state.peer_instructions)
        if state.revision is not None:
            revision = _HANDSHAKE[state.revision]
            decode = codec(revision).decode
            self._settle(
                RequestContext(
                    revision.era,
                    revision,
                    decode(state.peer_capabilities or {}, self._peer_capabilities_type),
                    decode(state.peer_info or {}, Implementation),
                    state.log_level,
                    principal,
                    None,
                )
            )
        self._outgoing.load(state.outgoing, state.next_outgoing, state.retired, now)
        self._incoming.load(state.incoming, state.next_incoming, state.finished, state.answered)
        self._inbox.load(bytes.fromhex(state.unfinished), skipping=state.skipping)
        self._inbox.ended = self._end_received = state.ended
        self._outbox.dropped_logs = state.dropped_logs
        if state.tasks:
            from mcpio.engine.outgoing_tasks import OutgoingTasks

            self._tasks = OutgoingTasks(self._limits.outgoing_tasks)
            self._tasks.load(state.tasks)
        if state.batches:
            from mcpio.engine.batches import Batches

            self._batches = Batches()
            self._batches.load(state.batches)
        if state.close_left is not None:
            self._timers.set(CLOSE_TIMER, now + state.close_left)


_HANDSHAKE = {revision.name: revision for revision in HANDSHAKE_REVISIONS}


def _check_scalars(values: Iterable[object], what: str) -> None:
    for value in values:
        if value is not None and value.__class__ not in (int, str):
            raise LocalProtocolError(f"a snapshot keeps a {what} that is a string or an integer, not {value!r:.100}")
