from __future__ import annotations

from typing import Any

import attrs
import pytest
from authcalls import Calls
from authworld import AS, CHALLENGE, MCP, PRM, World

from mcpio.auth import (
    AskUser,
    AuthorizationError,
    AuthorizationFailed,
    AuthorizationState,
    Authorized,
    Authorizer,
    BindRedirect,
    ClientCredentials,
    CloseRedirect,
    Credentials,
    CredentialsNotSaved,
    Device,
    EffectFailed,
    Fetch,
    LoadCredentials,
    LockCredentials,
    LoginRequired,
    OAuth,
    Response,
    SaveCredentials,
    Secret,
    Stored,
    UnlockCredentials,
    Verdict,
    WorkloadIdentity,
    from_text,
    to_text,
)
from mcpio.errors import AuthorizationRequired, LocalProtocolError
from mcpio.testing import AuthorizationServer

KEY = f"{MCP} default"
OK = Response(200)


def fetches(calls: Calls, path: str = "") -> list[Fetch]:
    return [effect for effect in calls.done if isinstance(effect, Fetch) and effect.url.endswith(path)]


def kinds(calls: Calls) -> list[str]:
    return [event.kind for event in calls.events if isinstance(event, Authorized)]


def logged_in(world: World | None = None, **settings: Any) -> Calls:
    calls = Calls(world or World(), **settings)
    assert calls.result("first") == OK
    return calls


def test_open_server_is_never_probed() -> None:
    calls = Calls(World())
    calls.is_open = True
    assert calls.result(1) == OK
    assert calls.authorizer.state is AuthorizationState.OPEN
    assert [type(effect) for effect in calls.done] == [LoadCredentials]


@pytest.mark.req("AUTH-05", "AUTH-41")
def test_a_call_that_is_refused_is_made_again_after_a_login() -> None:
    calls = Calls(World())
    assert calls.result(1) == OK
    assert kinds(calls) == ["obtained"]
    assert calls.authorizer.state is AuthorizationState.READY
    assert calls.authorizer.authorize(2, "x", calls.now) == (
        ("authorization", f"Bearer {token_of(calls).access_token.reveal()}"),
    )


def token_of(calls: Calls) -> Any:
    return stored(calls.world).token


def stored(world: World) -> Credentials:
    found = world.store.load(KEY)
    assert found is not None
    return from_text(Credentials, found.record)


@pytest.mark.req("AUTH-41")
def test_many_calls_share_one_login() -> None:
    calls = Calls(World())
    for name in range(20):
        calls.call(name)
    calls.settle()
    assert set(map(tuple, calls.outcomes.values())) == {(OK,)}
    assert len(fetches(calls, "/token")) == 1
    assert sum(isinstance(effect, AskUser) for effect in calls.done) == 1


@pytest.mark.req("AUTH-39")
def test_a_stored_token_is_used_by_the_next_process() -> None:
    calls = logged_in()
    again = Calls(calls.world)
    assert again.result(1) == OK
    assert kinds(again) == ["loaded"]
    assert fetches(again) == []


@pytest.mark.req("AUTH-41")
def test_new_token_is_sent_once_however_short_its_life_is() -> None:
    world = World(AuthorizationServer(lifetime=1.0))
    perform, accepts = world.perform, world.server.accepts

    def slow(effect: Any) -> Any:
        world.now += 5.0  # longer than the token lives
        return perform(effect)

    world.perform = slow  # type: ignore[method-assign]  # a slow store, and a slow network
    world.server.accepts = lambda headers, now, needed=frozenset(): accepts(headers, 0.0, needed)  # type: ignore[method-assign]  # a server whose clock is behind
    calls = Calls(world)
    for name in range(3):
        calls.call(name)
    calls.settle()
    assert set(map(tuple, calls.outcomes.values())) == {(OK,)}
    assert len(fetches(calls, "/token")) == 1
    assert calls.result(4) == OK
    assert len(fetches(calls, "/token")) == 2


@pytest.mark.req("AUTH-41")
def test_a_token_is_renewed_before_it_expires() -> None:
    calls = logged_in()
    calls.pass_time(3541)
    assert calls.result(2) == OK
    assert kinds(calls) == ["obtained", "renewed"]
    assert len(fetches(calls, "/token")) == 2
    assert stored(calls.world).spent_at is None


@pytest.mark.req("AUTH-41")
def test_an_expired_stored_token_is_renewed_with_the_stored_metadata() -> None:
    calls = logged_in()
    calls.world.now += 4000
    again = Calls(calls.world)
    assert again.result(1) == OK
    assert kinds(again) == ["renewed"]
    assert [fetch.url for fetch in fetches(again)] == [AS + "/token"]


def test_an_expired_stored_token_without_a_refresh_token_is_not_sent() -> None:
    calls = logged_in(World(AuthorizationServer(refreshes=False)))
    calls.world.now += 4000
    again = Calls(calls.world)
    again.is_open = True
    assert again.result(1) == OK
    assert again.authorizer.state is AuthorizationState.OPEN


@pytest.mark.req("AUTH-41")
def test_a_refused_token_is_renewed_and_all_calls_are_made_again() -> None:
    calls = logged_in()
    calls.world.server.expire_tokens()
    for name in range(20):
        calls.call(name)
    calls.settle()
    assert set(map(tuple, calls.outcomes.values())) == {(OK,)}
    assert kinds(calls) == ["obtained", "renewed"]


@pytest.mark.req("AUTH-41")
def test_refusal_of_an_older_token_starts_no_flow() -> None:
    calls = logged_in()
    authorizer = calls.authorizer
    assert authorizer.authorize("slow", "x", calls.now)
    calls.world.server.expire_tokens()
    assert calls.result("quick") == OK
    assert authorizer.refused("slow", 401, [str(CHALLENGE)], calls.now) is Verdict.RETRY
    assert len(fetches(calls, "/token")) == 2


