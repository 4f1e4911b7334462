"""Rules of resources, roots, lists, skills and views that each side of ours keeps towards a peer that a test plays."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Any

import attrs
import pytest
from rawpeer import Played, played_client, played_server

import mcpio._drivers  # noqa: F401  it can read files
from mcpio import Context, Server
from mcpio.app.client import Client
from mcpio.types import (
    CallToolResult,
    ClientCapabilities,
    ElicitationCapability,
    ElicitResult,
    ResourceLink,
    Root,
)
from mcpio.types.base import SKILLS_EXTENSION


def asked(peer: Played[Any], method: str, **params: Any) -> Any:
    """Return the result of a request, or the code of the error."""
    peer.say({"id": "q", "method": method, "params": params})
    (answer,) = (message for message in peer.got() if message.get("id") == "q")
    return answer["result"] if "result" in answer else answer["error"]["code"]


# Lists


@pytest.mark.req("PAGE-06")
@pytest.mark.parametrize("pages", [[["a", "b", "c"]], [["a"], ["b", "c"]], [["a"], [], ["b", "c"]]])
def test_client_reads_lists_with_pages_and_without_in_the_same_way(pages: list[list[str]]) -> None:
    peer = played_client({"tools": {}})

    async def names() -> list[str]:
        return [tool.name async for tool in peer.session.tools()]

    wait = peer.start(names())
    for number, page in enumerate(pages, 1):
        more = {} if number == len(pages) else {"nextCursor": f"p{number}"}
        tools = [{"name": name, "inputSchema": {"type": "object"}} for name in page]
        peer.answer(peer.asked("tools/list"), tools=tools, **more)
    assert peer.got() == []
    assert wait.result == ["a", "b", "c"]


# Tools


@pytest.mark.req("TOOL-19", "TOOL-21", "TOOL-22")
def test_tool_links_to_a_resource_that_no_list_has() -> None:
    server = Server("linking")
    server.tool(lambda: CallToolResult((ResourceLink(uri="bench://hidden", name="hidden"),)), name="show")
    server.resource("bench://{name}", name="of a template")(lambda name: f"{name} iron")
    peer = played_server(server, {})
    link = {"type": "resource_link", "uri": "bench://hidden", "name": "hidden"}
    assert asked(peer, "tools/call", name="show") == {"content": [link]}
    assert asked(peer, "resources/list") == {"resources": []}
    contents = [{"uri": "bench://hidden", "text": "hidden iron"}]
    assert asked(peer, "resources/read", uri="bench://hidden") == {"contents": contents}
    refused = asked(peer, "tools/call", name="show", arguments={"depth": 1})
    assert (refused["isError"], "depth" in refused["content"][0]["text"]) == (True, True)


@pytest.mark.req("COMP-06")
@pytest.mark.parametrize(
    "params",
    [
        {"ref": {"type": "ref/prompt", "name": "none"}, "argument": {"name": "a", "value": ""}},
        {"ref": {"type": "ref/other", "name": "ask"}, "argument": {"name": "a", "value": ""}},
        {"ref": {"type": "ref/prompt", "name": "ask"}, "argument": {"name": "a", "value": 5}},
        {"ref": {"type": "ref/prompt", "name": "ask"}},
        {"argument": {"name": "a", "value": ""}},
    ],
)
def test_request_for_suggestions_that_names_nothing_is_refused(params: dict[str, Any]) -> None:
    server = Server("suggesting")
    server.prompt(lambda a: a, name="ask")
    server.completion("a", prompt="ask")(lambda value: [value])
    peer = played_server(server, {})
    assert asked(peer, "completion/complete", **params) == -32602
    good = {"ref": {"type": "ref/prompt", "name": "ask"}, "argument": {"name": "a", "value": "x"}}
    assert asked(peer, "completion/complete", **good)["completion"]["values"] == ["x"]


@pytest.mark.req("LOG-05")
@pytest.mark.parametrize("data", ["text", 5, 0.5, None, [1, "a"], {"a": {"b": None}}, True])
def test_log_message_has_a_level_and_any_value(data: Any) -> None:
    server = Server("logging")

    @server.tool
    def warn(ctx: Context) -> None:
        ctx.log("warning", data, logger="saw")

    peer = played_server(server, {})
    peer.say({"id": 1, "method": "tools/call", "params": {"name": "warn"}})
    log, _ = peer.got()
    assert (log["method"], log["params"]) == (
        "notifications/message",
        {"level": "warning", "logger": "saw", "data": data},
    )


# Resources


@pytest.mark.req("RES-06", "RES-07")
def test_change_of_a_resource_is_told_to_its_subscribers_alone() -> None:
    server = Server("telling")
    for name in ("a", "b"):
        server.resource(f"bench://{name}", name=name)(lambda: "iron")
    first, second = played_server(server, {}), played_server(server, {})
    assert asked(first, "resources/subscribe", uri="bench://a") == {}
    assert asked(second, "resources/subscribe", uri="bench://b") == {}
    server.notify_resource_updated("bench://a")
    told = {"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": {"uri": "bench://a"}}
    for peer in (first, second):
        peer.advance(1.0)
    assert (first.got(), second.got()) == ([told], [])
    assert asked(first, "resources/unsubscribe", uri="bench://a") == {}
    server.notify_resource_updated("bench://a")
    first.advance(1.0)
    assert first.got() == []


# Roots, and questions that are not answered


@pytest.mark.req("ROOT-03")
@pytest.mark.parametrize("is_told", [True, False])
def test_server_asks_for_roots_again_once_it_was_told_that_they_changed(is_told: bool) -> None:
    server = Server("asking")

    @server.tool
    async def where(ctx: Context) -> list[str]:
        return [root.uri for root in await ctx.roots()]

    peer = played_server(server, {"roots": {"listChanged": True}})
    for call, path in enumerate(("a", "b") if is_told else ("a",)):
        peer.say({"id": f"c{call}", "method": "tools/call", "params": {"name": "where"}})
        peer.answer(peer.asked("roots/list"), roots=[{"uri": f"file:///{path}"}])
        (answer,) = peer.got()
        assert answer["result"]["structuredContent"] == {"result": [f"file:///{path}"]}
        if is_told:
            peer.say({"method": "notifications/roots/list_changed"})
    if not is_told:
        assert asked(peer, "tools/call", name="where")["structuredContent"] == {"result": ["file:///a"]}


@pytest.mark.req("ROOT-03")
def test_client_tells_that_its_roots_changed_and_answers_with_the_new_ones() -> None:
    peer = played_client({}, roots=[Root("file:///a")])
    peer.session.set_roots([Root("file:///b", "B")])
    assert peer.got() == [{"jsonrpc": "2.0", "method": "notifications/roots/list_changed"}]
    assert asked(peer, "roots/list") == {"roots": [{"uri": "file:///b", "name": "B"}]}


@pytest.mark.req("ROOT-06", "ELIC-23")
@pytest.mark.parametrize("tool", ["where", "who"])
def test_server_asks_nothing_that_the_client_did_not_declare(tool: str) -> None:
    server = Server("asking")

    @attrs.frozen
    class Name:
        name: str

    @server.tool
    async def where(ctx: Context) -> None:
        await ctx.roots()

    @server.tool
    async def who(ctx: Context) -> None:
        await ctx.elicit("Who?", Name)

    peer = played_server(server, {"sampling": {}})
    peer.say({"id": "q", "method": "tools/call", "params": {"name": tool}})
    (answer,) = peer.got()
    assert (answer["id"], answer["result"]["isError"]) == ("q", True)


@pytest.mark.req("ROOT-04")
def test_client_that_cannot_list_its_roots_answers_with_an_internal_error() -> None:
    def fail() -> list[Root]:
        raise OSError("the disk has gone")

    assert asked(played_client({}, roots=fail), "roots/list") == -32603
    assert asked(played_client({}), "roots/list") == -32601


@pytest.mark.req("ELIC-15", "ELIC-18")
@pytest.mark.parametrize("action", ["accept", "decline", "cancel"])
def test_client_answers_an_address_without_content(action: Any) -> None:
    seen: list[str] = []

    def visit(_: Client, request: Any) -> ElicitResult:
        seen.append(request.url)
        return ElicitResult(action)

    by_address = ClientCapabilities(elicitation=ElicitationCapability(url={}))
    peer = played_client({}, elicitation=visit, capabilities=by_address)
    params = {"mode": "url", "message": "Pay", "elicitationId": "e1", "url": "https://pay.example/?a=1#b"}
    assert asked(peer, "elicitation/create", **params) == {"action": action}
    assert seen == ["https://pay.example/?a=1#b"]


# Skills

TEXT = "---\nname: refunds\ndescription: How to give money back\n---\nBe kind."


@pytest.fixture
def skilled(tmp_path: Path) -> Played[Any]:
    folder = tmp_path / "refunds"
    folder.mkdir()
    (folder / "SKILL.md").write_text(TEXT, "utf-8", newline="")
    (folder / "forms").mkdir()
    (folder / "forms" / "a.json").write_text("{}", "utf-8")
    server = Server("skilled")
    server.skills.add_folder(tmp_path)
    return played_server(server, {"extensions": {SKILLS_EXTENSION: {}}})


@pytest.mark.req("SKILL-05", "SKILL-07", "SKILL-08")
def test_entry_of_a_skill_has_its_files_with_digests_and_sizes(skilled: Played[Any]) -> None:
    (entry,) = asked(skilled, "skills/list")["skills"]
    assert entry["uri"] == "skill://refunds/SKILL.md"
    assert entry["frontmatter"] == {"name": "refunds", "description": "How to give money back"}
    files = {"skill://refunds/SKILL.md": TEXT, "skill://refunds/forms/a.json": "{}"}
    assert {file["uri"]: (file["size"], file["digest"]) for file in entry["resources"]} == {
        uri: (len(text), f"sha256:{sha256(text.encode()).hexdigest()}") for uri, text in files.items()
    }
    assert asked(skilled, "skills/get", uri=entry["uri"])["skill"] == entry


@pytest.mark.req("SKILL-08", "SKILL-09")
@pytest.mark.parametrize("method", ["skills/get", "resources/directory/read"])
@pytest.mark.parametrize("uri", ["skill://other/SKILL.md", "skill://refunds/../refunds", "file:///etc", ""])
def test_skill_or_directory_that_is_not_served_is_refused(skilled: Played[Any], method: str, uri: str) -> None:
    assert asked(skilled, method, uri=uri) == -32602


@pytest.mark.req("SKILL-03", "SKILL-09")
def test_directory_of_a_skill_has_its_children_which_can_be_read(skilled: Played[Any]) -> None:
    listed = asked(skilled, "resources/directory/read", uri="skill://refunds")["resources"]
    assert sorted(child["uri"] for child in listed) == ["skill://refunds/SKILL.md", "skill://refunds/forms"]
    (contents,) = asked(skilled, "resources/read", uri="skill://refunds/SKILL.md")["contents"]
    assert contents["text"] == TEXT
