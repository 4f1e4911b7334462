"""Calls to a protected server through an authorizer: its effects, done one by one or all at once."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from typing import Any, Literal

from authworld import World

from mcpio.auth import (
    AuthorizationEvent,
    Authorizer,
    ClientCredentials,
    CloseRedirect,
    Device,
    Effect,
    EffectFailed,
    Fetch,
    OAuth,
    Response,
    RestoreCredentials,
    ShowCode,
    UnlockCredentials,
    Verdict,
    WorkloadIdentity,
)
from mcpio.testing import IssuedToken

Outcome = Response | Exception


class Calls:
    """An authorizer with its calls. The server answers a call with 200, or as the authorization server judges it."""

    def __init__(
        self,
        world: World,
        method: OAuth | ClientCredentials | Device | WorkloadIdentity | None = None,
        *,
        interaction: Literal["allow", "never"] = "allow",
        now: float = 0.0,
    ) -> None:
        self.world = world
        self.epoch = world.now - now
        self.authorizer = Authorizer(
            world.url, method or OAuth(), entropy=world.entropy, epoch=self.epoch, interaction=interaction
        )
        self.needed: dict[Hashable, frozenset[str]] = {}
        """The scopes that a call needs."""
        self.is_open = False
        """Whether the server serves calls without a token."""
        self.operations: dict[Hashable, Hashable] = {}
        self.waiting: set[Hashable] = set()
        self.outcomes: dict[Hashable, list[Outcome]] = {}
        self.effects: deque[Effect] = deque()
        self.done: list[Effect] = []
        self.events: list[AuthorizationEvent] = []
        self.locks: set[str] = set()

    @property
    def now(self) -> float:
        return self.world.now - self.epoch

    def call(self, name: Hashable, operation: Hashable = "tools/call") -> None:
        """Make a call, as far as it goes now."""
        self.operations[name] = operation
        self.outcomes.setdefault(name, [])
        self.attempt(name)

    def attempt(self, name: Hashable) -> None:
        for _ in range(20):
            headers = self.authorizer.authorize(name, self.operations[name], self.now)
            self.drain()
            if headers is None:
                self.waiting.add(name)
                return
            found = self.world.server.accepts(headers, self.world.now, self.needed.get(name, frozenset()))
            if isinstance(found, IssuedToken) or self.is_open:
                self.authorizer.succeeded(name)
                self.outcomes[name].append(Response(200))
                return
            status = 403 if found.params.get("error") == "insufficient_scope" else 401
            verdict = self.authorizer.refused(name, status, [str(found)], self.now)
            self.drain()
            if isinstance(verdict, Exception):
                self.outcomes[name].append(verdict)
                return
            if verdict is Verdict.WAIT:
                self.waiting.add(name)
                return
        raise AssertionError("the call is made again and again")

    def drain(self) -> None:
        """Take what comes out of the machine."""
        while (effect := self.authorizer.next_effect()) is not None:
            self.effects.append(effect)
        while (event := self.authorizer.next_event()) is not None:
            self.events.append(event)

    def make_ready_calls(self) -> None:
        while (ready := self.authorizer.next_ready()) is not None:
            self.waiting.discard(ready.call)
            if ready.error is not None:
                self.outcomes[ready.call].append(ready.error)
            else:
                self.attempt(ready.call)

    def do(self, effect: Effect, *, and_calls: bool = True) -> None:
        """Do an effect and answer it; then make the calls that are ready, unless the test does."""
        self.done.append(effect)
        try:
            answer = self.world.perform(effect)
        except EffectFailed as error:
            self.authorizer.failed(effect.token, str(error), self.now)
        else:
            self.answer(effect, answer)
        self.drain()
        if and_calls:
            self.make_ready_calls()

    def answer(self, effect: Effect, answer: Any) -> None:
        if not isinstance(effect, RestoreCredentials | UnlockCredentials | CloseRedirect | ShowCode):
            self.authorizer.answer(effect.token, answer, self.now)

    def settle(self) -> None:
        """Do all effects and let time pass where the machine waits for that alone, until nothing is left to do."""
        self.make_ready_calls()
        for _ in range(1000):
            if self.effects:
                self.do(self.effects.popleft())
            elif self.waiting and (deadline := self.authorizer.next_deadline()) is not None:
                self.pass_time(deadline - self.now)
            else:
                return
        raise AssertionError("the machine does not come to an end")

    def pass_time(self, seconds: float) -> None:
        self.world.now += max(seconds, 0.0)
        self.authorizer.handle_timeout(self.now)
        # A driver ends a fetch whose time is over; what the machine gave up is not done later.
        awaited = self.authorizer._awaited
        self.effects = deque(effect for effect in self.effects if not isinstance(effect, Fetch) or effect is awaited)
        self.drain()
        self.make_ready_calls()

    def result(self, name: Hashable, operation: Hashable = "tools/call") -> Outcome:
        """Make a call, settle, and return its one outcome."""
        self.outcomes.pop(name, None)
        self.call(name, operation)
        self.settle()
        [outcome] = self.outcomes[name]
        return outcome
