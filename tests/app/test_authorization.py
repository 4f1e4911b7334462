from __future__ import annotations

import pickle
from typing import Any

import pytest
from linked import Link

from mcpio import types
from mcpio.app.context import Context
from mcpio.app.server import Server
from mcpio.auth.grant import Grant
from mcpio.errors import InsufficientScope, RequestError

READER = Grant("https://id", "ada", "app", frozenset({"notes:read"}))
WRITER = Grant("https://id", "ada", "app", frozenset({"notes:read", "notes:write"}))


def notes() -> Server:
    server = Server("notes")

    @server.tool
    def size() -> str:
        return "3"

    @server.tool(scopes={"notes:read", "notes:write"})
    def erase(ctx: Context) -> str:
        assert ctx.grant is not None
        return f"{ctx.grant.subject} erased it"

    @server.tool(scopes="notes:admin", hide=True)
    def purge() -> str:
        return "purged"

    @server.tool(scopes=lambda request: {"notes:write"} if request.arguments["path"].startswith("/etc") else ())
    def read(path: str) -> str:
        return path

    @server.resource("notes://all", scopes="notes:read")
    def every() -> str:
        return "all of them"

    @server.resource("notes://by/{author}", scopes="notes:write", hide=True)
    def by(author: str) -> str:
        return author

    @server.resource("notes://secret", scopes="notes:admin", hide=True)
    def secret() -> str:
        return "secret"

    @server.prompt(scopes="notes:read")
    def review(name: str) -> str:
        return f"Review {name}"

    @server.completion("name", prompt="review")
    def names(text: str) -> list[str]:
        return ["one"]

    @server.completion("author", resource="notes://by/{author}")
    def authors(text: str) -> list[str]:
        return ["ada"]

    @server.prompt(scopes="notes:admin", hide=True)
    def audit() -> str:
        return "Audit"

    return server


def refusal(link: Link, request: Any) -> RequestError:
    with pytest.raises(RequestError) as caught:
        link.do(link.client.request(request))
    return caught.value


@pytest.mark.req("AUTH-34")
def test_refusal_lists_all_missing_scopes() -> None:
    link = Link(notes(), principal=READER)
    error = refusal(link, types.CallToolRequest("erase", {}))
    assert (error.code, error.data["scope"]) == (1014, "notes:read notes:write")
    assert link.call("size").content[0] == types.TextContent("3")
    assert Link(notes(), principal=WRITER).call("erase").content[0] == types.TextContent("ada erased it")


@pytest.mark.parametrize("principal", [None, "ada", ("a", 1)])
@pytest.mark.req("AUTH-34")
def test_request_without_a_grant_has_no_scopes(principal: Any) -> None:
    link = Link(notes(), principal=principal)
    assert refusal(link, types.CallToolRequest("erase", {})).code == 1014
    assert [tool.name for tool in link.do(link.client.list_tools()).tools] == ["size", "erase", "read"]


def test_scopes_may_depend_on_the_arguments() -> None:
    link = Link(notes(), principal=READER)
    assert link.call("read", path="/home").content[0] == types.TextContent("/home")
    assert refusal(link, types.CallToolRequest("read", {"path": "/etc/passwd"})).data["scope"] == "notes:write"


@pytest.mark.parametrize(
    "request_",
    [
        types.ReadResourceRequest("notes://by/ada"),
        types.SubscribeRequest("notes://secret"),
        types.GetPromptRequest("audit"),
        types.CompleteRequest(
            types.ResourceTemplateReference("notes://by/{author}"), types.CompletionArgument("author", "a")
        ),
    ],
)
def test_resources_prompts_and_completions_need_scopes(request_: Any) -> None:
    link = Link(notes(), principal=READER, era="handshake")
    assert refusal(link, request_).code == 1014


def test_granted_resources_prompts_and_completions_are_served() -> None:
    link = Link(notes(), principal=READER, era="handshake")
    for request in (
        types.ReadResourceRequest("notes://all"),
        types.SubscribeRequest("notes://all"),
        types.GetPromptRequest("review", {"name": "x"}),
        types.CompleteRequest(types.PromptReference("review"), types.CompletionArgument("name", "")),
    ):
        link.do(link.client.request(request))


