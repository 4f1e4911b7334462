from __future__ import annotations

import attrs
import pytest
from authworld import AS, MCP, World

from mcpio.auth import AuthorizationError, Credentials, Fetch, Response, refresh, revoke
from mcpio.testing import AuthorizationServer


def last_form(world: World) -> str:
    fetch = [effect for effect in world.effects if isinstance(effect, Fetch)][-1]
    return (fetch.body or b"").decode()


@pytest.mark.req("AUTH-29", "AUTH-39", "AUTH-41")
def test_a_refresh_rotates_the_token_and_names_the_resource() -> None:
    world = World()
    old = world.log_in()
    world.now += 4000
    new = world.run(refresh(world.context, old))
    assert old.token is not None
    assert new.token is not None
    assert new.token.access_token != old.token.access_token
    assert new.token.refresh_token != old.token.refresh_token
    assert new.token.expires_at == world.now + 3600
    assert "resource=https%3A%2F%2Fmcp.example.com%2Fmcp" in last_form(world)
    assert "scope=" not in last_form(world)
    with pytest.raises(AuthorizationError) as caught:
        world.run(refresh(world.context, old))
    assert caught.value.code == "invalid_grant"
    assert len(world.server.reused) == 1


@pytest.mark.req("AUTH-41")
def test_a_refresh_needs_a_refresh_token_that_is_not_spent() -> None:
    world = World(AuthorizationServer(refreshes=False))
    for credentials in (Credentials(), world.log_in(), attrs.evolve(World().log_in(), spent_at=1.0)):
        with pytest.raises(ValueError, match="no refresh token"):
            world.run(refresh(world.context, credentials))


@pytest.mark.req("AUTH-41")
@pytest.mark.parametrize(("status", "temporary"), [(500, True), (503, True), (429, True), (400, False), (307, False)])
def test_only_busy_servers_are_temporary(status: int, temporary: bool) -> None:
    world = World()
    credentials = world.log_in()
    world.server.faults.status = status
    with pytest.raises(AuthorizationError) as caught:
        world.run(refresh(world.context, credentials))
    assert caught.value.temporary is temporary


def test_the_code_temporarily_unavailable_is_temporary() -> None:
    world = World()
    credentials = world.log_in()
    world.answers[AS + "/token"] = Response(400, (), b'{"error": "temporarily_unavailable"}')
    with pytest.raises(AuthorizationError) as caught:
        world.run(refresh(world.context, credentials))
    assert caught.value.temporary


def test_an_answer_that_is_a_page_is_a_failure() -> None:
    world = World()
    credentials = world.log_in()
    for status in (200, 403):
        world.answers[AS + "/token"] = Response(status, (), b"<!doctype html>")
        with pytest.raises(AuthorizationError, match="is not JSON"):
            world.run(refresh(world.context, credentials))


@pytest.mark.req("AUTH-54")
def test_revocation_ends_the_tokens_of_a_login() -> None:
    world = World()
    credentials = world.log_in()
    assert credentials.token is not None
    headers = [("authorization", "Bearer " + credentials.token.access_token.reveal())]
    assert getattr(world.server.accepts(headers, world.now), "resource", None) == MCP
    assert world.run(revoke(world.context, credentials))
    assert getattr(world.server.accepts(headers, world.now), "resource", None) is None
    assert world.fetched[-2:] == [AS + "/revoke"] * 2


@pytest.mark.req("AUTH-54")
def test_without_an_endpoint_nothing_is_revoked() -> None:
    world = World(AuthorizationServer(refreshes=False))
    credentials = world.log_in()
    assert not world.run(revoke(world.context, Credentials()))
    assert credentials.server is not None
    without = attrs.evolve(credentials, server=attrs.evolve(credentials.server, revocation_endpoint=None))
    assert not world.run(revoke(world.context, without))
    world.answers[AS + "/revoke"] = Response(400)
    assert not world.run(revoke(world.context, attrs.evolve(credentials, registrations={})))
