"""The strictness of the authorization server for tests: what it refuses, and what its faults do."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
from authkeys import ED25519, parts

from mcpio.auth import Challenge, Fetch, load_signer
from mcpio.auth.keys import Secret, code_challenge
from mcpio.framing.json import dumps, loads
from mcpio.testing import AuthorizationServer, IssuedToken

AS = "https://as.example.com"
MCP = "https://mcp.example.com/mcp"
REDIRECT = "http://127.0.0.1:3118/callback"
VERIFIER = Secret("v" * 43)
AUTHORIZATION = {
    "response_type": "code",
    "client_id": "public",
    "redirect_uri": REDIRECT,
    "state": "s",
    "code_challenge": code_challenge(VERIFIER),
    "code_challenge_method": "S256",
    "resource": MCP,
    "scope": "a",
}
CODE = {"grant_type": "authorization_code", "redirect_uri": REDIRECT, "code_verifier": VERIFIER.reveal()}


def server(**settings: Any) -> AuthorizationServer:
    return AuthorizationServer(clients={"public": None, "secret": "s"}, scopes=("a", "b"), **settings)


def post(to: AuthorizationServer, path: str, form: dict[str, str], now: float = 0.0, **headers: str) -> tuple[int, Any]:
    fetch = Fetch(method="POST", url=AS + path, headers=tuple(headers.items()), body=urlencode(form).encode())
    response = to.respond(fetch, now)
    return response.status, loads(response.body) if response.body else None


def answer_to(to: AuthorizationServer, **changed: str | None) -> dict[str, str]:
    query = {name: value for name, value in {**AUTHORIZATION, **changed}.items() if value is not None}
    url = to.approve(f"{AS}/authorize?{urlencode(query)}", 0.0)
    return {name: value for name, [value] in parse_qs(urlsplit(url).query).items()}


def tokens(to: AuthorizationServer, **changed: str) -> tuple[int, Any]:
    form = {**CODE, "client_id": "public", "resource": MCP, "code": answer_to(to)["code"], **changed}
    return post(to, "/token", form)


def test_a_code_gives_a_token_that_the_resource_accepts() -> None:
    to = server()
    status, answer = tokens(to)
    assert (status, answer["scope"]) == (200, "a")
    headers = [("Authorization", "Bearer " + answer["access_token"])]
    accepted = to.accepts(headers, 0.0, frozenset({"a"}))
    assert isinstance(accepted, IssuedToken)
    assert (accepted.subject, accepted.client_id) == ("ada", "public")
    lacking = to.accepts(headers, 0.0, frozenset({"a", "b"}))
    assert isinstance(lacking, Challenge)
    assert lacking.params["error"] == "insufficient_scope"
    assert lacking.scopes == {"a", "b"}
    for refused in (to.accepts(headers, 3600.0), to.accepts([("authorization", "Bearer x")], 0.0)):
        assert isinstance(refused, Challenge)
        assert refused.params["error"] == "invalid_token"
    to.expire_tokens()
    assert isinstance(to.accepts(headers, 0.0), Challenge)
    assert isinstance(to.accepts([], 0.0), Challenge)


@pytest.mark.req("AUTH-44")
@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({"response_type": "token"}, "unsupported_response_type"),
        ({"code_challenge_method": "plain"}, "invalid_request"),
        ({"code_challenge": "x"}, "invalid_request"),
        ({"resource": None}, "invalid_target"),
        ({"scope": "c"}, "invalid_scope"),
    ],
)
def test_a_malformed_authorization_request_is_answered_with_an_error(changed: dict[str, Any], error: str) -> None:
    answer = answer_to(server(), **changed)
    assert (answer["error"], answer["state"], answer["iss"]) == (error, "s", AS)
    assert "code" not in answer


@pytest.mark.req("AUTH-44")
@pytest.mark.parametrize(
    "changed", [{"client_id": "x"}, {"redirect_uri": "http://evil.example/cb"}, {"redirect_uri": "javascript:x"}]
)
def test_an_unknown_client_or_redirect_is_not_redirected(changed: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="another endpoint"):
        answer_to(server(), **changed)
    with pytest.raises(ValueError, match="another endpoint"):
        server().approve("https://evil.example/authorize", 0.0)


@pytest.mark.req("AUTH-44")
def test_a_registered_redirect_is_matched_exactly_but_for_the_port_of_loopback() -> None:
    to = server()
    document = {
        "redirect_uris": [REDIRECT],
        "application_type": "native",
        "token_endpoint_auth_method": "none",
    }
    response = to.respond(Fetch(method="POST", url=AS + "/register", body=dumps(document)), 0.0)
    client_id = loads(response.body)["client_id"]
    for uri, accepted in [
        (REDIRECT, True),
        ("http://127.0.0.1:9/callback", True),
        ("http://127.0.0.1:9/other", False),
        ("https://app.example/callback", False),
    ]:
        if accepted:
            assert "code" in answer_to(to, client_id=client_id, redirect_uri=uri)
        else:
            with pytest.raises(ValueError, match="another endpoint"):
                answer_to(to, client_id=client_id, redirect_uri=uri)
    to.forget_clients()
    with pytest.raises(ValueError, match="another endpoint"):
        answer_to(to, client_id=client_id)


@pytest.mark.req("AUTH-20")
@pytest.mark.parametrize(
    ("document", "accepted"),
    [
        ({"client_id": "https://a.example/c", "client_name": "A", "redirect_uris": [REDIRECT]}, True),
        ({"client_id": "https://b.example/c", "client_name": "A", "redirect_uris": [REDIRECT]}, False),
        ({"client_id": "https://a.example/c", "redirect_uris": [REDIRECT]}, False),
        ({"client_id": "https://a.example/c", "client_name": "A", "redirect_uris": ["https://x.example/"]}, False),
    ],
)
def test_the_metadata_document_of_a_client_is_checked(document: dict[str, Any], accepted: bool) -> None:
    to = server(client_documents={"https://a.example/c": document})
    if accepted:
        assert "code" in answer_to(to, client_id="https://a.example/c")
    else:
        with pytest.raises(ValueError, match="another endpoint"):
            answer_to(to, client_id="https://a.example/c")


@pytest.mark.req("AUTH-44")
@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({"code": "x"}, "invalid_grant"),
        ({"code_verifier": "x"}, "invalid_grant"),
        ({"redirect_uri": "http://127.0.0.1:1/"}, "invalid_grant"),
        ({"client_id": "x"}, "invalid_client"),
        ({"client_id": "secret"}, "invalid_client"),
        ({"client_id": "secret", "client_secret": "wrong"}, "invalid_client"),
        ({"client_id": "secret", "client_secret": "s"}, "invalid_grant"),
        ({"grant_type": "password"}, "unsupported_grant_type"),
        ({"grant_type": "client_credentials"}, "unauthorized_client"),
        ({"resource": "https://other.example"}, "invalid_target"),
        ({"client_assertion": "x"}, "invalid_client"),
    ],
)
def test_a_malformed_token_request_is_refused(changed: dict[str, str], error: str) -> None:
    status, answer = tokens(server(), **changed)
    assert (status, answer["error"]) == (401 if error == "invalid_client" else 400, error)


@pytest.mark.req("AUTH-44")
def test_reused_code_revokes_its_tokens() -> None:
    to = server()
    form = {**CODE, "client_id": "public", "resource": MCP, "code": answer_to(to)["code"]}
    _, answer = post(to, "/token", form)
    assert post(to, "/token", form)[1]["error"] == "invalid_grant"
    assert isinstance(to.accepts([("authorization", "Bearer " + answer["access_token"])], 0.0), Challenge)
    late = {**form, "code": answer_to(to)["code"]}
    assert post(to, "/token", late, 60.0)[1]["error"] == "invalid_grant"


@pytest.mark.req("AUTH-39")
def test_reused_refresh_token_revokes_its_family() -> None:
    to = server()
    _, first = tokens(to)
    form = {"grant_type": "refresh_token", "client_id": "public", "resource": MCP}
    _, second = post(to, "/token", {**form, "refresh_token": first["refresh_token"]})
    assert to.reused == []
    for stolen in (first, second):
        assert post(to, "/token", {**form, "refresh_token": stolen["refresh_token"]})[0] == 400
    assert to.reused == [1]
    _, third = tokens(to)
    to.expire_refresh_tokens()
    assert post(to, "/token", {**form, "refresh_token": third["refresh_token"]})[0] == 400


def test_introspection_and_revocation() -> None:
    to = server()
    _, answer = tokens(to)
    form = {"token": answer["access_token"], "client_id": "secret", "client_secret": "s"}
    _, found = post(to, "/introspect", form)
    assert (found["active"], found["aud"], found["sub"]) == (True, MCP, "ada")
    assert post(to, "/introspect", form, 3600.0) == (200, {"active": False})
    assert post(to, "/revoke", {**form, "token": "unknown"}) == (200, None)
    assert post(to, "/revoke", form) == (200, None)
    assert post(to, "/introspect", form) == (200, {"active": False})


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (b"x", "invalid_client_metadata"),
        (b"[]", "invalid_client_metadata"),
        (dumps({"token_endpoint_auth_method": "tls"}), "invalid_client_metadata"),
        (dumps({"redirect_uris": [5]}), "invalid_redirect_uri"),
        (dumps({"redirect_uris": ["http://a.example/"]}), "invalid_redirect_uri"),
        (dumps({"redirect_uris": [REDIRECT], "application_type": "web"}), "invalid_redirect_uri"),
    ],
)
def test_a_malformed_registration_is_refused(body: bytes, error: str) -> None:
    response = server().respond(Fetch(method="POST", url=AS + "/register", body=body), 0.0)
    assert (response.status, loads(response.body)) == (400, {"error": error})


def test_a_client_registers_with_a_secret() -> None:
    to = server()
    document = {"redirect_uris": [], "token_endpoint_auth_method": "client_secret_post"}
    answer = loads(to.respond(Fetch(method="POST", url=AS + "/register", body=dumps(document)), 0.0).body)
    form = {"client_id": answer["client_id"], "client_secret": answer["client_secret"]}
    assert post(to, "/device", form)[1]["error"] == "unauthorized_client"
    form["grant_type"], form["resource"] = "client_credentials", MCP
    assert post(to, "/token", form)[1]["error"] == "unauthorized_client"


def test_registration_response_has_the_defaults() -> None:
    response = server().respond(Fetch(method="POST", url=AS + "/register", body=dumps({"redirect_uris": []})), 0.0)
    answer = loads(response.body)
    assert answer["token_endpoint_auth_method"] == "client_secret_basic"
    assert answer["grant_types"] == ["authorization_code"]
    assert "client_secret" in answer


@pytest.mark.req("AUTH-53")
def test_a_device_code_is_polled_slowly_and_used_once() -> None:
    to = server()
    _, shown = post(to, "/device", {"client_id": "public", "scope": "a"})
    form = {
        "grant_type": "urn:ietf:params:oauth:grant-type:device_code",
        "client_id": "public",
        "resource": MCP,
        "device_code": shown["device_code"],
    }
    assert post(to, "/token", form, 5.0)[1]["error"] == "authorization_pending"
    assert post(to, "/token", form, 6.0)[1]["error"] == "slow_down"
    assert post(to, "/token", form, 700.0)[1]["error"] == "expired_token"
    to.approve_device(shown["user_code"])
    assert post(to, "/token", form, 20.0)[0] == 200
    assert post(to, "/token", form, 30.0)[1]["error"] == "invalid_grant"
    with pytest.raises(KeyError):
        to.approve_device("unknown")


def test_tokens_are_jwts_with_a_signer() -> None:
    to = server(signer=load_signer(ED25519, key_id="k"))
    _, answer = tokens(to)
    header, claims = parts(answer["access_token"])
    assert (header["typ"], header["kid"]) == ("at+jwt", "k")
    assert (claims["iss"], claims["aud"], claims["scope"], claims["exp"]) == (AS, MCP, "a", 3600)
    [key] = loads(to.respond(Fetch(method="GET", url=AS + "/jwks"), 0.0).body)["keys"]
    assert (key["kid"], key["alg"], key["crv"]) == ("k", "EdDSA", "Ed25519")
    metadata = loads(to.respond(Fetch(method="GET", url=AS + "/.well-known/oauth-authorization-server"), 0.0).body)
    assert metadata["jwks_uri"] == AS + "/jwks"


def test_faults() -> None:
    to = server()
    to.faults.iss = ""
    assert "iss" not in answer_to(to)
    to.faults.status = 503
    assert tokens(to)[0] == 503
    to.faults.status, to.faults.lost_answers = None, True
    assert tokens(to)[0] == 502
    to.faults.html = True
    assert to.respond(Fetch(method="GET", url=AS), 0.0).body == b"<!doctype html>"
    to.faults.html, to.faults.huge = False, True
    assert len(to.respond(Fetch(method="GET", url=AS), 0.0).body) > 1 << 19
    to.faults.huge, to.faults.redirect, to.faults.slow = False, "https://elsewhere.example", 12.0
    answer = to.respond(Fetch(method="GET", url=AS), 5.0)
    assert (answer.status, answer.headers, answer.at) == (302, (("location", "https://elsewhere.example"),), 17.0)
    assert to.respond(Fetch(method="POST", url=AS + "/token"), 0.0).status == 307


def test_an_authorization_without_state_is_answered_without_one() -> None:
    assert "state" not in answer_to(server(), state=None)


@pytest.mark.parametrize("header", ["Basic", "Basic ä", "Basic /w==", "Bearer x"])
def test_malformed_basic_credentials_are_refused(header: str) -> None:
    status, answer = post(server(), "/token", {"grant_type": "client_credentials"}, authorization=header)
    assert (status, answer["error"]) == (401, "invalid_client")
