"""The HTTP client machine with an authorizer: what rests, what is made again, and what fails."""

from __future__ import annotations

from typing import Any, Literal

import pytest
from authworld import AS, CHALLENGE, MCP, World
from webtalk import CALL, RESULT, Asked, WebTalk, hello

from mcpio.auth import (
    AskUser,
    AuthorizationError,
    AuthorizationState,
    Authorizer,
    BindRedirect,
    CloseRedirect,
    Device,
    Effect,
    Fetch,
    LoadCredentials,
    LockCredentials,
    OAuth,
    RestoreCredentials,
    SaveCredentials,
    ShowCode,
    UnlockCredentials,
)
from mcpio.engine.limits import Timeout
from mcpio.engine.options import Options
from mcpio.errors import AuthorizationRequired, ConnectionLost, RequestTimeout
from mcpio.events import ConnectionClosed, RequestFailed
from mcpio.http.client import HttpClientOptions, ListeningEnded, MessageRefused, SessionLost
from mcpio.testing import AuthorizationServer
from mcpio.types import CallToolRequest, CustomNotification

FIELD = str(CHALLENGE)


class AuthTalk(WebTalk):
    """A client with an authorizer, a world that performs its effects, and a server that the test plays."""

    def __init__(
        self,
        world: World | None = None,
        method: OAuth | Device | None = None,
        *,
        interaction: Literal["allow", "never"] = "allow",
        **options: Any,
    ) -> None:
        self.world = world or World()
        self.epoch = self.world.now
        self.authorizer = Authorizer(
            MCP, method or OAuth(), entropy=self.world.entropy, epoch=self.epoch, interaction=interaction
        )
        super().__init__(authorizer=self.authorizer, url=MCP, **options)
        self.effects: list[Effect] = []
        self.asks: list[AskUser] = []

    def step(self) -> list[Asked]:
        """Let everything happen, the effects too, up to where a person is asked."""
        before = len(self.requests)
        super().step()
        while (effect := self.machine.next_effect()) is not None:
            self.effects.append(effect)
            self.world.now = self.epoch + self.now
            if isinstance(effect, AskUser):
                self.asks.append(effect)
            elif isinstance(effect, Fetch | BindRedirect | LoadCredentials | SaveCredentials | LockCredentials):
                self.authorizer.answer(effect.token, self.world.perform(effect), self.now)
            elif isinstance(effect, RestoreCredentials):
                self.world.perform(effect)
            else:
                assert isinstance(effect, UnlockCredentials | CloseRedirect | ShowCode)
            super().step()
        return self.requests[before:]

    def log_in(self) -> list[Asked]:
        """Answer the person's question; return what was asked because of it."""
        ask = self.asks.pop()
        self.world.now = self.epoch + self.now
        assert self.authorizer.answer(ask.token, self.world.server.approve(ask.url, self.world.now), self.now)
        return self.step()

    def token(self, asked: Asked) -> str | None:
        return asked.headers.get("authorization")


def logged_in(**options: Any) -> AuthTalk:
    """Return a client that has a token and a session."""
    talk = AuthTalk(**options)
    assert talk.answer(talk.begin(), 401, www_authenticate=FIELD) == []
    (again,) = talk.log_in()
    talk.open(hi=again, session="s")
    return talk


def test_no_token_is_sent_to_a_server_without_authorization() -> None:
    talk = AuthTalk()
    hi = talk.begin()
    assert talk.token(hi) is None
    talk.open(hi=hi)
    id = talk.ask(CALL)
    talk.result(talk.requests[-1], RESULT)
    assert talk.has_result(id)
    assert [type(effect) for effect in talk.effects] == [LoadCredentials]


@pytest.mark.req("AUTH-05")
def test_refused_handshake_is_repeated_after_a_login() -> None:
    talk = AuthTalk()
    hi = talk.begin()
    assert talk.answer(hi, 401, www_authenticate=FIELD) == []
    (again,) = talk.log_in()
    assert again.json == hi.json
    assert (talk.token(again) or "").startswith("Bearer ")
    talk.open(hi=again)
    assert all(talk.token(each) == talk.token(again) for each in talk.requests[1:])
    assert talk.authorizer.state is AuthorizationState.READY


