"""Pending requests in both directions, and the memory of those that are over."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import attrs

from mcpio.codec import codec
from mcpio.engine.channel import Timers
from mcpio.engine.limits import REQUEST_COST, Held, Limits, Timeout, parsed_size
from mcpio.engine.table import REQUEST_TABLE, Direction, RequestInput, RequestState
from mcpio.errors import InvalidMessage, RequestError
from mcpio.events import IncomingId, OutgoingId, RequestContext, RequestReceived
from mcpio.framing import jsonrpc
from mcpio.framing.json import dumps
from mcpio.methods import METHODS, Method
from mcpio.revisions import Era
from mcpio.types.base import CustomRequest

if TYPE_CHECKING:
    from mcpio.codec import Codec
    from mcpio.engine.dialect import DialectEncoder
    from mcpio.engine.snapshot import IncomingState, ListeningState, OutgoingState

__all__ = [
    "IncomingDialogue",
    "IncomingRequest",
    "IncomingRequests",
    "OutgoingDialogue",
    "OutgoingRequest",
    "OutgoingRequests",
    "Pending",
    "RunningRequests",
    "Unanswered",
    "outgoing_request",
    "outgoing_state",
]

_FINISHED = 6
"""How many finished ids of the peer are remembered, to report reuse. Few, since an idle engine keeps them."""
_ID_SIZE = 40
_ID_BITS = 8 * _ID_SIZE
"""The longest id of the peer that is remembered, in bytes: an id may be as long as a message."""
_REMEMBERED = 64
"""How many of the peer's latest requests are remembered to detect a second answer."""

_OUTGOING_ENDS, _INCOMING_ENDS = (
    {cause: to for (whose, _, cause), to in REQUEST_TABLE.items() if whose is direction} for direction in Direction
)

# By cause: the state that an outgoing request is remembered in, and the ends that answer no incoming request.
_GIVEN_UP = (RequestState.CANCELLED, RequestState.TIMED_OUT, RequestState.LOST)
_RETIRED_AS = {cause: state for cause, state in _OUTGOING_ENDS.items() if state in _GIVEN_UP}
_UNANSWERED = {
    cause for cause, state in _INCOMING_ENDS.items() if state not in (RequestState.ANSWERED, RequestState.FAILED)
}

NOT_YET = float("-inf")
"""The progress of a request that wants progress and got none yet."""


class IncomingDialogue(Protocol):
    """Writes what belongs to an incoming request.

    A request remembers its dialogue, so requests of several eras can run on one connection: ``Handshake`` is the
    dialogue of the handshake era, ``StatelessServer`` that of the stateless era.
    """

    codec: Codec
    """The codec of the request's revision."""

    @property
    def encoder(self) -> DialectEncoder | None:
        """Writes notifications and contents in a dialect; ``None`` for the official protocol."""

    @property
    def listening(self) -> ListeningState | None:
        """The state of a subscription, in the form of a snapshot; ``None`` for other requests."""

    @property
    def form(self) -> Hashable:
        """A key that is equal where the same result has the same JSON text; ``None`` where it depends on more."""

    def write_result(self, request: IncomingRequest, result: Any) -> Mapping[str, Any]:
        """Return the result of an incoming request as an object. Raises ``LocalProtocolError`` for a wrong one."""

    def write_raw_result(self, request: IncomingRequest, result: bytes) -> bytes:
        """Return the JSON text of a result that is passed on. Raises ``LocalProtocolError`` for a wrong one."""

    def check_error(self, request: IncomingRequest, error: RequestError) -> None:
        """Raise ``LocalProtocolError`` for an error that must not answer an incoming request."""


class OutgoingDialogue(Protocol):
    """Reads the answers to outgoing requests, each of which remembers its dialogue."""

    codec: Codec
    """The codec of the request's revision."""

    def read_result(self, request: OutgoingRequest, result: dict[str, Any], odd: list[str]) -> Any:
        """Return the typed result of an outgoing request. Raises and adds to ``odd`` as ``Codec.decode``."""

    def read_error(self, request: OutgoingRequest, message: jsonrpc.Error) -> RequestError:
        """Return the error that answers an outgoing request."""


