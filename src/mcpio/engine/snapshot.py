"""A session as a value (P12): what a connection must remember between two messages, in JSON's own types.

The layout has a version of its own. A snapshot from a newer version, or a malformed one, is refused with the place that
is wrong. What a program chooses (``Options``, the principal) is not in it and is given again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, TypeAlias

import attrs
from cattrs import ClassValidationError, Converter, ForbiddenExtraKeysError, transform_error

from mcpio.errors import LocalProtocolError

__all__ = ["VERSION", "IncomingState", "OutgoingState", "SessionState", "dump", "load"]

VERSION = 1
"""The version of the layout that this library writes, and the newest that it reads."""

Scalar: TypeAlias = int | str | None


@attrs.frozen(kw_only=True)
class OutgoingState:
    """One request of our own. The ``…_left`` are seconds that remain."""

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


@attrs.frozen(kw_only=True)
class IncomingState:
    """One request of the peer's."""

    id: int
    wire_id: int | str
    name: str
    token: Scalar
    progress: float | None
    via: Scalar


@attrs.frozen(kw_only=True)
class SessionState:
    """Everything a connection remembers. Mappings are payloads in the wire form of ``revision``, or of our newest."""

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


def dump(state: SessionState) -> dict[str, Any]:
    """Return the snapshot: a mapping that JSON can hold."""
    return {"version": VERSION, **attrs.asdict(state)}


def load(snapshot: Mapping[str, Any]) -> SessionState:
    """Return what a snapshot says. Raises ``LocalProtocolError`` for a newer version or a malformed snapshot."""
    values = dict(snapshot)
    version = values.pop("version", None)
    if version.__class__ is not int:
        raise LocalProtocolError("not a snapshot: it has no version")
    if version > VERSION:
        raise LocalProtocolError(f"the snapshot has version {version}; this library reads up to {VERSION}")
    try:
        return _converter().structure(values, SessionState)
    except (ClassValidationError, ForbiddenExtraKeysError) as error:
        faults = "; ".join(transform_error(error, "snapshot"))
        raise LocalProtocolError(f"malformed snapshot: {faults}") from error


@cache
def _converter() -> Converter:
    """Return a converter that takes every value for what it is, and refuses members that it does not know."""
    converter = Converter(forbid_extra_keys=True)
    exact: dict[Any, tuple[type, ...]] = {
        int: (int,),
        str: (str,),
        bool: (bool,),
        float: (float, int),
        int | str: (int, str),
        Scalar: (int, str, type(None)),
        dict[str, Any]: (dict,),
    }
    converter.register_structure_hook_factory(lambda wanted: wanted in exact, lambda wanted: _exactly(exact[wanted]))
    return converter


def _exactly(kinds: tuple[type, ...]) -> Callable[[Any, Any], Any]:
    def check(value: Any, _: Any) -> Any:
        if value.__class__ not in kinds:
            raise TypeError(f"expected {kinds[0].__name__}, not {value!r:.100}")
        return value

    return check
