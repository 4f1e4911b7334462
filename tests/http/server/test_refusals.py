"""Requests whose tokens have too few scopes: the status tells, where none of the response was sent (AUTH-34)."""

from __future__ import annotations

from typing import Any

import pytest
from httpwire import RawClient, Serve, everywhere

from mcpio import Context, Server
from mcpio.http.model import HttpOptions


def scoped_server() -> Server:
    server = Server("cases", "1")

    @server.tool
    def echo(text: str) -> str:
        return text

    @server.tool(scopes={"notes:read", "notes:write"})
    def erase() -> str:
        return "erased"

    @server.tool(scopes="notes:admin")
    def purge() -> str:
        return "purged"

    @server.tool
    async def late(ctx: Context) -> str:
        ctx.progress(1)
        ctx.require_scopes("notes:admin")
        return "done"

    @server.tool
    async def waits(ctx: Context) -> str:
        await ctx.session.driver.runtime.sleep(0)
        ctx.require_scopes("notes:admin")
        return "done"

    return server


def call(id: int, tool: str, **arguments: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": tool, "arguments": arguments}}


@pytest.mark.req("AUTH-34")
@everywhere
async def test_request_with_too_few_scopes_gets_403_and_a_challenge(serve: Serve) -> None:
    async with serve(scoped_server(), HttpOptions()) as wire:
        client = RawClient(wire)
        await client.initialize()
        refused = await client.call("erase")
        challenge = 'Bearer realm="mcp", error="insufficient_scope", scope="notes:read notes:write"'
        assert (refused.status, refused.headers["www-authenticate"]) == (403, challenge)
        assert refused.json["error"]["code"] == 1014
        assert refused.json["error"]["data"]["scope"] == "notes:read notes:write"
        assert (await client.call("waits")).status == 403
        assert (await client.call("echo", text="x")).status == 200


@pytest.mark.req("AUTH-34")
@everywhere
async def test_refusal_on_a_stream_that_has_begun_is_an_error(serve: Serve) -> None:
    async with serve(scoped_server(), HttpOptions()) as wire:
        client = RawClient(wire)
        await client.initialize()
        answer = await client.call("late", progress="p")
        assert answer.status == 200
        assert answer.new_messages()[-1]["error"]["data"]["scope"] == "notes:admin"


@pytest.mark.req("AUTH-34")
@everywhere
async def test_batch_is_refused_only_as_a_whole(serve: Serve) -> None:
    async with serve(scoped_server(), HttpOptions()) as wire:
        client = RawClient(wire)
        await client.initialize("2025-03-26")
        mixed = await client.post([call(1, "echo", text="x"), call(2, "erase")])
        assert (mixed.status, "www-authenticate" in mixed.headers) == (200, False)
        assert sorted("error" in each for each in mixed.json) == [False, True]
        refused = await client.post([call(3, "purge"), call(4, "erase")])
        assert (refused.status, len(refused.json)) == (403, 2)
        assert 'scope="notes:admin notes:read notes:write"' in refused.headers["www-authenticate"]