class OutgoingRequest:
    """One outgoing request that has no outcome yet."""

    __slots__ = (
        "belongs_to",
        "cookie",
        "dialogue",
        "id",
        "idle",
        "method",
        "name",
        "progress",
        "related",
        "task",
        "total",
        "total_at",
        "via",
    )

    dialogue: OutgoingDialogue
    """Reads the answer."""

    def __init__(
        self, id: OutgoingId, name: str, method: Method | None, cookie: Any, dialogue: OutgoingDialogue
    ) -> None:
        self.dialogue = dialogue
        self.id: OutgoingId = id
        self.name: str = name
        self.method: Method | None = method
        self.cookie: Any = cookie
        self.related: IncomingId | None = None
        self.via: Hashable = None
        self.progress: float | None = None
        self.total: float | None = None
        self.total_at: float | None = None
        self.idle: float | None = None
        self.task: str | None = None  # the task that it became; empty while it only asks to become one
        self.belongs_to: str | None = None  # the task on whose behalf it is asked


class OutgoingRequests:
    """The outgoing requests: ids, deadlines, and retired ids whose answer may still come."""

    __slots__ = ("_held", "_limits", "_retired", "_running", "_timers", "next")

    next: int
    """The id of the next request. Ids below it were used, ids from it on never were."""

    def __init__(self, timers: Timers[int], limits: Limits) -> None:
        self._timers = timers
        # While time is held: since when, and the deadlines of the requests, which have no timers then.
        self._held: tuple[float, dict[int, float]] | None = None
        self._limits = limits
        self._running: dict[int, OutgoingRequest] | None = None
        self._retired: dict[int, RequestState] | None = None
        self.next = 1

    def __len__(self) -> int:
        return 0 if self._running is None else len(self._running)

    def __iter__(self) -> Iterator[OutgoingRequest]:
        return iter(() if self._running is None else tuple(self._running.values()))

    def get(self, id: int) -> OutgoingRequest | None:
        """Return the running request of that id."""
        return None if self._running is None else self._running.get(id)

    def __getitem__(self, id: int) -> OutgoingRequest:
        """Return the request of that id, which has a deadline and therefore runs."""
        return (self._running or {})[id]

    def add(self, request: OutgoingRequest, timeout: Timeout, now: float) -> None:
        """Add a request under the ``next`` id, and start its timeouts."""
        if self._running is None:
            self._running = {}
        self._running[request.id] = request
        self.next = request.id + 1
        if self._held is not None:
            now = self._held[0]  # ``release`` adds the time that has passed since ``hold``
        request.total, request.idle = timeout.total, timeout.idle
        if timeout.total is not None:
            request.total_at = now + timeout.total
        self.touch(request, now)

    def touch(self, request: OutgoingRequest, now: float) -> None:
        """Restart the idle timeout of a request: it was sent, or made progress. The total stays (TIME-03)."""
        if self._held is not None:
            now = self._held[0]
        deadline = request.total_at
        if request.idle is not None and (deadline is None or now + request.idle < deadline):
            deadline = now + request.idle
        if deadline is not None:
            if self._held is None:
                self._timers.set(request.id, deadline)
            else:
                self._held[1][request.id] = deadline

    @property
    def are_held(self) -> bool:
        """Whether the timeouts stand still, between ``hold`` and ``release``."""
        return self._held is not None

    def hold(self, now: float) -> None:
        """Stop the timeouts of all requests, also of those that are added before ``release``."""
        if self._held is not None:
            return
        deadlines: dict[int, float] = {}
        self._held = now, deadlines
        for request in self:
            due = self._timers.get(request.id)
            if due is not None:
                self._timers.clear(request.id)
                deadlines[int(request.id)] = due

    def release(self, now: float) -> None:
        """Resume the timeouts with the time that was left at ``hold``."""
        if self._held is None:
            return
        (since, held), self._held = self._held, None
        passed = now - since
        for id, due in held.items():
            request = self.get(id)  # one that ended in the meantime has no timeout any more
            if request is not None:
                if request.total_at is not None:
                    request.total_at += passed
                self._timers.set(id, due + passed)

    def finish(self, request: OutgoingRequest, cause: RequestInput) -> None:
        """End a request. If its answer may still be under way, remember why it is not wanted."""
        running = self._running or {}
        running.pop(request.id, None)
        self._running = running or None
        self._timers.clear(request.id)
        state = _RETIRED_AS.get(cause)
        if state is not None:
            self._retire(request.id, state)

    def use_up(self) -> OutgoingId:
        """Return an id for a request whose answer is ignored: it is cancelled before it is sent."""
        id = OutgoingId(self.next)
        self.next += 1
        self._retire(id, RequestState.CANCELLED)
        return id

    def forget(self, id: int) -> None:
        """Forget that an answer may come late."""
        if self._retired is not None:
            self._retired.pop(id, None)
            self._retired = self._retired or None

    def _retire(self, id: int, state: RequestState) -> None:
        if self._retired is None:
            self._retired = {}
        self._retired[int(id)] = state  # a plain int is smaller, and an idle engine keeps these
        # Ids grow and dictionaries keep their order, so the first is the oldest, whose answer is the least likely.
        if len(self._retired) > self._limits.retired_ids:
            del self._retired[next(iter(self._retired))]

    def state_of(self, id: int) -> RequestState | None:
        """Return the state of a request, or ``None`` for an id that was never used.

        Every request whose answer cannot come any more counts as ``ANSWERED``.
        """
        if not 1 <= id < self.next:
            return None
        if self.get(id) is not None:
            return RequestState.RUNNING
        return (self._retired or {}).get(id, RequestState.ANSWERED)

    def save(self, now: float) -> tuple[list[OutgoingState], dict[str, str]]:
        """Return the running requests, deadlines as remaining seconds, and the retired ids."""
        if self._held is None:
            states = [outgoing_state(each, now, self._timers.get(each.id)) for each in self]
        else:
            since, held = self._held
            states = [outgoing_state(each, since, held.get(each.id)) for each in self]
        return states, {str(id): state.name for id, state in (self._retired or {}).items()}

    def load(self, states: list[OutgoingState], now: float, dialogue: OutgoingDialogue) -> None:
        """Restore running requests from the result of ``save``."""
        running = self._running = {}
        for state in states:
            request = outgoing_request(state, now, dialogue)
            if state.due_left is not None:
                self._timers.set(request.id, now + state.due_left)
            running[int(request.id)] = request

    def load_ids(self, next_id: int, retired: dict[str, str]) -> None:
        """Restore which ids were used, and which of them may still be answered late."""
        self.next = next_id
        self._retired = {int(id): RequestState[state] for id, state in retired.items()} or None


