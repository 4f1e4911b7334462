"""A server that needs tokens, by every adapter: admission, metadata, challenges, scopes, and the end of a token."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from httpwire import RawClient, Serve, everywhere
from protectedsites import AS, MCP, bearer, notes, protected, token

from mcpio import Server
from mcpio.http.model import HttpOptions

WELL_KNOWN = "/.well-known/oauth-protected-resource"


def text_of(answer: Any) -> str:
    text: str = answer.json["result"]["content"][0]["text"]
    return text


@pytest.mark.req("AUTH-03", "AUTH-05", "AUTH-08")
@everywhere
async def test_request_without_a_token_gets_401_and_the_way_to_one(serve: Serve) -> None:
    async with serve(notes(), HttpOptions(), auth=protected(scopes=["notes:read"])) as wire:
        client = RawClient(wire)
        refused = await client.initialize()
        assert refused.status == 401
        challenge = refused.headers["www-authenticate"]
        assert challenge.startswith('Bearer scope="notes:read", resource_metadata="https://mcp.example.com/')
        url = challenge.split('resource_metadata="')[1].rstrip('"')
        document = await wire.ask("GET", url.removeprefix("https://mcp.example.com"), {}, b"")
        assert (document.status, document.json["resource"]) == (200, MCP)
        assert "error" not in challenge


@pytest.mark.req("AUTH-01")
@everywhere
async def test_server_without_auth_asks_for_no_token(serve: Serve) -> None:
    async with serve(Server("open", "1"), HttpOptions()) as wire:
        assert (await RawClient(wire).initialize()).status == 200
        assert (await RawClient(wire, headers=bearer()).initialize()).status == 200
        assert (await wire.ask("GET", WELL_KNOWN, {}, b"")).status == 404


@pytest.mark.req("AUTH-07", "AUTH-09")
@everywhere
async def test_metadata_is_public_at_each_of_its_paths(serve: Serve) -> None:
    async with serve(notes(), HttpOptions(), auth=protected(name="Notes")) as wire:
        for path in (WELL_KNOWN, WELL_KNOWN + "/mcp", "/mcp" + WELL_KNOWN):
            page = {"origin": "https://page.example"}
            document = await wire.ask("GET", path, page, b"")
            assert (document.status, document.headers["access-control-allow-origin"]) == (200, "*")
            assert document.headers["cache-control"] == "max-age=3600"
            # What a browser caches from its address bar must be of use to a page.
            assert (await wire.ask("GET", path, {}, b"")).headers["access-control-allow-origin"] == "*"
            assert document.json["authorization_servers"] == [AS]
            assert document.json["resource_name"] == "Notes"
            asks = page | {"access-control-request-method": "GET"}
            assert (await wire.ask("OPTIONS", path, asks, b"")).status == 204
            assert (await wire.ask("POST", path, page, b"")).status == 405


@pytest.mark.req("AUTH-09")
@everywhere
async def test_metadata_of_a_resource_with_a_query_is_served(serve: Serve) -> None:
    resource = MCP + "?tenant=7"
    auth = attrs.evolve(protected(), resource=resource)
    async with serve(notes(), HttpOptions(), auth=auth) as wire:
        refused = await RawClient(wire).initialize()
        url = refused.headers["www-authenticate"].split('resource_metadata="')[1].rstrip('"')
        assert url.endswith("?tenant=7")
        for path in (url.removeprefix("https://mcp.example.com"), WELL_KNOWN + "/mcp?tenant=7", "/mcp" + WELL_KNOWN):
            document = await wire.ask("GET", path, {}, b"")
            assert (document.status, document.json["resource"]) == (200, resource)


@pytest.mark.req("AUTH-03", "AUTH-37", "SEC-04")
@everywhere
async def test_each_request_is_served_by_its_own_token(serve: Serve) -> None:
    async with serve(notes(), HttpOptions(), auth=protected(hierarchy={"notes:admin": ["notes:write"]})) as wire:
        client = RawClient(wire, headers=bearer("notes:read"))
        assert (await client.initialize()).status == 200
        assert text_of(await client.call("who")) == "ada by app: notes:read"
        refused = await client.call("erase")
        assert (refused.status, refused.json["error"]["data"]["scope"]) == (403, "notes:write")
        assert 'error="insufficient_scope", scope="notes:write"' in refused.headers["www-authenticate"]
        client.headers |= bearer("notes:admin")
        assert text_of(await client.call("erase")) == "erased"
        assert text_of(await client.call("who")) == "ada by app: notes:admin notes:write"
        for other in ({"sub": "bob"}, {"client_id": "other"}):
            client.headers |= bearer("notes:admin", **other)
            assert (await client.call("who")).status == 404
        del client.headers["authorization"]
        assert (await client.call("who")).status == 401


@pytest.mark.req("AUTH-03", "AUTH-06", "AUTH-37", "AUTH-47")
@everywhere
async def test_invalid_tokens_get_the_same_401(serve: Serve) -> None:
    async with serve(notes(), HttpOptions(), auth=protected()) as wire:
        client = RawClient(wire)
        answers = []
        for authorization in (
            "Bearer unknown",
            "Bearer " + token(aud="https://other.example.com/mcp"),
            "Bearer " + token(lasts=-3600),
            "Bearer " + token(iss="https://evil.example.com"),
            "Bearer " + token()[:-4] + "AAAA",
            "Bearer",
            "Bearer " + "x" * 17000,
        ):
            client.headers = {"authorization": authorization}
            refused = await client.initialize()
            answers.append((refused.status, refused.headers["www-authenticate"], refused.data))
        assert len(set(answers)) == 1
        assert 'error="invalid_token"' in answers[0][1]


@pytest.mark.req("AUTH-05")
@everywhere
async def test_malformed_requests_get_400(serve: Serve) -> None:
    async with serve(notes(), HttpOptions(), auth=protected()) as wire:
        in_query = RawClient(wire, path=f"/mcp?access_token={token()}")
        assert (await in_query.initialize()).status == 400
        twice = RawClient(wire, headers={**bearer(), "x-api-key": "mcp_key"})
        assert (await twice.initialize()).status == 400


@pytest.mark.req("AUTH-57")
@everywhere
async def test_api_keys_are_read_from_a_custom_field(serve: Serve) -> None:
    async with serve(notes(), HttpOptions(), auth=protected()) as wire:
        client = RawClient(wire, headers={"x-api-key": "mcp_key"})
        assert (await client.initialize()).status == 200
        assert text_of(await client.call("who")) == "robot by None: "
        client.headers["x-api-key"] = "mcp_other"
        assert (await client.call("who")).status == 401


@pytest.mark.req("AUTH-37")
@everywhere
async def test_stream_that_a_client_listens_on_ends_with_its_token(serve: Serve) -> None:
    async with serve(notes(), HttpOptions(), auth=protected()) as wire:
        client = RawClient(wire, headers=bearer(lasts=40.0))
        await client.initialize()
        stream = await client.listen()
        await wire.pass_time(35)
        assert stream.is_over is False
        await wire.pass_time(10)
        assert (stream.is_over, stream.is_broken) == (True, False)
        client.headers |= bearer(lasts=400.0)
        again = await client.listen(last_event_id=stream.last_event_id or "0-0")
        await wire.pass_time(1)
        assert (again.status, again.is_over) == (200, False)


@everywhere
async def test_stream_outlives_its_token_where_the_server_allows_it(serve: Serve) -> None:
    async with serve(notes(), HttpOptions(), auth=protected(outlive_token=True)) as wire:
        client = RawClient(wire, headers=bearer(lasts=40.0))
        await client.initialize()
        stream = await client.listen()
        await wire.pass_time(60)
        assert not stream.is_over


@everywhere
async def test_session_of_2024_ends_with_its_token(serve: Serve) -> None:
    async with serve(notes(), HttpOptions(legacy=("/sse", "/messages")), auth=protected()) as wire:
        client = RawClient(wire, path="/sse", headers=bearer(lasts=40.0))
        stream = await client.listen()
        [event] = stream.new_events()
        client.path = f"/{event.data}"
        assert (await client.post({"jsonrpc": "2.0", "method": "notifications/initialized"})).status == 202
        await wire.pass_time(45)
        assert stream.is_over
        client.headers |= bearer()
        assert (await client.post({"jsonrpc": "2.0", "method": "notifications/initialized"})).status == 404