@pytest.mark.req("AUTH-41")
def test_a_lost_refresh_token_leads_to_a_login() -> None:
    calls = logged_in()
    calls.world.server.expire_tokens()
    calls.world.server.expire_refresh_tokens()
    assert calls.result(2) == OK
    assert kinds(calls) == ["obtained", "obtained"]
    assert [fetch.url for fetch in fetches(calls)][-3:] == [AS + "/token", PRM, AS + "/token"]


@pytest.mark.req("AUTH-41")
@pytest.mark.parametrize("status", [500, 503, 429])
def test_refresh_token_survives_a_busy_server(status: int) -> None:
    calls = logged_in()
    calls.world.server.faults.status = status
    calls.pass_time(3541)
    # The token is still good: it is used, and the renewal rests a while.
    assert calls.result(2) == OK
    assert calls.result(3) == OK
    assert len(fetches(calls, "/token")) == 2
    assert stored(calls.world).spent_at is None
    calls.pass_time(100)
    # It expired: the renewal is tried three times, and fails for a while.
    error = calls.result(4)
    assert isinstance(error, AuthorizationError)
    assert error.temporary
    assert len(fetches(calls, "/token")) == 5
    assert isinstance(calls.result(5), AuthorizationError)
    assert len(fetches(calls, "/token")) == 5
    calls.world.server.faults.status = None
    calls.pass_time(30)
    assert calls.result(6) == OK
    assert kinds(calls)[-1] == "renewed"


@pytest.mark.req("AUTH-41")
def test_a_busy_server_is_waited_for_where_the_token_was_refused() -> None:
    calls = logged_in()
    calls.world.server.expire_tokens()
    calls.world.server.faults.status = 503
    assert isinstance(calls.result(2), AuthorizationError)
    assert len(fetches(calls, "/token")) == 4


@pytest.mark.req("AUTH-41")
def test_token_refused_after_renewal_and_login_fails_the_call() -> None:
    world = World()
    calls = logged_in(world)
    other = AuthorizationServer(issuer="https://other.example")
    accepts, world.server.accepts = world.server.accepts, other.accepts  # type: ignore[method-assign]  # it refuses all
    error = calls.result(2)
    assert isinstance(error, AuthorizationError)
    assert "just obtained" in str(error)
    assert kinds(calls) == ["obtained", "renewed", "obtained"]
    assert isinstance(calls.result(3), AuthorizationError)
    assert len(fetches(calls, "/token")) == 3
    world.server.accepts = accepts  # type: ignore[method-assign]  # and serves again
    calls.pass_time(30)
    assert calls.result(4) == OK


def test_call_that_is_always_refused_spends_its_budget_once() -> None:
    calls = logged_in()
    authorizer = calls.authorizer
    verdicts = []
    for turn in range(4):
        calls.pass_time(1)
        assert authorizer.authorize("odd", "x", calls.now) is not None
        verdict = authorizer.refused("odd", 401, [str(CHALLENGE)], calls.now)
        verdicts.append(verdict)
        if isinstance(verdict, AuthorizationError):
            break
        calls.drain()
        while calls.effects:
            calls.do(calls.effects.popleft(), and_calls=False)
        assert authorizer.next_ready() is not None
        assert calls.result(f"good {turn}") == OK
    assert verdicts[:-1] == [Verdict.WAIT, Verdict.WAIT]
    assert isinstance(verdicts[-1], AuthorizationError)


@pytest.mark.req("AUTH-04")
@pytest.mark.parametrize(
    ("status", "fields"),
    [(403, []), (403, ["Bearer"]), (403, ['Basic realm="x"']), (401, ['Basic realm="x"']), (400, ["Bearer"])],
)
def test_other_error_statuses_start_no_flow(status: int, fields: list[str]) -> None:
    calls = Calls(World())
    calls.is_open = True
    calls.result(0)
    assert calls.authorizer.authorize(1, "x", 0.0) == ()
    error = calls.authorizer.refused(1, status, fields, 0.0)
    assert isinstance(error, AuthorizationRequired)
    assert (error.status, error.challenges) == (status, tuple(fields))
    assert calls.authorizer.next_effect() is None


def test_a_401_without_a_challenge_leads_to_a_login() -> None:
    calls = Calls(World())
    calls.is_open = True
    calls.result(0)
    calls.authorizer.authorize(1, "x", 0.0)
    assert calls.authorizer.refused(1, 401, [], 0.0) is Verdict.WAIT


@pytest.mark.req("AUTH-35")
def test_step_up_requests_the_union_of_scopes() -> None:
    calls = Calls(World(AuthorizationServer(resource_scopes=("basic",))))
    assert calls.result(1) == OK
    calls.needed[2] = frozenset({"write"})
    assert calls.result(2) == OK
    assert [each["scope"] for each in calls.world.server.authorizations] == ["basic", "basic write"]
    assert stored(calls.world).requested == {"basic", "write"}
    assert not any(b"refresh_token=" in (fetch.body or b"") for fetch in fetches(calls, "/token"))


@pytest.mark.req("AUTH-35")
def test_step_ups_of_one_operation_are_limited() -> None:
    calls = logged_in(World(AuthorizationServer(resource_scopes=("basic",))))
    accepts = calls.world.server.accepts

    def never(headers: Any, now: float, needed: frozenset[str] = frozenset()) -> Any:
        found = accepts(headers, now, frozenset({"impossible"}))
        return found if not hasattr(found, "text") else attrs.evolve(CHALLENGE, params=FORBIDDEN)

    calls.world.server.accepts = never  # type: ignore[method-assign]  # another server
    error = calls.result(2)
    assert isinstance(error, AuthorizationError)
    assert error.status == 403
    assert len(calls.world.server.authorizations) == 3
    error = calls.result(3)
    assert len(calls.world.server.authorizations) == 3
    calls.result(4, "another operation")
    assert len(calls.world.server.authorizations) == 5