@pytest.mark.req("AUTH-41")
def test_expired_token_is_renewed_and_all_requests_are_repeated_in_order() -> None:
    talk = logged_in()
    talk.world.server.expire_tokens()
    ids = [talk.ask(CallToolRequest(str(n))) for n in range(20)]
    old = talk.requests[-20:]
    before = len(talk.requests)
    for asked in old:
        talk.answer(asked, 401, www_authenticate=FIELD)
    again = talk.requests[before:]
    assert [each.json for each in again] == [each.json for each in old]
    assert len({talk.token(each) for each in again} | {talk.token(old[0])}) == 2
    for asked in again:
        talk.answer_json(asked, asked.result)
    assert all(map(talk.has_result, ids))
    assert sum(isinstance(each, Fetch) and each.url == AS + "/token" for each in talk.effects) == 2


def test_open_stream_continues_while_other_requests_are_authorized_again() -> None:
    talk = logged_in()
    slow = talk.ask(CALL)
    stream = talk.requests[-1]
    talk.stream(stream)
    talk.world.server.expire_tokens()
    quick = talk.ask(CALL)
    (again,) = talk.answer(talk.requests[-1], 401, www_authenticate=FIELD)
    talk.event(stream, stream.result)
    talk.end(stream)
    talk.answer_json(again, again.result)
    assert talk.has_result(slow)
    assert talk.has_result(quick)
    assert talk.cut == []


@pytest.mark.parametrize("minutes", [9, 30])
def test_request_does_not_time_out_while_a_person_logs_in(minutes: int) -> None:
    talk = logged_in(method=OAuth(login_timeout=3600))
    first = talk.ask(CALL, timeout=60)
    talk.advance(20)
    talk.answer(talk.requests[-1], 403, www_authenticate=f'{FIELD}, error="insufficient_scope", scope="more"')
    later = talk.ask(CALL, timeout=30)
    talk.advance(60 * minutes)
    assert talk.found(RequestFailed) == []
    one, two = talk.log_in()
    talk.advance(29)
    talk.answer_json(one, one.result)
    assert talk.has_result(first)
    talk.advance(2)
    assert isinstance(talk.error(later), RequestTimeout)
    talk.answer_json(two, two.result)


def test_total_timeout_resumes_after_a_login_with_the_remaining_time() -> None:
    talk = logged_in()
    id = talk.ask(CALL, timeout=60)
    talk.advance(20)
    talk.answer(talk.requests[-1], 403, www_authenticate=f'{FIELD}, error="insufficient_scope", scope="more"')
    talk.advance(300)
    talk.log_in()
    talk.advance(39)
    assert talk.found(RequestFailed) == []
    talk.advance(2)
    assert isinstance(talk.error(id), RequestTimeout)


def test_time_stands_still_while_a_person_enters_a_device_code() -> None:
    world = World()
    talk = AuthTalk(world, Device())
    talk.answer(talk.begin(), 401, www_authenticate=FIELD)
    (code,) = [each for each in talk.effects if isinstance(each, ShowCode)]
    talk.advance(300)
    assert talk.found(RequestFailed) == []
    world.server.approve_device(code.user_code)
    (again,) = talk.advance(6)
    talk.open(hi=again)


def test_person_who_declines_fails_the_request() -> None:
    talk = AuthTalk()
    talk.answer(talk.begin(), 401, www_authenticate=FIELD)
    talk.authorizer.answer(talk.asks[0].token, None, talk.now)
    talk.step()
    (closed,) = talk.found(ConnectionClosed)
    assert isinstance(closed.cause, AuthorizationError)
    assert closed.cause.code == "access_denied"


def failed(**options: Any) -> AuthTalk:
    """Return a client with a session, whose last login was declined a moment ago."""
    talk = logged_in(**options)
    id = talk.ask(CALL)
    talk.answer(talk.requests[-1], 403, www_authenticate=f'{FIELD}, error="insufficient_scope", scope="more"')
    talk.authorizer.answer(talk.asks.pop().token, None, talk.now)
    talk.step()
    assert isinstance(talk.error(id), AuthorizationError)
    talk.events.clear()
    return talk


