"""Two processes of one account, in every order of events up to a depth, where the stored token has expired.

They share a store, a lock and an authorization server that ends a login when a refresh token comes twice. The machines
are searched, not a model of them. Of two ways into what looks the same one is followed; states come in the order of
their depth, so that a violation comes with the shortest way to it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from copy import copy
from functools import cache, partial
from typing import Any, TypeVar

import attrs
import authworld
import pytest
from authcalls import Calls
from authworld import World
from searching import search

from mcpio.auth import (
    AuthorizationState,
    Authorizer,
    CloseRedirect,
    Credentials,
    Effect,
    Fetch,
    LockCredentials,
    LoginRequired,
    OAuth,
    Response,
    RestoreCredentials,
    SaveCredentials,
    ShowCode,
    UnlockCredentials,
)
from mcpio.auth.effects import from_text

T = TypeVar("T")
UNANSWERED = (CloseRedirect, RestoreCredentials, ShowCode, UnlockCredentials)
Move = tuple[str, Callable[["Processes"], None]]


class Process(Calls):
    """A process. Its requests and its waits for the lock take time: what they did, and what the machine hears of it."""

    def __init__(self, world: World) -> None:
        super().__init__(world, OAuth(), interaction="never")
        self.in_flight: tuple[Effect, Any] | None = None
        self.late: list[Effect] = []  # locks that a thread got after its caller had left
        self.made = 0

    @property
    def is_busy(self) -> bool:
        """Whether anything is left that happens without the program."""
        pauses = self.authorizer.next_deadline() is not None and self.authorizer.state is not AuthorizationState.FAILED
        return bool(self.effects or self.in_flight or self.late or pauses)

    def end_of_calls(self) -> None:
        """Note that the calls that wait have lost their callers."""
        for name in self.waiting:
            self.outcomes[name].append(InterruptedError())
        self.waiting.clear()

    def position(self) -> Any:
        """Return where the flow is, and what its loops have counted."""
        flow: Any = self.authorizer._flow
        found = []
        while flow is not None and getattr(flow, "gi_frame", None) is not None:
            names = flow.gi_frame.f_locals
            found.append((flow.gi_frame.f_lasti, names.get("attempt"), names.get("version")))
            flow = flow.gi_yieldfrom
        return tuple(found)

    def key(self) -> Any:
        in_flight = self.in_flight and type(self.in_flight[0])
        outcomes = {name: [type(each) for each in self.outcomes[name]] for name in self.outcomes}
        doing = repr([type(each) for each in self.effects]), in_flight, len(self.late), self.position()
        return self.authorizer.state, doing, repr(sorted(self.waiting, key=repr)), repr(outcomes)


@cache
def logged_in() -> World:
    """Return a world after a login."""
    world = World()
    assert Calls(world).result("login") == Response(200)
    return world


def twin(value: T) -> T:
    """Return a copy that shares nothing that changes. ``deepcopy`` would copy secrets, which refuse that."""
    new = copy(value)
    for name, part in vars(value).items():
        if isinstance(part, dict):
            setattr(new, name, {key: copy(each) if attrs.has(type(each)) else each for key, each in part.items()})
        elif isinstance(part, list | set):
            setattr(new, name, copy(part))
    return new


class Processes:
    """Both processes, and what they share."""

    def __init__(self) -> None:
        self.world = world = twin(logged_in())
        world.server, world.store = twin(world.server), twin(world.store)
        world.servers = [world.server]
        world.now += 4000
        self.both = [Process(self.world), Process(self.world)]
        self.holder: Process | None = None
        self.happened: set[str] = set()

    def record(self) -> Credentials | None:
        (process, _) = self.both
        stored = self.world.store.load(process.authorizer.key)
        return None if stored is None else from_text(Credentials, stored.record)

    def key(self) -> Any:
        record, server = self.record(), self.world.server
        now = self.world.now
        told = record and (record.spent_at is None, record.token is not None and record.token.is_usable(now))
        holder = None if self.holder is None else self.both.index(self.holder)
        shared = told, len(server.reused), holder, tuple(sorted(self.happened))
        return tuple(process.key() for process in self.both), shared

    def check(self) -> None:
        """Assert what holds in every state."""
        assert self.world.server.reused == [] or "lost answer" in self.happened, "a refresh token came twice"
        outcomes = [each for process in self.both for ends in process.outcomes.values() for each in ends]
        for process in self.both:
            assert all(len(ends) <= 1 for ends in process.outcomes.values()), "two outcomes"
        harm = self.happened & {"logout", "kill", "lost answer", "lost record"}
        if not harm:
            assert not any(isinstance(each, LoginRequired) for each in outcomes), "a login for a token that renews"
        if any(process.is_busy for process in self.both):
            return
        assert self.holder is None, "a lock that nobody gives back"
        for process in self.both:
            assert not process.waiting, "a call that nobody will answer"
        if not harm:
            record = self.record()
            assert record is not None
            assert record.spent_at is None, "a refresh token that nobody may use"

    # What may happen

    def moves(self) -> Iterator[Move]:
        for index, process in enumerate(self.both):
            name = "ab"[index]
            if process.made < 2:
                yield f"{name} makes a call", partial(call, index=index)
            if process.in_flight is not None:
                yield f"{name} hears of its {type(process.in_flight[0]).__name__}", partial(hear, index=index)
            elif process.effects:
                effect = process.effects[0]
                if not isinstance(effect, LockCredentials) or self.holder is None:
                    yield f"{name} does {type(effect).__name__}", partial(do, index=index)
            if process.late:
                yield f"{name} gets the lock too late", partial(hear_late, index=index)
            if process.waiting and "interrupt" not in self.happened:
                yield f"{name} is interrupted", partial(interrupt, index=index)
            if process.waiting and "kill" not in self.happened:
                yield f"{name} is killed, and begins again", partial(kill, index=index)
            if process.authorizer.next_deadline() is not None and "deadline" not in self.happened:
                yield f"{name}'s deadline passes", partial(expire, index=index)
        if "logout" not in self.happened:
            yield "the person logs out", log_out


def call(here: Processes, index: int) -> None:
    process = here.both[index]
    process.made += 1
    process.call(process.made)
    process.make_ready_calls()


def do(here: Processes, index: int) -> None:
    process = here.both[index]
    effect = process.effects.popleft()
    if isinstance(effect, LockCredentials):
        here.holder = process
        process.in_flight = effect, None
    elif isinstance(effect, Fetch):
        process.in_flight = effect, here.world.perform(effect)
    else:
        if isinstance(effect, UnlockCredentials) and here.holder is process:
            here.holder = None
        process.do(effect)


def hear(here: Processes, index: int) -> None:
    process = here.both[index]
    assert process.in_flight is not None
    (effect, answer), process.in_flight = process.in_flight, None
    process.answer(effect, answer)
    process.drain()
    process.make_ready_calls()


def hear_late(here: Processes, index: int) -> None:
    process = here.both[index]
    process.answer(process.late.pop(), None)
    process.drain()
    process.make_ready_calls()


def give_up(here: Processes, process: Process) -> None:
    """Do what a driver does with an effect that it does no more."""
    effect = process.in_flight[0] if process.in_flight else None
    process.in_flight = None
    if any(isinstance(each, SaveCredentials) for each in process.effects):
        here.happened.add("lost record")
    process.effects = deque(each for each in process.effects if isinstance(each, UNANSWERED))
    if isinstance(effect, LockCredentials):
        process.late.append(effect)
    elif isinstance(effect, Fetch) and effect.url.endswith("/token"):
        here.happened.add("lost answer")


def interrupt(here: Processes, index: int) -> None:
    process = here.both[index]
    here.happened.add("interrupt")
    give_up(here, process)
    process.authorizer.interrupt()
    process.end_of_calls()
    process.drain()


def kill(here: Processes, index: int) -> None:
    process = here.both[index]
    here.happened.add("kill")
    if here.holder is process:
        here.holder = None
    here.both[index] = again = Process(here.world)
    again.made = process.made


def expire(here: Processes, index: int) -> None:
    process = here.both[index]
    here.happened.add("deadline")
    give_up(here, process)
    deadline = process.authorizer.next_deadline()
    assert deadline is not None
    here.world.now += max(0.0, deadline - process.now)
    process.pass_time(0)


def log_out(here: Processes) -> None:
    here.happened.add("logout")
    here.world.store.forget(here.both[0].authorizer.key)


ROOTS: dict[str, tuple[Move, ...]] = {
    "nothing has begun": (),
    "a renewal has been marked": (
        ("a makes a call", partial(call, index=0)),
        *[("a goes on", partial(do, index=0))] * 2,
        ("a has the lock", partial(hear, index=0)),
        *[("a goes on", partial(do, index=0))] * 2,
    ),
}


def play(way: tuple[Move, ...]) -> Processes:
    here = Processes()
    for _, move in way:
        move(here)
    return here


@pytest.mark.req("AUTH-41")
@pytest.mark.parametrize("root", ROOTS)
def test_no_order_of_events_loses_a_login_a_lock_or_a_call(root: str) -> None:
    assert search(play, ROOTS[root], depth=4) > 100


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("root", ROOTS)
def test_no_longer_order_loses_a_login_a_lock_or_a_call(root: str) -> None:
    assert search(play, ROOTS[root], depth=7) > 1000


@pytest.mark.parametrize(
    ("root", "owner", "name", "broken", "message"),
    [
        ("nothing has begun", Authorizer, "_note_late", lambda self: None, "a lock that nobody gives back"),
        (
            "a renewal has been marked",
            authworld,
            "restore_credentials",
            lambda store, effect: None,
            "a refresh token that nobody may use",
        ),
    ],
)
def test_search_finds_planted_fault(
    monkeypatch: pytest.MonkeyPatch, root: str, owner: Any, name: str, broken: Any, message: str
) -> None:
    monkeypatch.setattr(owner, name, broken)
    with pytest.raises(AssertionError, match=message):
        search(play, ROOTS[root], depth=5)
