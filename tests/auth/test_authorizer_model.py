"""The client's authorizer is compared with a model of its documentation, for every input in every state.

The model knows tokens, records, calls and what a flow is for. It knows no steps of a flow: the grant, the store and the
authorization server are real, and the model is told how a flow ended.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from functools import partial
from math import inf
from typing import Any, Final

import attrs
import authworld
import pytest
from authworld import MCP, PRM, World
from examples import examples
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule
from searching import search

from mcpio.auth import (
    AskUser,
    AuthorizationFailed,
    Authorized,
    Authorizer,
    BearerToken,
    BindRedirect,
    CloseRedirect,
    CredentialsNotSaved,
    Effect,
    Fetch,
    LoadCredentials,
    LockCredentials,
    NeedAssertion,
    OAuth,
    Response,
    RestoreCredentials,
    UnlockCredentials,
    Verdict,
    authorizer,
    bearer_challenge,
)
from mcpio.auth.authorizer import AUTHORIZATION_TABLE, AuthorizationInput, AuthorizationState
from mcpio.auth.payloads import TokenSet
from mcpio.errors import LocalProtocolError
from mcpio.framing.json import dumps, loads

NAMES: Final = {
    "": "ready",
    "load": "loading",
    "renew": "renewing",
    "log in": "obtaining",
    "finish": "obtaining",
    "ask": "asking",
}
B: Final = frozenset({"b"})


@attrs.frozen
class Token:
    number: int
    obtained: float
    lifetime: float
    scopes: frozenset[str]
    is_renewable: bool
    is_spent: bool = False
    """Whether its refresh token was presented, and must not be presented again."""

    def is_usable(self, now: float) -> bool:
        return now < self.obtained + self.lifetime

    def is_due(self, now: float) -> bool:
        """A token is renewed in its last 60 s, or in the last tenth of a shorter life."""
        return now >= self.obtained + self.lifetime - min(60.0, self.lifetime / 10)


@attrs.define
class Call:
    operation: Hashable
    is_background: bool
    made_with: int = -1
    """The number of the token that it was made with."""
    has_renewed: bool = False
    has_logged_in: bool = False
    needed: frozenset[str] = frozenset()


@attrs.define
class CallModel:
    """Verdicts on calls: made with a token, retried, failed, or waiting for a flow that begins. They are words."""

    has_person: bool
    """Whether a login needs a person: otherwise the program has the token from elsewhere."""
    now: float = 0.0
    flow: str = ""
    """The step under way: ``load``, ``renew``, ``log in``, ``ask`` a person, or ``finish`` the login."""
    began: float = 0.0
    is_cold: bool = True
    is_closed: bool = False
    sends: bool = False
    """Whether calls are made with the token."""
    error: str | None = None
    """Why all calls fail for now."""
    retry_at: float = inf
    rest_until: float = -inf
    token: Token | None = None
    stored: Token | None = None
    was_stored: bool = False
    client: int | None = None
    """The client that was registered at the authorization server."""
    stored_client: int | None = None
    dropped: set[int] = attrs.field(factory=set)
    has_dropped: bool = False
    """Whether a client was dropped since the last token."""
    use: int = 0
    """Counts the tokens that were taken into use."""
    origin: str = ""
    is_proven: bool = False
    calls: dict[Hashable, Call] = attrs.field(factory=dict)
    waiting: list[Hashable] = attrs.field(factory=list)
    step_ups: dict[Hashable, int] = attrs.field(factory=dict)
    ready: list[tuple[Hashable, str | None]] = attrs.field(factory=list)
    events: list[str] = attrs.field(factory=list)

    @property
    def state(self) -> str:
        if self.is_closed:
            return "closed"
        if self.error is not None or self.is_cold:
            return "cold" if self.error is None else "failed"
        return NAMES[self.flow] if self.flow or self.sends else "open"

    @property
    def rests(self) -> bool:
        """Whether an early renewal failed a moment ago."""
        return self.now < self.rest_until

    def release(self, error: str | None) -> None:
        for name in self.waiting:
            if error is not None:
                self.calls.pop(name)
            self.ready.append((name, error))
        self.waiting = []

    def begin(self, flow: str) -> None:
        self.is_cold, self.flow, self.began = False, flow, self.now

    def fail(self, error: str) -> None:
        self.flow, self.sends, self.error, self.retry_at = "", False, error, self.now + 30
        self.events.append("failed")
        self.release(error)

    def cool(self) -> None:
        self.error, self.retry_at, self.is_cold = None, inf, True

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        if self.now >= self.retry_at:
            self.cool()

    def authorize(self, name: Hashable, operation: Hashable, is_background: bool) -> str:
        if self.is_closed or name in self.waiting:
            return "LocalProtocolError"
        if self.error == "LoginRequired" and not is_background:
            self.cool()  # a person may be asked for this call
        call = self.calls.setdefault(name, Call(operation, is_background))
        token = self.token
        if self.state == "cold":
            self.begin("load")
        elif self.state == "ready" and token and token.is_renewable and token.is_due(self.now) and not self.rests:
            self.begin("renew")
        if self.state in ("open", "ready"):
            call.made_with = self.use
            return "token" if self.sends else "nothing"
        self.waiting.append(name)
        if self.error is not None:
            self.release(self.error)
        return "wait"

    def refused(self, name: Hashable, status: int, scopes: frozenset[str] | None, is_oauth: bool) -> str:
        """``scopes`` are those that the server finds missing; ``None`` if it does not say so."""
        call = self.calls.get(name)
        if call is None or name in self.waiting:
            return "LocalProtocolError"
        problem = ""
        if self.is_closed or not is_oauth or (status == 403 and scopes is None):
            problem = "AuthorizationError"
        elif self.error is not None:
            problem = self.error
        elif self.state in ("open", "ready"):
            if call.made_with < self.use:
                return "retry"
            problem = self.refused_token(call) if status == 401 else self.lacks(call, scopes or frozenset())
        elif self.state == "cold":
            self.begin("load")
        if problem:
            self.calls.pop(name, None)
            return problem
        self.waiting.append(name)
        return "wait"

    def refused_token(self, call: Call) -> str:
        """One renewal and one login at most for a call, and neither for a token that is as new as can be."""
        is_fresh = self.sends and not self.is_proven and self.origin != "loaded"
        if self.sends and self.token and self.token.is_renewable and not call.has_renewed and not is_fresh:
            call.has_renewed = True
            self.begin("renew")
            return ""
        if call.has_logged_in:
            return "AuthorizationError"
        if is_fresh and self.origin == "obtained":
            self.fail("AuthorizationError")
            return "AuthorizationError"
        call.has_logged_in = True
        self.begin("log in")
        return ""

    def lacks(self, call: Call, scopes: frozenset[str]) -> str:
        tries = self.step_ups.get(call.operation, 0)
        if not scopes or tries >= 2:
            return "AuthorizationError"
        self.step_ups[call.operation], call.needed = tries + 1, scopes
        self.begin("log in")
        return ""

    def succeeded(self, name: Hashable) -> None:
        if (call := self.calls.pop(name, None)) is not None:
            self.is_proven = self.is_proven or call.made_with == self.use
            self.step_ups.pop(call.operation, None)

    def drop(self, name: Hashable) -> None:
        self.calls.pop(name, None)
        self.waiting = [each for each in self.waiting if each != name]

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed, self.flow, self.error, self.retry_at = True, "", None, inf
            self.release("AuthorizationError")

    def interrupt(self) -> None:
        if self.flow:
            self.flow, self.sends, self.is_cold = "", False, True
            for name in list(self.waiting):
                self.drop(name)


@attrs.define
class Model(CallModel):
    """Outcomes of flows: the token, record and registration that a flow leaves, and the calls that it releases."""

    def ended(self, outcome: str, token: Token | None) -> None:
        """Follow a flow that ended with an error, or with ``done`` and perhaps a token."""
        flow, self.flow = self.flow, ""
        if flow == "load":
            self.loaded(outcome)
        elif flow == "renew":
            self.renewed(outcome, token)
        elif outcome == "invalid_client" and self.forget_client():
            self.begin("log in")
        elif outcome != "done":
            self.fail(outcome)
        elif token is not None:
            self.adopt(token, "obtained")
        else:
            self.client = self.client or len(self.dropped) + 1
            waiting = [self.calls[name] for name in self.waiting]
            if waiting and all(call.is_background for call in waiting):
                self.fail("LoginRequired")  # no person is asked for calls that nobody waits for
            else:
                self.flow = "ask"

    def loaded(self, outcome: str) -> None:
        if outcome != "done":
            self.events.append("not saved")
        else:
            stored = self.stored
            if self.stored_client in self.dropped and stored is not None:
                stored = attrs.evolve(stored, is_renewable=False)
            elif stored is not None:
                self.client = self.client or self.stored_client
            if stored is not None or self.was_stored:
                self.token = stored  # a record that is gone was removed by a logout
            self.was_stored = stored is not None
        if self.token is not None and self.token.is_usable(self.now):
            self.adopt(self.token, "loaded")
        elif self.token is not None and self.token.is_renewable:
            self.begin("renew")
        elif not self.has_person:
            self.begin("log in")
        else:
            self.sends = False
            self.release(None)

    def renewed(self, outcome: str, token: Token | None) -> None:
        known = self.token
        assert known is not None
        if outcome == "done":
            is_lost = self.was_stored if self.stored is None else self.stored.is_spent
            assert (token is None) is is_lost, "a refresh token is presented once, and not after a logout"
            outcome = "invalid_grant" if is_lost else outcome
        if token is not None:
            self.adopt(token, "renewed")
        elif (outcome == "invalid_client" and self.forget_client()) or outcome == "invalid_grant":
            self.begin("log in")
        elif (
            outcome == "temporary"
            and known.is_usable(self.now)
            and all(self.calls[name].made_with < self.use for name in self.waiting)
        ):
            self.rest_until = self.now + 5
            self.release(None)
        else:
            self.fail(outcome)

    def adopt(self, token: Token, kind: str) -> None:
        self.token, self.origin, self.is_proven, self.has_dropped, self.sends = token, kind, False, False, True
        self.use += 1
        self.was_stored = self.was_stored or kind != "loaded"
        self.events.append(kind)
        for name in list(self.waiting):
            call = self.calls[name]
            if call.made_with >= 0:
                call.has_renewed, call.has_logged_in = True, call.has_logged_in or kind == "obtained"
            if not call.needed <= token.scopes:
                self.drop(name)
                self.ready.append((name, "insufficient_scope"))
        self.release(None)

    def forget_client(self) -> bool:
        """Forget a client that the server does not know any more, once for each token."""
        if self.client is None or self.has_dropped:
            return False
        self.drop_client()
        self.has_dropped = True
        return True

    def drop_client(self) -> None:
        if self.client is not None:
            self.dropped.add(self.client)
            self.client = None
            self.token = self.token and attrs.evolve(self.token, is_renewable=False)


# Both side by side

FATES: Final = ("done", "less", "invalid_grant", "invalid_client", "invalid_scope", "busy", "broken", "silent")
"""How servers and the store behave for an effect. The errors are those of the token endpoint; with ``less`` it grants
another scope."""


Move = tuple[str, Callable[["Pair"], None]]
Plant = Callable[[pytest.MonkeyPatch], None]


class Watched(Authorizer):
    """An authorizer that lists the rows of its table that it takes."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.entered: list[AuthorizationInput] = []

    def _enter(self, entered: AuthorizationInput) -> None:
        ROWS.add((self._state, entered))
        self.entered.append(entered)
        super()._enter(entered)


