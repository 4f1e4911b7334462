"""Our client in a whole conversation with servers written with the official SDK, over standard input and output.

One server process for each of them: the client lives in a thread of its own, and the tests ask it things.
"""

from __future__ import annotations

import base64
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import anyio
import anyio.from_thread
import pytest
import trio

from mcpio import RequestError, RequestTimeout, Revision
from mcpio.app.client import Client
from mcpio.engine.options import Options
from mcpio.revisions import HANDSHAKE_REVISIONS
from mcpio.trio import open_stdio
from mcpio.types import (
    Annotations,
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    CreateMessageRequest,
    CreateMessageResult,
    ElicitFormRequest,
    ElicitRequest,
    ElicitResult,
    EmbeddedResource,
    ImageContent,
    Implementation,
    LoggingMessageNotification,
    PromptListChangedNotification,
    PromptMessage,
    PromptReference,
    ResourceLink,
    ResourceListChangedNotification,
    ResourceTemplateReference,
    ResourceUpdatedNotification,
    Root,
    TextContent,
    TextResourceContents,
    Tool,
    ToolListChangedNotification,
)

T = TypeVar("T")


class Talk:
    """Our client, what it heard, and a way to ask it things from a test."""

    def __init__(self, portal: anyio.from_thread.BlockingPortal) -> None:
        self.heard: list[Any] = []
        self.logs: list[LoggingMessageNotification] = []
        self.asked: list[Any] = []
        self.news = threading.Semaphore(0)
        self.client: Client
        self._portal = portal

    def do(self, call: Callable[[Client], Awaitable[T]]) -> T:
        """Have the client do something, and wait for it."""

        async def bounded() -> T:
            with trio.fail_after(10):
                return await call(self.client)

        return self._portal.call(bounded)

    def text(self, tool: str, arguments: dict[str, Any] | None = None) -> str:
        return text_of(self.do(lambda client: client.call_tool(tool, arguments)))

    def wait_for(self, count: int) -> None:
        """Wait for that many notifications."""
        for _ in range(count):
            assert self.news.acquire(timeout=10)

    def hear(self, notification: Any) -> None:
        self.heard.append(notification)
        self.news.release()

    def sample(self, scope: Any, request: CreateMessageRequest) -> CreateMessageResult:
        self.asked.append(request)
        return CreateMessageResult("assistant", TextContent("4"), "the model", "endTurn")

    async def elicit(self, scope: Any, request: ElicitRequest) -> ElicitResult:
        self.asked.append(request)
        return ElicitResult("accept", {"name": "Ada"})


def text_of(result: CallToolResult) -> str:
    (block,) = result.content
    assert isinstance(block, TextContent)
    assert not result.is_error, block.text
    return block.text


@contextmanager
def talk_to_server(kind: str, revision: str) -> Iterator[Talk]:
    newest = Revision.parse(revision)
    assert newest is not None
    with anyio.from_thread.start_blocking_portal("trio") as portal:
        talk = Talk(portal)
        opened = open_stdio(
            [sys.executable, "-W", "ignore", str(Path(__file__).with_name(f"sdk_{kind}_server.py"))],
            info=Implementation("mcpio", "1"),
            sampling=talk.sample,
            elicitation=talk.elicit,
            roots=[Root("file:///a", "a")],
            on_log=talk.logs.append,
            on_notification=talk.hear,
            check_results="raise",
            options=Options(revisions=tuple(each for each in HANDSHAKE_REVISIONS if each <= newest)),
        )
        with portal.wrap_async_context_manager(opened) as talk.client:
            yield talk


@pytest.fixture(scope="module")
def talks() -> Iterator[Callable[[str, str], Talk]]:
    """Give a function for a client of a server, which is started when it is first asked for. Nothing heard yet."""
    started: dict[tuple[str, str], Talk] = {}

    def get(kind: str, revision: str) -> Talk:
        if (kind, revision) not in started:
            started[kind, revision] = stack.enter_context(talk_to_server(kind, revision))
        talk = started[kind, revision]
        talk.do(lambda client: client.ping())
        for seen in (talk.heard, talk.logs, talk.asked):
            seen.clear()
        talk.news = threading.Semaphore(0)
        return talk

    with ExitStack() as stack:
        yield get


LOW = [("lowlevel", "2025-11-25"), ("lowlevel", "2025-06-18")]
HIGH = ("high", "2025-11-25")


@pytest.fixture(params=[*LOW, HIGH], ids="-".join)
def talk(request: pytest.FixtureRequest, talks: Callable[[str, str], Talk]) -> Talk:
    """Give a client of each server."""
    return talks(*request.param)


@pytest.fixture(params=LOW, ids="-".join)
def low(request: pytest.FixtureRequest, talks: Callable[[str, str], Talk]) -> Talk:
    """Give a client of the server on the low-level class."""
    return talks(*request.param)


@pytest.fixture
def high(talks: Callable[[str, str], Talk]) -> Talk:
    """Give a client of the server on the high-level class."""
    return talks(*HIGH)


# Lifecycle


