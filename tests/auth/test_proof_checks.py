from __future__ import annotations

from base64 import urlsafe_b64encode
from hashlib import sha256
from typing import Any

import pytest
from authkeys import ED25519, new_key
from hypothesis import given
from hypothesis import strategies as st
from protectedsites import AS, MCP, SIGNER

from mcpio.auth import Grant, Guard, JwtVerifier, Refused, ResourceServer, load_signer, parse_challenges, signed_jwt
from mcpio.auth import verifiers as proof_checks
from mcpio.framing.json import dumps

NOW = 1_000_000.0
KEY: Any = load_signer(new_key())
JWKS = {"keys": [{**SIGNER.public_jwk, "kid": "k1"}]}


def b64(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def thumbprint(jwk: Any) -> str:
    return b64(sha256(dumps({name: jwk[name] for name in ("crv", "kty", "x", "y") if name in jwk})).digest())


def access_token(**claims: Any) -> str:
    said = {"iss": AS, "sub": "ada", "aud": MCP, "exp": NOW + 3600, "cnf": {"jkt": thumbprint(KEY.public_jwk)}}
    merged = {name: value for name, value in {**said, **claims}.items() if value is not None}
    return signed_jwt(SIGNER, merged, "at+jwt")


TOKEN = access_token()


def proof(token: str = TOKEN, *, signer: Any = KEY, header: Any = None, **claims: Any) -> str:
    said = {"jti": "1", "htm": "POST", "htu": MCP, "iat": NOW, "ath": b64(sha256(token.encode()).digest())}
    head = {"typ": "dpop+jwt", "alg": signer.algorithm, "jwk": signer.public_jwk, **(header or {})}
    merged = {name: value for name, value in {**said, **claims}.items() if value is not None}
    signed = ".".join(b64(dumps(part)) for part in (head, merged))
    return f"{signed}.{b64(signer.sign(signed.encode()))}"


def guard(**options: Any) -> Guard:
    verify = JwtVerifier(AS, jwks=JWKS)
    server = ResourceServer(resource=MCP, authorization_servers=[AS], verify=verify, **{"dpop": "allow", **options})
    return Guard(server, epoch=NOW)


def admit(at: Guard, token: str = TOKEN, *proofs: str, scheme: str = "DPoP", now: float = 0.0, **how: Any) -> Any:
    fields = [("authorization", f"{scheme} {token}"), *(("dpop", each) for each in proofs)]
    return at.admit("1", fields, how.pop("target", "/mcp"), now, **how)


def error_of(verdict: Any) -> str | None:
    assert isinstance(verdict, Refused)
    assert verdict.status == 401
    challenges = parse_challenges(value for name, value in verdict.headers if name == "www-authenticate")
    return challenges[0].params.get("error")


@pytest.mark.req("AUTH-51")
def test_bound_token_is_admitted_with_a_proof_of_its_key() -> None:
    grant = admit(guard(), TOKEN, proof())
    assert grant == Grant(AS, "ada")
    assert grant.confirmation == {"jkt": thumbprint(KEY.public_jwk)}
    other: Any = load_signer(ED25519)
    bound = access_token(cnf={"jkt": thumbprint(other.public_jwk)})
    assert isinstance(admit(guard(dpop="require"), bound, proof(bound, signer=other)), Grant)


@pytest.mark.req("AUTH-51")
def test_proof_by_an_algorithm_that_is_not_listed_is_refused() -> None:
    from joserfc import jws
    from joserfc.jwk import ECKey

    key = ECKey.generate_key("P-384")
    jwk = key.as_dict(private=False)
    jwk = {name: jwk[name] for name in ("kty", "crv", "x", "y")}
    bound = access_token(cnf={"jkt": thumbprint(jwk)})
    claims = {"jti": "1", "htm": "POST", "htu": MCP, "iat": NOW, "ath": b64(sha256(bound.encode()).digest())}
    header = {"typ": "dpop+jwt", "alg": "ES384", "jwk": jwk}
    signed = jws.serialize_compact(header, dumps(claims), key, algorithms=["ES384"])
    assert error_of(admit(guard(), bound, signed)) == "invalid_dpop_proof"


@pytest.mark.req("AUTH-51")
@pytest.mark.parametrize(
    ("verdict", "error"),
    [
        (lambda at: admit(at, TOKEN, scheme="Bearer"), "invalid_token"),
        (lambda at: admit(at, TOKEN, proof(), scheme="Bearer"), "invalid_token"),
        (lambda at: admit(at, TOKEN), "invalid_dpop_proof"),
        (lambda at: admit(at, TOKEN, proof(), proof(jti="2")), "invalid_dpop_proof"),
        (lambda at: admit(at, access_token(cnf=None), proof(access_token(cnf=None))), "invalid_token"),
        (lambda at: admit(at, TOKEN, proof(signer=load_signer(ED25519))), "invalid_token"),
        (lambda at: admit(at, access_token(cnf={"x5t#S256": "A" * 43}), certificate="aa" * 32), "invalid_dpop_proof"),
    ],
)
def test_bound_token_without_its_key_gets_401(verdict: Any, error: str) -> None:
    assert error_of(verdict(guard())) == error


@pytest.mark.req("AUTH-51")
@pytest.mark.parametrize(
    "changed",
    [
        {"htm": "GET"},
        {"htu": "https://mcp.example.com/other"},
        {"htu": "https://evil.example.com/mcp"},
        {"htu": MCP + "?x=1"},
        {"htu": MCP + "#x"},
        {"htu": 7},
        {"iat": NOW - 301},
        {"iat": NOW + 301},
        {"iat": "now"},
        {"iat": None},
        {"jti": None},
        {"jti": ""},
        {"jti": "x" * 257},
        {"ath": None},
        {"ath": "x"},
        {"header": {"typ": "JWT"}},
        {"header": {"crit": ["x"]}},
        {"header": {"alg": "none"}},
        {"header": {"alg": "HS256"}},
        {"header": {"alg": "EdDSA"}},
        {"header": {"jwk": None}},
        {"header": {"jwk": {"kty": "oct", "k": "AAAA"}}},
        {"header": {"jwk": {**KEY.public_jwk, "kty": ["EC"]}}},
        {"header": {"jwk": {**KEY.public_jwk, "d": "AAAA"}}},
        {"header": {"jwk": {**KEY.public_jwk, "x": "AAAA"}}},
        {"header": {"jwk": {**KEY.public_jwk, "x": 7}}},
        {"header": {"jwk": {**KEY.public_jwk, "x": "\u00e9"}}},
        {"header": {"filler": "x" * 9000}},
    ],
)
def test_proof_for_another_request_or_key_is_refused(changed: Any) -> None:
    assert error_of(admit(guard(), TOKEN, proof(**changed))) == "invalid_dpop_proof"


@given(st.text(max_size=60) | st.lists(st.text(alphabet="ABCabc123_-", max_size=20), max_size=4).map(".".join))
def test_no_proof_makes_the_guard_raise(text: str) -> None:
    assert error_of(admit(guard(), TOKEN, text)) == "invalid_dpop_proof"


@pytest.mark.req("AUTH-51")
def test_proof_is_accepted_once() -> None:
    at = guard()
    assert isinstance(admit(at, TOKEN, proof()), Grant)
    assert error_of(admit(at, TOKEN, proof())) == "invalid_dpop_proof"
    assert isinstance(admit(at, TOKEN, proof(jti="2")), Grant)
    # Its digest is forgotten when its time is over for good.
    assert isinstance(admit(at, TOKEN, proof(jti="3", iat=NOW + 900), now=900.0), Grant)
    assert at._checker is not None
    assert len(at._checker._used) == 1


@pytest.mark.req("AUTH-51")
@pytest.mark.parametrize("step", [-3600.0, -200.0, 200.0, 3600.0])
def test_used_proof_is_refused_though_the_clock_was_set_and_set_back(step: float) -> None:
    at = guard()
    assert isinstance(admit(at, TOKEN, proof()), Grant)
    at.epoch = NOW + step
    admit(at, TOKEN, proof(jti="2", iat=NOW + step), now=1.0)
    at.epoch = NOW
    assert error_of(admit(at, TOKEN, proof(), now=2.0)) == "invalid_dpop_proof"
    # Set back by the age of the proof, so that its time comes again.
    at.epoch = NOW - 599.0
    assert error_of(admit(at, TOKEN, proof(), now=599.0)) == "invalid_dpop_proof"


def test_number_of_remembered_proofs_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proof_checks, "MOST_PROOFS", 1)
    at = guard()
    assert isinstance(admit(at, TOKEN, proof()), Grant)
    refused = admit(at, TOKEN, proof(jti="2"))
    assert isinstance(refused, Refused)
    assert refused.status == 503


