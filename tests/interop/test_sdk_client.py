"""The official SDK's client in a whole conversation with our server: over standard input and output, and over HTTP.

One server process for each way: the client lives in a thread of its own, and the tests ask it things.
"""

from __future__ import annotations

import base64
import threading
from collections.abc import Iterator
from typing import Any

import anyio
import anyio.from_thread
import mcp.types as types
import pytest
from mcp import Client, MCPError
from sdktalk import Talk, talk_to_server

pytestmark = pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning")

WAYS = [("2025-11-25", "stdio"), ("2025-06-18", "stdio"), *[("2025-11-25", way) for way in ("http", "asgi")]]


@pytest.fixture(scope="module", params=WAYS, ids=" ".join)
def connected(request: pytest.FixtureRequest) -> Iterator[Talk]:
    with talk_to_server(*request.param) as talk:
        yield talk


@pytest.fixture
def talk(connected: Talk) -> Talk:
    """Give the connected client, with nothing heard yet."""
    connected.do(lambda client: client.send_ping())
    for seen in (connected.heard, connected.logs, connected.asked):
        seen.clear()
    connected.news = threading.Semaphore(0)
    return connected


# Lifecycle


@pytest.mark.req("LIFE-04", "LIFE-05", "LIFE-07", "STDIO-10")
@pytest.mark.parametrize("way", ["stdio", "http", "http2", "http-alone", "asgi-alone"])
@pytest.mark.parametrize("revision", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])
def test_conversation_in_every_revision(revision: str, way: str) -> None:
    with talk_to_server(revision, way) as talk:
        result = talk.client.session.initialize_result
        assert result is not None
        assert result.protocol_version == revision
        assert (result.server_info.name, result.server_info.version) == ("mcpio", "1.2.3")
        assert result.instructions == "Be kind."
        assert talk.text("echo", {"text": "é\u2028\n"}) == "é\u2028\n"


def test_server_info_and_capabilities(talk: Talk) -> None:
    result = talk.client.session.initialize_result
    assert result is not None
    offered = result.capabilities.model_dump(exclude_none=True)
    changing = {"list_changed": True}
    assert offered == {
        "completions": {},
        "logging": {},
        "prompts": changing,
        "resources": {"subscribe": True, **changing},
        "tools": changing,
    }


def test_ping_both_ways(talk: Talk) -> None:
    assert isinstance(talk.do(lambda client: client.send_ping()), types.EmptyResult)
    assert talk.text("ping_back") == "the SDK"


# Tools


def all_of(talk: Talk, method: str, member: str) -> list[Any]:
    """Return all pages of a list, which must be more than one."""
    items, cursor = list[Any](), None
    pages = 0
    while pages == 0 or cursor is not None:
        page = talk.do(lambda client: getattr(client, method)(cursor=cursor))  # noqa: B023 - called before it changes
        items += getattr(page, member)
        cursor, pages = page.next_cursor, pages + 1
    assert pages > 1
    return items


def test_tools_are_listed_page_by_page(talk: Talk) -> None:
    tools = {tool.name: tool for tool in all_of(talk, "list_tools", "tools")}
    assert {"add", "echo", "mixed", "touch"} <= tools.keys()
    add = tools["add"]
    assert add.title == "Sum"
    assert add.description == "Add two numbers."
    assert add.input_schema["required"] == ["a"]
    assert add.output_schema is not None
    assert add.output_schema["required"] == ["result"]
    assert add.annotations is not None
    assert add.annotations.read_only_hint is True
    assert tools["echo"].output_schema is None


def test_invalid_cursor_is_refused(talk: Talk) -> None:
    with pytest.raises(MCPError) as caught:
        talk.do(lambda client: client.list_tools(cursor="nonsense"))
    assert caught.value.error.code == types.INVALID_PARAMS


def test_structured_result(talk: Talk) -> None:
    talk.do(lambda client: client.list_tools())
    result = talk.do(lambda client: client.call_tool("add", {"a": 2, "b": 3}))
    assert result.structured_content == {"result": 5}
    assert result.content == [types.TextContent(type="text", text='{"result":5}')]
    assert not result.is_error


