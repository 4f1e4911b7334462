"""Snapshots: the state of a session between two messages, as JSON values (P12).

The layout has its own version. A snapshot of a newer version, or a malformed one, is refused with the path of the
fault. ``Options`` and the principal are not in it: the program gives them again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from math import isfinite
from typing import Any, TypeAlias

import attrs
from cattrs import ClassValidationError, Converter, ForbiddenExtraKeysError, transform_error

from mcpio.errors import LocalProtocolError
from mcpio.methods import METHODS, Kind
from mcpio.revisions import Era, Revision

__all__ = ["VERSION", "BatchState", "IncomingState", "OpeningState", "OutgoingState", "SessionState", "dump", "load"]

VERSION = 2
"""The newest version of the layout that this library reads. It is written where the state has members that version 1
lacks; otherwise version 1 is, which earlier releases read too."""

Scalar: TypeAlias = int | str | None


@attrs.frozen(kw_only=True)
class OutgoingState:
    """One outgoing request. The ``…_left`` are seconds that remain."""

    id: int
    name: str
    cookie: Scalar
    wants_progress: bool
    progress: float | None
    total: float | None
    total_left: float | None
    idle: float | None
    due_left: float | None
    related: int | None
    via: Scalar
    task: str | None = None
    belongs_to: str | None = None


@attrs.frozen(kw_only=True)
class ListeningState:
    """One subscription: the filter that was asked for, and the part that was acknowledged."""

    asked: dict[str, Any]
    honoured: dict[str, Any] | None


@attrs.frozen(kw_only=True)
class IncomingState:
    """One incoming request."""

    id: int
    wire_id: int | str
    name: str
    token: Scalar
    progress: float | None
    via: Scalar
    task: str | None = None
    envelope: dict[str, Any] | None = None
    """The members of ``_meta`` that a stateless request came with."""
    listening: ListeningState | None = None
    message: dict[str, Any] | None = None
    """The whole message, as it came."""


@attrs.frozen(kw_only=True)
class BatchState:
    """One batch whose answers are joined. ``answers`` are the ones so far, as JSON text."""

    via: Scalar
    ids: list[int]
    running: list[int]
    answers: list[str]


@attrs.frozen(kw_only=True)
class OpeningState:
    """A client's opening that may still turn to the other era. The request that is under way is among the others."""

    probed: str | None
    """The revision that the server was asked for; ``None`` once ``initialize`` was sent."""
    id: int
    """The request that is under way."""
    again: bool
    """Whether the server refused a revision before."""
    total: float | None
    """The timeout of the opening."""
    idle: float | None
    """The timeout of the opening without progress."""


@attrs.frozen(kw_only=True)
class SessionState:
    """The whole state of a connection. Mappings are payloads in the wire form of ``revision``, or of the newest."""

    role: str
    phase: str
    revision: str | None
    info: dict[str, Any]
    capabilities: dict[str, Any]
    instructions: str | None
    peer_info: dict[str, Any] | None
    peer_capabilities: dict[str, Any] | None
    peer_instructions: str | None
    log_level: str | None
    outgoing: list[OutgoingState]
    next_outgoing: int
    retired: dict[str, str]
    incoming: list[IncomingState]
    next_incoming: int
    finished: list[int | str]
    answered: list[int]
    unfinished: str
    skipping: bool
    ended: bool
    reason: str
    close_left: float | None
    dropped_logs: int
    tasks: list[OutgoingState] = attrs.Factory(list)
    batches: list[BatchState]
    opening: OpeningState | None = None
    spoken: str | None = None
    """The revision of a server's latest request without a session, where there is no session either."""

    @property
    def is_stateless(self) -> bool:
        """Whether it is of a client that speaks a stateless revision, or asks for one."""
        opening = self.opening
        name = self.revision if opening is None or opening.probed is None else opening.probed
        revision = None if name is None else Revision.parse(name)
        return revision is not None and revision.era is Era.STATELESS

    @property
    def cookies(self) -> list[Any]:
        """The cookies of the outgoing requests."""
        return [request.cookie for request in (*self.outgoing, *self.tasks)]

    def with_cookies(self, write: Callable[[Any], Any]) -> SessionState:
        """Return a copy in which ``said(cookie)`` replaces each cookie."""
        outgoing, tasks = (
            [attrs.evolve(request, cookie=write(request.cookie)) for request in requests]
            for requests in (self.outgoing, self.tasks)
        )
        return attrs.evolve(self, outgoing=outgoing, tasks=tasks)


def dump(state: SessionState) -> dict[str, Any]:
    """Return the snapshot: a mapping that JSON can hold."""
    # The messages are JSON already, and may be large: they are not copied.
    values = attrs.asdict(state, filter=lambda attribute, _: attribute.name != "message")
    for members, request in zip(values["incoming"], state.incoming, strict=True):
        members["message"] = request.message
    version = 2 if state.is_stateless else 1
    for members in (values, *values["incoming"]):
        for name in _SINCE_2:
            if name in members and members[name] is None:
                del members[name]
            elif name in members:
                version = 2
    return {"version": version, **values}


