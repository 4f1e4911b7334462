from __future__ import annotations

from functools import partial

import pytest
from counting import processor_seconds
from hypothesis import given
from hypothesis import strategies as st

from mcpio.auth import Challenge, bearer_challenge, parse_challenges

PRM = "https://mcp.example.com/.well-known/oauth-protected-resource/mcp"


@pytest.mark.req("AUTH-11")
@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (["Bearer"], [("Bearer", {}, None)]),
        (['Bearer realm="x"'], [("Bearer", {"realm": "x"}, None)]),
        (["bearer REALM=x"], [("bearer", {"realm": "x"}, None)]),
        (['Bearer realm = "x" ,scope="a b"'], [("Bearer", {"realm": "x", "scope": "a b"}, None)]),
        (['Bearer realm="a \\"b\\" \\\\ c"'], [("Bearer", {"realm": 'a "b" \\ c'}, None)]),
        (['Bearer realm="a, Basic b=c", error=e'], [("Bearer", {"realm": "a, Basic b=c", "error": "e"}, None)]),
        (
            ['Negotiate, Basic realm="x", charset=UTF-8, Bearer'],
            [("Negotiate", {}, None), ("Basic", {"realm": "x", "charset": "UTF-8"}, None), ("Bearer", {}, None)],
        ),
        (["Negotiate YWJj=="], [("Negotiate", {}, "YWJj==")]),
        (["Negotiate YWJj, Bearer a=b"], [("Negotiate", {}, "YWJj"), ("Bearer", {"a": "b"}, None)]),
        (["Negotiate YWJj= , Bearer"], [("Negotiate", {}, "YWJj="), ("Bearer", {}, None)]),
        (["Bearer a=1", "DPoP b=2"], [("Bearer", {"a": "1"}, None), ("DPoP", {"b": "2"}, None)]),
        (['Bearer a="1" b="2"'], [("Bearer", {"a": "1", "b": "2"}, None)]),
        (["Bearer a=1, a=2"], [("Bearer", {"a": "1"}, None)]),
        ([", ,Bearer a=1,,"], [("Bearer", {"a": "1"}, None)]),
        (['Bearer a=1, b="broken'], [("Bearer", {"a": "1"}, None)]),
        (["Bearer a=1, =, Basic"], [("Bearer", {"a": "1"}, None)]),
        # Some servers forget the quotation marks of a URL.
        ([f"Bearer resource_metadata={PRM}, a=b"], [("Bearer", {"resource_metadata": PRM, "a": "b"}, None)]),
        (["", "  ", "=", '"'], []),
    ],
)
def test_fields_are_parsed(fields: list[str], expected: list[tuple[str, dict[str, str], str | None]]) -> None:
    assert [(each.scheme, each.params, each.token68) for each in parse_challenges(fields)] == expected


@pytest.mark.req("AUTH-11")
@given(st.lists(st.text(alphabet='Bearer DPoP=",\\ \tabc012/+\x00ä\n')))
def test_any_text_is_parsed_without_an_error(fields: list[str]) -> None:
    parse_challenges(fields)


@pytest.mark.parametrize("part", ["a=b,", 'a="', "Bearer ", " ", ",", "a", "\\", '"\\'])
def test_parsing_takes_linear_time(part: str) -> None:
    few, many = (processor_seconds([partial(parse_challenges, [part * count])] * 3) for count in (5_000, 80_000))
    assert many < 80 * max(few, 0.001)  # the square would be 256 times as much


@given(
    st.dictionaries(
        st.sampled_from(["realm", "scope", "error"]),
        st.text(alphabet=st.characters(min_codepoint=32, max_codepoint=126)),
    )
)
def test_a_written_challenge_is_read_back(params: dict[str, str]) -> None:
    challenge = Challenge("Bearer", params)
    assert parse_challenges([str(challenge)]) == (challenge,)


def test_a_challenge_with_a_token_is_written() -> None:
    assert str(Challenge("Negotiate", token68="YWJj")) == "Negotiate YWJj"


@pytest.mark.parametrize(
    "challenge",
    [
        Challenge("Bea rer"),
        Challenge("Bearer", {"a b": "x"}),
        bearer_challenge(realm="a\nb"),
        bearer_challenge(realm="ä"),
        Challenge("Negotiate", token68="a\r\nb: c"),
    ],
)
def test_writing_a_parameter_that_a_field_cannot_hold_raises(challenge: Challenge) -> None:
    with pytest.raises(ValueError, match=r"scheme|parameter|token"):
        str(challenge)


def test_parameters_that_are_none_are_left_out() -> None:
    challenge = bearer_challenge(error="insufficient_scope", scope="files:write", resource_metadata=PRM, realm=None)
    assert str(challenge) == f'Bearer error="insufficient_scope", scope="files:write", resource_metadata="{PRM}"'


def test_the_scopes_of_a_challenge_are_a_set_without_malformed_ones() -> None:
    assert bearer_challenge(scope='a b  a c"').scopes == {"a", "b"}
    assert bearer_challenge().scopes == frozenset()


def test_bearer_and_dpop_are_oauth_in_any_case() -> None:
    assert [Challenge(scheme).is_oauth for scheme in ("bearer", "DPOP", "Basic")] == [True, True, False]