def test_content_of_every_kind(talk: Talk) -> None:
    text, image, audio, link, embedded = talk.do(lambda client: client.call_tool("mixed")).content
    assert isinstance(text, types.TextContent)
    assert text.annotations is not None
    assert (text.annotations.audience, text.annotations.priority) == (["user"], 0.5)
    assert image == types.ImageContent(type="image", data="aW1hZ2U=", mime_type="image/png")
    assert audio == types.AudioContent(type="audio", data="YXVkaW8=", mime_type="audio/wav")
    assert isinstance(link, types.ResourceLink)
    assert (link.uri, link.name) == ("notes://first", "first")
    assert isinstance(embedded, types.EmbeddedResource)
    assert isinstance(embedded.resource, types.TextResourceContents)
    assert embedded.resource.text == "within"


@pytest.mark.parametrize(
    ("tool", "arguments", "said"),
    [("fail", {}, "as it should"), ("add", {"a": "two"}, "expected an integer"), ("add", {}, "missing")],
)
def test_failing_tool_gives_an_error_result(talk: Talk, tool: str, arguments: dict[str, Any], said: str) -> None:
    result = talk.do(lambda client: client.call_tool(tool, arguments))
    (block,) = result.content
    assert result.is_error
    assert isinstance(block, types.TextContent)
    assert said in block.text


def test_unknown_tool(talk: Talk) -> None:
    with pytest.raises(MCPError, match="Unknown tool: none") as caught:
        talk.do(lambda client: client.call_tool("none"))
    assert caught.value.error.code == types.INVALID_PARAMS


@pytest.mark.req("PROG-02", "PROG-04")
def test_progress(talk: Talk) -> None:
    reports = list[Any]()

    async def report(progress: float, total: float | None, message: str | None) -> None:
        reports.append((progress, total, message))

    result = talk.do(lambda client: client.call_tool("count", {"to": 3}, progress_callback=report))
    assert not result.is_error
    # Reports that wait together are one: the newest. It comes before the result.
    assert reports[-1] == (3, 3, "step 3")
    assert reports == sorted(reports)


@pytest.mark.req("CANC-01", "CANC-05")
def test_cancelled_call(talk: Talk) -> None:
    async def give_up(client: Client) -> None:
        with anyio.move_on_after(1) as scope:
            await client.call_tool("wait")
        assert scope.cancelled_caught

    talk.do(give_up)
    assert talk.text("what_happened").count("wait was cancelled") == 1


def test_concurrent_calls(talk: Talk) -> None:
    async def many(client: Client) -> dict[int, Any]:
        results: dict[int, Any] = {}

        async def one(number: int) -> None:
            results[number] = (await client.call_tool("add", {"a": number})).structured_content

        async with anyio.create_task_group() as group:
            for number in range(100):
                group.start_soon(one, number)
        return results

    assert talk.do(many) == {number: {"result": number + 1} for number in range(100)}


# Logging


def test_log_messages_at_the_requested_level(talk: Talk) -> None:
    talk.do(lambda client: client.set_logging_level("debug"))
    talk.do(lambda client: client.call_tool("log"))
    assert [(log.level, log.data, log.logger) for log in talk.logs] == [
        ("debug", "too little", None),
        ("info", {"some": "data"}, None),
        ("error", "much", "a.logger"),
    ]
    talk.do(lambda client: client.set_logging_level("error"))
    talk.do(lambda client: client.call_tool("log"))
    assert [log.data for log in talk.logs[3:]] == ["much"]


# Resources


def test_resources_and_templates(talk: Talk) -> None:
    resources = {resource.uri: resource for resource in all_of(talk, "list_resources", "resources")}
    assert resources["notes://first"].title == "The first"
    assert resources["notes://first"].mime_type == "text/plain"
    assert "page://4" in resources
    (template,) = talk.do(lambda client: client.list_resource_templates()).resource_templates
    assert (template.uri_template, template.name) == ("notes://{name}", "note")


@pytest.mark.parametrize(("uri", "text"), [("notes://first", "the first note"), ("notes://x%20y", "the note x y")])
def test_text_resource(talk: Talk, uri: str, text: str) -> None:
    (contents,) = talk.do(lambda client: client.read_resource(uri)).contents
    assert contents == types.TextResourceContents(uri=uri, mime_type="text/plain", text=text)