@pytest.mark.req("AUTH-35")
@pytest.mark.parametrize("raises", [False, True])
def test_program_may_refuse_to_ask_for_more_scopes(raises: bool) -> None:
    asked = []

    def judge(scopes: frozenset[str]) -> bool:
        asked.append(scopes)
        if raises:
            raise KeyError("the file of rules")
        return False

    calls = Calls(World(AuthorizationServer(resource_scopes=("basic",))), OAuth(on_step_up=judge))
    assert calls.result(1) == OK
    calls.needed[2] = frozenset({"write"})
    error = calls.result(2)
    assert isinstance(error, AuthorizationError)
    assert error.status == 403
    assert asked == [{"write"}]
    assert ("on_step_up= raised KeyError" if raises else "lacks write, and on_step_up= refuses") in str(error)
    assert len(calls.world.server.authorizations) == 1
    assert calls.result(3) == OK


@pytest.mark.req("AUTH-35")
def test_program_may_allow_to_ask_for_more_scopes() -> None:
    calls = Calls(World(AuthorizationServer(resource_scopes=("basic",))), OAuth(on_step_up=lambda scopes: True))
    calls.needed[1] = frozenset({"write"})
    assert calls.result(1) == OK


METADATA = AS + "/.well-known/oauth-authorization-server"


def test_step_up_uses_the_metadata_that_was_fetched() -> None:
    calls = Calls(World(AuthorizationServer(resource_scopes=("basic",))))
    calls.result(1)
    calls.needed[2] = frozenset({"write"})
    assert calls.result(2) == OK
    assert [fetch.url for fetch in fetches(calls)].count(PRM) == 1
    assert [fetch.url for fetch in fetches(calls)].count(METADATA) == 1


@pytest.mark.req("AUTH-06")
def test_401_fetches_the_metadata_of_the_resource_again() -> None:
    calls = Calls(World(AuthorizationServer(refreshes=False)))
    calls.result(1)
    other = AuthorizationServer("https://other.example.com", resource=MCP)
    calls.world.servers, calls.world.server = [other], other
    assert calls.result(2) == OK
    assert stored(calls.world).token is not None
    assert stored(calls.world).token.issuer == "https://other.example.com"  # type: ignore[union-attr]  # asserted above


def test_metadata_is_fetched_again_after_a_failed_flow() -> None:
    calls = Calls(World(AuthorizationServer(resource_scopes=("basic",))))
    calls.result(1)
    calls.world.server.faults.status = 400
    calls.needed[2] = frozenset({"write"})
    assert isinstance(calls.result(2), AuthorizationError)
    calls.world.server.faults.status = None
    calls.pass_time(31)
    assert calls.result(2) == OK
    assert [fetch.url for fetch in fetches(calls)].count(METADATA) == 2


@pytest.mark.req("AUTH-13")
def test_choice_of_an_issuer_that_raises_fails_the_call() -> None:
    def choose(issuers: tuple[str, ...]) -> str:
        raise KeyError("no preference")

    error = Calls(World(), OAuth(choose_issuer=choose)).result(1)
    assert isinstance(error, AuthorizationError)
    assert "choose_issuer= raised KeyError" in str(error)


def test_slow_authorization_server_fails_the_login_for_a_while() -> None:
    calls = Calls(World())
    calls.world.server.faults.slow = 11
    calls.call(1)
    while not isinstance(calls.effects[0], Fetch):
        calls.do(calls.effects.popleft())
    fetch = calls.effects[0]
    assert isinstance(fetch, Fetch)
    late = calls.world.server.respond(fetch, calls.world.now)
    assert late.at > calls.world.now + fetch.timeout
    calls.pass_time(fetch.timeout)
    [error] = calls.outcomes[1]
    assert isinstance(error, AuthorizationError)
    assert error.temporary
    calls.authorizer.answer(fetch.token, late, calls.now)
    calls.drain()
    assert not calls.effects


FORBIDDEN = {"error": "insufficient_scope", "scope": "basic", "resource_metadata": PRM}


@pytest.mark.req("AUTH-35")
def test_step_up_with_too_few_scopes_fails_naming_the_missing_ones() -> None:
    world = World(AuthorizationServer(resource_scopes=("basic",)))
    calls = logged_in(world)
    allowed = world.server._allowed
    world.server._allowed = lambda scopes: allowed(scopes) - {"write"}  # type: ignore[method-assign]  # a stingy server
    calls.needed[2] = frozenset({"write"})
    error = calls.result(2)
    assert isinstance(error, AuthorizationError)
    assert (error.code, error.status) == ("insufficient_scope", 403)
    assert "did not grant write" in str(error)
    assert len(world.server.authorizations) == 2


@pytest.mark.req("AUTH-35")
def test_a_challenge_that_names_no_scopes_fails_at_once() -> None:
    calls = logged_in()
    calls.authorizer.authorize(2, "x", calls.now)
    error = calls.authorizer.refused(2, 403, ['Bearer error="insufficient_scope"'], calls.now)
    assert isinstance(error, AuthorizationError)
    assert "does not name" in str(error)


def test_a_challenge_for_scopes_without_a_token_leads_to_a_login() -> None:
    calls = Calls(World())
    calls.is_open = True
    calls.result(0)
    calls.is_open = False
    calls.authorizer.authorize(1, "x", 0.0)
    assert calls.authorizer.refused(1, 403, ['Bearer error="insufficient_scope", scope="a"'], 0.0) is Verdict.WAIT
    calls.operations[1], calls.outcomes[1] = "x", []
    calls.waiting.add(1)
    calls.drain()
    calls.settle()
    assert calls.outcomes[1] == [OK]


@pytest.mark.req("AUTH-23")
def test_a_forgotten_client_registers_once_more() -> None:
    calls = logged_in()
    calls.world.server.forget_clients()
    calls.world.server.expire_tokens()
    assert calls.result(2) == OK
    assert len(calls.world.server.registered) == 2
    assert stored(calls.world).registrations[AS].client_id != stored_client(calls)


def stored_client(calls: Calls) -> str:
    return calls.world.server.authorizations[0]["client_id"]


