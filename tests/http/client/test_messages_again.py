"""Notifications and answers whose request broke off: which are sent again, when, and for how long."""

from __future__ import annotations

from typing import Any

import pytest
from webtalk import CALL, CAPABLE, Asked, WebTalk, hello

from mcpio.errors import ConnectFailed, ConnectionLost, UnexpectedResponse
from mcpio.http.client import HttpClientOptions, MessageRefused, SessionLost
from mcpio.types import (
    CustomNotification,
    ListRootsResult,
    RootsListChangedNotification,
)

QUESTION = {"jsonrpc": "2.0", "id": 7, "method": "roots/list"}
REFUSED = ConnectFailed("nothing listens")


def asking(**http: Any) -> tuple[WebTalk, Asked]:
    """Return a client, and its answer to a request of the server."""
    talk = WebTalk(http=HttpClientOptions(**http), capabilities=CAPABLE)
    talk.open(session="s")
    talk.ask(CALL)
    call = talk.requests[-1]
    talk.stream(call)
    talk.event(call, QUESTION)
    (request,) = talk.received()
    talk.connection.send_result(request.id, ListRootsResult(()))
    (answer,) = talk.step()
    return talk, answer


def break_off(talk: WebTalk, asked: Asked, how: Any) -> list[Asked]:
    if isinstance(how, int):
        return talk.answer(asked, how)
    return talk.reset(asked, how)


@pytest.mark.parametrize("how", [None, OSError("broken"), REFUSED, ConnectionLost("closed"), 429, 502, 503, 504])
def test_answer_that_broke_off_is_sent_again_before_later_messages(how: Any) -> None:
    talk, answer = asking(reconnect_after=2.0)
    talk.connection.send_notification(CustomNotification("a/b"))
    assert break_off(talk, answer, how) == []
    assert talk.advance(1.9) == []
    (again,) = talk.advance(0.2)
    assert (again.json, again.headers) == (answer.json, answer.headers)
    (later,) = talk.answer(again, 202)
    assert later.json["method"] == "a/b"
    talk.answer(later, 202)
    assert talk.advance(40.0) == []
    assert talk.found(MessageRefused) == []


def test_answer_is_given_up_and_reported_after_some_tries() -> None:
    talk, answer = asking(reconnect_after=1.0, reconnect_tries=3)
    for delay in (1.0, 2.0, 4.0):
        talk.reset(answer, OSError("broken"))
        assert talk.advance(delay - 0.125) == []
        (answer,) = talk.advance(0.125)
    talk.reset(answer, OSError("broken"))
    (refused,) = talk.found(MessageRefused)
    assert isinstance(refused.error, ConnectionLost)
    assert talk.advance(40.0) == []


@pytest.mark.parametrize(("status", "kind"), [(400, UnexpectedResponse), (500, UnexpectedResponse)])
def test_refused_answer_is_reported_at_once(status: int, kind: type[Exception]) -> None:
    talk, answer = asking()
    talk.answer(answer, status)
    (refused,) = talk.found(MessageRefused)
    assert isinstance(refused.error, kind)
    assert talk.advance(40.0) == []


@pytest.mark.parametrize(
    ("how", "kind"), [(None, ConnectionLost), (OSError("broken"), ConnectionLost), (503, UnexpectedResponse)]
)
def test_notification_of_unknown_meaning_that_broke_off_is_reported_and_not_sent_again(
    how: Any, kind: type[Exception]
) -> None:
    talk, answer = asking()
    talk.answer(answer, 202)
    talk.connection.send_notification(CustomNotification("a/b"))
    (note,) = talk.step()
    break_off(talk, note, how)
    (refused,) = talk.found(MessageRefused)
    assert isinstance(refused.error, kind)
    assert talk.advance(40.0) == []


