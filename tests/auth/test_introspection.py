from __future__ import annotations

from typing import Any

import pytest
from authkeys import ED25519
from protectedsites import SIGNER, token

from mcpio.auth import (
    Admission,
    ApiKeys,
    Fetch,
    Grant,
    Guard,
    Introspection,
    JwtVerifier,
    Refused,
    ResourceServer,
    Response,
    Verifier,
    api_key_digest,
    load_signer,
    verifiers,
)
from mcpio.framing.json import dumps

AS = "https://id.example.com"
MCP = "https://mcp.example.com/mcp"
ACTIVE = {"active": True, "sub": "ada", "client_id": "app", "aud": MCP, "scope": "a b", "exp": 1000}


def introspection(**options: Any) -> Introspection:
    return Introspection(AS + "/introspect", **{"issuer": AS, "client_id": "mcp", "secret": "s3cret", **options})


def guard(*verify: Verifier, **options: Any) -> Guard:
    server = ResourceServer(resource=MCP, authorization_servers=[AS], verify=list(verify), **options)
    return Guard(server)


def ask(guard: Guard, name: str, value: str = "opaque", now: float = 0.0, **how: Any) -> Any:
    return guard.admit(name, [("authorization", f"Bearer {value}")], "/mcp", now, **how)


def answer(guard: Guard, document: Any, status: int = 200, now: float = 0.0) -> tuple[Fetch, Any]:
    """Answer the one fetch, and return it with the one verdict."""
    effect = guard.next_effect()
    assert effect is not None
    guard.answer(effect.token, Response(status, (), dumps(document)), now)
    admission = guard.next_admission()
    assert isinstance(admission, Admission)
    return effect, admission.verdict


def status_of(verdict: Any) -> int:
    assert isinstance(verdict, Refused)
    return verdict.status


@pytest.mark.req("AUTH-55")
def test_active_token_is_admitted_and_its_answer_kept_for_a_minute() -> None:
    at = guard(introspection())
    assert ask(at, "first") is None
    effect, grant = answer(at, ACTIVE)
    assert (effect.method, effect.url) == ("POST", AS + "/introspect")
    assert effect.body == b"token=opaque&token_type_hint=access_token&client_id=mcp"
    assert dict(effect.headers)["authorization"] == "Basic bWNwOnMzY3JldA=="
    assert grant == Grant(AS, "ada", "app")
    assert (grant.scopes, grant.expires_at) == ({"a", "b"}, 1000.0)
    assert ask(at, "second", now=59.0) == grant
    assert ask(at, "third", now=60.0) is None


@pytest.mark.req("AUTH-37", "AUTH-55")
@pytest.mark.parametrize(
    "claims",
    [
        {"active": False},
        {"active": "true"},
        {"active": 1},
        {"aud": None},
        {"aud": "https://mcp.example.com/other"},
        {"aud": ["https://mcp.example.com/other"]},
        {"iss": "https://evil.example.com"},
        {"exp": -30},
        {"exp": "1000"},
        {"nbf": 40},
        {"nbf": "x"},
        {"sub": 7},
        {"client_id": 7},
        {"sub": None, "client_id": None},
        {"cnf": {"x5t#S256": "AAAA"}},
        {"cnf": {"unknown": "x"}},
        {"cnf": "x"},
        {"cnf": {}},
        {"cnf": {"x5t#S256": 7}},
    ],
)
def test_inactive_or_foreign_token_gets_401(claims: dict[str, Any]) -> None:
    at = guard(introspection())
    assert ask(at, "first") is None
    assert status_of(answer(at, {**ACTIVE, **claims})[1]) == 401
    # Kept, so that a flood of one bad token makes no flood of requests.
    assert status_of(ask(at, "second", now=1.0)) == 401


@pytest.mark.parametrize(("times", "leeway"), [({"exp": -29}, 30), ({"nbf": 30}, 30), ({"exp": 1, "nbf": 0}, 0)])
def test_clocks_may_differ_by_the_leeway(times: dict[str, Any], leeway: float) -> None:
    at = guard(introspection(leeway=leeway))
    ask(at, "first")
    assert isinstance(answer(at, {**ACTIVE, **times})[1], Grant)


@pytest.mark.parametrize("leeway", [-1, "30", True, float("inf")])
def test_leeway_that_is_no_number_of_seconds_raises(leeway: Any) -> None:
    with pytest.raises(ValueError, match="leeway must be a number of seconds"):
        introspection(leeway=leeway)


def test_answer_for_an_inactive_token_is_kept_for_seconds() -> None:
    at = guard(introspection())
    ask(at, "first")
    answer(at, {"active": False})
    assert status_of(ask(at, "second", now=9.0)) == 401
    assert ask(at, "third", now=10.0) is None