def outgoing_state(request: OutgoingRequest, now: float, due: float | None) -> OutgoingState:
    """Return an outgoing request as a snapshot has it."""
    from mcpio.engine.snapshot import OutgoingState  # few connections are ever written out

    return OutgoingState(
        id=int(request.id),
        name=request.name,
        cookie=request.cookie,
        wants_progress=request.progress is not None,
        progress=request.progress if request.progress != NOT_YET else None,
        total=request.total,
        total_left=None if request.total_at is None else request.total_at - now,
        idle=request.idle,
        due_left=None if due is None else due - now,
        related=None if request.related is None else int(request.related),
        via=request.via,  # type: ignore[arg-type]  # the connection has checked it
        task=request.task,
        belongs_to=request.belongs_to,
    )


def _method_in(dialogue: OutgoingDialogue | IncomingDialogue, name: str) -> Method | None:
    """Return the method of a running request from a snapshot.

    Two methods of the tasks extension have the names of methods of another revision.
    """
    method = METHODS.get(name)
    return method if method is not None and method.exists_in(dialogue.codec.revision) else None


def outgoing_request(state: OutgoingState, now: float, dialogue: OutgoingDialogue) -> OutgoingRequest:
    """Return an outgoing request from a snapshot."""
    method = _method_in(dialogue, state.name)
    request = OutgoingRequest(OutgoingId(state.id), state.name, method, state.cookie, dialogue)
    request.related = None if state.related is None else IncomingId(state.related)
    request.via = state.via
    request.task, request.belongs_to = state.task, state.belongs_to
    if state.wants_progress:
        request.progress = NOT_YET if state.progress is None else state.progress
    request.total, request.idle = state.total, state.idle
    request.total_at = None if state.total_left is None else now + state.total_left
    return request