@pytest.mark.parametrize(
    ("notification", "how"), [(RootsListChangedNotification(), None), (CustomNotification("a/b"), REFUSED)]
)
def test_notification_that_is_repeatable_or_was_not_sent_is_sent_again(notification: Any, how: Any) -> None:
    talk, answer = asking()
    talk.answer(answer, 202)
    talk.connection.send_notification(notification)
    (note,) = talk.step()
    talk.reset(note, how)
    (again,) = talk.advance(1.0)
    assert again.json == note.json
    talk.answer(again, 202)
    assert talk.found(MessageRefused) == []


def test_initialized_notification_is_sent_again_before_any_request() -> None:
    talk = WebTalk()
    (initialized,) = talk.result(talk.begin(), hello(), mcp_session_id="s")
    talk.ask(CALL)
    assert talk.reset(initialized) == []
    (again,) = talk.advance(1.0)
    assert again.json == initialized.json
    talk.answer(again, 202)
    assert [asked.method for asked in talk.requests[-1:]] == ["GET"]


def test_answer_is_not_sent_into_another_session() -> None:
    talk, answer = asking()
    talk.reset(answer)
    (again,) = talk.advance(1.0)
    talk.answer(again, 404)
    assert talk.found(SessionLost) == [SessionLost(0.0)]
    assert talk.advance(40.0) == []
    assert talk.found(MessageRefused) == []


def test_session_that_is_lost_drops_the_answer_that_waits() -> None:
    talk, answer = asking()
    talk.ask(CALL)
    talk.reset(answer)
    talk.answer(talk.requests[-1], 404)
    assert talk.found(SessionLost) == [SessionLost(0.0)]
    assert talk.advance(40.0) == []


def test_closing_sends_the_answer_that_waits_at_once_and_for_the_last_time() -> None:
    talk, answer = asking()
    talk.reset(answer)
    talk.connection.close(talk.now, grace=0)
    (again,) = talk.step()
    assert again.json == answer.json
    ending = talk.reset(again, OSError("broken"))
    assert [asked.method for asked in (*ending, *talk.requests[-1:])][-1] == "DELETE"
    assert len([each for each in talk.requests if each.body == answer.body]) == 2
    (refused,) = talk.found(MessageRefused)
    assert isinstance(refused.error, ConnectionLost)


@pytest.mark.parametrize("how", [None, OSError("broken"), REFUSED, 503])
def test_answer_that_breaks_off_while_closing_is_sent_at_once_and_for_the_last_time(how: Any) -> None:
    talk, answer = asking()
    talk.connection.close(talk.now, grace=0)
    assert [asked.method for asked in talk.step()] == []
    (again,) = break_off(talk, answer, how)
    assert again.json == answer.json
    assert talk.found(MessageRefused) == []
    ending = break_off(talk, again, how)
    assert [asked.method for asked in ending] == ["DELETE"]
    (refused,) = talk.found(MessageRefused)
    assert isinstance(refused.error, ConnectFailed | ConnectionLost | UnexpectedResponse)


@pytest.mark.parametrize("how", [None, OSError("broken"), 503])
def test_notification_of_unknown_meaning_that_breaks_off_while_closing_is_not_sent_again(how: Any) -> None:
    talk, answer = asking()
    talk.answer(answer, 202)
    talk.connection.send_notification(CustomNotification("a/b"))
    (note,) = talk.step()
    talk.connection.close(talk.now, grace=0)
    talk.step()
    assert [asked.method for asked in break_off(talk, note, how)] == ["DELETE"]
    assert len(talk.found(MessageRefused)) == 1


def test_closing_waits_for_the_second_try() -> None:
    talk, answer = asking()
    talk.reset(answer)
    (again,) = talk.advance(1.0)
    talk.connection.close(talk.now, grace=0)
    assert [asked.method for asked in talk.step()] == []
    ending = talk.answer(again, 202)
    assert ending[-1].method == "DELETE"
    assert talk.found(MessageRefused) == []
    talk.answer(ending[-1], 200)
    assert talk.is_over


def test_closing_is_over_in_time_while_the_second_try_hangs() -> None:
    talk, answer = asking()
    talk.reset(answer)
    talk.connection.close(talk.now, grace=0)
    talk.step()
    talk.advance(5.0)
    assert talk.is_over
    assert answer.number in talk.cut
