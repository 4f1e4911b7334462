"""What holds whatever the servers, the store, the person and the other processes do, and in whatever order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from authcalls import Calls
from authworld import MCP, World
from examples import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mcpio.auth import (
    AskUser,
    Authorizer,
    ClientCredentials,
    CloseRedirect,
    Device,
    Effect,
    Fetch,
    LockCredentials,
    OAuth,
    Response,
    RestoreCredentials,
    Secret,
    ShowCode,
    UnlockCredentials,
)
from mcpio.testing import AuthorizationServer

UNANSWERED = (RestoreCredentials, UnlockCredentials, CloseRedirect, ShowCode)
METHODS: dict[str, Callable[[], Any]] = {
    "oauth": OAuth,
    "client": lambda: ClientCredentials("c", secret="s"),
    "device": lambda: Device(client_id="c", client_secret="s"),
}


def new_calls(method: str, **more: Any) -> Calls:
    world = World(AuthorizationServer(clients={"c": "s"}, resource_scopes=("a",)))
    return Calls(world, METHODS[method](), **more)


def cut(calls: Calls, effect: Effect, how: str) -> None:
    """End an effect in another way than by its answer."""
    authorizer = calls.authorizer
    if how == "close":
        authorizer.close(calls.now)
    elif how == "timeout" and (deadline := authorizer.next_deadline()) is not None:
        calls.world.now += max(0.0, deadline - calls.now)
        authorizer.handle_timeout(calls.now)
    elif how == "garbage" and isinstance(effect, Fetch):
        body = b'{"access_token": [], "issuer": 5, "client_id": {}}'
        authorizer.answer(effect.token, Response(200, (), body), calls.now)
    elif how == "garbage" and isinstance(effect, AskUser):
        authorizer.answer(effect.token, "\x00?state=\ud800&state=&error=x", calls.now)
        authorizer.answer(effect.token, None, calls.now)
    else:
        authorizer.failed(effect.token, "it broke", calls.now)
    calls.drain()
    calls.make_ready_calls()


@pytest.mark.req("AUTH-41")
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("how", ["failure", "timeout", "garbage", "close"])
def test_a_flow_that_is_cut_at_any_effect_gives_one_outcome_to_each_call(method: str, how: str) -> None:
    """T1: each flow is cut at its first effect, then at its second, and so on."""
    for place in range(40):
        calls = new_calls(method)
        for name in (1, 2, 3):
            calls.call(name)
        done = 0
        while calls.effects:
            effect = calls.effects.popleft()
            if done == place and not isinstance(effect, UNANSWERED):
                cut(calls, effect, how)
            else:
                calls.do(effect)
            done += 1
        if calls.authorizer.state.value != "closed":
            calls.settle()
        calls.make_ready_calls()
        assert [len(outcomes) for outcomes in calls.outcomes.values()] == [1, 1, 1], (place, calls.authorizer.state)
        if place >= done:
            return
    raise AssertionError("the flow does not end")


@pytest.mark.req("AUTH-41")
@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data(), method=st.sampled_from(sorted(METHODS)))
def test_many_calls_make_one_token_request_at_a_time_and_have_one_outcome(data: st.DataObject, method: str) -> None:
    """T2: calls begin, effects are done and tokens expire in any order."""
    calls = new_calls(method)
    names = iter(range(1000))
    for _ in range(40):
        act = data.draw(st.sampled_from(["call", "do", "do", "do", "expire", "time", "step up"]))
        if act == "call":
            calls.call(next(names))
        elif act == "step up":
            name = next(names)
            calls.needed[name] = frozenset({"b"})
            calls.call(name)
        elif act == "do" and calls.effects:
            calls.do(calls.effects.popleft())
        elif act == "expire":
            calls.world.server.expire_tokens()
        elif act == "time":
            calls.pass_time(data.draw(st.sampled_from([0.5, 5.0, 3541.0, 4000.0])))
        in_flight = [each for each in calls.effects if isinstance(each, Fetch) and each.url.endswith("/token")]
        assert len(in_flight) <= 1
    calls.settle()
    assert all(len(outcomes) == 1 for outcomes in calls.outcomes.values())
    assert calls.world.server.reused == []


@pytest.mark.req("AUTH-41", "AUTH-39")
@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data(), locks=st.booleans())
def test_two_processes_never_present_a_refresh_token_twice(data: st.DataObject, locks: bool) -> None:
    """T3: two machines on one store, scheduled by an adversary, with a lock that works or does nothing."""
    world = World()
    both = [Calls(world), Calls(world)]
    lock = Lock(locks)
    names = iter(range(1000))
    for _ in range(60):
        calls = both[data.draw(st.integers(0, 1))]
        match data.draw(st.sampled_from(["step", "step", "step", "step", "call", "expire", "time"])):
            case "step":
                lock.step(calls)
            case "call":
                calls.call(next(names))
            case "expire":
                world.server.expire_tokens()
            case _:
                world.now += data.draw(st.sampled_from([1.0, 3541.0]))
                for each in both:
                    each.pass_time(0)
        assert world.server.reused == []
    for _ in range(300):
        for calls in both:
            lock.step(calls)
    assert world.server.reused == []


class Lock:
    """Does effects one by one, and lets one machine at a time have the lock; or any, where the lock does not work."""

    def __init__(self, works: bool) -> None:
        self.works = works
        self.holder: Calls | None = None

    def step(self, calls: Calls) -> None:
        if not calls.effects:
            return
        effect = calls.effects[0]
        if self.works and isinstance(effect, LockCredentials):
            if self.holder not in (None, calls):
                return
            self.holder = calls
        elif isinstance(effect, UnlockCredentials) and self.holder is calls:
            self.holder = None
        calls.do(calls.effects.popleft())


@pytest.mark.req("AUTH-41")
@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(place=st.integers(0, 30), expired=st.booleans())
def test_a_process_that_is_killed_leaves_a_store_with_which_the_next_one_succeeds(place: int, expired: bool) -> None:
    """T4: it is killed before an effect, or after the effect was done and before its answer."""
    for loses_answer in (False, True):
        calls = new_calls("oauth")
        if expired:
            assert calls.result("before") == Response(200)
            calls.world.now += 4000
        calls.call(1)
        for _ in range(place):
            if calls.effects:
                calls.do(calls.effects.popleft())
        if loses_answer and calls.effects and not isinstance(calls.effects[0], AskUser):
            calls.world.perform(calls.effects.popleft())
        again = Calls(calls.world, OAuth())
        assert again.result(2) == Response(200)
        assert calls.world.server.reused == []


@pytest.mark.parametrize("method", METHODS)
def test_the_same_inputs_give_the_same_effects(method: str) -> None:
    """T5: entropy and time are the only inputs that are not the program's."""

    def history() -> list[tuple[str, Any]]:
        calls = new_calls(method)
        for name in (1, 2):
            calls.result(name)
        calls.pass_time(3541)
        calls.result(3)
        calls.needed[4] = frozenset({"b"})
        calls.result(4)
        return [
            (repr(effect), (effect.headers, effect.body) if isinstance(effect, Fetch) else None)
            for effect in calls.done
        ]

    first = history()
    assert first == history()
    assert len(first) > 5


