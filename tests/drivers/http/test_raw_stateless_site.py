"""Rules of the header fields of 2026-07-28 that a client keeps towards a server that a test plays."""

from __future__ import annotations

from typing import Any

import pytest
from rawsite import RawRequest, ServeSite, Site, Wire, json_response

from mcpio.errors import RequestError
from mcpio.types.base import TASKS_EXTENSION

URL = "http://site.example/mcp"
INFO = {"io.modelcontextprotocol/serverInfo": {"name": "s", "version": "1"}}
MISMATCH = {"code": -32020, "message": "Header mismatch"}
WORKING = {"taskId": "t 7", "status": "working", "ttlMs": None, "pollIntervalMs": 100}
TIMES = {"createdAt": "2026-08-01T00:00:00Z", "lastUpdatedAt": "2026-08-01T00:00:00Z"}


def tool(name: str, header: str | None = None) -> dict[str, Any]:
    region: dict[str, Any] = {"type": "string", **({} if header is None else {"x-mcp-header": header})}
    return {"name": name, "inputSchema": {"type": "object", "properties": {"region": region}}}


class Played:
    """A stateless server: ``tools`` are its lists, one after another, and ``calls`` the answers to calls."""

    def __init__(self, tools: list[list[dict[str, Any]]], calls: list[dict[str, Any]]) -> None:
        self.tools = tools
        self.calls = calls

    async def __call__(self, site: Site, request: RawRequest, wire: Wire) -> None:
        method = request.rpc_method
        hint = {"ttlMs": 0, "cacheScope": "private"}
        answer: dict[str, Any]
        match method:
            case "server/discover":
                offers: dict[str, Any] = {"tools": {}, "extensions": {TASKS_EXTENSION: {}}}
                answer = {"result": {**hint, "supportedVersions": ["2026-07-28"], "capabilities": offers}}
            case "tools/list":
                answer = {"result": {**hint, "tools": self.tools.pop(0) if len(self.tools) > 1 else self.tools[0]}}
            case "tools/call" | "tasks/get":
                answer = self.calls.pop(0)
            case _:
                answer = {"result": {}}
        if "result" in answer:
            answer = {"result": {"resultType": "complete", "_meta": INFO, **answer["result"]}}
        status = "400 Bad Request" if answer.get("error") == MISMATCH else "200 OK"
        await wire.send(json_response({"jsonrpc": "2.0", "id": request.json["id"], **answer}, status=status))


DONE: dict[str, Any] = {"result": {"content": [{"type": "text", "text": "done"}]}}


@pytest.mark.req("HDR-06", "HDR-07")
def test_client_drops_tools_with_wrong_annotations_and_sends_the_fields_of_others(serve_site: ServeSite) -> None:
    names: list[str] = []

    async def play(site: Site) -> None:
        async with site.open_http(URL, era="stateless") as client:
            names.extend(listed.name for listed in (await client.list_tools()).tools)
            await client.call_tool("good", {"region": "eu"})

    site = serve_site(play, Played([[tool("bad", "a b"), tool("good", "Region"), tool("plain")]], [DONE]))
    assert names == ["good", "plain"]
    call = site.requests[-1]
    fields = ("mcp-method", "mcp-name", "mcp-param-region")
    assert [call.headers[field] for field in fields] == ["tools/call", "good", "eu"]


@pytest.mark.req("HDR-10")
@pytest.mark.parametrize("is_final", [False, True])
def test_client_lists_tools_again_after_a_header_mismatch(serve_site: ServeSite, is_final: bool) -> None:
    async def play(site: Site) -> None:
        async with site.open_http(URL, era="stateless") as client:
            await client.list_tools()
            if is_final:
                with pytest.raises(RequestError, match="mismatch"):
                    await client.call_tool("buy", {"region": "eu"})
            else:
                assert (await client.call_tool("buy", {"region": "eu"})).text == "done"

    last = {"error": MISMATCH} if is_final else DONE
    site = serve_site(play, Played([[tool("buy")], [tool("buy", "Region")]], [{"error": MISMATCH}, last]))
    asked = [request for request in site.requests if request.rpc_method != "server/discover"]
    assert [each.rpc_method for each in asked] == ["tools/list", "tools/call", "tools/list", "tools/call"]
    assert [each.headers.get("mcp-param-region") for each in asked] == [None, None, None, "eu"]


@pytest.mark.req("XTASK-13")
def test_client_names_a_task_in_a_header_field(serve_site: ServeSite) -> None:
    async def play(site: Site) -> None:
        async with site.open_http(URL, era="stateless") as client:
            assert (await client.call_tool("dig")).text == "done"

    created = {"result": {**WORKING, **TIMES, "resultType": "task"}}
    working = {"result": {**WORKING, **TIMES}}
    ended = {"result": {**WORKING, **TIMES, "status": "completed", "result": DONE["result"]}}
    site = serve_site(play, Played([[tool("dig")]], [created, working, ended]))
    asked = [request for request in site.requests if request.rpc_method == "tasks/get"]
    assert [request.headers["mcp-name"] for request in asked] == ["t 7", "t 7"]
    assert [request.json["params"]["taskId"] for request in asked] == ["t 7", "t 7"]
