from __future__ import annotations

import pytest
from authworld import AS, World
from hypothesis import given
from hypothesis import strategies as st

from mcpio.auth import Credentials, MemoryCredentials, Registration, Secret, Stored, from_text, to_text


def test_credentials_survive_a_round_trip_through_text() -> None:
    world = World()
    credentials = world.log_in()
    text = to_text(credentials)
    assert from_text(Credentials, text) == credentials
    assert from_text(Credentials, to_text(Credentials())) == Credentials()
    assert to_text(from_text(Credentials, text)) == text


@pytest.mark.req("AUTH-39")
def test_representations_hide_all_secrets() -> None:
    world = World()
    credentials = world.log_in()
    token = credentials.token
    assert token is not None
    assert token.refresh_token is not None
    secrets = [token.access_token.reveal(), token.refresh_token.reveal()]
    text = to_text(credentials)
    shown = f"{credentials!r} {text!r} {Stored(text, 1)!r} {world.effects!r}"
    assert [secret for secret in secrets if secret in shown] == []
    assert [secret for secret in secrets if secret not in text.reveal()] == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "[]",
        "{}",
        '{"version": 2, "value": {}}',
        '{"version": 1, "value": 5}',
        '{"version": 1, "value": {"x": 1}}',
        '{"version": 1, "value": {"token": {"access_token": "canary"}}}',
        '{"version": 1, "value": {"token": {"access_token": 5}}}',
        '{"version": 1, "value": {"registrations": {"i": {"issuer": "i", "client_id": 5}}}}',
        '{"version": 1, "value": {"registrations": {"i": {"issuer": "i", "client_id": "c", "client_secret": 5}}}}',
    ],
)
def test_other_text_raises_without_quoting_it(text: str) -> None:
    with pytest.raises(ValueError, match="not a stored Credentials") as caught:
        from_text(Credentials, Secret(text))
    assert "canary" not in str(caught.value)
    assert caught.value.__context__ is None


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a stored"):
        from_text(Credentials, Secret(text))


def test_dropping_a_registration_drops_the_refresh_token_that_it_obtained() -> None:
    credentials = World().log_in()
    without = credentials.without_registration(AS)
    assert (without.registrations, without.refresh_token, without.requested) == ({}, None, credentials.requested)
    assert credentials.without_registration("https://other.example") == credentials


def test_a_spent_refresh_token_does_not_count() -> None:
    credentials = World().log_in()
    assert credentials.refresh_token is not None
    spent = from_text(Credentials, to_text(Credentials(credentials.token, spent_at=5.0)))
    assert spent.spent_at == 5.0
    assert spent.refresh_token is None
    assert Credentials().refresh_token is None


def test_a_store_replaces_only_the_version_that_is_named() -> None:
    store = MemoryCredentials()
    assert store.load("k") is None
    assert store.swap("k", Secret("a"), None) == 1
    assert store.swap("k", Secret("b"), None) is None
    assert store.swap("k", Secret("b"), 1) == 2
    assert store.swap("k", Secret("c"), 1) is None
    assert store.load("k") == Stored(Secret("b"), 2)
    assert list(store.keys()) == ["k"]
    store.forget("k")
    store.forget("k")
    assert list(store.keys()) == []


def test_a_registration_hides_its_secret() -> None:
    assert "canary" not in repr(Registration("i", "c", "client_secret_basic", Secret("canary")))
