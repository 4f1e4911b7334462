from __future__ import annotations

from typing import Any

import pytest
from authworld import AS, CHALLENGE, MCP, PRM, World

from mcpio.auth import (
    AuthorizationError,
    AuthorizationOptions,
    EffectFailed,
    Fetch,
    Reach,
    Response,
    bearer_challenge,
    discover,
)
from mcpio.testing import AuthorizationServer

ROOT = "https://mcp.example.com/.well-known/oauth-protected-resource"
METADATA = AS + "/.well-known/oauth-authorization-server"


def document(issuer: str = AS) -> dict[str, Any]:
    return {
        "issuer": issuer,
        "authorization_endpoint": issuer + "/authorize",
        "token_endpoint": issuer + "/token",
        "code_challenge_methods_supported": ["S256"],
    }


@pytest.mark.req("AUTH-10", "AUTH-14")
def test_the_url_of_the_challenge_comes_first() -> None:
    world = World()
    elsewhere = "https://mcp.example.com/custom/metadata.json"
    world.answers[elsewhere] = {"resource": MCP, "authorization_servers": [AS], "scopes_supported": ["a"]}
    found = world.run(discover(world.context, AuthorizationOptions(), bearer_challenge(resource_metadata=elsewhere)))
    assert world.fetched == [elsewhere, METADATA]
    assert (found.resource, found.server.issuer, found.scopes_supported) == (MCP, AS, frozenset({"a"}))


@pytest.mark.req("AUTH-10")
@pytest.mark.parametrize("status", [404, 410, 401, 403, 400])
def test_the_well_known_urls_follow_in_order(status: int) -> None:
    world = World()
    world.answers = {
        PRM: Response(status),
        ROOT: {"resource": "https://mcp.example.com", "authorization_servers": [AS]},
    }
    found = world.run(discover(world.context, AuthorizationOptions()))
    assert world.fetched == [PRM, ROOT, METADATA]
    assert found.resource == "https://mcp.example.com"


def test_every_fetch_has_bounds_and_the_reach_of_the_server() -> None:
    world = World()
    world.run(discover(world.context, AuthorizationOptions()))
    for effect in world.effects:
        assert isinstance(effect, Fetch)
        assert (effect.reach, effect.timeout, effect.max_bytes) == (Reach.PUBLIC, 10.0, 256 * 1024)
        assert dict(effect.headers)["mcp-protocol-version"] == "2025-11-25"


@pytest.mark.req("AUTH-12")
def test_the_metadata_of_another_resource_is_refused() -> None:
    world = World()
    world.server.faults.resource = "https://evil.example.com/mcp"
    with pytest.raises(AuthorizationError, match="evil") as caught:
        world.run(discover(world.context, AuthorizationOptions(), CHALLENGE))
    assert caught.value.option == "resource="
    assert world.fetched == [PRM]


@pytest.mark.req("AUTH-12")
def test_a_resource_given_by_hand_is_used_in_place_of_the_one_found() -> None:
    world = World()
    world.server.faults.resource = "https://mcp.slack.com"
    found = world.run(discover(world.context, AuthorizationOptions(resource="https://mcp.slack.com/x"), CHALLENGE))
    assert found.resource == "https://mcp.slack.com/x"


@pytest.mark.req("AUTH-12")
def test_an_exact_match_refuses_the_metadata_of_a_parent() -> None:
    world = World()
    world.answers = {PRM: Response(404), ROOT: {"resource": "https://mcp.example.com", "authorization_servers": [AS]}}
    with pytest.raises(AuthorizationError, match="not of this server"):
        world.run(discover(world.context, AuthorizationOptions(resource_match="exact")))
    # A slip of the pen must not mean the laxer of the two.
    with pytest.raises(ValueError, match="resource_match"):
        AuthorizationOptions(resource_match="exakt")  # type: ignore[arg-type]  # of no meaning


@pytest.mark.req("AUTH-15")
@pytest.mark.parametrize("last", [0, 1, 2])
def test_the_metadata_of_an_issuer_with_a_path_is_tried_in_order(last: int) -> None:
    world = World()
    issuer = "https://as.example.com/t1"
    urls = [
        "https://as.example.com/.well-known/oauth-authorization-server/t1",
        "https://as.example.com/.well-known/openid-configuration/t1",
        "https://as.example.com/t1/.well-known/openid-configuration",
    ]
    world.answers = {PRM: {"resource": MCP, "authorization_servers": [issuer]}, urls[last]: document(issuer)}
    world.run(discover(world.context, AuthorizationOptions()))
    assert world.fetched == [PRM, *urls[: last + 1]]