def test_unknown_names_are_answered_as_usual() -> None:
    link = Link(notes(), principal=READER)
    for request in (types.CallToolRequest("nothing", {}), types.ReadResourceRequest("notes://nothing")):
        assert refusal(link, request).code in (-32602, -32002)


def test_hidden_entries_are_listed_for_those_who_may_use_them() -> None:
    server = notes()
    admin = Grant("https://id", "root", scopes=frozenset({"notes:admin", "notes:write"}))
    for principal, names in ((READER, []), (admin, ["purge", "secret", "by", "audit"]), (READER, [])):
        client = (link := Link(server, principal=principal)).client
        listed = [
            *(tool.name for tool in link.do(client.list_tools()).tools),
            *(resource.name for resource in link.do(client.list_resources()).resources),
            *(template.name for template in link.do(client.list_resource_templates()).resource_templates),
            *(prompt.name for prompt in link.do(client.list_prompts()).prompts),
        ]
        assert [name for name in listed if name not in ("size", "erase", "read", "every", "review")] == names


@pytest.mark.req("AUTH-34")
def test_methods_may_need_scopes() -> None:
    server = notes()
    server.require("tools/call", "tools")
    link = Link(server, principal=READER)
    assert refusal(link, types.CallToolRequest("size", {})).data["scope"] == "tools"
    assert refusal(link, types.CallToolRequest("erase", {})).data["scope"] == "notes:read notes:write tools"
    link.do(link.client.list_tools())
    only = Server("s")
    only.tool(lambda: "x", name="x")
    only.require("tools/list", {"listing"})
    with pytest.raises(RequestError, match="listing"):
        (link := Link(only)).do(link.client.list_tools())


@pytest.mark.req("AUTH-34")
def test_handler_may_require_scopes() -> None:
    server = Server("s")

    @server.tool
    def erase(ctx: Context, owner: str) -> str:
        ctx.require_scopes("notes:write") if owner == "ada" else ctx.require_scopes("notes:read")
        return "erased"

    @server.tool
    def who(ctx: Context) -> bool:
        return ctx.grant is None

    link = Link(server, principal=READER)
    assert refusal(link, types.CallToolRequest("erase", {"owner": "ada"})).data["scope"] == "notes:write"
    assert link.call("erase", owner="bob").content[0] == types.TextContent("erased")
    assert Link(server, principal="ada").call("who").content[0] == types.TextContent('{"result":true}')


def test_failing_function_of_scopes_fails_the_request() -> None:
    server = Server("s")
    called = []

    async def waits(request: Any) -> set[str]:
        return set()

    by_waiting: Any = waits

    server.tool(lambda: called.append(1), name="by_error", scopes=lambda request: request.missing)
    server.tool(lambda: called.append(1), name="by_waiting", scopes=by_waiting)
    server.tool(lambda: "x", name="by_text", scopes=lambda request: "one")
    link = Link(server, principal=READER)
    for name in ("by_error", "by_waiting"):
        assert refusal(link, types.CallToolRequest(name, {})).code == -32603
    assert refusal(link, types.CallToolRequest("by_text", {})).data["scope"] == "one"
    assert not called


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"scopes": "two words"}, ValueError, "without spaces"),
        ({"scopes": [7]}, TypeError, "scopes must be texts"),
        ({"scopes": 7}, TypeError, "scopes must be texts"),
        ({"hide": True}, ValueError, "hide= needs scopes="),
        ({"scopes": lambda _: (), "hide": True}, ValueError, "hide= needs scopes="),
    ],
)
def test_malformed_scopes_are_refused_at_registration(options: Any, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        Server("s").tool(lambda: "x", name="x", **options)


def test_insufficient_scope_survives_pickling() -> None:
    error = pickle.loads(pickle.dumps(InsufficientScope(["b", "a"])))
    assert (error.scopes, str(error)) == ({"a", "b"}, str(InsufficientScope(["a", "b"])))