def _envelope_of(context: RequestContext) -> dict[str, Any] | None:
    """Return the envelope of a stateless request, as a snapshot has it."""
    if context.era is not Era.STATELESS:
        return None
    from mcpio.engine.envelope import write_envelope  # few connections are ever written out

    client: Any = context.capabilities
    return write_envelope(context.revision, client, context.info, context.log_level)


class IncomingRequest:
    """One incoming request without an answer yet."""

    __slots__ = (
        "context",
        "dialogue",
        "id",
        "method",
        "name",
        "progress",
        "raw",
        "size",
        "task",
        "token",
        "via",
        "wants_task",
        "wire_id",
    )

    context: RequestContext
    """The context in which it came: its answer is checked against this, not against the connection."""
    dialogue: IncomingDialogue
    """Writes the answer."""
    size: int
    """How many bytes it takes while it runs."""
    raw: Mapping[str, Any] | None
    """The whole message, so that another process can run it again; ``None`` where a snapshot lacks it."""

    def __init__(
        self,
        id: IncomingId,
        wire_id: int | str,
        name: str,
        method: Method | None,
        token: int | str | None,
        via: Hashable,
        size: int,
        dialogue: IncomingDialogue,
        context: RequestContext,
        raw: Mapping[str, Any] | None,
    ) -> None:
        self.dialogue = dialogue
        self.context = context
        self.size = size
        self.raw = raw
        self.id: IncomingId = id
        self.wire_id: int | str = wire_id
        self.name: str = name
        self.method: Method | None = method
        self.token: int | str | None = token
        self.via: Hashable = via
        self.progress: float | None = None
        self.task: str | None = None  # the task of ours or the peer's that it belongs to
        self.wants_task: bool = False  # whether it asks to become one, so that a CreateTaskResult may answer it


class RunningRequests:
    """The peers' requests that run, under our own keys."""

    __slots__ = ("_unanswered", "next", "running")

    running: dict[int, IncomingRequest] | None
    """The running requests, by this side's keys; ``None`` without any. Read-only: ``add`` and ``finish`` change it."""
    next: int
    """The key of the next request."""

    def __init__(self) -> None:
        self.running = None
        # The exceptions among the latest, one bit for each remainder of an id: nearly every request is answered, so
        # this is nearly always 0.
        self._unanswered = 0
        self.next = 1

    def __len__(self) -> int:
        return 0 if self.running is None else len(self.running)

    def __iter__(self) -> Iterator[IncomingRequest]:
        return iter(() if self.running is None else tuple(self.running.values()))

    @property
    def next_id(self) -> IncomingId:
        """The key of the next request."""
        return IncomingId(self.next)

    def get(self, id: int) -> IncomingRequest | None:
        """Return the running request of that key."""
        return None if self.running is None else self.running.get(id)

    def add(self, request: IncomingRequest) -> None:
        """Record a request under ``next_id``."""
        if self.running is None:
            self.running = {}
        self.running[request.id] = request
        self.next = int(request.id) + 1

    def finish(self, request: IncomingRequest, cause: RequestInput) -> None:
        """End a running request."""
        running: Any = self.running
        del running[request.id]
        if not running:
            self.running = None
        if self._unanswered or cause in _UNANSWERED:
            self._note(request.id, cause)

    def _note(self, id: int, cause: RequestInput) -> None:
        """Remember whether a request that has ended was answered."""
        if self._in_reach(id):
            # While a request runs, its bit may be an older one's.
            bit = 1 << id % _REMEMBERED
            self._unanswered = self._unanswered | bit if cause in _UNANSWERED else self._unanswered & ~bit

    def was_answered(self, id: int) -> bool:
        """Return whether this side answered that request recently.

        False for older requests too: a second answer to one cannot be told from an answer to a request that the peer
        cancelled.
        """
        return self._in_reach(id) and not self._unanswered >> id % _REMEMBERED & 1 and self.get(id) is None

    def _in_reach(self, id: int) -> bool:
        return max(1, self.next - _REMEMBERED) <= id < self.next


