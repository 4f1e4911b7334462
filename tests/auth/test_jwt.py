from __future__ import annotations

from base64 import urlsafe_b64encode
from hashlib import sha256
from typing import Any

import pytest
from authkeys import ED25519, new_key
from hypothesis import given
from hypothesis import strategies as st

from mcpio.auth import (
    AuthorizationError,
    EffectFailed,
    Fetch,
    FlowContext,
    Grant,
    InvalidToken,
    JwtVerifier,
    NeedKeys,
    Response,
    Secret,
    load_signer,
    run,
    signed_jwt,
)
from mcpio.auth.payloads import Moment
from mcpio.framing.json import dumps

ISSUER = "https://as.example.com"
MCP = "https://mcp.example.com/mcp"
NOW = 1_000_000.0
SIGNER: Any = load_signer(ED25519, key_id="k1")
P256 = new_key()
KEY = {**SIGNER.public_jwk, "kid": "k1"}
CLAIMS: dict[str, Any] = {"iss": ISSUER, "sub": "ada", "aud": MCP, "exp": NOW + 60, "client_id": "c", "scope": "a b"}


def verifier(**options: Any) -> JwtVerifier:
    return JwtVerifier(ISSUER, **{"jwks": {"keys": [KEY]}, **options})


def verify(token: str, by: JwtVerifier | None = None, at: float = NOW) -> Any:
    found = (by or verifier()).verify(Secret(token), MCP, at)
    return None if isinstance(found, InvalidToken) else found


def token(kind: str = "at+jwt", **changed: Any) -> str:
    claims = {name: value for name, value in {**CLAIMS, **changed}.items() if value is not None}
    return signed_jwt(SIGNER, claims, kind)


def by_hand(header: Any, claims: Any = CLAIMS, signature: bytes = b"x") -> str:
    parts = [part if isinstance(part, bytes) else dumps(part) for part in (header, claims)]
    return ".".join(urlsafe_b64encode(part).rstrip(b"=").decode() for part in (*parts, signature))


@pytest.mark.req("AUTH-37", "AUTH-58")
def test_valid_token_grants_its_claims() -> None:
    grant = verify(token())
    assert grant == Grant(ISSUER, "ada", "c")
    assert (grant.scopes, grant.expires_at, grant.claims["aud"]) == (frozenset({"a", "b"}), NOW + 60, MCP)
    assert verify(token("JWT")) == grant
    assert verify(token("application/at+JWT")) == grant
    assert verify(token(aud=["other", MCP])) == grant
    assert verify(token(client_id=None, azp="c")) == grant
    assert verify(token(client_id=5)).client_id is None
    assert verify(token(scope=None, scp=["x", 5, "y z"])).scopes == {"x", "y", "z"}


@pytest.mark.req("AUTH-58")
@pytest.mark.parametrize("algorithm", ["ES256", "RS256", "PS256"])
def test_the_listed_algorithms_are_verified(algorithm: str) -> None:
    if algorithm == "ES256":
        signer: Any = load_signer(P256)
        jwk = signer.public_jwk
        signed = signed_jwt(signer, CLAIMS)
    else:
        from joserfc import jwt
        from joserfc.jwk import RSAKey

        key = RSAKey.import_key(new_key("RSA"))
        jwk = key.as_dict(private=False)
        signed = jwt.encode({"alg": algorithm, "typ": "JWT"}, CLAIMS, key, algorithms=[algorithm])
    assert verify(signed, verifier(jwks={"keys": [jwk]})) == Grant(ISSUER, "ada", "c")
    # The key is bound to its algorithm: another one in the header is of no use.
    assert verify(signed, verifier(jwks={"keys": [KEY]})) is None
    assert verify(signed, verifier(jwks={"keys": [jwk]}, algorithms=["EdDSA"])) is None