def test_requests_after_a_failed_login_fail_in_the_turn_that_would_send_them() -> None:
    talk = failed(http=HttpClientOptions(max_requests=2, listen=False))
    ids = [talk.connection.send_request(CallToolRequest(str(n)), now=talk.now) for n in range(5)]
    # The calls of one turn, each once, as a program makes them that then waits for input.
    assert talk.machine.requests_to_send(talk.now) == []
    talk._drain()
    assert all(isinstance(talk.error(id), AuthorizationError) for id in ids)


def test_notifications_after_a_failed_login_are_refused_in_the_turn_that_would_send_them() -> None:
    talk = failed(http=HttpClientOptions(listen=False))
    for _ in range(3):
        talk.connection.send_notification(CustomNotification("x/y", {}))
    assert talk.machine.requests_to_send(talk.now) == []
    talk._drain()
    assert len(talk.found(MessageRefused)) == 3


def test_cancelled_request_that_rests_is_never_sent() -> None:
    talk = logged_in()
    id = talk.ask(CALL)
    talk.answer(talk.requests[-1], 403, www_authenticate=f'{FIELD}, error="insufficient_scope", scope="more"')
    talk.connection.cancel_request(id, "enough")
    talk.step()
    sent = talk.log_in()
    assert [each.json["method"] for each in sent] == ["notifications/cancelled"]
    assert talk.cut == []


@pytest.mark.req("AUTH-35")
def test_step_ups_of_one_operation_are_limited() -> None:
    talk = logged_in()
    id = talk.ask(CALL)
    asks = 0
    while not talk.found(RequestFailed):
        asked = talk.requests[-1]
        talk.answer(asked, 403, www_authenticate=f'{FIELD}, error="insufficient_scope", scope="s{asks}"')
        if talk.asks:
            asks += 1
            talk.log_in()
    assert asks == 2
    assert isinstance(talk.error(id), AuthorizationRequired)


def test_forbidden_without_a_challenge_opens_no_login() -> None:
    talk = logged_in()
    id = talk.ask(CALL)
    talk.answer(talk.requests[-1], 403, "text/plain", b"Host not allowed")
    error = talk.error(id)
    assert "Host not allowed" in str(error)
    assert not isinstance(error, AuthorizationError)
    assert talk.asks == []


def test_refusal_that_no_token_can_help_fails_the_request() -> None:
    talk = logged_in()
    id = talk.ask(CALL)
    talk.answer(talk.requests[-1], 401, www_authenticate="Basic")
    assert isinstance(talk.error(id), AuthorizationError)


def test_older_token_that_is_refused_is_replaced_at_once() -> None:
    talk = logged_in()
    talk.world.server.expire_tokens()
    first, second = talk.ask(CALL), talk.ask(CALL)
    one, two = talk.requests[-2:]
    (again,) = talk.answer(one, 401, www_authenticate=FIELD)
    talk.answer_json(again, again.result)
    (at_once,) = talk.answer(two, 401, www_authenticate=FIELD)
    assert talk.token(at_once) == talk.token(again)
    talk.answer_json(at_once, at_once.result)
    assert talk.has_result(first)
    assert talk.has_result(second)


def listening(talk: AuthTalk) -> Asked:
    return next(each for each in reversed(talk.requests) if each.method == "GET")


def test_listening_again_asks_no_person() -> None:
    talk = AuthTalk(World(AuthorizationServer(refreshes=False)))
    talk.answer(talk.begin(), 401, www_authenticate=FIELD)
    (again,) = talk.log_in()
    stream = talk.open(hi=again, listen=True)
    assert stream is not None
    talk.world.server.expire_tokens()
    talk.end(stream)
    (retry,) = talk.advance(2)
    talk.answer(retry, 401, www_authenticate=FIELD)
    assert talk.asks == []
    (ended,) = talk.found(ListeningEnded)
    assert isinstance(ended.error, AuthorizationError)
    assert ended.error.url is not None
    # A call of the program may ask, though the last flow failed a moment ago.
    id = talk.ask(CALL)
    talk.answer(talk.requests[-1], 401, www_authenticate=FIELD)
    (call,) = talk.log_in()
    talk.answer_json(call, call.result)
    assert talk.has_result(id)