@pytest.mark.req("LIFE-03", "LIFE-08", "STDIO-10")
@pytest.mark.parametrize("revision", ["2024-11-05", "2025-03-26"])
def test_conversation_in_the_oldest_revisions(revision: str) -> None:
    with talk_to_server("lowlevel", revision) as talk:
        assert talk.client.connection.revision is not None
        assert talk.client.connection.revision.name == revision
        assert talk.text("echo", {"text": "é\u2028\n"}) == "é\u2028\n"
        assert len(talk.do(all_tools)) > 3


@pytest.mark.req("LIFE-16")
@pytest.mark.parametrize(("kind", "revision"), [*LOW, HIGH])
def test_server_info_and_instructions(kind: str, revision: str, talks: Callable[[str, str], Talk]) -> None:
    client = talks(kind, revision).client
    assert client.connection.revision is not None
    assert client.connection.revision.name == revision
    assert (client.server.info.name, client.server.info.version) == ("the SDK", "2")
    assert client.server.instructions == "Be kind."


def test_ping_both_ways(low: Talk) -> None:
    low.do(lambda client: client.ping())
    assert low.text("ping_back") == "mcpio"


# Tools


async def all_tools(client: Client) -> dict[str, Tool]:
    return {tool.name: tool async for tool in client.tools()}


def test_tools_are_listed_and_called(talk: Talk) -> None:
    tools = talk.do(all_tools)
    assert {"add", "echo", "fail", "ask_roots"} <= tools.keys()
    add = tools["add"]
    assert add.title == "Sum"
    assert add.output_schema is not None
    assert add.output_schema["required"] == ["result"]


@pytest.mark.req("TOOL-14", "PAGE-01")
def test_tool_is_called_by_name(talk: Talk) -> None:
    tool = talk.do(lambda client: client.tool("count"))
    assert tool is not None
    assert tool.name == "count"
    assert talk.do(lambda client: client.tool("no such tool")) is None


def test_list_in_pages(low: Talk) -> None:
    page = low.do(lambda client: client.list_tools())
    assert (len(page.tools), page.next_cursor) == (3, "3")
    assert low.do(lambda client: client.list_tools("3")).tools[0].name not in {tool.name for tool in page.tools}
    assert page.tools[0].annotations is not None
    assert page.tools[0].annotations.read_only_hint is True


def test_structured_result(talk: Talk) -> None:
    result = talk.do(lambda client: client.call_tool("add", {"a": 2, "b": 3}))
    assert result.structured_content == {"result": 5}
    assert text_of(result) == "5"


def test_structured_result_of_an_object(high: Talk) -> None:
    result = high.do(lambda client: client.call_tool("mirrored", {"x": 1, "y": 2}))
    assert result.structured_content == {"x": 2, "y": 1}


def test_content_of_every_kind(low: Talk) -> None:
    assert low.do(lambda client: client.call_tool("mixed")).content == (
        TextContent("text", annotations=Annotations(("user",), 0.5)),
        ImageContent("aW1hZ2U=", "image/png"),
        AudioContent("YXVkaW8=", "audio/wav"),
        ResourceLink("notes://first", "first"),
        EmbeddedResource(TextResourceContents("notes://first", "within", "text/plain")),
    )


def test_failing_tool_gives_an_error_result(talk: Talk) -> None:
    result = talk.do(lambda client: client.call_tool("fail"))
    (block,) = result.content
    assert result.is_error
    assert isinstance(block, TextContent)
    assert "fail" in block.text or "as it should" in block.text


def test_unknown_tool(low: Talk, high: Talk) -> None:
    with pytest.raises(RequestError, match="Unknown tool: none") as caught:
        low.do(lambda client: client.call_tool("none"))
    assert caught.value.code == -32602
    # The high-level class takes it for a failure of a tool.
    assert high.do(lambda client: client.call_tool("none")).is_error


@pytest.mark.req("PROG-01", "PROG-02")
def test_progress(talk: Talk) -> None:
    reports: list[tuple[float, float | None, str | None]] = []
    result = talk.do(
        lambda client: client.call_tool("count", {"to": 3}, on_progress=lambda *report: reports.append(report))
    )
    assert text_of(result) == "done"
    assert reports == [(1, 3, "step 1"), (2, 3, "step 2"), (3, 3, "step 3")]


@pytest.mark.req("CANC-01", "TIME-01")
@pytest.mark.parametrize("how", ["cancelled", "timed out"])
def test_cancelled_call(talk: Talk, how: str) -> None:
    before = talk.text("what_happened").count("wait was cancelled")

    async def give_up(client: Client) -> None:
        if how == "cancelled":
            with trio.move_on_after(1) as scope:
                await client.call_tool("wait")
            assert scope.cancelled_caught
        else:
            with pytest.raises(RequestTimeout):
                await client.call_tool("wait", timeout=1)

    talk.do(give_up)
    assert talk.text("what_happened").count("wait was cancelled") == before + 1


def test_concurrent_calls(talk: Talk) -> None:
    async def many(client: Client) -> dict[int, Any]:
        results: dict[int, Any] = {}

        async def one(number: int) -> None:
            results[number] = (await client.call_tool("add", {"a": number})).structured_content

        async with trio.open_nursery() as nursery:
            for number in range(100):
                nursery.start_soon(one, number)
        return results

    assert talk.do(many) == {number: {"result": number + 1} for number in range(100)}