class Pair:
    """A machine and its model, with a world that performs the effects."""

    def __init__(self, *, has_person: bool) -> None:
        self.world = World()
        self.epoch = self.world.now
        method = OAuth() if has_person else BearerToken("a.b.c")
        self.machine = Watched(MCP, method, entropy=self.world.entropy, epoch=self.epoch)
        self.model = Model(has_person)
        self.effects: list[Effect] = []
        self.outcome, self.granted = "done", None
        self.is_locked = self.is_bound = False
        self.late: LockCredentials | None = None
        self.numbers = iter(range(1, 1_000_000))
        self.asked: AskUser | None = None

    outcome: str
    granted: Token | None

    @property
    def now(self) -> float:
        return self.model.now

    # Calls

    def authorize(self, name: Hashable = None, operation: Hashable = "call", *, is_background: bool = False) -> None:
        name = next(self.numbers) if name is None else name
        expected = self.model.authorize(name, operation, is_background)
        try:
            headers = self.machine.authorize(name, operation, self.now, background=is_background)
        except LocalProtocolError:
            assert expected == "LocalProtocolError"
        else:
            word = "wait" if headers is None else "token" if headers else "nothing"
            assert word == expected

    def authorize_one_that_waits(self) -> None:
        for name in self.model.waiting[:1]:
            self.authorize(name)

    @property
    def made(self) -> Hashable:
        """The last call, or before the first one a call that was never made."""
        return next((name for name in reversed(self.model.calls) if name not in self.model.waiting), "never made")

    def refuse(
        self,
        status: int = 401,
        scopes: frozenset[str] | None = None,
        *,
        challenge: str | None = None,
        name: Hashable = None,
    ) -> None:
        name = self.made if name is None else name
        if challenge is None:
            error = {401: "invalid_token", 403: None if scopes is None else "insufficient_scope"}[status]
            scope = " ".join(sorted(scopes)) if scopes else None
            challenge = str(bearer_challenge(error=error, scope=scope, resource_metadata=PRM))
        is_oauth = not challenge.startswith("Basic")
        expected = self.model.refused(name, status, scopes, is_oauth)
        try:
            verdict = self.machine.refused(name, status, [challenge] if challenge else [], self.now)
        except LocalProtocolError:
            assert expected == "LocalProtocolError"
        else:
            assert (verdict.value if isinstance(verdict, Verdict) else word_of(verdict)) == expected

    def refuse_one_that_waits(self) -> None:
        for name in self.model.waiting[:1]:
            self.refuse(name=name)

    def succeed(self) -> None:
        name = self.made
        self.machine.succeeded(name)
        self.model.succeeded(name)

    def drop(self, *, waits: bool) -> None:
        name = next(iter(self.model.waiting), None) if waits else self.made
        self.machine.drop(name)
        self.model.drop(name)

    # Effects

    def go_on(self, fate: str = "done") -> None:
        """Perform one effect of a flow. Asking a person is not an effect."""
        if self.model.flow in ("", "ask"):
            assert self.effects == []
            return
        if self.effects:
            self.perform(self.effects.pop(0), fate)
        else:
            self.wait_for_deadline()  # for a pause
        self.note_the_end_of_a_flow()

    def note_the_end_of_a_flow(self) -> None:
        if any(entered.name.startswith("RECV") for entered in self.machine.entered):
            outcome, token = self.outcome, self.granted
            self.outcome, self.granted = "done", None
            if self.model.flow == "renew" and token is None and outcome not in ("done", "temporary"):
                self.mark_as_spent()
            self.model.ended(outcome, token)

    def mark_as_spent(self) -> None:
        model = self.model
        if model.stored is not None:
            model.stored = attrs.evolve(model.stored, is_spent=True)

    def end_flow(self, fate: str = "done") -> None:
        flow = self.model.flow
        for _ in range(40):
            if self.model.flow != flow or flow in ("", "ask") or self.model.is_cold:
                return
            self.machine.entered.clear()
            self.go_on(fate)
            self.drain()
        raise AssertionError("the flow does not end")

    def perform(self, effect: Effect, fate: str) -> None:
        machine, model, world = self.machine, self.model, self.world
        world.now = self.epoch + self.now
        if fate == "silent" and isinstance(effect, Fetch | LockCredentials):
            self.late = effect if isinstance(effect, LockCredentials) else None
            self.outcome = "temporary"
            self.wait_for_deadline()
        elif fate in ("broken", "silent") and (isinstance(effect, Fetch) or model.flow == "load"):
            self.outcome = "temporary"
            machine.failed(effect.token, "no route", self.now)
        elif isinstance(effect, Fetch):
            machine.answer(effect.token, self.fetched(effect, fate), self.now)
        else:
            if isinstance(effect, LockCredentials):
                assert not self.is_locked
                self.is_locked = True
            elif isinstance(effect, BindRedirect):
                self.is_bound = True
            elif isinstance(effect, NeedAssertion):
                self.granted = Token(0, self.now, inf, frozenset(), is_renewable=False)
            answer = world.perform(effect)
            if (
                not isinstance(effect, LoadCredentials | LockCredentials | BindRedirect | NeedAssertion)
                and self.granted
            ):
                model.stored, model.stored_client = self.granted, model.client or model.stored_client
            machine.answer(effect.token, answer, self.now)

    def fetched(self, fetch: Fetch, fate: str) -> Response:
        is_for_token = fetch.url.endswith("/token")
        self.outcome = "done"
        if fate == "busy":
            self.outcome = "temporary"
            return Response(503)
        if is_for_token and fate.startswith("invalid"):
            self.outcome = fate
            return Response(400, body=dumps({"error": fate}))
        response = self.world.fetch(fetch)
        if is_for_token and response.status == 200:
            answer = loads(response.body)
            if fate == "less":
                answer["scope"] = "other"
                response = attrs.evolve(response, body=dumps(answer))
            asked: Any = self.asked if self.model.flow == "finish" else self.model.token
            # Without a scope in the answer they are those that were asked for (RFC 6749, 5.1).
            scopes = frozenset(answer["scope"].split()) if "scope" in answer else asked.scopes
            self.granted = Token(next(self.numbers), self.now, answer["expires_in"], scopes, is_renewable=True)
            if self.model.flow == "renew":
                self.model.stored = self.granted  # by the flow, or when it is undone
        return response

    def wait_for_deadline(self) -> None:
        due = self.machine.next_deadline()
        assert due is not None
        self.model.now = max(self.now, due)
        self.machine.handle_timeout(self.now)

    def answer_late(self) -> None:
        """Give the lock that was not got in time, where nothing else has it."""
        if self.late is not None and not self.is_locked:
            self.is_locked = True
            assert not self.machine.answer(self.late.token, None, self.now)
            self.late = None

    def answer_with_another_type(self) -> None:
        if self.effects:
            with pytest.raises(TypeError):
                self.machine.answer(self.effects[0].token, object(), self.now)

    # The person

    def person(self, answer: str) -> None:
        asked, world, model = self.asked, self.world, self.model
        if model.flow != "ask" or asked is None:
            return
        world.now = self.epoch + self.now
        match answer:
            case "logs in" | "denies":
                url = world.server.approve(asked.url, world.now, deny=answer == "denies")
                assert self.machine.answer(asked.token, url, self.now)
                model.flow = "finish"
                if answer == "denies":
                    model.ended("access_denied", None)
            case "comes from another page":
                assert not self.machine.answer(asked.token, "http://127.0.0.1:3118/callback?state=x&code=y", self.now)
            case "leaves":
                assert self.machine.answer(asked.token, None, self.now)
                model.flow = ""
                model.fail("access_denied")
            case _:
                self.machine.failed(asked.token, "no browser", self.now)
                model.flow = ""
                model.fail("temporary")

    # Time, the end, and other processes

    def pass_time(self, seconds: float) -> None:
        """Pass time, but not the deadline of an effect, which has an outcome of its own."""
        model, due = self.model, self.machine.next_deadline()
        if model.flow not in ("", "ask") and due is not None:
            seconds = max(0.0, min(seconds, due - self.now - 0.125))
        model.pass_time(seconds)
        self.machine.handle_timeout(self.now)
        if model.flow == "ask" and self.now >= model.began + 600:
            model.flow = ""
            model.drop_client()
            model.fail("expired")

    def pass_deadline(self) -> None:
        due = self.machine.next_deadline()
        self.pass_time(0.0 if due is None else max(0.0, due - self.now))

    def pass_life_of_token(self, share: float) -> None:
        token = self.model.token
        if token is not None and token.lifetime < inf:
            self.pass_time(max(0.0, token.obtained + share * token.lifetime - self.now))

    def close(self) -> None:
        self.machine.close(self.now)
        self.model.close()

    def interrupt(self) -> None:
        self.effects.clear()
        self.machine.interrupt()
        self.model.interrupt()
        self.outcome, self.granted = "done", None

    def log_out_elsewhere(self) -> None:
        if self.model.flow != "renew":  # test_every_order.py has these orders
            self.world.store.forget(self.machine.key)
            self.model.stored = self.model.stored_client = None

    # For every step

    def step(self, name: str, act: Callable[[Pair], None]) -> None:
        """Take a step on both sides and compare them."""
        VISITED.add((self.machine.state, name))
        self.machine.entered.clear()
        act(self)
        self.drain()
        while ready := self.compare():
            for call in ready:
                self.authorize(call)
            self.drain()

    def drain(self) -> None:
        """Take the effects, and perform those that take no answer."""
        while (effect := self.machine.next_effect()) is not None:
            match effect:
                case UnlockCredentials():
                    assert self.is_locked
                    self.is_locked = False
                case CloseRedirect():
                    self.is_bound = False
                case RestoreCredentials():
                    self.world.perform(effect)
                case AskUser():
                    self.asked = effect
                case _:
                    self.effects.append(effect)
        if self.model.is_closed:
            self.effects.clear()

    def compare(self) -> list[Hashable]:
        """Compare both sides; return the calls that can be made now."""
        machine, model = self.machine, self.model
        assert machine.state.value == model.state
        ready, events = list(iter_ready(machine)), list(iter_events(machine))
        assert (ready, events) == (model.ready, model.events)
        model.ready, model.events = [], []
        assert self.is_locked <= (model.flow == "renew")
        assert self.is_bound <= (model.flow in ("log in", "ask"))
        assert len(self.effects) <= 1
        due = machine.next_deadline()
        if model.flow:
            assert due is not None
            assert model.flow != "ask" or due == model.began + 600
        else:
            assert due == (None if model.retry_at == inf else model.retry_at)
        assert machine.waits_for_person is (model.flow == "ask")
        return [name for name, error in ready if error is None]

    def check(self) -> None:
        """Every step has compared both sides."""

    def moves(self) -> Iterator[Move]:
        for name, act in INPUTS.items():
            yield name, partial(Pair.step, name=name, act=act)

    def key(self) -> Any:
        model = self.model
        calls = [(each in model.waiting, attrs.astuple(call)) for each, call in model.calls.items()]
        times = [
            token and (token.is_due(self.now), token.is_usable(self.now), token.is_spent, token.is_renewable)
            for token in (model.token, model.stored)
        ]
        others = model.flow, model.error, model.origin, model.is_proven, self.late is None, self.outcome, self.now > 9
        return self.machine.state, repr(self.effects)[:12], repr(calls), repr(times), others, repr(model.step_ups)