def load(snapshot: Any) -> SessionState:
    """Return the state in a snapshot. Raises ``LocalProtocolError`` for a newer version or a malformed snapshot."""
    values = dict(snapshot) if isinstance(snapshot, Mapping) else {}
    version = values.pop("version", None)
    if version.__class__ is not int or version < 1:
        raise LocalProtocolError("not a snapshot: it has no version")
    if version > VERSION:
        raise LocalProtocolError(f"the snapshot has version {version}; this library reads up to {VERSION}")
    for name, kind in _CONTAINERS.items():
        # cattrs accepts any iterable for a list.
        if name in values and values[name].__class__ is not kind:
            raise LocalProtocolError(f"malformed snapshot: expected {kind.__name__} @ snapshot.{name}")
    try:
        state = _converter().structure(values, SessionState)
    except (ClassValidationError, ForbiddenExtraKeysError) as error:
        faults = "; ".join(transform_error(error, "snapshot"))
        raise LocalProtocolError(f"malformed snapshot: {faults}") from error
    fault = _contradiction(state)
    if fault is not None:
        raise LocalProtocolError(f"malformed snapshot: {fault}")
    return state


_SINCE_2 = ("envelope", "listening", "message", "opening", "spoken")
"""The members that version 1 lacks."""

_CONTAINERS = {
    "outgoing": list,
    "incoming": list,
    "finished": list,
    "answered": list,
    "retired": dict,
    "tasks": list,
    "batches": list,
}


def _contradiction(state: SessionState) -> str | None:
    """Return the contradiction in a state whose values all have their types, or ``None``."""
    # A store may be damaged or old, and a state that contradicts itself would fail much later, or reuse an id.
    settled = state.revision is not None
    if settled != (state.peer_info is not None) or settled != (state.peer_capabilities is not None):
        return "a revision and a peer belong together"
    needs = {"NEW": False, "INITIALIZING": True, "OPERATING": True, "CLOSING": settled}
    if state.role == "client":
        # One that lost its session keeps what it knew of the server until the next handshake is over.
        needs |= {"NEW": settled, "INITIALIZING": settled, "DISCOVERING": settled}
    if state.phase not in needs or needs[state.phase] != settled:
        return f"phase {state.phase:.30} of a {state.role:.30} {'with' if settled else 'without'} a revision"
    fault = _contradiction_in_opening(state)
    if fault is not None:
        return fault
    for ids, following in (
        ([request.id for request in (*state.outgoing, *state.tasks)], state.next_outgoing),
        ([request.id for request in state.incoming], state.next_incoming),
    ):
        if following < 1 or len(set(ids)) < len(ids) or not all(1 <= id < following for id in ids):
            return f"ids {ids!r:.100} where the next is {following}"
    tasks = [request.task for request in state.tasks]
    if None in tasks or len(set(tasks)) < len(tasks):
        return "a task without an id of its own"
    ours, theirs = [*state.outgoing, *state.tasks], state.incoming
    for name in [request.name for request in ours] + [request.name for request in theirs]:
        method = METHODS.get(name)
        if method is not None and method.kind is not Kind.REQUEST:
            return f"{name} is not a request"
    in_batches = [id for batch in state.batches for id in batch.running]
    if len(set(in_batches)) < len(in_batches) or not set(in_batches) <= {request.id for request in state.incoming}:
        return f"a batch waits for answers to {in_batches!r:.100}, which do not all run"
    if not all(batch.running and set(batch.running) <= set(batch.ids) for batch in state.batches):
        return "a batch that waits for nothing of its own"
    keys = [(request.via, request.wire_id) for request in state.incoming]
    return "two of the peer's requests have one id" if len(set(keys)) < len(keys) else _contradiction_in_messages(state)


def _contradiction_in_messages(state: SessionState) -> str | None:
    for request in state.incoming:
        message = request.message or {}
        if message.get("method", request.name) != request.name or message.get("params", {}).__class__ is not dict:
            return f"the message of {request.name:.100} is another"
    return None


def _contradiction_in_opening(state: SessionState) -> str | None:
    opening = state.opening
    if opening is None:
        return "an opening without its request" if state.phase == "DISCOVERING" else None
    phase, name = ("INITIALIZING", "initialize") if opening.probed is None else ("DISCOVERING", "server/discover")
    if state.role != "client" or state.phase != phase:
        return f"an opening by {name} in phase {state.phase:.30} of a {state.role:.30}"
    if not any(request.id == opening.id and request.name == name for request in state.outgoing):
        return "an opening without its request"
    if opening.probed is not None and not state.is_stateless:
        return f"an opening that asks for {opening.probed:.30}"
    return None


@cache
def _converter() -> Converter:
    """Return a converter that coerces nothing and rejects unknown members."""
    converter = Converter(forbid_extra_keys=True)
    composed: dict[Any, tuple[type, ...]] = {
        int | str: (int, str),
        Scalar: (int, str, type(None)),
        dict[str, Any]: (dict,),
        dict[str, Any] | None: (dict, type(None)),
    }
    # cattrs prefers the hook of a class to a factory, so simple classes are registered one by one.
    for simple in (int, str, bool):
        converter.register_structure_hook(simple, _exactly((simple,)))
    converter.register_structure_hook(float, _exactly((float, int)))
    converter.register_structure_hook_factory(composed.__contains__, lambda wanted: _exactly(composed[wanted]))
    return converter


def _exactly(kinds: tuple[type, ...]) -> Callable[[Any, Any], Any]:
    def check(value: Any, _: Any) -> Any:
        if value.__class__ not in kinds or (value.__class__ is float and not isfinite(value)):
            raise TypeError(f"expected {kinds[0].__name__}, not {value!r:.100}")
        return value

    return check