TEXT = st.binary(max_size=100) | st.sampled_from(
    [
        b"{}",
        b'{"issuer": "https://as.example.com"}',
        b'{"resource": "https://mcp.example.com/mcp", "authorization_servers": ["https://as.example.com"]}',
        b'{"access_token": "x", "token_type": "bearer", "expires_in": "nan", "refresh_token": "\\u0000"}',
        b'{"client_id": "\\ud800"}',
        b'{"client_id": "c", "client_secret_expires_at": 1e308}',
        b'{"error": "invalid_client", "error_description": "\\u202e"}',
        b'{"authorization_endpoint": "https://as.example.com/a?b#c"}',
        b"[" * 1000,
    ]
)


@settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    answers=st.lists(st.tuples(st.sampled_from([200, 201, 204, 302, 400, 401, 404, 500]), TEXT), max_size=30),
    places=st.sets(st.integers(0, 15), max_size=8),
    challenge=st.text(max_size=60) | st.sampled_from(['Bearer resource_metadata="x"', 'Bearer scope="\x7f"', "DPoP"]),
    callback=st.text(max_size=60),
    method=st.sampled_from(sorted(METHODS)),
)
def test_no_answer_of_a_peer_raises(
    answers: list[tuple[int, bytes]], places: set[int], challenge: str, callback: str, method: str
) -> None:
    """T6: some of the answers are anything, and so are the challenge and a callback before the right one."""
    calls = new_calls(method)
    authorizer = calls.authorizer
    calls.call(1)
    calls.settle()
    calls.world.server.expire_tokens()
    authorizer.authorize(2, "x", calls.now)
    authorizer.refused(2, 401, [challenge], calls.now)
    calls.operations[2], calls.outcomes[2] = "x", []
    calls.drain()
    left = list(answers)
    for place in range(60):
        if not calls.effects:
            break
        effect = calls.effects.popleft()
        if isinstance(effect, AskUser):
            assert not authorizer.answer(effect.token, callback, calls.now)
        if isinstance(effect, Fetch) and place in places and left:
            status, body = left.pop()
            authorizer.answer(effect.token, Response(status, (), body), calls.now)
            calls.drain()
            calls.make_ready_calls()
        else:
            calls.do(effect)
    calls.settle()
    assert len(calls.outcomes[2]) <= 1


def test_missing_answer_leaves_no_memory_in_use() -> None:
    """Late answers to effects of long ago are ignored."""
    authorizer = Authorizer(MCP, OAuth(), entropy=bytes)
    now = 0.0
    for name in range(50):
        authorizer.authorize(name, "x", now)
        while authorizer.next_effect() is not None:
            pass
        now += 40
        authorizer.handle_timeout(now)
        while authorizer.next_ready() is not None:
            authorizer.drop(name)
    for token in range(1, 200):
        authorizer.answer(token, Response(200, (), b""), now)
        authorizer.answer(token, Secret("x"), now)
        authorizer.failed(token, "x", now)
        authorizer.answer(token, None, now)
    assert authorizer.next_effect() is None