def test_unknown_given_client_fails() -> None:
    world = World(AuthorizationServer(clients={"c": "s"}))
    calls = logged_in(world, method=OAuth(client_id="c", client_secret="s"))
    world.server.forget_clients()
    world.server.expire_tokens()
    error = calls.result(2)
    assert isinstance(error, AuthorizationError)
    assert error.code == "invalid_client"


def test_a_client_that_is_refused_right_after_its_registration_is_dropped_once() -> None:
    world = World()
    calls = Calls(world)
    approve = world.server.approve

    def forgetful(url: str, now: float) -> str:
        callback = approve(url, now)
        world.server.forget_clients()
        return callback

    world.server.approve = forgetful  # type: ignore[method-assign, assignment]  # another server
    error = calls.result(1)
    assert isinstance(error, AuthorizationError)
    assert error.code == "invalid_client"
    assert len(world.server.registered) == 2


@pytest.mark.req("AUTH-23")
def test_unfinished_login_times_out_and_the_next_one_registers_again() -> None:
    world = World()
    calls = Calls(world)
    calls.call(1)
    while not isinstance(calls.effects[0], AskUser):
        calls.do(calls.effects.popleft())
    ask = calls.effects.popleft()
    assert isinstance(ask, AskUser)
    assert repr(calls.authorizer.pending) == repr(ask.pending)
    assert calls.authorizer.next_deadline() == ask.expires_at - calls.epoch == calls.now + 600
    calls.pass_time(600)
    [error] = calls.outcomes[1]
    assert isinstance(error, AuthorizationError)
    assert error.code == "expired"
    assert any(isinstance(effect, CloseRedirect) for effect in calls.effects)
    assert not calls.authorizer.answer(ask.token, world.server.approve(ask.url, world.now), calls.now)
    calls.pass_time(30)
    assert calls.result(2) == OK
    assert len(world.server.registered) == 2


def test_declined_login_fails_all_calls_for_a_while() -> None:
    calls = Calls(World())
    for name in (1, 2):
        calls.call(name)
    while not isinstance(calls.effects[0], AskUser):
        calls.do(calls.effects.popleft())
    calls.authorizer.answer(calls.effects.popleft().token, None, calls.now)
    calls.drain()
    calls.make_ready_calls()
    [first], [second] = calls.outcomes[1], calls.outcomes[2]
    assert first is second
    assert calls.events == [AuthorizationFailed(first)]  # type: ignore[arg-type]  # it is the error
    assert calls.result(3) is first
    calls.pass_time(29)
    assert calls.result(4) is first
    calls.pass_time(1)
    assert calls.result(5) == OK
    assert len(calls.world.server.registered) == 1


@pytest.mark.req("AUTH-27")
def test_a_callback_with_another_state_does_not_end_the_wait() -> None:
    world = World()
    calls = Calls(world)
    calls.call(1)
    while not isinstance(calls.effects[0], AskUser):
        calls.do(calls.effects.popleft())
    ask = calls.effects.popleft()
    assert isinstance(ask, AskUser)
    for url in ("http://127.0.0.1:3118/callback?code=c&state=wrong&error=x", "", "https://evil.example"):
        assert not calls.authorizer.answer(ask.token, url, calls.now)
    assert calls.authorizer.state is AuthorizationState.ASKING
    assert calls.authorizer.answer(ask.token, world.server.approve(ask.url, world.now), calls.now)
    calls.drain()
    calls.settle()
    assert calls.outcomes[1] == [OK]


@pytest.mark.req("AUTH-31")
def test_a_callback_of_another_issuer_fails_the_login_without_a_token_request() -> None:
    world = World()
    world.server.faults.iss = "https://evil.example"
    calls = Calls(world)
    error = calls.result(1)
    assert isinstance(error, AuthorizationError)
    assert "does not come from" in str(error)
    assert fetches(calls, "/token") == []


def test_without_interaction_the_url_is_in_the_error_and_the_client_is_kept() -> None:
    calls = Calls(World(), interaction="never")
    for name in (1, 2):
        error = calls.result(name)
        assert isinstance(error, AuthorizationError)
        assert error.url is not None
        assert error.url.startswith(AS + "/authorize?")
        calls.pass_time(30)
    assert not any(isinstance(effect, AskUser) for effect in calls.done)
    assert sum(isinstance(effect, CloseRedirect) for effect in calls.done) == 2
    assert len(calls.world.server.registered) == 1


@pytest.mark.parametrize(
    "method", [ClientCredentials("c", secret="s", scopes=["a"]), Device(client_id="c", client_secret="s", scopes=["a"])]
)
def test_other_ways_to_be_authorized_need_no_browser(method: Any) -> None:
    calls = Calls(World(AuthorizationServer(clients={"c": "s"})), method)
    assert calls.result(1) == OK
    assert not any(isinstance(effect, AskUser | BindRedirect) for effect in calls.done)
    calls.needed[2] = frozenset({"b"})
    assert calls.result(2) == OK
    calls.world.server.expire_tokens()
    assert calls.result(3) == OK


def test_without_interaction_no_device_code_is_shown() -> None:
    calls = Calls(World(AuthorizationServer(clients={"c": "s"})), Device(client_id="c"), interaction="never")
    error = calls.result(1)
    assert isinstance(error, AuthorizationError)
    assert "interaction is not allowed" in str(error)
    assert fetches(calls) == []


def test_a_workload_is_asked_for_its_assertion() -> None:
    claims = {"sub": "w", "aud": AS}
    calls = Calls(World(AuthorizationServer(assertions=lambda jwt: claims)), WorkloadIdentity())
    assert calls.result(1) == OK


# Stores and other processes.


def test_a_token_of_another_process_is_adopted() -> None:
    world = World()
    first, second = logged_in(world), logged_in(world)
    first.pass_time(3541)
    assert first.result(2) == OK
    assert second.result(2) == OK
    assert kinds(second) == ["loaded", "renewed"]
    assert fetches(second) == []
    world.server.expire_tokens()
    assert first.result(3) == OK
    assert second.result(3) == OK
    assert fetches(second) == []
    assert world.server.reused == []


