from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpio.auth import (
    AuthorizationError,
    AuthorizationServerMetadata,
    ProtectedResourceMetadata,
    client_metadata,
)
from mcpio.auth.payloads import MAX_DOCUMENT, read_document

SERVER = "https://mcp.example.com/mcp"
ISSUER = "https://as.example/t1"
DOCUMENT: dict[str, Any] = {
    "issuer": ISSUER,
    "authorization_endpoint": ISSUER + "/authorize",
    "token_endpoint": ISSUER + "/token",
    "scopes_supported": ["a", "b"],
    "token_endpoint_auth_methods_supported": ["none"],
    "code_challenge_methods_supported": ["S256"],
    "authorization_response_iss_parameter_supported": True,
    "client_id_metadata_document_supported": True,
    "x_more": 1,
}


def parsed(**changed: Any) -> AuthorizationServerMetadata:
    return AuthorizationServerMetadata.parse({**DOCUMENT, **changed}, ISSUER, SERVER)


def test_the_metadata_of_a_resource_is_read() -> None:
    document = {"resource": SERVER, "authorization_servers": [ISSUER], "scopes_supported": ["a"], "x": 1}
    found = ProtectedResourceMetadata.parse(document)
    assert (found.resource, found.authorization_servers) == (SERVER, (ISSUER,))
    assert found.scopes_supported == {"a"}
    assert not found.dpop_required
    assert found.document["x"] == 1


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"resource": 5},
        {"resource": ""},
        {"resource": SERVER, "authorization_servers": "x"},
        {"resource": SERVER, "authorization_servers": [1]},
        {"resource": SERVER, "dpop_bound_access_tokens_required": "yes"},
    ],
)
def test_malformed_metadata_of_a_resource_raises(document: dict[str, Any]) -> None:
    with pytest.raises(AuthorizationError, match="the metadata of the protected resource"):
        ProtectedResourceMetadata.parse(document)


def test_the_metadata_of_an_authorization_server_is_read() -> None:
    found = parsed()
    assert found.issuer == ISSUER
    assert found.token_endpoint == ISSUER + "/token"
    assert found.registration_endpoint is None
    assert (found.iss_supported, found.client_documents, found.is_default) == (True, True, False)
    assert found.auth_methods == ("none",)
    assert found.document["x_more"] == 1
    found.check_pkce()


@pytest.mark.req("AUTH-24")
def test_clients_authenticate_with_basic_where_the_list_is_absent() -> None:
    assert parsed(token_endpoint_auth_methods_supported=None).auth_methods == ("client_secret_basic",)


@pytest.mark.req("AUTH-16")
@pytest.mark.parametrize("issuer", ["https://attacker.example", ISSUER + "/", "HTTPS://as.example/t1", None, ""])
def test_metadata_of_another_issuer_is_refused(issuer: str | None) -> None:
    with pytest.raises(AuthorizationError, match="issuer"):
        parsed(issuer=issuer)


@pytest.mark.req("AUTH-26")
@pytest.mark.parametrize("methods", [None, [], ["plain"]])
def test_a_server_that_does_not_list_s256_is_refused(methods: list[str] | None) -> None:
    with pytest.raises(AuthorizationError, match=r"S256.*; the option metadata= lets it pass") as caught:
        parsed(code_challenge_methods_supported=methods).check_pkce()
    assert caught.value.option == "metadata="


@pytest.mark.req("AUTH-28")
def test_endpoints_without_https_are_refused() -> None:
    with pytest.raises(AuthorizationError, match="token_endpoint"):
        parsed(token_endpoint="http://as.example/token")


@pytest.mark.parametrize("changed", [{"scopes_supported": "a"}, {"token_endpoint": 1}])
def test_malformed_members_raise(changed: dict[str, Any]) -> None:
    with pytest.raises(AuthorizationError, match="the metadata of the authorization server"):
        parsed(**changed)


def test_a_missing_endpoint_raises_where_it_is_required() -> None:
    assert parsed().require("token_endpoint") == ISSUER + "/token"
    with pytest.raises(AuthorizationError, match="has no registration_endpoint"):
        parsed().require("registration_endpoint")


@pytest.mark.req("AUTH-17")
def test_the_default_endpoints_are_at_the_origin_of_the_server() -> None:
    found = AuthorizationServerMetadata.default("https://mcp.example.com:8443/deep/mcp")
    assert found.issuer == "https://mcp.example.com:8443"
    assert found.authorization_endpoint == "https://mcp.example.com:8443/authorize"
    assert found.token_endpoint == "https://mcp.example.com:8443/token"
    assert found.registration_endpoint == "https://mcp.example.com:8443/register"
    found.check_pkce()
    with pytest.raises(AuthorizationError, match="default endpoint"):
        AuthorizationServerMetadata.default("http://mcp.example.com/mcp")


@pytest.mark.req("AUTH-19")
def test_the_document_of_a_client_names_itself() -> None:
    url = "https://app.example/client.json"
    document = client_metadata(url, "App", ["http://127.0.0.1/cb", "https://app.example/cb"], logo_uri="https://x/l")
    assert (document["client_id"], document["client_name"]) == (url, "App")
    assert document["redirect_uris"] == ["http://127.0.0.1/cb", "https://app.example/cb"]
    assert document["logo_uri"] == "https://x/l"


@pytest.mark.req("AUTH-19")
@pytest.mark.parametrize(
    ("client_id", "redirect_uris"),
    [
        ("http://app.example/client.json", ["https://app.example/cb"]),
        ("https://app.example", ["https://app.example/cb"]),
        ("https://app.example/", ["https://app.example/cb"]),
        ("https://app.example/c#f", ["https://app.example/cb"]),
        ("https://app.example/c", []),
        ("https://app.example/c", ["http://app.example/cb"]),
    ],
)
def test_a_malformed_document_of_a_client_raises(client_id: str, redirect_uris: list[str]) -> None:
    with pytest.raises(ValueError, match=r"client|redirect"):
        client_metadata(client_id, "App", redirect_uris)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"<html>", "is not JSON"),
        (b"[]", "is not a JSON object"),
        (b"[" * 17 + b"]" * 17, "nested deeper than 16"),
        (b" " * (MAX_DOCUMENT + 1), "more than 262144 bytes"),
        (b"\xff", "is not JSON"),
    ],
)
def test_body_that_is_not_a_metadata_document_raises(body: bytes, reason: str) -> None:
    with pytest.raises(AuthorizationError, match=reason):
        read_document(body, "the body")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(max_size=5), children, max_size=3),
    max_leaves=8,
)


@given(st.fixed_dictionaries({}, optional=dict.fromkeys([*DOCUMENT, "resource", "authorization_servers"], JSON)))
def test_any_document_is_read_or_refused(document: dict[str, Any]) -> None:
    for parse in (
        lambda: ProtectedResourceMetadata.parse(document),
        lambda: AuthorizationServerMetadata.parse({"issuer": ISSUER, **document}, ISSUER, SERVER),
    ):
        with contextlib.suppress(AuthorizationError):
            parse()