class IncomingRequests(RunningRequests):
    """The incoming requests of one connection, whose peer knows them by ids of its own."""

    __slots__ = ("_by_wire_id", "_held", "finished")

    finished: list[int | str] | None
    """The peer's ids of the few that finished last, to report when it uses one again."""

    def __init__(self, held: Held) -> None:
        """``held`` counts how many bytes the running ones take."""
        super().__init__()
        self._held = held
        # By the peer's id. Several exchanges may have brought the same one (P7); then there is a dict of them by
        # exchange. A request that is alone with its id needs none, which keeps an HTTP exchange small.
        self._by_wire_id: dict[int | str, IncomingRequest | dict[Hashable, IncomingRequest]] | None = None
        self.finished = None

    def is_running(self, wire_id: int | str, via: Hashable) -> bool:
        """Return whether a peer's request with that id runs, in its exchange if the transport has any (P7)."""
        entry = None if self._by_wire_id is None else self._by_wire_id.get(wire_id)
        if entry is None:
            return False
        return via in entry if isinstance(entry, dict) else entry.via == via

    def named(self, wire_id: int | str, via: Hashable) -> list[IncomingRequest]:
        """Return the running requests that a cancellation of ``wire_id`` may mean.

        One that comes by the exchange of its request means just that one.
        """
        entry = None if self._by_wire_id is None else self._by_wire_id.get(wire_id)
        if entry is None:
            return []
        namesakes = entry if isinstance(entry, dict) else {entry.via: entry}
        exact = namesakes.get(via)
        if exact is not None:
            return [exact]
        # Over HTTP a cancellation is a POST of its own, and its exchange says nothing about that of the request.
        return [each for each in namesakes.values() if each.via is not None]

    def add(self, request: IncomingRequest) -> None:
        """Record a request under ``next_id``."""
        # As the base class does, here and below, without its calls: this runs for each request.
        if self.running is None or self._by_wire_id is None:
            self.running, self._by_wire_id = {}, {}
        self._held.requests += request.size
        self.running[request.id] = request
        self.next = int(request.id) + 1
        entry = self._by_wire_id.setdefault(request.wire_id, request)
        if isinstance(entry, dict):
            entry[request.via] = request
        elif entry is not request:
            self._by_wire_id[request.wire_id] = {entry.via: entry, request.via: request}

    def finish(self, request: IncomingRequest, cause: RequestInput) -> None:
        """End a running request."""
        if self.running is None or self._by_wire_id is None:
            return
        self._held.requests -= request.size
        del self.running[request.id]
        entry = self._by_wire_id[request.wire_id]
        if isinstance(entry, dict):
            del entry[request.via]
        if entry is request or not entry:
            del self._by_wire_id[request.wire_id]
        if not self.running:
            self.running = self._by_wire_id = None
        if request.via is None:
            self._remember(request.wire_id)
        if self._unanswered or cause in _UNANSWERED:
            self._note(request.id, cause)

    def _remember(self, wire_id: int | str) -> None:
        if isinstance(wire_id, int):
            if wire_id.bit_length() > _ID_BITS:
                return
        elif len(wire_id) > _ID_SIZE or not wire_id.isascii():
            return
        if self.finished is None:
            self.finished = []
        elif len(self.finished) >= _FINISHED:
            del self.finished[0]
        self.finished.append(wire_id)

    def save(self) -> list[IncomingState]:
        """Return the running requests."""
        from mcpio.engine.snapshot import IncomingState  # few connections are ever written out

        return [
            IncomingState(
                id=int(each.id),
                wire_id=each.wire_id,
                name=each.name,
                token=each.token,
                progress=each.progress,
                via=each.via,  # type: ignore[arg-type]  # the connection has checked it
                task=each.task,
                envelope=_envelope_of(each.context),
                listening=each.dialogue.listening,
                message=None if each.raw is None else dict(each.raw),
            )
            for each in self
        ]

    def save_finished(self) -> list[int | str]:
        """Return the peer's ids of its recently finished requests."""
        return list(self.finished or ())

    def save_answered(self) -> list[int]:
        """Return our keys of the requests that were answered not long ago."""
        return [id for id in range(self.next - _REMEMBERED, self.next) if self.was_answered(id)]

    def load(
        self,
        states: list[IncomingState],
        resolve: Callable[[IncomingState], tuple[IncomingDialogue, RequestContext]],
    ) -> None:
        """Restore running requests from the result of ``save``; ``resolve`` returns their dialogue and context."""
        for state in states:
            dialogue, context = resolve(state)
            id, method = IncomingId(state.id), _method_in(dialogue, state.name)
            raw = state.message
            size = REQUEST_COST if raw is None else REQUEST_COST + parsed_size(dumps(raw))
            request = IncomingRequest(
                id, state.wire_id, state.name, method, state.token, state.via, size, dialogue, context, raw
            )
            request.progress, request.task = state.progress, state.task
            if raw is not None and method is not None and method.task_capability:
                request.wants_task = raw.get("params", {}).get("task") is not None
            self.add(request)

    def load_ids(self, next_id: int, finished: list[int | str], answered: list[int]) -> None:
        """Restore the results of ``save_finished`` and ``save_answered``."""
        self.next = next_id
        self.finished = finished[-_FINISHED:] or None
        for id in range(max(1, next_id - _REMEMBERED), next_id):
            if id not in answered:
                self._unanswered |= 1 << id % _REMEMBERED