def test_a_login_of_another_process_is_adopted() -> None:
    world = World()
    first, second = Calls(world), Calls(world)
    second.is_open = True
    second.result(0)
    second.is_open = False
    assert first.result(1) == OK
    assert second.result(1) == OK
    assert kinds(second) == ["obtained"]
    assert fetches(second) == []


@pytest.mark.req("AUTH-41")
@pytest.mark.parametrize("is_logged_out", [False, True])
def test_expired_login_of_another_process_is_renewed_before_a_person_is_asked(is_logged_out: bool) -> None:
    world = World()
    first, second = Calls(world), Calls(world)
    second.is_open = True
    second.result(0)
    second.is_open = False
    assert first.result(1) == OK
    world.now += 4000
    second.call(1)
    second.do(second.effects.popleft())  # it has read the record
    if is_logged_out:
        world.store.forget(second.authorizer.key)
    second.settle()
    assert second.outcomes[1] == [OK]
    assert any(isinstance(effect, AskUser) for effect in second.done) is is_logged_out
    assert world.server.reused == []


def test_unreachable_server_of_an_expired_login_leads_to_no_further_login() -> None:
    world = World()
    first, second = Calls(world), Calls(world)
    second.is_open = True
    second.result(0)
    second.is_open = False
    assert first.result(1) == OK
    world.now += 4000
    world.answers[AS + "/token"] = EffectFailed("no route")
    outcome = second.result(1)
    assert isinstance(outcome, AuthorizationError)
    assert outcome.temporary
    assert not any(isinstance(effect, AskUser) for effect in second.done)


@pytest.mark.req("AUTH-41")
def test_a_refresh_token_that_a_dead_process_presented_is_not_presented_again() -> None:
    world = World()
    calls = logged_in(world)
    calls.pass_time(4000)
    calls.call(2)
    while not isinstance(calls.effects[0], Fetch):
        calls.do(calls.effects.popleft())
    world.perform(calls.effects.popleft())
    again = Calls(world)
    assert again.result(1) == OK
    assert world.server.reused == []
    assert kinds(again) == ["obtained"]


def failing(world: World, *kinds: type, times: int = 1000) -> None:
    perform = world.perform
    left = [times]

    def fail(effect: Any) -> Any:
        if isinstance(effect, kinds) and left[0]:
            left[0] -= 1
            raise EffectFailed("the disk is full")
        return perform(effect)

    world.perform = fail  # type: ignore[method-assign]  # a broken store


def test_failing_store_does_not_fail_the_login() -> None:
    world = World()
    failing(world, LoadCredentials, SaveCredentials)
    calls = Calls(world)
    assert calls.result(1) == OK
    assert any(isinstance(event, CredentialsNotSaved) for event in calls.events)
    assert calls.result(2) == OK


def test_a_renewed_token_that_cannot_be_stored_is_used() -> None:
    world = World()
    calls = logged_in(world)
    calls.pass_time(3541)
    saves = 0
    perform = world.perform

    def fail(effect: Any) -> Any:
        nonlocal saves
        saves += isinstance(effect, SaveCredentials)
        if isinstance(effect, SaveCredentials) and saves == 2:
            raise EffectFailed("the disk is full")
        return perform(effect)

    world.perform = fail  # type: ignore[method-assign]  # a broken store
    assert calls.result(2) == OK
    assert kinds(calls) == ["obtained", "renewed"]
    [problem] = [event for event in calls.events if isinstance(event, CredentialsNotSaved)]
    assert "the disk is full" in str(problem.error)


def test_a_store_that_cannot_lock_keeps_the_refresh_token_unpresented() -> None:
    world = World()
    calls = logged_in(world)
    calls.pass_time(4000)
    failing(world, LockCredentials, times=1)
    error = calls.result(2)
    assert isinstance(error, AuthorizationError)
    assert error.temporary
    assert len(fetches(calls, "/token")) == 1
    calls.pass_time(30)
    assert calls.result(3) == OK


@pytest.mark.parametrize("interaction", ["allow", "never"])
def test_renewal_after_a_logout_needs_a_login(interaction: Any) -> None:
    world = World()
    logged_in(world)
    calls = Calls(world, interaction=interaction)
    assert calls.result(1) == OK
    world.store.forget(KEY)
    assert calls.result(2) == OK
    calls.pass_time(4000)
    for name in (3, 4):
        outcome = calls.result(name)
        if interaction == "allow":
            assert outcome == OK
            assert kinds(calls) == ["loaded", "obtained"]
        else:
            assert isinstance(outcome, LoginRequired)
            assert world.store.keys() == []
            calls.pass_time(40)
    assert world.server.reused == []


def test_logout_during_a_renewal_is_not_undone() -> None:
    world = World()
    calls = logged_in(world)
    calls.pass_time(4000)
    calls.call(2)
    while not isinstance(calls.effects[0], Fetch):
        calls.do(calls.effects.popleft())
    world.store.forget(KEY)
    calls.settle()
    assert calls.outcomes[2] == [OK]
    assert world.store.keys() == []
    calls.pass_time(4000)
    assert calls.result(3) == OK
    assert kinds(calls) == ["obtained", "renewed", "obtained"]


@pytest.mark.parametrize("is_usable", [True, False])
def test_login_of_another_process_during_a_renewal_is_not_overwritten(is_usable: bool) -> None:
    world = World()
    calls = logged_in(world)
    calls.pass_time(4000)
    calls.call(2)
    while not isinstance(calls.effects[0], Fetch):
        calls.do(calls.effects.popleft())
    world.store.forget(KEY)
    logged_in(world)
    theirs = stored(world)
    if not is_usable:
        assert theirs.token is not None
        theirs = attrs.evolve(theirs, token=attrs.evolve(theirs.token, expires_at=0.0))
        world.store.swap(KEY, to_text(theirs), world.store._last_version)
    calls.settle()
    assert calls.outcomes[2] == [OK]
    assert stored(world) == theirs
    assert (calls.authorizer._credentials == theirs) is is_usable


