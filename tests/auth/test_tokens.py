from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpio.auth import AuthorizationError, EffectFailed, Grant, Secret, TokenSet
from mcpio.framing.json import dumps

ANSWER: dict[str, Any] = {"access_token": "at", "token_type": "Bearer", "expires_in": 600, "refresh_token": "rt"}


def parsed(answer: dict[str, Any], refresh_token: Secret | None = None) -> TokenSet:
    return TokenSet.parse(
        dumps(answer),
        1000.0,
        issuer="https://as.example",
        resource="https://mcp.example.com/mcp",
        client_id="c",
        scopes=frozenset({"a"}),
        refresh_token=refresh_token,
    )


def test_the_expiry_is_absolute() -> None:
    token = parsed(ANSWER)
    assert (token.access_token, token.refresh_token) == (Secret("at"), Secret("rt"))
    assert token.expires_at == 1600.0
    assert [token.is_usable(at) for at in (1599.9, 1600.0)] == [True, False]
    assert [token.is_due(at) for at in (1539.9, 1540.0)] == [False, True]


def test_a_short_token_is_renewed_in_the_last_tenth_of_its_life() -> None:
    token = parsed({**ANSWER, "expires_in": 50})
    assert [token.is_due(at) for at in (1044.9, 1045.0)] == [False, True]


@pytest.mark.parametrize("lifetime", [None, -1, 0, "x", "", 1e300, True, [], "9" * 30, "²"])
def test_a_lifetime_without_meaning_counts_as_absent(lifetime: Any) -> None:
    token = parsed({**ANSWER, "expires_in": lifetime})
    assert token.expires_at is None
    assert token.is_usable(1e12)
    assert not token.is_due(1e12)


def test_a_lifetime_may_be_written_in_digits() -> None:
    assert parsed({**ANSWER, "expires_in": "600"}).expires_at == 1600.0


@pytest.mark.req("AUTH-39")
def test_a_new_refresh_token_replaces_the_old_one_which_stays_without() -> None:
    assert parsed(ANSWER, Secret("old")).refresh_token == Secret("rt")
    del (short := dict(ANSWER))["refresh_token"]
    assert parsed(short, Secret("old")).refresh_token == Secret("old")
    assert parsed(short).refresh_token is None


@pytest.mark.parametrize(("scope", "granted"), [(None, {"a"}), ("b c", {"b", "c"}), ("", {"a"})])
def test_an_answer_without_scopes_grants_those_requested(scope: str | None, granted: set[str]) -> None:
    assert parsed({**ANSWER, "scope": scope}).scopes == granted


@pytest.mark.parametrize("kind", ["bearer", "BEARER"])
def test_the_type_of_a_token_has_any_case(kind: str) -> None:
    assert parsed({**ANSWER, "token_type": kind}).access_token == Secret("at")


@pytest.mark.parametrize(
    "answer",
    [
        {**ANSWER, "token_type": "mac"},
        {**ANSWER, "token_type": None},
        {**ANSWER, "access_token": None},
        {**ANSWER, "access_token": "a b"},
        {**ANSWER, "access_token": "a\r\nx: y"},
        {**ANSWER, "access_token": "ä"},
        {**ANSWER, "access_token": 5},
        {**ANSWER, "refresh_token": 5},
    ],
)
def test_an_answer_without_a_usable_token_raises(answer: dict[str, Any]) -> None:
    with pytest.raises(AuthorizationError, match="the answer of the token endpoint"):
        parsed(answer)


@pytest.mark.parametrize("member", ["error", "refresh_token", "scope"])
def test_null_member_of_an_answer_is_absent(member: str) -> None:
    assert parsed({**ANSWER, member: None}, Secret("old")).access_token == Secret("at")


def test_empty_refresh_token_is_absent() -> None:
    assert parsed({**ANSWER, "refresh_token": ""}).refresh_token is None
    assert parsed({**ANSWER, "refresh_token": ""}, Secret("old")).refresh_token == Secret("old")


def test_answer_without_a_token_type_is_refused_by_its_name() -> None:
    with pytest.raises(AuthorizationError, match=r"^the answer of the token endpoint has no token_type"):
        parsed({"access_token": "at"})


def test_an_error_raises_even_beside_a_token() -> None:
    with pytest.raises(AuthorizationError) as caught:
        parsed({**ANSWER, "error": "invalid_grant", "error_description": "x\x1b[31m\u202e" + "y" * 500})
    assert caught.value.code == "invalid_grant"
    assert len(str(caught.value)) < 400
    assert str(caught.value).isprintable()
    with pytest.raises(AuthorizationError, match=r"the error '\?'"):
        parsed({"error": 5})


@given(
    st.binary(max_size=60)
    | st.builds(
        lambda members: dumps({**ANSWER, **members}),
        st.dictionaries(
            st.sampled_from(["access_token", "token_type", "scope", "expires_in", "error"]),
            st.none() | st.text() | st.integers(),
        ),
    )
)
def test_any_answer_is_read_or_refused(body: bytes) -> None:
    with contextlib.suppress(AuthorizationError):
        TokenSet.parse(body, 0.0, issuer="i", resource="r", client_id="c", scopes=frozenset())


@pytest.mark.req("SEC-04")
def test_grants_compare_by_identity() -> None:
    grant = Grant("https://as.example", "ada", "c", frozenset({"a"}), 5.0, {"x": "canary"}, {"jkt": "y"})
    renewed = Grant("https://as.example", "ada", "c", frozenset({"b"}), 9.0)
    other = Grant("https://as.example", "bob", "c")
    assert grant == renewed
    assert hash(grant) == hash(renewed)
    assert grant.key == renewed.key == '["https://as.example","ada","c"]'
    assert other not in (grant,)
    assert "canary" not in repr(grant)


def test_a_failed_effect_is_temporary() -> None:
    assert EffectFailed("no answer").temporary
    assert not AuthorizationError("refused").temporary