@pytest.mark.req("AUTH-51")
def test_proof_needs_a_nonce_if_the_server_issues_them() -> None:
    at = guard(dpop_nonces="of all processes")
    refused = admit(at, TOKEN, proof())
    assert error_of(refused) == "use_dpop_nonce"
    nonce = dict(refused.headers)["dpop-nonce"]
    assert isinstance(admit(at, TOKEN, proof(nonce=nonce)), Grant)
    assert isinstance(admit(at, TOKEN, proof(nonce=nonce, jti="2", iat=NOW + 299), now=299.0), Grant)
    assert error_of(admit(at, TOKEN, proof(nonce=nonce, jti="3", iat=NOW + 700), now=700.0)) == "use_dpop_nonce"
    another = guard(dpop_nonces="of other processes")
    assert error_of(admit(another, TOKEN, proof(nonce=nonce))) == "use_dpop_nonce"
    assert "of all" not in repr(at.server)


def test_proof_may_name_the_path_that_was_asked() -> None:
    at = guard()
    wanted = proof(htu="https://mcp.example.com/messages")
    assert isinstance(admit(at, TOKEN, wanted, target="/messages?session=1"), Grant)


@pytest.mark.req("AUTH-51")
def test_schemes_are_those_that_the_server_takes() -> None:
    plain = access_token(cnf=None)
    assert isinstance(admit(guard(), plain, scheme="Bearer"), Grant)
    for options, token, proofs, scheme in (
        ({"dpop": "require"}, plain, (), "Bearer"),
        ({"dpop": "off"}, TOKEN, (proof(),), "DPoP"),
        ({"dpop": "off"}, TOKEN, (), "Bearer"),
    ):
        verdict = admit(guard(**options), token, *proofs, scheme=scheme)
        assert isinstance(verdict, Refused)
        assert verdict.status == 401
    schemes = {}
    for mode in ("off", "allow", "require"):
        fields = guard(dpop=mode).server.refusal(401, "x").headers
        schemes[mode] = [each.scheme for each in parse_challenges(value for _, value in fields)]
    assert schemes == {"off": ["Bearer"], "allow": ["DPoP", "Bearer"], "require": ["DPoP"]}
    assert guard(dpop="require").server.document()["dpop_bound_access_tokens_required"] is True
    with pytest.raises(ValueError, match="dpop"):
        guard(dpop="sometimes")