@pytest.mark.req("AUTH-58")
def test_key_on_another_curve_than_the_algorithm_has_is_refused() -> None:
    from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, SECP384R1, generate_private_key
    from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
    from cryptography.hazmat.primitives.hashes import SHA256
    from joserfc.jwk import ECKey

    key = generate_private_key(SECP384R1())
    unsigned = by_hand({"alg": "ES256", "typ": "JWT"}, signature=b"").removesuffix(".")
    r, s = decode_dss_signature(key.sign(unsigned.encode(), ECDSA(SHA256())))
    signature = urlsafe_b64encode(r.to_bytes(48, "big") + s.to_bytes(48, "big")).decode()
    jwk = ECKey.import_key(key.public_key()).as_dict(private=False)
    assert verify(f"{unsigned}.{signature}", verifier(jwks={"keys": [jwk]})) is None


@pytest.mark.req("AUTH-58")
@pytest.mark.parametrize(("exponents", "is_valid"), [((521, 607), False), ((1279, 2203), True), ((4253, 4423), False)])
def test_rsa_keys_below_2048_and_above_8192_bits_are_refused(exponents: tuple[int, int], is_valid: bool) -> None:
    # Mersenne primes: keys of any size without the time that it takes to find one.
    p, q = (2**exponent - 1 for exponent in exponents)
    modulus = p * q
    size = (modulus.bit_length() + 7) // 8
    unsigned = by_hand({"alg": "RS256", "typ": "JWT"}, signature=b"").removesuffix(".")
    # RFC 8017 §9.2: the DER prefix of a SHA-256 digest, and the padding before it.
    digest = bytes.fromhex("3031300d060960864801650304020105000420") + sha256(unsigned.encode()).digest()
    padded = int.from_bytes(b"\x00\x01" + b"\xff" * (size - len(digest) - 3) + b"\x00" + digest, "big")
    private = pow(65537, -1, (p - 1) * (q - 1))
    low, high = pow(padded, private % (p - 1), p), pow(padded, private % (q - 1), q)
    signed = high + q * ((low - high) * pow(q, -1, p) % p)
    signature, n = (
        urlsafe_b64encode(number.to_bytes(size, "big")).rstrip(b"=").decode() for number in (signed, modulus)
    )
    jwk = {"kty": "RSA", "n": n, "e": "AQAB"}
    assert (verify(f"{unsigned}.{signature}", verifier(jwks={"keys": [jwk]})) is not None) is is_valid


@pytest.mark.req("AUTH-37", "AUTH-58", "SEC-02")
@pytest.mark.parametrize(
    "changed",
    [
        {"iss": "https://other.example"},
        {"iss": ISSUER + "/"},
        {"iss": None},
        {"sub": None},
        {"sub": 5},
        {"aud": None},
        {"aud": "https://mcp.example.com/other"},
        {"aud": ["https://mcp.example.com/other"]},
        {"aud": {MCP: 1}},
        {"exp": None},
        {"exp": NOW - 30},
        {"exp": "9999999999"},
        {"exp": True},
        {"exp": 2**60},
        {"nbf": NOW + 31},
        {"nbf": "x"},
        {"nonce": "n"},
        {"at_hash": "h"},
        {"cnf": {"kid": "x"}},
    ],
)
def test_a_token_that_is_not_for_this_server_and_time_is_not_valid(changed: dict[str, Any]) -> None:
    assert verify(token(**changed)) is None


@pytest.mark.req("AUTH-58")
@pytest.mark.parametrize(
    "text",
    [
        "",
        "a.b.c",
        "opaque",
        by_hand({"alg": "none", "typ": "JWT"}, signature=b""),
        by_hand({"alg": "none", "typ": "JWT"}),
        by_hand({"alg": "HS256", "typ": "JWT"}),
        by_hand({"alg": "EdDSA", "typ": "JWT"}),
        by_hand({"alg": "RS256", "typ": "JWT"}),
        by_hand({"alg": "ES256", "typ": "JWT", "kid": "k1"}),
        by_hand({"alg": ["EdDSA"], "typ": "JWT"}),
        by_hand({"alg": "EdDSA"}),
        by_hand({"alg": "EdDSA", "typ": "id"}),
        by_hand({"alg": "EdDSA", "typ": "JWT", "kid": ["k1"]}),
        by_hand([]),
        by_hand({"alg": "EdDSA", "typ": "JWT"}, []),
        by_hand(b"\xff"),
        by_hand(b'{"alg": "\\ud800"}'),
        token() + "x",
        token() + ".x",
        "\ud800" + token(),
        signed_jwt(load_signer(new_key("Ed25519"), key_id="k1"), CLAIMS),
    ],
)
def test_a_forged_token_is_not_valid(text: str) -> None:
    assert verify(text) is None