def iter_ready(machine: Authorizer) -> Iterator[tuple[Hashable, str | None]]:
    while (ready := machine.next_ready()) is not None:
        yield ready.call, None if ready.error is None else word_of(ready.error)


def iter_events(machine: Authorizer) -> Iterator[str]:
    while (event := machine.next_event()) is not None:
        if isinstance(event, Authorized):
            yield event.kind
        else:
            yield {AuthorizationFailed: "failed", CredentialsNotSaved: "not saved"}[type(event)]


def word_of(error: Any) -> str:
    return str(error.code or ("temporary" if error.temporary else type(error).__name__))


ROWS: Final[set[tuple[AuthorizationState, AuthorizationInput]]] = set()
VISITED: Final[set[tuple[AuthorizationState, str]]] = set()
INPUTS: Final[dict[str, Callable[[Pair], None]]] = {
    "authorize a call": Pair.authorize,
    "authorize a call of the background": partial(Pair.authorize, is_background=True),
    "authorize a call that waits": Pair.authorize_one_that_waits,
    "refuse a token": Pair.refuse,
    "refuse a token without a challenge": partial(Pair.refuse, challenge=""),
    "refuse a call by another scheme": partial(Pair.refuse, challenge='Basic realm="x"'),
    "refuse a call for want of a scope": partial(Pair.refuse, status=403, scopes=B),
    "refuse a call for want of an unnamed scope": partial(Pair.refuse, status=403, scopes=frozenset()),
    "forbid a call": partial(Pair.refuse, status=403),
    "refuse a call that waits": Pair.refuse_one_that_waits,
    "serve a call": Pair.succeed,
    "drop a call": partial(Pair.drop, waits=False),
    "drop a call that waits": partial(Pair.drop, waits=True),
    "go on": Pair.go_on,
    **{f"end the flow: {fate}": partial(Pair.end_flow, fate=fate) for fate in FATES},
    **{
        f"the person {answer}": partial(Pair.person, answer=answer)
        for answer in ("logs in", "denies", "comes from another page", "leaves", "has no browser")
    },
    "get the lock late": Pair.answer_late,
    "answer with a value of another type": Pair.answer_with_another_type,
    "pass little time": partial(Pair.pass_time, seconds=0.25),
    "pass the deadline": Pair.pass_deadline,
    "let the token become due": partial(Pair.pass_life_of_token, share=0.99),
    "let the token expire": partial(Pair.pass_life_of_token, share=1.0),
    "close": Pair.close,
    "interrupt": Pair.interrupt,
    "log out elsewhere": Pair.log_out_elsewhere,
}


