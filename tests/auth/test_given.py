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