def test_minimal_answers_are_read() -> None:
    for claims, subject in (
        ({"active": True, "client_id": "robot", "aud": [MCP]}, None),
        ({"active": True, "username": "ada", "aud": MCP, "iss": AS, "nbf": 0}, "ada"),
    ):
        at = guard(introspection())
        ask(at, "first")
        grant = answer(at, claims)[1]
        assert (grant.subject, grant.expires_at, grant.scopes) == (subject, None, frozenset())


def test_default_audience_is_the_resource() -> None:
    at = guard(introspection(audience="notes"))
    ask(at, "first")
    assert answer(at, {**ACTIVE, "aud": "notes"})[1] == Grant(AS, "ada", "app")
    at = guard(introspection(any_audience=True))
    ask(at, "first")
    assert answer(at, {"active": True, "sub": "ada"})[1] == Grant(AS, "ada")


@pytest.mark.req("AUTH-55")
@pytest.mark.parametrize(("document", "status"), [(ACTIVE, 500), (ACTIVE, 401), ([], 200), ("x", 200)])
def test_endpoint_that_gives_no_answer_leads_to_503(document: Any, status: int) -> None:
    at = guard(introspection())
    ask(at, "first")
    assert status_of(answer(at, document, status)[1]) == 503


def test_requests_with_one_token_share_a_request_and_others_do_not() -> None:
    at = guard(introspection())
    for name, value in (("1", "a"), ("2", "b"), ("3", "a")):
        assert ask(at, name, value) is None
    first, second = at.next_effect(), at.next_effect()
    assert first is not None
    assert second is not None
    assert at.next_effect() is None
    at.answer(second.token, Response(200, (), dumps({"active": False})), 0.0)
    at.answer(first.token, Response(200, (), dumps(ACTIVE)), 0.0)
    found: list[Any] = [at.next_admission() for _ in range(3)]
    assert [(each.request, isinstance(each.verdict, Grant)) for each in found] == [
        ("2", False),
        ("1", True),
        ("3", True),
    ]


def test_flood_of_unknown_tokens_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    at = guard(introspection())
    verdicts = [ask(at, str(number), f"t{number}") for number in range(100)]
    assert verdicts[:64] == [None] * 64
    assert {status_of(each) for each in verdicts[64:]} == {503}
    monkeypatch.setattr(verifiers, "MOST_VERDICTS", 20)
    kept = introspection()
    at = guard(kept)
    for number in range(30):
        ask(at, "x", f"t{number}")
        answer(at, {"active": False})
        ask(at, "x", f"a{number}")
        answer(at, {**ACTIVE, "sub": f"u{number}"})
    assert (len(kept._rejected), len(kept._active)) == (20, 20)


def test_answers_for_several_thousand_users_in_turn_are_kept() -> None:
    at = guard(introspection())
    for number in range(3000):
        ask(at, "x", f"t{number}")
        answer(at, {**ACTIVE, "sub": f"u{number}"})
    assert all(isinstance(ask(at, "x", f"t{number}"), Grant) for number in range(3000))


def test_answer_that_is_used_outlives_those_that_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verifiers, "MOST_VERDICTS", 2)
    at = guard(introspection())
    for value in ("used", "unused"):
        ask(at, "x", value)
        answer(at, {**ACTIVE, "sub": value})
    assert isinstance(ask(at, "x", "used"), Grant)
    ask(at, "x", "another")
    answer(at, {**ACTIVE, "sub": "another"})
    assert isinstance(ask(at, "x", "used"), Grant)
    assert ask(at, "x", "unused") is None


def test_tokens_of_one_principal_push_out_only_their_own_answers() -> None:
    kept = introspection()
    at = guard(kept)
    ask(at, "x", "of-another")
    answer(at, {**ACTIVE, "sub": "bob"})
    for number in range(1100):
        ask(at, "x", f"t{number}")
        answer(at, ACTIVE)
    assert len(kept._active) == 1 + 1024
    assert isinstance(ask(at, "x", "of-another"), Grant)
    assert isinstance(ask(at, "x", "t1099"), Grant)
    assert ask(at, "y", "t0") is None


def test_kept_answers_are_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verifiers, "MOST_VERDICT_BYTES", 1000)
    kept = introspection()
    at = guard(kept)
    for number in range(5):
        ask(at, "x", f"t{number}")
        _, grant = answer(at, {**ACTIVE, "sub": f"u{number}", "more": "x" * 400})
        assert isinstance(grant, Grant)
    assert len(kept._active) == 1
    ask(at, "x", "large")
    _, grant = answer(at, {**ACTIVE, "more": "x" * 2000})
    assert isinstance(grant, Grant)
    assert len(kept._active) == 1