@pytest.mark.req("AUTH-58")
@pytest.mark.parametrize("more", [{"crit": ["exp"]}, {"crit": []}])
def test_an_extension_that_must_be_understood_is_refused(more: dict[str, Any]) -> None:
    header = {"alg": "EdDSA", "typ": "JWT", "kid": "k1", **more}
    signed = by_hand(header).rpartition(".")[0]
    signature = urlsafe_b64encode(SIGNER.sign(signed.encode())).rstrip(b"=").decode()
    assert verify(f"{signed}.{signature}") is None


@pytest.mark.req("AUTH-58")
def test_keys_that_the_sender_names_are_ignored() -> None:
    thief: Any = load_signer(new_key("Ed25519"))
    header = {"alg": "EdDSA", "typ": "JWT", "jku": "https://evil.example", "jwk": thief.public_jwk}
    signed = by_hand(header).rpartition(".")[0]
    signature = urlsafe_b64encode(thief.sign(signed.encode())).rstrip(b"=").decode()
    assert verify(f"{signed}.{signature}") is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("opaque", "the token is something else, expected a signed JWT in compact form"),
        (token(iss=ISSUER + "/"), f"iss is '{ISSUER}/', expected '{ISSUER}'"),
        (token(iss=None), f"iss is missing, expected '{ISSUER}'"),
        (token(aud=MCP + "/"), f"aud is '{MCP}/', expected '{MCP}'"),
        (token(aud=[MCP + "/", 5]), f"aud is ['{MCP}/', 5], expected '{MCP}'"),
        (token(aud=None), f"aud is missing, expected '{MCP}'"),
        (token(exp=None), "exp is missing, expected a number of seconds"),
        (token(exp=NOW - 60), "exp is 999940.0, expected a time after now, which is 1000000"),
        (token(nbf=NOW + 60), "nbf is 1000060.0, expected a time before now, which is 1000000"),
        (token(sub=None), "sub is missing, expected a text"),
        (token(nonce="n"), "nonce is present, as in an id token, expected an access token"),
        (token(cnf={"kid": "x"}), "cnf is {'kid': 'x'}, expected x5t#S256 or jkt"),
        (token("id"), "typ is 'id', expected one of types=, at+jwt, jwt"),
        (by_hand({"alg": "HS256", "typ": "JWT"}), "alg is 'HS256', expected one of algorithms=, ES256, EdDSA, PS256, "),
        (by_hand({"alg": "EdDSA", "typ": "JWT", "crit": []}), "crit is [], expected none"),
        (
            by_hand({"alg": "EdDSA", "typ": "JWT", "kid": "k2"}),
            "kid is 'k2', expected a key of the issuer, one of 'k1",
        ),
        (by_hand({"alg": "EdDSA", "typ": "JWT", "kid": "k1"}), "the signature is wrong, expected one by the key that"),
        (token(aud="\x1b[2J" + "x" * 500), f"aud is '\\\\x1b[2J{'x' * 196}', expected '{MCP}'"),
    ],
)
def test_refused_token_names_the_claim_and_what_was_expected(text: str, said: str) -> None:
    found = verifier().verify(Secret(text), MCP, NOW)
    assert isinstance(found, InvalidToken)
    assert str(found).startswith(said)


def test_unknown_kid_of_keys_without_names_says_so() -> None:
    by = verifier(jwks={"keys": []})
    found = by.verify(Secret(by_hand({"alg": "EdDSA", "typ": "JWT", "kid": "k2"})), MCP, NOW)
    assert "kid is 'k2', expected a key of the issuer, of which none has a name" in str(found)


def test_refused_issuer_of_a_tenant_names_the_option() -> None:
    found = verifier(tenants=lambda issuer: False).verify(Secret(token()), MCP, NOW)
    assert str(found) == f"iss is '{ISSUER}', expected an issuer that tenants= accepts"