@pytest.mark.parametrize("how", ["garbage", "unreadable"])
def test_renewal_uses_what_is_known_where_the_record_was_damaged(how: str) -> None:
    world = World()
    calls = logged_in(world)
    broken: Any = world.store
    load = broken.load
    if how == "garbage":
        world.store.swap(KEY, Secret("garbage"), world.store._last_version)
    else:
        broken.load = raising(EffectFailed("no credentials that can be read"))
    calls.pass_time(4000)
    assert calls.result(2) == OK
    assert kinds(calls) == ["obtained", "renewed"]
    assert any(isinstance(event, CredentialsNotSaved) for event in calls.events) is (how == "unreadable")
    broken.load = load
    calls.pass_time(4000)
    assert calls.result(3) == OK
    assert world.server.reused == []
    assert stored(world).token == calls.authorizer._credentials.token


@pytest.mark.parametrize("reloads", [False, True])
def test_renewed_token_that_could_not_be_stored_is_renewed_again(reloads: bool) -> None:
    world = World()
    calls = renewing(world, Fetch)
    full: Any = world.store
    swap = full.swap
    full.swap = raising(EffectFailed("no space left"))
    calls.settle()
    assert calls.outcomes[2] == [OK]
    full.swap = swap
    calls.pass_time(4000)
    if reloads:
        calls.call(3)
        calls.authorizer.interrupt()
        calls.effects.clear()
    assert calls.result(4) == OK
    assert kinds(calls) == ["obtained", "renewed", "renewed"]
    assert world.server.reused == []
    assert stored(world).token == calls.authorizer._credentials.token


def raising(error: Exception) -> Any:
    def fail(*args: Any) -> None:
        raise error

    return fail


def renewing(world: World, place: type[Any]) -> Calls:
    """Return calls of which one waits for an effect of its renewal."""
    calls = logged_in(world)
    calls.pass_time(4000)
    calls.call(2)
    while not isinstance(calls.effects[0], place):
        calls.do(calls.effects.popleft())
    return calls


@pytest.mark.parametrize("is_done", [False, True])
@pytest.mark.parametrize("how", ["close", "interrupt"])
@pytest.mark.parametrize("place", range(5))
def test_renewal_that_is_cancelled_leaves_credentials_that_can_be_renewed(place: int, how: str, is_done: bool) -> None:
    """At each effect of a renewal, done or not: the lock, the record, its mark, the token request, the new record."""
    world = World()
    calls = logged_in(world)
    calls.pass_time(4000)
    calls.call(2)
    for _ in range(place):
        calls.do(calls.effects.popleft())
    effect = calls.effects.popleft()
    presents = isinstance(effect, Fetch) and is_done
    answer = world.perform(effect) if is_done else None
    if how == "close":
        calls.authorizer.close(calls.now)
    else:
        calls.authorizer.interrupt()
        assert calls.authorizer.state is AuthorizationState.COLD
    if is_done and isinstance(effect, LockCredentials):
        calls.answer(effect, answer)
    calls.drain()
    after = list(calls.effects)
    if place or is_done:
        assert isinstance(after[-1], UnlockCredentials)
    for each in after:
        calls.do(each, and_calls=False)
    if presents:
        return  # it counts as a request without an answer: the token is presented again
    again = Calls(world, interaction="never")
    assert again.result(3) == OK
    assert world.server.reused == []


def test_call_after_an_interruption_begins_anew() -> None:
    world = World()
    calls = renewing(world, Fetch)
    calls.authorizer.interrupt()
    calls.authorizer.interrupt()
    calls.effects.clear()
    calls.drain()
    calls.settle()
    assert calls.outcomes[2] == []
    assert calls.result(3) == OK
    assert kinds(calls) == ["obtained", "renewed"]


def test_interruption_of_a_login_ends_the_question() -> None:
    calls = Calls(World())
    calls.call(1)
    while not isinstance(calls.effects[0], AskUser):
        calls.do(calls.effects.popleft())
    calls.authorizer.interrupt()
    assert calls.authorizer.pending is None
    assert isinstance(calls.authorizer.next_effect(), CloseRedirect)
    assert calls.authorizer.next_effect() is None


def test_token_that_another_process_renews_is_waited_for() -> None:
    """The record is marked while the other process renews: see the mark only under the lock."""
    world = World()
    other = renewing(world, Fetch)
    calls = Calls(world, interaction="never")
    calls.call(1)
    calls.do(calls.effects.popleft())
    [lock] = calls.effects
    assert isinstance(lock, LockCredentials)
    other.settle()
    calls.settle()
    assert calls.outcomes[1] == [OK]
    assert kinds(calls) == ["renewed"]
    assert world.server.reused == []


def test_early_renewal_of_another_process_is_waited_for() -> None:
    world = World()
    first = logged_in(world)
    first.pass_time(3550)
    first.call(2)
    while not isinstance(first.effects[0], Fetch):
        first.do(first.effects.popleft())
    calls = Calls(world, interaction="never")
    calls.call(1)
    calls.do(calls.effects.popleft())
    calls.make_ready_calls()
    [lock] = calls.effects
    assert isinstance(lock, LockCredentials)
    first.settle()
    calls.settle()
    assert calls.outcomes[1] == [OK]
    assert kinds(calls) == ["loaded", "renewed"]


def test_token_that_a_killed_process_presented_needs_a_login() -> None:
    world = World()
    renewing(world, Fetch)
    calls = Calls(world)
    assert calls.result(1) == OK
    assert kinds(calls) == ["obtained"]
    assert world.server.reused == []


def test_a_record_that_cannot_be_read_is_replaced() -> None:
    world = World()
    world.store.swap(KEY, Secret("garbage"), None)
    calls = logged_in(world)
    assert calls.world.store.load(KEY) == Stored(to_text(stored(world)), 2)