def test_revoked_token_is_refused_after_a_minute_though_the_clock_was_set_back() -> None:
    at = guard(introspection())
    at.epoch = 86400.0
    ask(at, "first", now=0.0)
    answer(at, {**ACTIVE, "exp": 200_000}, now=0.0)
    at.epoch = 0.0
    assert isinstance(ask(at, "second", now=59.0), Grant)
    assert ask(at, "third", now=60.0) is None
    answer(at, {"active": False}, now=60.0)
    assert status_of(ask(at, "fourth", now=69.0)) == 401
    at.epoch = -86400.0
    assert ask(at, "fifth", now=70.0) is None


def test_answer_is_a_minute_old_after_a_minute_of_sleep_that_stops_the_monotonic_clock() -> None:
    at = guard(introspection())
    ask(at, "first")
    answer(at, ACTIVE)
    at.epoch = 60.0
    assert ask(at, "second", now=1.0) is None


def test_inactive_tokens_do_not_push_out_the_answer_for_an_active_one() -> None:
    at = guard(introspection())
    ask(at, "first", "good")
    answer(at, ACTIVE)
    for number in range(1100):
        ask(at, "x", f"t{number}")
        answer(at, {"active": False})
    assert isinstance(ask(at, "second", "good"), Grant)


def test_later_answer_replaces_the_earlier_one() -> None:
    at = guard(introspection())
    for now, document in ((0.0, ACTIVE), (60.0, {"active": False}), (70.0, ACTIVE)):
        assert ask(at, "x", now=now) is None
        answer(at, document, now=now)
        assert isinstance(ask(at, "x", now=now), Grant) is (document is ACTIVE)


@pytest.mark.parametrize(
    "options",
    [
        {"auth_method": "none"},
        {"auth_method": "private_key_jwt"},
        {"secret": None, "signer": SIGNER, "auth_method": "client_secret_post"},
    ],
)
def test_auth_method_without_its_credential_raises(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="auth_method must be"):
        introspection(**options)


def test_signer_authenticates_the_server() -> None:
    at = guard(introspection(secret=None, signer=load_signer(ED25519)))
    ask(at, "first")
    effect = at.next_effect()
    assert effect is not None
    assert b"client_assertion=" in (effect.body or b"")


@pytest.mark.parametrize("options", [{"secret": None}, {"signer": SIGNER}])
def test_introspection_needs_one_way_to_authenticate(options: Any) -> None:
    with pytest.raises(ValueError, match="either secret= or signer="):
        introspection(**options)


def test_first_verifier_that_knows_a_token_decides() -> None:
    jwt = JwtVerifier(AS, jwks=AS + "/keys")
    at = guard(jwt, introspection())
    # A JWT that needs keys, whose key then is unknown, may be known to the authorization server all the same.
    assert ask(at, "jwt", token(), now=0.0) is None
    at.epoch = __import__("time").time()
    assert ask(at, "jwt", token()) is None
    seen = []
    while (effect := at.next_effect()) is not None:
        seen.append(effect.url)
        document: Any = {"keys": []} if effect.url.endswith("/keys") else {**ACTIVE, "exp": None}
        at.answer(effect.token, Response(200, (), dumps(document)), 0.0)
    verdicts = [each.verdict for each in iter(at.next_admission, None)]
    assert AS + "/introspect" in seen
    assert AS + "/keys" in seen
    assert all(isinstance(each, Grant) for each in verdicts)


def test_api_key_is_not_shown_to_the_authorization_server() -> None:
    at = guard(introspection(), ApiKeys({api_key_digest("mcp_key"): "robot"}, header="x-api-key"))
    assert at.admit("1", [("x-api-key", "mcp_key")], "/mcp", 0.0) == Grant(None, "robot")
    assert status_of(at.admit("2", [("x-api-key", "mcp_other")], "/mcp", 0.0)) == 401
    assert at.next_effect() is None


BOUND = {**ACTIVE, "cnf": {"x5t#S256": "qqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqo"}}


@pytest.mark.req("AUTH-56")
@pytest.mark.parametrize(
    ("mtls", "certificate", "is_admitted"),
    [(True, "aa" * 32, True), (True, "ab" * 32, False), (True, None, False), (False, "aa" * 32, False)],
)
def test_bound_token_needs_its_certificate(mtls: bool, certificate: str | None, is_admitted: bool) -> None:
    at = guard(introspection(), mtls=mtls)
    ask(at, "first", certificate=certificate)
    verdict = answer(at, BOUND)[1]
    assert isinstance(verdict, Grant) is is_admitted
    if not is_admitted:
        assert status_of(verdict) == 401


def test_mtls_needs_https_and_is_declared_in_the_metadata() -> None:
    server = ResourceServer(resource=MCP, authorization_servers=[AS], verify=introspection(), mtls=True)
    assert server.document()["tls_client_certificate_bound_access_tokens"] is True
    with pytest.raises(ValueError, match="https"):
        ResourceServer(
            resource="http://127.0.0.1:8000/mcp", authorization_servers=[AS], verify=introspection(), mtls=True
        )