@given(st.text(alphabet="abc.=_-é", max_size=30) | st.binary(max_size=30).map(by_hand))
def test_any_token_has_a_verdict(text: str) -> None:
    assert verify(text) is None


def test_options_of_the_verifier() -> None:
    assert verify(token(aud="api://x"), verifier(audience="api://x")) is not None
    assert verify(token(), verifier(audience="api://x")) is None
    assert verify(token(aud=[MCP, "other"]), verifier(only_audience=True)) is None
    assert verify(token(aud=[MCP]), verifier(only_audience=True)) is not None

    def tenants(issuer: str) -> bool:
        return issuer.startswith("https://login.example/")

    assert verify(token(iss="https://login.example/t1"), verifier(tenants=tenants)) is not None
    assert verify(token(), verifier(tenants=tenants)) is None
    assert verify(token("x"), verifier(types=["x"])) is not None
    assert isinstance(verifier().verify(Secret(token()), None, NOW), InvalidToken)
    for algorithm in ("HS256", "none", "XX"):
        with pytest.raises(ValueError, match="algorithms must have public keys"):
            verifier(algorithms=[algorithm])


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"algorithms": "ES256"}, TypeError),
        ({"types": "JWT"}, TypeError),
        ({"scope_claims": "scope"}, TypeError),
        ({"types": [None]}, TypeError),
        ({"audience": ["a"]}, TypeError),
        ({"jwks": 5}, TypeError),
        ({"leeway": "30"}, ValueError),
        ({"leeway": -1}, ValueError),
    ],
)
def test_option_of_another_type_raises_and_is_named(options: dict[str, Any], error: type[Exception]) -> None:
    [name] = options
    with pytest.raises(error, match=f"{name} must be"):
        verifier(**options)


@pytest.mark.req("AUTH-37")
def test_a_remembered_verdict_is_for_its_audience_and_ends() -> None:
    by = verifier()
    text = token()
    first = verify(text, by)
    assert verify(text, by) is first
    assert isinstance(by.verify(Secret(text), "https://other.example", NOW), InvalidToken)
    assert verify(text, by, NOW + 59) is first
    assert verify(text, by, NOW + 61) is not first
    assert verify(text, by, NOW + 90) is None
    for number in range(1100):
        verify(token(jti=number), by)
    assert len(by._verdicts) == 1024
    verify(token(sub="bob"), by)
    assert len(by._verdicts) == 1025


def test_remembered_verdict_ends_after_a_minute_though_the_clock_was_set_back() -> None:
    by = verifier()
    text = Secret(token())
    first = by.verify(text, MCP, Moment(NOW, 0.0))
    assert by.verify(text, MCP, Moment(NOW - 3600, 59.0)) is first
    assert by.verify(text, MCP, Moment(NOW - 3600, 60.0)) is not first


# Keys.


def context(now: float = NOW) -> FlowContext:
    return FlowContext(server_url=MCP, entropy=bytes, now=now)


class Web:
    """Answers fetches from a table, and counts them."""

    def __init__(self, **answers: Any) -> None:
        self.answers = dict(answers)
        self.fetched: list[str] = []

    def perform(self, effect: Any) -> Response:
        assert isinstance(effect, Fetch)
        self.fetched.append(effect.url)
        found = self.answers.get(effect.url.rpartition("/")[2])
        if isinstance(found, Exception):
            raise found
        if isinstance(found, Response):
            return found
        return Response(404) if found is None else Response(200, (), dumps(found))


@pytest.mark.req("AUTH-58")
def test_keys_are_found_through_the_metadata_of_the_issuer() -> None:
    by = verifier(jwks=None)
    assert verify(token(), by) is NeedKeys.NEED_KEYS
    metadata = {"issuer": ISSUER, "jwks_uri": ISSUER + "/keys"}
    web = Web(**{"openid-configuration": metadata, "keys": {"keys": [KEY]}})
    run(by.load_keys(context(), Secret("token")), web.perform)
    assert verify(token(), by) is not None
    assert [url.rpartition("/")[2] for url in web.fetched] == [
        "oauth-authorization-server",
        "openid-configuration",
        "keys",
    ]