# Logging


def test_log_messages_at_the_requested_level(low: Talk) -> None:
    low.do(lambda client: client.set_log_level("debug"))
    low.text("log")
    assert [(log.level, log.data, log.logger) for log in low.logs] == [
        ("debug", "too little", "a.logger"),
        ("info", {"some": "data"}, "a.logger"),
        ("error", "much", "a.logger"),
    ]
    low.do(lambda client: client.set_log_level("error"))
    low.text("log")
    assert [log.data for log in low.logs[3:]] == ["much"]


def test_log_messages_without_the_capability(high: Talk) -> None:
    high.text("log")
    assert [(log.level, log.data, log.logger) for log in high.logs] == [("info", "told", "a.logger")]


# Resources


def test_resources_and_templates(talk: Talk) -> None:
    async def all_resources(client: Client) -> dict[str, str | None]:
        return {resource.uri: resource.title async for resource in client.resources()}

    async def all_templates(client: Client) -> list[tuple[str, str]]:
        return [(template.uri_template, template.name) async for template in client.resource_templates()]

    assert talk.do(all_resources)["notes://first"] == "The first"
    assert talk.do(all_templates) == [("notes://{name}", "note")]


@pytest.mark.parametrize("name", ["first", "other"])
def test_text_resource(talk: Talk, name: str) -> None:
    (contents,) = talk.do(lambda client: client.read_resource(f"notes://{name}")).contents
    assert contents == TextResourceContents(f"notes://{name}", f"the note {name}", "text/plain")


def test_binary_resource(talk: Talk) -> None:
    (contents,) = talk.do(lambda client: client.read_resource("data://blob")).contents
    assert isinstance(contents, BlobResourceContents)
    assert base64.b64decode(contents.blob) == bytes(range(256))
    assert contents.mime_type == "application/octet-stream"


def test_unknown_resource(talk: Talk) -> None:
    with pytest.raises(RequestError) as caught:
        talk.do(lambda client: client.read_resource("none://there"))
    assert caught.value.code in (-32002, -32602)
    assert "none://there" in caught.value.message


def test_resource_subscription(low: Talk) -> None:
    uri = "notes://first"
    low.do(lambda client: client.subscribe_resource(uri))
    assert low.text("touch", {"uri": uri}) == "1"
    low.wait_for(1)
    assert low.heard == [ResourceUpdatedNotification(uri)]
    low.do(lambda client: client.unsubscribe_resource(uri))
    assert low.text("touch", {"uri": uri}) == "0"


# Prompts and completion


def test_prompts(talk: Talk) -> None:
    (hello,) = talk.do(lambda client: client.list_prompts()).prompts
    assert (hello.name, hello.title, hello.description) == ("hello", "Hello", "Greet somebody.")
    assert [(argument.name, bool(argument.required)) for argument in hello.arguments] == [
        ("name", True),
        ("style", False),
    ]
    result = talk.do(lambda client: client.get_prompt("hello", {"name": "Ada"}))
    assert result.messages == (PromptMessage("user", TextContent("Say hello to Ada.")),)


def test_unknown_prompt(talk: Talk) -> None:
    with pytest.raises(RequestError, match="none"):
        talk.do(lambda client: client.get_prompt("none"))


def test_completion(talk: Talk) -> None:
    prompt, template = PromptReference("hello"), ResourceTemplateReference("notes://{name}")
    completion = talk.do(lambda client: client.complete(prompt, "name", "A", chosen={"style": "kind"})).completion
    assert completion.values == ("Ada", "Alan", "kind")
    completion = talk.do(lambda client: client.complete(template, "name", "n")).completion
    assert (len(completion.values), completion.total, completion.has_more) == (100, 150, True)


# What the server asks


def test_sampling(talk: Talk) -> None:
    assert talk.text("ask_model") == "the model: 4"
    (request,) = talk.asked
    assert isinstance(request, CreateMessageRequest)
    assert (request.max_tokens, request.system_prompt, request.temperature) == (10, "You count.", 0.1)
    assert request.messages[0].blocks == (TextContent("2+2?"),)


def test_elicitation(talk: Talk) -> None:
    assert talk.text("ask_user") == "accept Ada"
    (request,) = talk.asked
    assert isinstance(request, ElicitFormRequest)
    assert request.message == "Who are you?"
    assert request.requested_schema.required == ("name",)


def test_roots(talk: Talk) -> None:
    assert talk.text("ask_roots") == "file:///a=a"


def test_roots_list_changed(low: Talk) -> None:
    async def tell(client: Client) -> None:
        client.notify_roots_changed()

    low.do(tell)
    assert "the roots changed" in low.text("what_happened")


# Last, for it changes what is offered


def test_list_changed_notifications(low: Talk) -> None:
    low.text("grow")
    low.wait_for(3)
    assert low.heard == [
        ToolListChangedNotification(),
        ResourceListChangedNotification(),
        PromptListChangedNotification(),
    ]
    assert "grown" in low.do(all_tools)