def way(*names: str) -> tuple[Move, ...]:
    return tuple((name, partial(Pair.step, name=name, act=INPUTS[name])) for name in names)


LOGIN: Final = (
    "authorize a call",
    "end the flow: done",
    "refuse a token",
    "end the flow: done",
    "the person logs in",
    "end the flow: done",
)
OLD: Final = (*LOGIN, "let the token become due", "authorize a call")
AGAIN: Final = ("pass the deadline", "authorize a call")
STEP_UP: Final = (
    "refuse a call for want of a scope",
    "end the flow: done",
    "the person logs in",
    "end the flow: done",
)
ROOTS: Final = {
    "nothing has begun": (),
    "the record is read": LOGIN[:1],
    "no token is needed": LOGIN[:2],
    "a login begins": LOGIN[:3],
    "a person is asked": LOGIN[:4],
    "the person has answered": LOGIN[:5],
    "a token is new": LOGIN,
    "a token has served a call": (*LOGIN, "serve a call"),
    "a token is renewed early": OLD,
    "a renewal has failed for now": (*OLD, "end the flow: broken"),
    "a token was renewed": (*OLD, "end the flow: done"),
    "a refused token is renewed": (*LOGIN, "serve a call", "authorize a call", "refuse a token"),
    "a refresh token is lost": (*OLD, "end the flow: invalid_grant"),
    "a registration is lost": (*OLD, "end the flow: invalid_client"),
    "a scope is missing": (*LOGIN, "refuse a call for want of a scope"),
    "a login has failed": (*LOGIN[:3], "end the flow: broken"),
    "a login was needed for the background": (
        "authorize a call of the background",
        *LOGIN[1:3],
        "end the flow: done",
    ),
    "a token is read again": (*LOGIN, "authorize a call", "refuse a token", *AGAIN),
    "an old token is read again": (
        *LOGIN,
        "authorize a call",
        "refuse a token",
        "pass the deadline",
        "let the token expire",
        "authorize a call",
    ),
    "a record with a lost registration is read": (
        *OLD,
        "end the flow: invalid_client",
        "end the flow: broken",
        *AGAIN,
    ),
    "the lock was not free in time": (*OLD, "end the flow: silent"),
    "a renewal goes on after the driver was cancelled in it": (
        *OLD,
        *["go on"] * 3,
        "interrupt",
        "authorize a call",
        "end the flow: done",
    ),
    "scopes were asked for twice": (*LOGIN, *STEP_UP, *STEP_UP),
    "scopes are not granted": (*LOGIN, *STEP_UP[:3]),
    "all is closed": (*LOGIN, "close"),
}
"""Ways to each state, from which every input is tried."""