@pytest.mark.req("AUTH-13")
def test_the_program_chooses_among_several_servers() -> None:
    world = World()
    world.answers = {
        PRM: {"resource": MCP, "authorization_servers": ["https://first.example", "https://second.example"]},
        "https://second.example/.well-known/oauth-authorization-server": document("https://second.example"),
    }
    options = AuthorizationOptions(choose_issuer=lambda issuers: issuers[-1])
    assert world.run(discover(world.context, options)).server.issuer == "https://second.example"


@pytest.mark.req("AUTH-16")
def test_the_metadata_of_another_issuer_ends_the_search() -> None:
    world = World()
    world.server.faults.issuer = "https://attacker.example.com"
    with pytest.raises(AuthorizationError, match="attacker") as caught:
        world.run(discover(world.context, AuthorizationOptions(), CHALLENGE))
    assert caught.value.option == "issuer="
    assert world.fetched == [PRM, METADATA]


def test_an_issuer_given_by_hand_is_used_in_place_of_the_one_found() -> None:
    world = World()
    real = "https://login.example.com/tenant/v2.0"
    world.answers["https://login.example.com/.well-known/oauth-authorization-server/tenant/v2.0"] = document(real)
    options = AuthorizationOptions(issuer=real)
    assert world.run(discover(world.context, options, CHALLENGE)).server.issuer == real
    world.server.faults.without_resource_metadata = True
    found = world.run(discover(world.context, options))
    assert (found.server.issuer, found.resource) == (real, MCP)


def test_metadata_given_by_hand_needs_no_fetch() -> None:
    world = World()
    options = AuthorizationOptions(metadata=document("https://other.example"))
    found = world.run(discover(world.context, options, CHALLENGE))
    assert (found.server.issuer, found.resource) == ("https://other.example", MCP)
    assert world.fetched == []


@pytest.mark.req("AUTH-17")
def test_without_any_metadata_the_default_endpoints_are_used() -> None:
    world = World()
    world.server.faults.without_resource_metadata = True
    found = world.run(discover(world.context, AuthorizationOptions()))
    assert found.server.token_endpoint == "https://mcp.example.com/token"
    assert found.server.is_default
    assert world.fetched == [
        PRM,
        ROOT,
        "https://mcp.example.com/.well-known/oauth-authorization-server",
        "https://mcp.example.com/.well-known/openid-configuration",
    ]


@pytest.mark.req("AUTH-17")
@pytest.mark.parametrize("issuer", ["https://mcp.example.com", "https://mcp.example.com/"])
def test_authorization_server_metadata_at_the_mcp_server_is_found(issuer: str) -> None:
    world = World()
    world.server.faults.without_resource_metadata = True
    world.answers["https://mcp.example.com/.well-known/oauth-authorization-server"] = document(issuer)
    assert world.run(discover(world.context, AuthorizationOptions())).server.issuer == issuer


@pytest.mark.req("AUTH-17")
def test_the_default_endpoints_are_refused_unless_all_metadata_is_missing() -> None:
    for options, status, challenge in [
        (AuthorizationOptions(legacy=False), 404, None),
        (AuthorizationOptions(), 403, None),
        (AuthorizationOptions(), 404, CHALLENGE),
    ]:
        world = World()
        world.answers = {PRM: Response(status), ROOT: Response(404)}
        with pytest.raises(AuthorizationError, match="no protected resource metadata"):
            world.run(discover(world.context, options, challenge))


@pytest.mark.parametrize("status", [500, 503, 429])
@pytest.mark.parametrize("url", [PRM, METADATA])
def test_a_busy_server_is_a_temporary_failure_and_no_reason_to_fall_back(status: int, url: str) -> None:
    world = World()
    world.answers[url] = Response(status)
    with pytest.raises(AuthorizationError, match=f"status {status}") as caught:
        world.run(discover(world.context, AuthorizationOptions()))
    assert caught.value.temporary
    assert world.fetched[-1] == url


def test_a_failed_fetch_is_a_temporary_failure() -> None:
    world = World()
    world.answers[PRM] = EffectFailed("no route to host")
    with pytest.raises(EffectFailed, match="no route"):
        world.run(discover(world.context, AuthorizationOptions()))


