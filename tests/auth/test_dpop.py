"""Bound tokens: proofs of possession, when they are made, and the nonces that servers ask for."""

from __future__ import annotations

import json
import sys
from base64 import urlsafe_b64decode
from hashlib import sha256
from typing import Any, Literal

import attrs
import pytest
from authcalls import Calls
from authworld import AS, MCP, PRM, World, counted
from joserfc import jwt
from joserfc.jwk import ECKey

from mcpio.auth import (
    AskUser,
    AuthorizationError,
    Authorizer,
    Challenge,
    ClientCredentials,
    Credentials,
    Device,
    Effect,
    Fetch,
    OAuth,
    PendingAuthorization,
    Response,
    Secret,
    Verdict,
    bearer_challenge,
    from_text,
    refresh,
    to_text,
)
from mcpio.auth.grants import load_credentials, renew_credentials
from mcpio.auth.keys import Proofs, base64url, new_proof_key
from mcpio.framing.json import dumps, loads

ASKS = bearer_challenge("DPoP", resource_metadata=PRM)


def verified(proof: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the header and the claims of a proof, whose signature is that of the key in it."""
    header = json.loads(urlsafe_b64decode(proof.split(".", maxsplit=1)[0] + "=="))
    token = jwt.decode(proof, ECKey.import_key(header["jwk"]), algorithms=["ES256"])
    return header, dict(token.claims)


class ProofWorld(World):
    """Its token endpoint binds tokens to proofs, and asks for a nonce where one is set."""

    nonce: str | None = None
    error = "use_dpop_nonce"

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.proofs: list[dict[str, Any]] = []

    def fetch(self, fetch: Fetch) -> Response:
        proof = dict(fetch.headers).get("dpop")
        if proof is None:
            return super().fetch(fetch)
        header, claims = verified(proof)
        assert header["typ"] == "dpop+jwt"
        assert (claims["htm"], claims["htu"]) == ("POST", AS + "/token")
        self.proofs.append(claims)
        if self.nonce is not None and claims.get("nonce") != self.nonce:
            return Response(400, (("dpop-nonce", self.nonce),), dumps({"error": self.error}))
        response = super().fetch(fetch)
        document = loads(response.body)
        return attrs.evolve(response, body=dumps({**document, "token_type": "DPoP"}))


@pytest.mark.req("AUTH-51")
def test_proof_names_the_request_and_the_token() -> None:
    proofs = Proofs(new_proof_key(counted()), counted())
    token = Secret("the token")
    header, claims = verified(proofs.proof("POST", MCP + "?a=b#c", 12.7, token=token, nonce="n"))
    assert sorted(header) == ["alg", "jwk", "typ"]
    assert sorted(header["jwk"]) == ["crv", "kty", "x", "y"]
    ath = base64url(sha256(b"the token").digest())
    assert claims == {"jti": claims["jti"], "htm": "POST", "htu": MCP, "iat": 12, "ath": ath, "nonce": "n"}
    _, other = verified(proofs.proof("GET", MCP, 12.7))
    assert other == {"jti": other["jti"], "htm": "GET", "htu": MCP, "iat": 12}
    assert other["jti"] != claims["jti"]


def test_same_entropy_gives_the_same_key_and_proof() -> None:
    first, second = (Proofs(new_proof_key(counted()), counted()).proof("GET", MCP, 1.0) for _ in range(2))
    assert first == second


def test_proof_key_is_never_shown() -> None:
    key = new_proof_key(counted())
    assert key.reveal() not in repr(Proofs(key, counted()))
    assert key.reveal() not in repr(Credentials(proof_key=key))


def test_key_without_cryptography_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives", None)
    with pytest.raises(AuthorizationError, match=r"need mcpio\[auth\]"):
        new_proof_key(counted())


@pytest.mark.req("AUTH-51")
@pytest.mark.parametrize(
    ("dpop", "challenge", "required", "is_bound"),
    [
        ("auto", None, False, False),
        ("auto", ASKS, False, True),
        ("auto", None, True, True),
        ("require", None, False, True),
        ("off", ASKS, True, False),
    ],
)
def test_token_is_bound_where_the_server_or_the_program_asks(
    dpop: Literal["auto", "require", "off"], challenge: Challenge | None, required: bool, is_bound: bool
) -> None:
    world = ProofWorld()
    document = loads(world.fetch(Fetch(method="GET", url=PRM)).body)
    world.answers[PRM] = {**document, "dpop_bound_access_tokens_required": required}
    found = world.log_in(OAuth(dpop=dpop), challenge=challenge)
    assert found.token is not None
    assert (found.token.is_bound, found.proof_key is not None, len(world.proofs)) == (is_bound, is_bound, is_bound)
    assert from_text(Credentials, to_text(found)) == found


def test_pending_login_carries_its_key_to_another_process() -> None:
    world = ProofWorld()
    pending = world.run(OAuth(dpop="require").begin(world.context))
    moved = from_text(PendingAuthorization, to_text(pending))
    assert moved == pending
    assert moved.proof_key is not None
    assert moved.proof_key.reveal() not in repr(pending)


def test_server_that_ignores_the_proof_gives_an_unbound_token() -> None:
    world = World()
    found = world.log_in(OAuth(dpop="require"))
    assert found.token is not None
    assert not found.token.is_bound


@pytest.mark.req("AUTH-51")
def test_token_request_is_repeated_once_with_the_nonce() -> None:
    world = ProofWorld()
    world.nonce = "n-1"
    assert world.log_in(challenge=ASKS).token is not None
    first, second = world.proofs
    assert "nonce" not in first
    assert second["nonce"] == "n-1"
    assert first["jti"] != second["jti"]


class SlowWorld(ProofWorld):
    """A person takes 400 seconds to log in, or to enter a code."""

    def perform(self, effect: Effect) -> Any:
        answer = super().perform(effect)
        if isinstance(effect, AskUser):
            self.now += 400
        return answer


@pytest.mark.req("AUTH-51")
def test_proof_is_dated_by_the_request_and_not_by_the_beginning_of_the_login() -> None:
    world = SlowWorld()
    calls, began = Calls(world, OAuth(dpop="require")), world.now
    calls.call("a")
    calls.settle()
    assert world.proofs[0]["iat"] == began + 400


@pytest.mark.req("AUTH-51", "AUTH-53")
def test_each_poll_of_a_device_has_a_proof_of_its_time() -> None:
    world = ProofWorld()
    world.on_code = lambda shown: None
    calls, began = Calls(world, Device(dpop="require")), world.now
    calls.call("a")
    calls.settle()
    assert [proof["iat"] for proof in world.proofs[:3]] == [began + 5, began + 10, began + 15]


@pytest.mark.parametrize(("nonce", "error"), [("n", "invalid_dpop_proof"), (None, "invalid_grant")])
def test_other_errors_are_not_repeated(nonce: str | None, error: str) -> None:
    world = ProofWorld()
    world.nonce, world.error = nonce, error
    pending = world.run(OAuth().begin(world.context, None, ASKS))
    callback = world.server.approve(pending.url, world.now)
    if nonce is None:
        world.server._codes.clear()
    with pytest.raises(AuthorizationError, match=error):
        world.run(OAuth().finish(world.context, pending, callback))
    assert len(world.proofs) == 1


@pytest.mark.req("AUTH-51")
def test_refresh_uses_the_key_of_the_token() -> None:
    world = ProofWorld()
    found = world.log_in(challenge=ASKS)
    again = world.run(refresh(world.context, found))
    assert again.token is not None
    assert again.token.is_bound
    assert again.proof_key == found.proof_key
    assert len(world.proofs) == 2
    assert world.log_in(known=again, challenge=ASKS).proof_key == found.proof_key


def test_flows_without_a_browser_bind_their_tokens() -> None:
    from mcpio.testing import AuthorizationServer

    world = ProofWorld(server=AuthorizationServer(clients={"m2m": "s"}))
    for method in (ClientCredentials("m2m", secret="s", dpop="require"), Device(dpop="require")):
        found: Credentials = world.run(method.obtain(world.context))
        assert found.token is not None
        assert found.token.is_bound


def with_bound_token(world: ProofWorld) -> Authorizer:
    """Return an authorizer with a stored bound token, and a call 1 that was made with it."""
    world.store.swap(f"{MCP} default", to_text(world.log_in(challenge=ASKS)), None)
    authorizer = Authorizer(MCP, OAuth(), entropy=counted(), epoch=world.now)
    assert authorizer.authorize(1, "tools/call", 0.0) is None
    effect = authorizer.next_effect()
    assert effect is not None
    authorizer.answer(effect.token, world.perform(effect), 0.0)
    authorizer.next_ready()
    assert authorizer.authorize(1, "tools/call", 0.0) is not None
    return authorizer


@pytest.mark.req("AUTH-51")
@pytest.mark.parametrize(
    ("date", "explanation"),
    [
        ("Mon, 12 Jan 1970 13:56:40 GMT", "its clock is 600 s ahead of this one"),
        ("Mon, 12 Jan 1970 13:36:40 GMT", "its clock is 600 s behind this one"),
        ("Mon, 12 Jan 1970 13:46:39 GMT", "its clock agrees with this one"),
        ("Mon, 32 Jan 1970 13:36:40 GMT", "compare the clocks"),
        ("Mon, 12 Xyz 1970 13:36:40 GMT", "compare the clocks"),
        ("soon", "compare the clocks"),
        (None, "compare the clocks"),
    ],
)
def test_refused_proof_fails_the_call_and_keeps_the_token(date: str | None, explanation: str) -> None:
    world = ProofWorld()
    authorizer = with_bound_token(world)
    asks = ['DPoP error="invalid_dpop_proof", algs="ES256"']
    error = authorizer.refused(1, 401, asks, 0.0, date=date)
    assert isinstance(error, AuthorizationError)
    assert "refuses the DPoP proof" in str(error)
    assert explanation in str(error)
    assert (error.status, error.challenges) == (401, tuple(asks))
    assert authorizer.next_effect() is None
    assert authorizer.authorize(2, "tools/call", 1.0) is not None


def test_token_without_a_proof_is_renewed_where_a_proof_is_refused() -> None:
    world = World()
    world.store.swap(f"{MCP} default", to_text(world.log_in()), None)
    authorizer = Authorizer(MCP, OAuth(), entropy=counted(), epoch=world.now)
    authorizer.authorize(1, "tools/call", 0.0)
    effect = authorizer.next_effect()
    assert effect is not None
    authorizer.answer(effect.token, world.perform(effect), 0.0)
    assert authorizer.authorize(1, "tools/call", 0.0) is not None
    assert authorizer.refused(1, 401, ['DPoP error="invalid_dpop_proof"'], 0.0) is Verdict.WAIT


@pytest.mark.req("AUTH-41")
def test_refresh_with_a_refused_proof_keeps_the_refresh_token() -> None:
    world = ProofWorld()
    credentials = world.log_in(challenge=ASKS)
    world.store.swap(f"{MCP} default", to_text(credentials), None)
    world.nonce, world.error = "n", "invalid_dpop_proof"
    with pytest.raises(AuthorizationError, match="the token endpoint refuses the DPoP proof") as caught:
        world.run(renew_credentials(world.context, f"{MCP} default", credentials, credentials.token))
    assert caught.value.code == "invalid_dpop_proof"
    stored, _ = world.run(load_credentials(f"{MCP} default"))
    assert stored.refresh_token == credentials.refresh_token


@pytest.mark.req("AUTH-51")
def test_calls_carry_a_fresh_proof_and_the_newest_nonce() -> None:
    world = ProofWorld()
    credentials = world.log_in(challenge=ASKS)
    world.store.swap(f"{MCP} default", to_text(credentials), None)
    authorizer = Authorizer(MCP, OAuth(), entropy=counted(), epoch=world.now)

    def fields(call: int, **more: Any) -> tuple[str, dict[str, Any]]:
        found = authorizer.authorize(call, "tools/call", 0.0, **more)
        while found is None:
            effect = authorizer.next_effect()
            assert effect is not None
            authorizer.answer(effect.token, world.perform(effect), 0.0)
            authorizer.next_ready()
            found = authorizer.authorize(call, "tools/call", 0.0, **more)
        given = dict(found)
        return given["authorization"], verified(given["dpop"])[1]

    assert credentials.token is not None
    authorization, first = fields(1)
    assert authorization == "DPoP " + credentials.token.access_token.reveal()
    assert first["ath"] == base64url(sha256(credentials.token.access_token.reveal().encode()).digest())
    assert "nonce" not in first
    asks = ['DPoP error="use_dpop_nonce"']
    assert authorizer.refused(1, 401, asks, 0.0, nonce="n-1") is Verdict.RETRY
    _, second = fields(1)
    assert (second["nonce"], second["jti"] != first["jti"]) == ("n-1", True)
    authorizer.succeeded(1, nonce="n-2")
    _, third = fields(2, method="GET", url=MCP + "/other")
    assert (third["nonce"], third["htm"], third["htu"]) == ("n-2", "GET", MCP + "/other")
    authorizer.succeeded(2)
    assert fields(3)[1]["nonce"] == "n-2"
    # A nonce that is asked for again and again is no way out: the token is renewed, once.
    assert authorizer.refused(3, 401, asks, 0.0, nonce="n-3") is Verdict.RETRY
    fields(3)
    assert authorizer.refused(3, 401, asks, 0.0, nonce="n-4") is Verdict.WAIT