def play(has_person: bool, moves: tuple[Move, ...]) -> Pair:
    pair = Pair(has_person=has_person)
    for _, move in moves:
        move(pair)
    return pair


def explore(depth: int) -> int:
    states = sum(search(partial(play, True), way(*root), depth) for root in ROOTS.values())
    return states + search(partial(play, False), (), depth + 2)


def test_every_input_in_every_state_does_what_the_model_says(record_property: Callable[[str, object], None]) -> None:
    ROWS.clear()
    VISITED.clear()
    explore(1)
    assert {(state, name) for state in AuthorizationState for name in INPUTS} == VISITED
    # A machine that is closed does nothing when it is closed again.
    assert {*ROWS, (AuthorizationState.CLOSED, AuthorizationInput.SEND_CLOSE)} == set(AUTHORIZATION_TABLE)
    record_property("pairs", len(VISITED))


@pytest.mark.long
@pytest.mark.timeout(300)
def test_longer_orders_of_inputs_do_what_the_model_says() -> None:
    assert explore(2) > 1000


class Alone(RuleBasedStateMachine):
    """Inputs in any order, with as many calls of as many operations."""

    has_person = True

    def __init__(self) -> None:
        super().__init__()
        self.pair = Pair(has_person=self.has_person)

    @rule(name=st.sampled_from(sorted(set(INPUTS) - {"close"})))
    def act(self, name: str) -> None:
        self.pair.step(name, INPUTS[name])

    @rule(operation=st.sampled_from("xy"), is_background=st.booleans())
    def authorize(self, operation: str, is_background: bool) -> None:
        self.pair.step("drawn", partial(Pair.authorize, operation=operation, is_background=is_background))

    @rule()
    def log_in(self) -> None:
        """Get through a login, which random steps rarely do."""
        for name in ("authorize a call", "end the flow: done", "refuse a token", "end the flow: done"):
            self.pair.step(name, INPUTS[name])
        self.pair.step("drawn", partial(Pair.person, answer="logs in"))
        self.pair.step("drawn", Pair.end_flow)

    @rule(scopes=st.sampled_from([B, frozenset("c"), frozenset("bc")]))
    def lack(self, scopes: frozenset[str]) -> None:
        self.pair.step("drawn", partial(Pair.refuse, status=403, scopes=scopes))

    @rule(seconds=st.sampled_from([1.0, 6.0, 31.0, 601.0, 3550.0]))
    def pass_time(self, seconds: float) -> None:
        self.pair.step("drawn", partial(Pair.pass_time, seconds=seconds))

    def teardown(self) -> None:
        self.pair.step("drawn", Pair.close)


