"""The table of HTTP's states is compared with a model of HTTP, for every input in every state.

The model knows facts and no states: how much of the request has come, whether the response has begun, and whether the
connection is open.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from types import SimpleNamespace
from typing import Final, Literal, NamedTuple

import pytest

from mcpio.errors import LocalProtocolError
from mcpio.http.lifecycle import TABLE, Action, Input, Lifecycle, State

LIMITS: Final = SimpleNamespace(head=1.0, body=2.0, idle=3.0, rate=inf)
RESPONSE_ENDS: Final = {Input.SEND_END, Input.SEND_LAST, Input.SEND_RESET, Input.SEND_UPGRADE}


class Facts(NamedTuple):
    """The facts about a connection, and about its present exchange."""

    request: Literal["none", "part of a head", "head", "body", "whole"] = "none"
    has_response: bool = False
    connection: Literal["open", "lingering", "closed"] = "open"
    is_last: bool = False

    @property
    def is_in_machine(self) -> bool:
        """Whether the machine has the request, which it must be told the end of."""
        return self.connection == "open" and self.request in ("body", "whole")


CLOSED: Final = Facts(connection="closed")
LINGERING: Final = Facts(connection="lingering")


def expected(facts: Facts, event: Input) -> tuple[Facts, Action] | None:
    """Return what has to follow; ``None`` if the event cannot happen."""
    if facts.connection == "closed":
        return facts, Action.NOTHING
    if facts.connection == "lingering":
        if event in (Input.TIMEOUT, Input.RECV_LOSS):
            return CLOSED, Action.CLOSE
        return (facts, Action.NOTHING) if event in (Input.RECV_BYTES, Input.RECV_END, Input.SEND_CLOSE) else None
    if event.name.startswith("RECV") or event is Input.SEND_LOOKUP:
        return _received(facts, event)
    return _sent(facts, event)


def _received(facts: Facts, event: Input) -> tuple[Facts, Action] | None:
    has_no_body = not facts.is_in_machine
    match event:
        case Input.RECV_BYTES:
            return (facts._replace(request="part of a head") if facts.request == "none" else facts), Action.NOTHING
        case Input.SEND_LOOKUP if facts.request in ("none", "part of a head"):
            return facts._replace(request="head"), Action.NOTHING
        case Input.RECV_HEAD if has_no_body:
            return facts._replace(request="body"), Action.NOTHING
        case Input.RECV_REQUEST if has_no_body:
            return facts._replace(request="whole"), Action.NOTHING
        case Input.RECV_END if facts.request == "body":
            return facts._replace(request="whole"), Action.NOTHING
        case Input.RECV_LOSS:
            return CLOSED, Action.RESET if facts.is_in_machine else Action.CLOSE
        case Input.RECV_INVALID:
            return (
                (CLOSED, Action.RESET) if facts.has_response or facts.request == "whole" else (LINGERING, Action.REFUSE)
            )
    return None


def _sent(facts: Facts, event: Input) -> tuple[Facts, Action] | None:
    is_last = facts.is_last or event is Input.SEND_LAST
    match event:
        case Input.SEND_HEAD if facts.request == "whole" or (facts.request == "body" and not facts.has_response):
            # Two heads are refused as long as it matters that one is out: a whole request just awaits its end.
            return facts._replace(has_response=True), Action.NOTHING
        case Input.SEND_END | Input.SEND_LAST if facts.request == "whole":
            return (CLOSED, Action.CLOSE) if is_last else (Facts(), Action.REUSE)
        case Input.SEND_END | Input.SEND_LAST if facts.has_response:
            return LINGERING, Action.LINGER
        case Input.SEND_RESET if facts.is_in_machine:
            return CLOSED, Action.CLOSE
        case Input.SEND_UPGRADE if facts.request in ("head", "body") and not facts.has_response:
            return CLOSED, Action.NOTHING
        case Input.SEND_CLOSE:
            return (CLOSED, Action.CLOSE) if facts.request == "none" else (facts._replace(is_last=True), Action.NOTHING)
        case Input.TIMEOUT if facts.request == "none":
            return CLOSED, Action.CLOSE
        case Input.TIMEOUT if facts.request in ("part of a head", "body"):
            return (CLOSED, Action.RESET) if facts.has_response else (LINGERING, Action.REFUSE)
    return None


def copy(life: Lifecycle) -> Lifecycle:
    """Return another lifecycle in the same state."""
    other = Lifecycle(LIMITS, 0.0, state=life.state, is_last=life.is_last)
    other.deadline = life.deadline
    return other


def test_every_input_in_every_state_does_what_http_asks(record_property: Callable[[str, object], None]) -> None:
    start = Lifecycle(LIMITS, 0.0)
    seen, todo = {(State.NEW, Facts())}, [(start, Facts())]
    visited: set[tuple[State, Input]] = set()
    refused: set[tuple[State, Input]] = set()
    while todo:
        before, facts = todo.pop()
        for event in Input:
            visited.add((before.state, event))
            life = copy(before)
            if (outcome := expected(facts, event)) is None:
                with pytest.raises(LocalProtocolError):
                    life.step(event, 1.0)
                assert (life.state, life.deadline) == (before.state, before.deadline)
                refused.add((before.state, event))
                continue
            after, action = outcome
            assert life.step(event, 1.0) is action, (facts, event)
            assert life.is_open == (after.connection == "open"), (facts, event)
            if facts.is_in_machine and not after.is_in_machine:
                # The machine hears of the end exactly once: it said so itself, or gets ``Reset``.
                assert (event in RESPONSE_ENDS) != (action in (Action.RESET, Action.REFUSE)), (facts, event)
            if (life.state, after) not in seen:
                seen.add((life.state, after))
                todo.append((life, after))
    assert visited == {(state, event) for state in State for event in Input}
    assert refused == visited - set(TABLE)
    record_property("pairs", len(visited))