def test_a_page_at_a_guessed_url_is_passed_over() -> None:
    world = World()
    page = Response(200, (), b"<!doctype html>")
    world.answers = {PRM: page, ROOT: {"resource": "https://mcp.example.com", "authorization_servers": [AS]}}
    assert world.run(discover(world.context, AuthorizationOptions())).server.issuer == AS
    world.answers[ROOT] = page
    with pytest.raises(AuthorizationError, match="is not JSON"):
        world.run(discover(world.context, AuthorizationOptions()))


def test_a_page_at_the_url_of_the_challenge_is_a_failure() -> None:
    world = World()
    world.server.faults.html = True
    with pytest.raises(AuthorizationError, match="is not JSON"):
        world.run(discover(world.context, AuthorizationOptions(), CHALLENGE))
    assert world.fetched == [PRM]


@pytest.mark.req("SEC-03")
def test_metadata_that_redirects_elsewhere_is_not_followed() -> None:
    world = World()
    world.server.faults.redirect = "https://elsewhere.example"
    with pytest.raises(AuthorizationError, match="no protected resource metadata"):
        world.run(discover(world.context, AuthorizationOptions(), CHALLENGE))
    assert all("elsewhere" not in url for url in world.fetched)


def test_huge_metadata_is_refused() -> None:
    world = World()
    world.server.faults.huge = True
    with pytest.raises(AuthorizationError, match="more than"):
        world.run(discover(world.context, AuthorizationOptions(), CHALLENGE))


def test_an_issuer_without_metadata_is_a_failure() -> None:
    world = World()
    world.server.faults.without_metadata = True
    with pytest.raises(AuthorizationError, match="has no metadata") as caught:
        world.run(discover(world.context, AuthorizationOptions()))
    assert caught.value.option == "metadata="
    world.answers[AS + "/.well-known/openid-configuration"] = Response(200, (), b"<!doctype html>")
    with pytest.raises(AuthorizationError, match="is not JSON"):
        world.run(discover(world.context, AuthorizationOptions()))


def test_a_resource_without_authorization_servers_is_a_failure() -> None:
    world = World()
    world.answers[PRM] = {"resource": MCP}
    with pytest.raises(AuthorizationError, match="names no authorization server"):
        world.run(discover(world.context, AuthorizationOptions()))


@pytest.mark.req("SEC-03", "AUTH-28")
@pytest.mark.parametrize(
    "url", ["http://169.254.169.254/latest", "http://127.0.0.1/x", "file:///etc/passwd", "gopher:x"]
)
def test_urls_that_a_client_must_not_fetch_are_refused(url: str) -> None:
    world = World()
    with pytest.raises(AuthorizationError, match="cannot be used"):
        world.run(discover(world.context, AuthorizationOptions(), bearer_challenge(resource_metadata=url)))
    world.answers[PRM] = {"resource": MCP, "authorization_servers": [url]}
    with pytest.raises(AuthorizationError, match="cannot be used"):
        world.run(discover(world.context, AuthorizationOptions()))
    assert world.fetched == [PRM]


@pytest.mark.req("AUTH-28")
def test_http_is_allowed_where_both_servers_are_on_loopback() -> None:
    world = World(
        AuthorizationServer("http://localhost:9000", "http://localhost:8000/mcp"), "http://localhost:8000/mcp"
    )
    assert world.run(discover(world.context, AuthorizationOptions())).server.issuer == "http://localhost:9000"
    assert {effect.reach for effect in world.effects if isinstance(effect, Fetch)} == {Reach.LOOPBACK}


def test_scopes_as_one_text_raise() -> None:
    with pytest.raises(TypeError, match="not the text 'a b'"):
        AuthorizationOptions(scopes="a b")


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"scopes": ["a b"]}, ValueError),
        ({"scopes": ["ü"]}, ValueError),
        ({"scopes": [5]}, TypeError),
        ({"account": None}, TypeError),
        ({"resource": 5}, TypeError),
        ({"issuer": 5}, TypeError),
    ],
)
def test_option_without_a_meaning_raises_before_anything_is_sent(
    options: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        AuthorizationOptions(**options)


def test_scopes_that_no_request_can_carry_are_left_out_of_the_metadata() -> None:
    world = World()
    world.answers[PRM] = {"resource": MCP, "authorization_servers": [AS], "scopes_supported": ["a b", "ü", "c"]}
    found = world.run(discover(world.context, AuthorizationOptions(), CHALLENGE))
    assert found.scopes_supported == {"a", "b", "c"}