def test_binary_resource(talk: Talk) -> None:
    (contents,) = talk.do(lambda client: client.read_resource("data://blob")).contents
    assert isinstance(contents, types.BlobResourceContents)
    assert base64.b64decode(contents.blob) == bytes(range(256))
    assert contents.mime_type == "application/octet-stream"


def test_unknown_resource(talk: Talk) -> None:
    with pytest.raises(MCPError, match="Resource not found: none://") as caught:
        talk.do(lambda client: client.read_resource("none://"))
    assert caught.value.error.code == -32002
    assert caught.value.error.data == {"uri": "none://"}


def test_resource_subscription(talk: Talk) -> None:
    touch = {"uri": "notes://first"}
    assert talk.text("touch", touch) == '{"result":0}'
    talk.do(lambda client: client.subscribe_resource("notes://first"))
    assert talk.text("touch", touch) == '{"result":1}'
    talk.wait_for(1)
    (update,) = talk.heard
    assert isinstance(update, types.ResourceUpdatedNotification)
    assert update.params.uri == "notes://first"
    talk.do(lambda client: client.unsubscribe_resource("notes://first"))
    assert talk.text("touch", touch) == '{"result":0}'


# Prompts and completion


def test_prompts(talk: Talk) -> None:
    prompts = {prompt.name: prompt for prompt in talk.do(lambda client: client.list_prompts()).prompts}
    hello = prompts["hello"]
    assert (hello.title, hello.description) == ("Hello", "Greet somebody.")
    assert [(argument.name, bool(argument.required)) for argument in hello.arguments or ()] == [
        ("name", True),
        ("style", False),
    ]
    result = talk.do(lambda client: client.get_prompt("hello", {"name": "Ada"}))
    assert [(message.role, message.content) for message in result.messages] == [
        ("user", types.TextContent(type="text", text="Say hello to Ada.")),
        ("user", types.TextContent(type="text", text="Be plain.")),
    ]


@pytest.mark.parametrize(("name", "arguments"), [("none", {}), ("hello", {})])
def test_prompt_that_fails(talk: Talk, name: str, arguments: dict[str, str]) -> None:
    with pytest.raises(MCPError) as caught:
        talk.do(lambda client: client.get_prompt(name, arguments))
    assert caught.value.error.code == types.INVALID_PARAMS


def test_completion(talk: Talk) -> None:
    prompt = types.PromptReference(type="ref/prompt", name="hello")
    completion = talk.do(lambda client: client.complete(prompt, {"name": "name", "value": "A"})).completion
    assert completion.values == ["Ada", "Alan"]
    template = types.ResourceTemplateReference(type="ref/resource", uri="notes://{name}")
    completion = talk.do(lambda client: client.complete(template, {"name": "name", "value": "n"})).completion
    assert len(completion.values) == 100
    assert (completion.total, completion.has_more) == (150, True)


# What the server asks


def test_sampling(talk: Talk) -> None:
    assert talk.text("ask_model") == "the model: 4"
    (params,) = talk.asked
    assert params.system_prompt == "You count."
    assert params.max_tokens == 10
    assert params.temperature == 0.1
    assert params.messages[0].content == types.TextContent(type="text", text="2+2?")


def test_elicitation(talk: Talk) -> None:
    assert talk.text("ask_user") == "accept Ada"
    (params,) = talk.asked
    assert params.message == "Who are you?"
    assert params.requested_schema["required"] == ["name"]


def test_roots(talk: Talk) -> None:
    assert talk.text("ask_roots") == "file:///a=a"
    talk.do(lambda client: client.send_roots_list_changed())
    assert "the roots changed" in talk.text("what_happened")


# Last, for it changes what is offered


def test_list_changed_notifications(talk: Talk) -> None:
    assert not talk.do(lambda client: client.call_tool("grow")).is_error
    talk.wait_for(3)
    assert {type(message) for message in talk.heard} == {
        types.ToolListChangedNotification,
        types.ResourceListChangedNotification,
        types.PromptListChangedNotification,
    }
    assert "grown" in {tool.name for tool in all_of(talk, "list_tools", "tools")}
    assert "grown" in {prompt.name for prompt in talk.do(lambda client: client.list_prompts()).prompts}