def test_a_record_that_changes_all_the_time_is_a_failure_of_the_store() -> None:
    world = World()
    calls = logged_in(world)
    calls.pass_time(4000)
    swap = world.store.swap
    world.store.swap = lambda *args: None  # type: ignore[method-assign]  # others are always faster
    error = calls.result(2)
    assert isinstance(error, AuthorizationError)
    assert "change all the time" in str(error)
    world.store.swap = swap  # type: ignore[method-assign]  # no longer
    calls.pass_time(30)
    assert calls.result(3) == OK


def test_a_record_that_changed_during_the_refresh_is_replaced() -> None:
    world = World()
    calls = logged_in(world)
    calls.pass_time(3541)
    perform = world.perform

    def disturbed(effect: Any) -> Any:
        answer = perform(effect)
        if isinstance(effect, Fetch) and effect.url.endswith("/token"):
            found = world.store.load(KEY)
            assert found is not None
            world.store.swap(KEY, found.record, found.version)
        return answer

    world.perform = disturbed  # type: ignore[method-assign]  # another process writes without the lock
    assert calls.result(2) == OK
    assert stored(world).spent_at is None


@pytest.mark.parametrize("times", [1, 3])
def test_login_is_stored_over_a_concurrently_changed_record(times: int) -> None:
    world = World()
    swap = world.store.swap
    left = [times]

    def late(key: str, record: Secret, version: int | None) -> int | None:
        left[0] -= 1
        return None if left[0] >= 0 else swap(key, record, version)

    world.store.swap = late  # type: ignore[method-assign]  # another process is faster
    calls = logged_in(world)
    assert (world.store.load(KEY) is None) is (times == 3)
    assert any(isinstance(event, CredentialsNotSaved) for event in calls.events) is (times == 3)


@pytest.mark.req("AUTH-23")
def test_stored_client_that_failed_to_log_in_is_not_reused() -> None:
    calls = logged_in(World(AuthorizationServer(refreshes=False)))
    calls.world.server.expire_tokens()
    calls.call(2)
    while not isinstance(calls.effects[0], AskUser):
        calls.do(calls.effects.popleft())
    calls.effects.clear()
    calls.pass_time(600)
    calls.pass_time(30)
    calls.effects.clear()
    assert calls.result(3) == OK
    assert len(calls.world.server.registered) == 2
    assert stored(calls.world).registrations[AS].client_id != stored_client(calls)


def test_failed_ask_user_effect_fails_the_login() -> None:
    calls = begun()
    while not isinstance(calls.effects[0], AskUser):
        calls.do(calls.effects.popleft())
    calls.authorizer.failed(calls.effects.popleft().token, "there is no display", calls.now)
    calls.drain()
    calls.make_ready_calls()
    [error] = calls.outcomes[1]
    assert "no display" in str(error)


def test_the_registrations_of_other_issuers_stay_stored() -> None:
    world = World()
    calls = logged_in(world)
    other = Credentials(registrations={"https://other.example": stored(world).registrations[AS]})
    found = world.store.load(KEY)
    assert found is not None
    world.store.swap(KEY, to_text(other), found.version)
    world.server.expire_tokens()
    world.server.expire_refresh_tokens()
    assert calls.result(2) == OK
    assert stored(world).registrations.keys() == {AS, "https://other.example"}


# Answers, deadlines and the end.


def begun(method: OAuth | None = None) -> Calls:
    """Return calls of which one waits for the first effect of a login."""
    calls = Calls(World(), method)
    calls.is_open = True
    calls.result(0)
    calls.is_open = False
    calls.call(1)
    return calls


def test_an_effect_without_an_answer_fails_in_time() -> None:
    calls = begun()
    calls.do(calls.effects.popleft())
    fetch = calls.effects.popleft()
    assert isinstance(fetch, Fetch)
    assert calls.authorizer.next_deadline() == calls.now + 10
    calls.pass_time(9.9)
    assert calls.outcomes[1] == []
    calls.pass_time(0.1)
    [error] = calls.outcomes[1]
    assert isinstance(error, AuthorizationError)
    assert error.temporary
    assert "Fetch has no answer" in str(error)
    calls.authorizer.answer(fetch.token, Response(200, (), b""), calls.now)
    assert calls.authorizer.state is AuthorizationState.FAILED


def test_an_answer_of_another_kind_raises_and_changes_nothing() -> None:
    calls = begun()
    effect = calls.effects.popleft()
    authorizer = calls.authorizer
    for wrong in (Response(200, (), b""), 5, "x"):
        with pytest.raises(TypeError, match="a LoadCredentials is answered by Stored or None, not by"):
            authorizer.answer(effect.token, wrong, calls.now)
    assert not authorizer.answer(effect.token + 5, None, calls.now)
    authorizer.failed(effect.token + 5, "x", calls.now)
    authorizer.answer(effect.token + 5, Secret("x"), calls.now)
    calls.effects.appendleft(effect)
    calls.settle()
    assert calls.outcomes[1] == [OK]


def test_invalid_redirect_uri_raises_and_changes_nothing() -> None:
    calls = begun()
    while not isinstance(calls.effects[0], BindRedirect):
        calls.do(calls.effects.popleft())
    with pytest.raises(ValueError, match="redirect URI"):
        calls.authorizer.answer(calls.effects[0].token, "http://evil.example/", calls.now)
    calls.settle()
    assert calls.outcomes[1] == [OK]


def test_a_redirect_that_is_bound_too_late_is_closed() -> None:
    calls = begun()
    while not isinstance(calls.effects[0], BindRedirect):
        calls.do(calls.effects.popleft())
    effect = calls.effects.popleft()
    calls.pass_time(30)
    calls.authorizer.answer(effect.token, "http://127.0.0.1:1/callback", calls.now)
    calls.drain()
    assert [type(each) for each in calls.effects] == [CloseRedirect]


