"""Scopes that depend on a request, with characters that no scope and no header field can have."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from runners import run_by

from mcpio import Context, Server
from mcpio.auth import ApiKeys, BearerToken, ResourceServer, api_key_digest
from mcpio.errors import InsufficientScope, RequestError
from mcpio.trio import open_http, serve_http

KEYS = ApiKeys({api_key_digest("key"): "ada"}, scopes={"ada": frozenset({"read"})})
ODD = ["a b", "a\r\nx: y", "é", "\U0001f600", '"', "\x00", "", "\u202e"]


def notes() -> Server:
    server = Server("notes", "1.0")

    @server.tool(scopes=lambda request: ["read", request.arguments["scope"]])
    def by_request(scope: str) -> str:
        return "done"

    @server.tool
    def in_handler(scope: str, ctx: Context) -> str:
        ctx.require_scopes("read", scope)
        return "done"

    @server.tool
    async def raised(scope: str) -> str:
        raise InsufficientScope([scope])

    return server


@pytest.mark.parametrize("era", ["handshake", "stateless"])
@pytest.mark.parametrize("tool", ["by_request", "in_handler", "raised"])
@run_by(trio.run)
async def test_scope_that_none_can_be_is_an_error_of_its_call(tool: str, era: Any) -> None:
    async with trio.open_nursery() as nursery:
        site = await nursery.start(
            lambda task_status: serve_http(notes(), port=0, auth=ResourceServer(verify=KEYS), task_status=task_status)
        )
        async with open_http(site.url, era=era, auth=BearerToken("key")) as client:
            for scope in ODD:
                with pytest.raises(RequestError) as caught:
                    await client.call_tool(tool, {"scope": scope})
                assert caught.value.code == 1014
                assert ascii(scope) in caught.value.message
                assert caught.value.message.isprintable()
            if tool != "raised":
                assert (await client.call_tool(tool, {"scope": "read"})).text == "done"
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("scopes", ["a b", ["a\n"], "é", ""])
def test_constant_scope_that_none_can_be_is_rejected_where_it_is_given(scopes: Any) -> None:
    server = Server("notes", "1.0")
    with pytest.raises(ValueError, match="a scope must be printable ASCII"):
        server.tool(scopes=scopes)(lambda: None)
    with pytest.raises(ValueError, match="a scope must be printable ASCII"):
        server.require("tools/call", scopes)
    with pytest.raises(ValueError, match="a scope must be printable ASCII"):
        ResourceServer(verify=KEYS, scopes=[scopes] if isinstance(scopes, str) else scopes)