@pytest.mark.parametrize(
    ("document", "said"),
    [
        (None, "oauth-authorization-server' answers with status 404; .*openid-configuration' answers with status 404"),
        ({"issuer": "https://x.example", "jwks_uri": ISSUER + "/keys"}, "configuration' is of 'https://x.example'"),
        ({"jwks_uri": ISSUER + "/keys"}, "openid-configuration' is of no issuer"),
        ({"issuer": ISSUER}, "openid-configuration' names no jwks_uri"),
        ({"issuer": ISSUER, "jwks_uri": 5}, "jwks_uri"),
    ],
)
def test_issuer_without_keys_is_reported_with_the_cause(document: Any, said: str) -> None:
    web = Web() if document is None else Web(**{"openid-configuration": document})
    with pytest.raises(AuthorizationError, match=said):
        run(verifier(jwks=None).load_keys(context(), Secret("token")), web.perform)


def test_issuer_that_cannot_be_reached_is_reported_as_that() -> None:
    def perform(effect: Any) -> Response:
        raise EffectFailed("no answer: connection refused")

    with pytest.raises(AuthorizationError, match="no answer: connection refused") as caught:
        run(verifier(jwks=None).load_keys(context(), Secret("token")), perform)
    assert caught.value.temporary
    assert "jwks_uri" not in str(caught.value)


@pytest.mark.req("AUTH-58")
def test_an_unknown_key_is_fetched_once_in_thirty_seconds() -> None:
    by = verifier(jwks=ISSUER + "/keys")
    web = Web(keys={"keys": []})
    run(by.load_keys(context(), Secret("token")), web.perform)
    web.answers["keys"] = {"keys": [{**KEY, "kid": "old"}]}
    run(by.load_keys(context(), Secret("token")), web.perform)
    assert verify(token(), by) is None
    assert verify(token(), by, NOW + 29) is None
    assert verify(token(), by, NOW + 30) is NeedKeys.NEED_KEYS
    web.answers["keys"] = {"keys": [KEY]}
    run(by.load_keys(context(NOW + 30), Secret("token")), web.perform)
    assert verify(token(), by, NOW + 30) is not None


@pytest.mark.req("AUTH-58")
def test_empty_key_set_is_fetched_once_in_thirty_seconds() -> None:
    by = verifier(jwks=ISSUER + "/keys")
    run(by.load_keys(context(), Secret("token")), Web(keys={"keys": []}).perform)
    assert verify(token(), by, NOW + 29) is None
    assert verify(token(), by, NOW + 30) is NeedKeys.NEED_KEYS


def test_keys_are_fetched_on_time_though_the_clock_was_set_back() -> None:
    by = verifier(jwks=ISSUER + "/keys")
    web = Web(keys=EffectFailed("no route"))
    with pytest.raises(AuthorizationError):
        run(by.load_keys(context(Moment(NOW + 86400, 0.0)), Secret("token")), web.perform)
    web.answers["keys"] = {"keys": [{**KEY, "kid": "old"}]}
    with pytest.raises(AuthorizationError):
        run(by.load_keys(context(Moment(NOW, 4.0)), Secret("token")), web.perform)
    run(by.load_keys(context(Moment(NOW, 5.0)), Secret("token")), web.perform)
    # An unknown key, half a minute after that fetch.
    assert by.verify(Secret(token()), MCP, Moment(NOW - 3600, 34.0)) is not NeedKeys.NEED_KEYS
    assert by.verify(Secret(token()), MCP, Moment(NOW - 3600, 35.0)) is NeedKeys.NEED_KEYS
    web.answers["keys"] = {"keys": [KEY]}
    run(by.load_keys(context(Moment(NOW, 40.0)), Secret("token")), web.perform)
    # A known key, when the key set is five minutes old.
    assert isinstance(by.verify(Secret(token()), MCP, Moment(NOW - 3600, 339.0)), Grant)
    assert by.verify(Secret(token(jti="other")), MCP, Moment(NOW - 3600, 340.0)) is NeedKeys.NEED_KEYS