def test_reopened_session_asks_no_person() -> None:
    talk = AuthTalk(World(AuthorizationServer(refreshes=False)))
    talk.answer(talk.begin(), 401, www_authenticate=FIELD)
    (again,) = talk.log_in()
    talk.open(hi=again, session="s")
    talk.world.server.expire_tokens()
    talk.ask(CALL)
    talk.answer(talk.requests[-1], 404)
    assert talk.found(SessionLost)
    talk.answer(talk.begin(), 401, www_authenticate=FIELD)
    assert talk.asks == []
    assert talk.found(ConnectionClosed)


def test_notification_waits_for_the_login_and_keeps_its_place() -> None:
    talk = AuthTalk()
    hi = talk.begin()
    (initialized,) = talk.result(hi, hello())
    talk.ask(CALL)
    assert talk.answer(initialized, 401, www_authenticate=FIELD) == []
    talk.advance(60)
    assert talk.found(MessageRefused) == []
    (again,) = talk.log_in()
    assert again.json == initialized.json
    (stream,) = talk.answer(again, 202)
    assert stream.method == "GET"
    (call,) = talk.answer(stream, 405)
    assert call.json["method"] == "tools/call"


def test_broken_request_is_forgotten_by_the_authorizer() -> None:
    talk = logged_in()
    id = talk.ask(CALL)
    talk.reset(talk.requests[-1])
    assert isinstance(talk.error(id), ConnectionLost)


def test_redirected_request_keeps_its_token() -> None:
    talk = logged_in()
    id = talk.ask(CALL)
    asked = talk.requests[-1]
    (again,) = talk.answer(asked, 307, location="/other")
    assert (again.target, talk.token(again)) == ("/other", talk.token(asked))
    talk.answer_json(again, again.result)
    assert talk.has_result(id)


def test_end_of_a_session_is_sent_with_the_token_and_never_logs_in() -> None:
    talk = logged_in()
    talk.connection.close(talk.now)
    (end,) = talk.step()
    assert (end.method, end.headers["mcp-session-id"]) == ("DELETE", "s")
    assert talk.token(end) is not None
    talk.answer(end, 401, www_authenticate=FIELD)
    assert talk.is_over
    assert talk.asks == []
    assert talk.authorizer.state is AuthorizationState.CLOSED


def test_end_of_a_session_that_would_have_to_wait_is_not_sent() -> None:
    talk = logged_in()
    talk.ask(CALL)
    talk.answer(talk.requests[-1], 403, www_authenticate=f'{FIELD}, error="insufficient_scope", scope="more"')
    talk.connection.close(talk.now)
    assert talk.step() == []
    assert talk.is_over
    assert isinstance(talk.effects[-1], CloseRedirect)


def test_deadline_of_a_login_is_the_clients() -> None:
    talk = AuthTalk()
    talk.answer(talk.begin(), 401, www_authenticate=FIELD)
    assert talk.machine.next_deadline() == 600.0
    talk.advance(600)
    (closed,) = talk.found(ConnectionClosed)
    assert isinstance(closed.cause, AuthorizationError)
    assert closed.cause.code == "expired"


def test_large_message_is_an_operation_of_its_kind() -> None:
    talk = logged_in()
    id = talk.ask(CallToolRequest("x", {"text": "y" * 70000}))
    asked = talk.requests[-1]
    talk.answer_json(asked, asked.result)
    assert talk.has_result(id)


@pytest.mark.parametrize("name", ["Authorization", "authorization"])
def test_authorization_field_beside_an_authorizer_is_an_error(name: str) -> None:
    with pytest.raises(ValueError, match="headers must not have Authorization beside auth="):
        AuthTalk(http=HttpClientOptions(headers={name: "Bearer x"}))


def test_machine_without_an_authorizer_has_no_effects() -> None:
    assert WebTalk().machine.next_effect() is None


def test_snapshot_during_a_login_keeps_the_remaining_time() -> None:
    talk = logged_in(options=Options(request_timeout=Timeout(60)))
    talk.ask(CALL)
    talk.advance(20)
    talk.answer(talk.requests[-1], 403, www_authenticate=f'{FIELD}, error="insufficient_scope", scope="more"')
    talk.advance(300)
    saved: Any = talk.connection.snapshot(talk.now)
    (pending,) = saved["outgoing"]
    assert pending["due_left"] == 40
