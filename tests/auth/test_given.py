"""Tokens and keys that the program has already."""

from __future__ import annotations

from typing import Any

import pytest
from authcalls import Calls
from authworld import World

from mcpio.auth import ApiKey, AuthorizationError, BearerToken, MemoryCredentials, NeedAssertion, Secret


def test_bearer_token_is_sent_with_the_first_call() -> None:
    world = World()
    world.jwt = "given"
    method: Any = BearerToken("given")
    calls = Calls(world, method)
    calls.is_open = True
    calls.result(1)
    assert calls.authorizer.authorize(2, "x", calls.now) == (("authorization", "Bearer given"),)
    assert [each.kind for each in calls.done if isinstance(each, NeedAssertion)] == ["access_token"]


def test_refused_bearer_token_is_called_a_given_one() -> None:
    world = World()
    world.jwt = "given"
    method: Any = BearerToken("given")
    outcome = Calls(world, method).result(1)  # the server knows other tokens only
    assert str(outcome) == "the server refuses the token that was given"


@pytest.mark.parametrize(
    ("scope", "message"),
    [
        ("a", "the token that was given lacks a"),
        ("a b", "the token that was given lacks one or more of a b"),
    ],
)
def test_bearer_token_without_scopes_names_those_that_are_needed(scope: str, message: str) -> None:
    world = World()
    world.jwt = "given"
    method: Any = BearerToken("given")
    calls = Calls(world, method)
    calls.is_open = True
    calls.result(1)
    calls.authorizer.authorize(2, "x", calls.now)
    calls.authorizer.refused(2, 403, [f'Bearer error="insufficient_scope", scope="{scope}"'], calls.now)
    calls.waiting.add(2)
    calls.outcomes[2] = []
    calls.drain()
    calls.settle()
    assert [str(outcome) for outcome in calls.outcomes[2]] == [message]


@pytest.mark.parametrize("text", ["", "two words", "line\nbreak", "é"])
def test_token_that_no_field_can_hold_is_rejected_without_showing_it(text: str) -> None:
    world = World()
    world.jwt = text
    method: Any = BearerToken(text)
    outcome = Calls(world, method).result(1)
    assert isinstance(outcome, AuthorizationError)
    assert "cannot stand in a header field" in str(outcome)
    assert not text or text not in str(outcome)


@pytest.mark.parametrize(
    ("header", "key"), [("x key", "k"), ("", "k"), ("x-key", ""), ("x-key", " k"), ("x-key", "k\n")]
)
def test_api_key_that_no_field_can_hold_is_rejected(header: str, key: str) -> None:
    with pytest.raises(ValueError, match="ApiKey"):
        ApiKey(header, key)


def test_given_secrets_are_never_shown() -> None:
    assert "canary" not in repr([ApiKey("x-key", "canary"), BearerToken("canary"), BearerToken(Secret("canary"))])


def test_lock_of_memory_is_held_by_one() -> None:
    store = MemoryCredentials()
    assert store.try_lock("k")
    assert not store.try_lock("k")
    store.unlock("k")
    store.unlock("k")
    assert store.try_lock("k")


@pytest.mark.parametrize("assertion", [None, 5, b"token"])
def test_token_that_is_neither_text_nor_function_raises(assertion: object) -> None:
    with pytest.raises(TypeError, match="the token of BearerToken must be a str, a Secret or a function, not "):
        BearerToken(assertion)  # type: ignore[arg-type]  # of another type