def test_failed_first_fetch_is_repeated_after_five_seconds() -> None:
    by = verifier(jwks=ISSUER + "/keys")
    web = Web(keys=EffectFailed("no route"))
    for now in (NOW, NOW + 4.9):
        # Without keys no token can be blamed.
        assert verify(token(), by, now) is NeedKeys.NEED_KEYS
        with pytest.raises(AuthorizationError) as caught:
            run(by.load_keys(context(now), Secret("token")), web.perform)
        assert caught.value.temporary
    assert len(web.fetched) == 1
    web.answers["keys"] = {"keys": [KEY]}
    run(by.load_keys(context(NOW + 5), Secret("token")), web.perform)
    assert verify(token(), by, NOW + 5) is not None


@pytest.mark.req("AUTH-58")
@pytest.mark.parametrize(
    ("field", "seconds"),
    [
        ("max-age=600", 600),
        ("public, MAX-AGE=1", 60),
        ("max-age=99999999", 86400),
        ("no-store", 300),
        ("max-age=x", 300),
    ],
)
def test_keys_are_cached_for_the_max_age_of_the_response(field: str, seconds: float) -> None:
    by = verifier(jwks=ISSUER + "/keys")
    web = Web(keys=Response(200, (("X", "y"), ("Cache-Control", field)), dumps({"keys": [KEY]})))
    run(by.load_keys(context(), Secret("token")), web.perform)
    late = token(exp=NOW + 1e6)
    assert verify(late, by, NOW + seconds - 1) is not None
    assert verify(token(exp=NOW + 1e6, jti="2"), by, NOW + seconds) is NeedKeys.NEED_KEYS
    # While they cannot be fetched, they are used for another day.
    web.answers["keys"] = EffectFailed("no route")
    with pytest.raises(EffectFailed):
        run(by.load_keys(context(NOW + seconds), Secret("token")), web.perform)
    assert verify(token(exp=NOW + 1e6, jti="3"), by, NOW + seconds) is not None
    much_later = NOW + seconds + 86400
    assert verify(token(exp=NOW + 1e6, jti="4"), by, much_later) is NeedKeys.NEED_KEYS
    with pytest.raises(EffectFailed):
        run(by.load_keys(context(much_later), Secret("token")), web.perform)
    assert verify(token(exp=NOW + 1e6, jti="5"), by, much_later) is None


def test_withdrawn_key_invalidates_cached_verdicts() -> None:
    by = verifier(jwks=ISSUER + "/keys")
    run(by.load_keys(context(), Secret("token")), Web(keys={"keys": [KEY]}).perform)
    assert verify(token(), by) is not None
    run(by.load_keys(context(), Secret("token")), Web(keys={"keys": [{**KEY, "kid": "new"}]}).perform)
    assert verify(token(), by) is None


@pytest.mark.req("AUTH-58")
@pytest.mark.parametrize(
    "key",
    [
        5,
        {},
        {"kty": "oct", "k": "c2VjcmV0"},
        {**KEY, "use": "enc"},
        {**KEY, "x": "AAAA"},
        {**KEY, "crv": "X25519"},
        {"kty": "RSA", "n": "AQAB", "e": "AQAB"},
        {"kty": "RSA", "n": "A" * 2000, "e": "AQAB"},
        {"kty": "RSA"},
    ],
)
def test_a_key_that_cannot_be_used_is_passed_over(key: Any) -> None:
    assert verify(token(), verifier(jwks={"keys": [key]})) is None
    assert verify(token(), verifier(jwks={"keys": [key, KEY]})) is not None


@pytest.mark.parametrize("document", [{}, {"keys": {}}, {"keys": [KEY] * 101}])
def test_a_malformed_key_set_raises(document: Any) -> None:
    with pytest.raises(AuthorizationError, match="key set"):
        verifier(jwks=document)
    by = verifier(jwks=ISSUER + "/keys")
    with pytest.raises(AuthorizationError, match="key set"):
        run(by.load_keys(context(), Secret("token")), Web(keys=document).perform)


def test_keys_are_fetched_over_https_only() -> None:
    with pytest.raises(AuthorizationError, match="jwks_uri"):
        run(verifier(jwks="http://as.example.com/keys").load_keys(context(), Secret("token")), Web().perform)