class Given(Alone):
    has_person = False


TestWithPerson = pytest.mark.req("AUTH-35", "AUTH-41")(Alone.TestCase)
TestWithPerson.settings = settings(max_examples=examples(100), stateful_step_count=40, deadline=None)
TestWithoutPerson = Given.TestCase
TestWithoutPerson.settings = settings(max_examples=examples(20), stateful_step_count=40, deadline=None)


def does_not_prove_the_token(self: Authorizer, call: Hashable, *, nonce: str | None = None) -> None:
    self._calls.pop(call, None)


PLANTS: Final[dict[str, tuple[str, Plant]]] = {
    "calls fail for a shorter time after a login has failed": (
        "a login has failed",
        lambda patch: patch.setattr(authorizer, "FAILED_SECONDS", 10.0),
    ),
    "an early renewal is tried again at once": (
        "a renewal has failed for now",
        lambda patch: patch.setattr(authorizer, "_KEPT_SECONDS", 0.0),
    ),
    "a person is asked on behalf of the background": (
        "a login was needed for the background",
        lambda patch: patch.setattr(Authorizer, "_may_ask", True),
    ),
    "a lock that comes late is kept": (
        "the lock was not free in time",
        lambda patch: patch.setattr(Authorizer, "_note_late", lambda self: None),
    ),
    "a client that the server has forgotten is not registered again": (
        "a token is renewed early",
        lambda patch: patch.setattr(Authorizer, "_may_register_again", lambda self: False),
    ),
    "a client that the server has forgotten is read from the store": (
        "a record with a lost registration is read",
        lambda patch: patch.setattr(Authorizer, "_without_dropped", lambda self, stored: stored),
    ),
    "a token that has served a call is as good as new": (
        "a refused token is renewed",
        lambda patch: patch.setattr(Authorizer, "succeeded", does_not_prove_the_token),
    ),
    "a token is used until it expires": (
        "a token is new",
        lambda patch: patch.setattr(TokenSet, "is_due", lambda self, at: False),
    ),
    "a cancelled renewal does not give the refresh token back": (
        "a renewal goes on after the driver was cancelled in it",
        lambda patch: patch.setattr(authworld, "restore_credentials", lambda store, effect: None),
    ),
    "an operation asks for more scopes once too often": (
        "scopes were asked for twice",
        lambda patch: patch.setattr(authorizer, "STEP_UPS", 3),
    ),
    "a call is made without the scopes that it needs": (
        "scopes are not granted",
        lambda patch: patch.setattr(authorizer, "missing_scopes", lambda granted, needed: frozenset()),
    ),
    "any challenge leads to a login": (
        "no token is needed",
        lambda patch: patch.setattr(authorizer, "parse_challenges", lambda fields: []),
    ),
}


@pytest.mark.parametrize("plant", PLANTS)
def test_model_finds_planted_fault(monkeypatch: pytest.MonkeyPatch, plant: str) -> None:
    root, change = PLANTS[plant]
    change(monkeypatch)
    with pytest.raises(AssertionError):
        search(partial(play, True), way(*ROOTS[root]), depth=1 if root != "a token is new" else 2)