def test_a_late_answer_does_not_close_the_redirect_of_another_login() -> None:
    calls = begun()
    while not isinstance(calls.effects[0], BindRedirect):
        calls.do(calls.effects.popleft())
    late = calls.effects.popleft()
    calls.pass_time(30)
    calls.pass_time(30)
    calls.call(1)
    while not calls.effects or not isinstance(calls.effects[0], AskUser):
        calls.do(calls.effects.popleft())
    calls.authorizer.answer(late.token, "http://127.0.0.1:1/callback", calls.now)
    assert calls.authorizer.next_effect() is None


@pytest.mark.parametrize("closes", [True, False])
def test_late_lock_is_released(closes: bool) -> None:
    calls = logged_in()
    calls.pass_time(4000)
    calls.call(2)
    lock = calls.effects.popleft()
    assert isinstance(lock, LockCredentials)
    if closes:
        calls.authorizer.close(calls.now)
    else:
        calls.pass_time(60)
    calls.authorizer.answer(lock.token, None, calls.now)
    calls.authorizer.answer(lock.token, None, calls.now)
    calls.drain()
    assert [type(each) for each in calls.effects] == [UnlockCredentials]


def test_close_fails_waiting_calls_and_releases_locks() -> None:
    calls = logged_in()
    calls.pass_time(4000)
    calls.call(2)
    calls.do(calls.effects.popleft())
    calls.effects.clear()
    calls.authorizer.close(calls.now)
    calls.authorizer.close(calls.now)
    calls.drain()
    calls.make_ready_calls()
    assert [type(each) for each in calls.effects] == [UnlockCredentials]
    [error] = calls.outcomes[2]
    assert "closed" in str(error)
    with pytest.raises(LocalProtocolError, match="closed"):
        calls.authorizer.authorize(3, "x", calls.now)


def test_a_call_that_was_made_before_closing_has_an_outcome() -> None:
    calls = logged_in()
    calls.authorizer.authorize(2, "x", calls.now)
    calls.authorizer.close(calls.now)
    assert isinstance(calls.authorizer.refused(2, 401, ["Bearer"], calls.now), AuthorizationError)


def test_closing_while_a_person_is_asked_closes_the_redirect() -> None:
    calls = begun()
    while not isinstance(calls.effects[0], AskUser):
        calls.do(calls.effects.popleft())
    calls.effects.clear()
    calls.authorizer.close(calls.now)
    calls.drain()
    assert [type(each) for each in calls.effects] == [CloseRedirect]


def test_effects_that_were_not_pulled_go_with_the_flow() -> None:
    authorizer = Authorizer(MCP, OAuth(), entropy=bytes, epoch=0.0)
    assert authorizer.authorize(1, "x", 0.0) is None
    authorizer.close(0.0)
    assert authorizer.next_effect() is None
    ready = authorizer.next_ready()
    assert ready is not None
    assert ready.error is not None


def test_dropped_call_is_not_made_but_its_login_continues() -> None:
    calls = begun()
    calls.call(2)
    calls.authorizer.drop(1)
    calls.waiting.discard(1)
    calls.settle()
    assert (calls.outcomes[1], calls.outcomes[2]) == ([], [OK])
    calls.authorizer.drop("unknown")
    calls.authorizer.succeeded("unknown")


def test_a_ready_call_that_is_dropped_is_not_named() -> None:
    authorizer = Authorizer(MCP, OAuth(), entropy=bytes, epoch=0.0)
    authorizer.authorize(1, "x", 0.0)
    authorizer.authorize(2, "x", 0.0)
    effect = authorizer.next_effect()
    assert effect is not None
    authorizer.answer(effect.token, None, 0.0)
    authorizer.drop(1)
    ready = authorizer.next_ready()
    assert ready is not None
    assert (ready.call, authorizer.next_ready()) == (2, None)


def test_mistakes_of_the_caller_raise() -> None:
    calls = begun()
    with pytest.raises(LocalProtocolError, match="waits already"):
        calls.authorizer.authorize(1, "x", calls.now)
    for name in (1, "unknown"):
        with pytest.raises(LocalProtocolError, match="only a call that was made"):
            calls.authorizer.refused(name, 401, [], calls.now)
    with pytest.raises(ValueError, match="web address"):
        Authorizer("mcp.example.com", OAuth(), entropy=bytes)


def test_a_refusal_in_the_middle_of_a_flow_waits_for_it() -> None:
    calls = logged_in()
    authorizer = calls.authorizer
    authorizer.authorize("slow", "x", calls.now)
    calls.pass_time(3541)
    calls.call(2)
    assert authorizer.state is AuthorizationState.RENEWING
    assert authorizer.refused("slow", 401, [str(CHALLENGE)], calls.now) is Verdict.WAIT
    calls.operations["slow"], calls.outcomes["slow"] = "x", []
    calls.waiting.add("slow")
    calls.settle()
    assert (calls.outcomes["slow"], calls.outcomes[2]) == ([OK], [OK])


def test_a_refusal_after_a_failure_has_its_error_and_later_a_new_try() -> None:
    for wait in (0, 30):
        calls = logged_in()
        authorizer = calls.authorizer
        authorizer.authorize("slow", "x", calls.now)
        calls.world.server.expire_tokens()
        calls.world.server.faults.status = 503
        failed = calls.result(2)
        calls.world.server.faults.status = None
        calls.pass_time(wait)
        verdict = authorizer.refused("slow", 401, [str(CHALLENGE)], calls.now)
        assert verdict is (Verdict.WAIT if wait else failed)


@pytest.mark.req("AUTH-39")
def test_no_representation_shows_a_secret() -> None:
    world = World(AuthorizationServer(clients={"c": "canary-secret"}))
    calls = logged_in(world, method=OAuth(client_id="c", client_secret="canary-secret"))
    calls.pass_time(3541)
    calls.result(2)
    token = token_of(calls)
    secrets = ["canary-secret", token.access_token.reveal(), token.refresh_token.reveal()]
    shown = f"{calls.done!r} {calls.events!r} {vars(calls.authorizer)!r} {world.effects!r}"
    assert [secret for secret in secrets if secret in shown] == []