@attrs.frozen
class Pending:
    """The requests without an outcome, oldest first."""

    outgoing: tuple[OutgoingId, ...]
    """Outgoing requests."""
    incoming: tuple[IncomingId, ...]
    """Requests of the peer's."""
    tasks: tuple[OutgoingId, ...] = ()
    """Outgoing requests that were answered with ``CreateTaskResult``, and whose task continues as far as this side
    knows: progress is still reported, and ``cancel_request`` cancels the task (2025-11-25)."""


@attrs.frozen
class Unanswered:
    """One incoming request that a restored connection still owes an answer."""

    id: IncomingId
    """Answer with this."""
    method: str
    """Its method."""
    via: Hashable
    """The exchange that brought it."""
    context: RequestContext
    """The context in which it came."""
    raw: Mapping[str, Any] | None
    """The whole message, or ``None`` if the snapshot lacks it."""

    @property
    def event(self) -> RequestReceived | None:
        """The event with which the request came, to run it again; ``None`` if it can no longer be read."""
        if self.raw is None:
            return None
        method, params = METHODS.get(self.method), dict(self.raw.get("params", {}))
        try:
            request = (
                CustomRequest(self.method, params)
                if method is None
                else codec(self.context.revision).decode(params, method.params_type)
            )
        except InvalidMessage:
            return None
        return RequestReceived(self.id, request, self.context, self.raw, False)
