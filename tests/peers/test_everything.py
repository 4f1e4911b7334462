"""Our client and the reference server ``server-everything``: all that it offers, over each of its transports."""

from __future__ import annotations

import base64
import gzip
import json
from typing import Any, get_args

import pytest
import trio
from everything import PLAIN_TOOLS, Heard, Talk, report_of, text_of

from mcpio import Client, RequestError, RequestTimeout, TextContent
from mcpio.types import (
    Annotations,
    BlobResourceContents,
    EmbeddedResource,
    ImageContent,
    LoggingLevel,
    PromptReference,
    ResourceLink,
    ResourceListChangedNotification,
    ResourceTemplateReference,
    ResourceUpdatedNotification,
    TextResourceContents,
)

PROMPTS = {"simple-prompt", "args-prompt", "completable-prompt", "resource-prompt"}

DOCUMENTS = {"architecture", "extension", "features", "how-it-works", "instructions", "startup", "structure"}

TEMPLATES = {"demo://resource/dynamic/text/{resourceId}", "demo://resource/dynamic/blob/{resourceId}"}

LEVELS: tuple[LoggingLevel, ...] = get_args(LoggingLevel)


# What there is


def test_server_info(talk: Talk) -> None:
    async def conversation(client: Client, heard: Heard) -> None:
        assert client.connection.revision is not None
        assert client.connection.revision.name == "2025-11-25"
        assert (client.server.info.name, client.server.info.version) == ("mcp-servers/everything", "2.0.0")
        assert client.server.info.title == "Everything Reference Server"
        assert (client.server.instructions or "").startswith("# Everything Server")
        await client.ping()

    talk(conversation)


def test_every_offered_feature_has_a_test(talk: Talk) -> None:
    async def conversation(client: Client, heard: Heard) -> None:
        assert {tool.name async for tool in client.tools()} == PLAIN_TOOLS
        assert {prompt.name async for prompt in client.prompts()} == PROMPTS
        assert {template.uri_template async for template in client.resource_templates()} == TEMPLATES
        documents = {f"demo://resource/static/document/{name}.md" for name in DOCUMENTS}
        assert {resource.uri async for resource in client.resources()} == documents

    talk(conversation)


def test_lists_have_one_page(talk: Talk) -> None:
    async def conversation(client: Client, heard: Heard) -> None:
        assert (await client.list_tools()).next_cursor is None
        assert (await client.list_prompts()).next_cursor is None
        assert (await client.list_resources()).next_cursor is None
        assert (await client.list_resource_templates()).next_cursor is None

    talk(conversation)


def test_tool_description(talk: Talk) -> None:
    async def conversation(client: Client, heard: Heard) -> None:
        weather = await client.tool("get-structured-content")
        assert weather is not None
        assert weather.title == "Get Structured Content Tool"
        assert weather.annotations is not None
        assert (weather.annotations.read_only_hint, weather.annotations.open_world_hint) == (True, False)
        assert weather.input_schema["properties"]["location"]["enum"] == ["New York", "Chicago", "Los Angeles"]
        assert weather.output_schema is not None
        assert set(weather.output_schema["required"]) == {"temperature", "conditions", "humidity"}
        research = await client.tool("simulate-research-query")
        assert research is not None
        assert research.execution is not None
        assert research.execution.task_support == "required"

    talk(conversation)


# Tools


@pytest.mark.parametrize(
    ("tool", "arguments", "answer"),
    [
        ("echo", {"message": "é\u2028\n"}, "Echo: é\u2028\n"),
        ("get-sum", {"a": 1, "b": 2.5}, "The sum of 1 and 2.5 is 3.5."),
    ],
)
def test_text_tools(talk: Talk, tool: str, arguments: dict[str, Any], answer: str) -> None:
    async def conversation(client: Client, heard: Heard) -> None:
        assert await report_of(client, tool, arguments) == answer

    talk(conversation)


def test_environment_of_the_child(talk: Talk) -> None:
    async def conversation(client: Client, heard: Heard) -> None:
        assert json.loads(await report_of(client, "get-env"))["PATH"]

    talk(conversation)


def test_structured_result_fits_its_schema(talk: Talk) -> None:
    async def conversation(client: Client, heard: Heard) -> None:
        result = await client.call_tool("get-structured-content", {"location": "Chicago"})
        assert result.structured_content == {"temperature": 36, "conditions": "Light rain / drizzle", "humidity": 82}
        assert json.loads(text_of(result)) == result.structured_content

    talk(conversation, check_results="raise")


def test_image_content(talk: Talk) -> None:
    async def conversation(client: Client, heard: Heard) -> None:
        before, image, after = (await client.call_tool("get-tiny-image")).content
        assert (before, after) == (
            TextContent("Here's the image you requested:"),
            TextContent("The image above is the MCP logo."),
        )
        assert isinstance(image, ImageContent)
        assert image.mime_type == "image/png"
        assert base64.b64decode(image.data).startswith(b"\x89PNG")

    talk(conversation)


@pytest.mark.parametrize(
    ("kind", "text", "annotations"),
    [
        ("error", "Error: Operation failed", Annotations(("user", "assistant"), 1)),
        ("success", "Operation completed successfully", Annotations(("user",), 0.7)),
        ("debug", "Debug: Cache hit ratio 0.95, latency 150ms", Annotations(("assistant",), 0.3)),
    ],
)
def test_content_with_annotations(talk: Talk, kind: str, text: str, annotations: Annotations) -> None:
    async def conversation(client: Client, heard: Heard) -> None:
        asked = {"messageType": kind, "includeImage": True}
        said, image = (await client.call_tool("get-annotated-message", asked)).content
        assert said == TextContent(text, annotations=annotations)
        assert isinstance(image, ImageContent)
        assert image.annotations == Annotations(("user",), 0.5)

    talk(conversation)


def test_resource_link_can_be_read(talk: Talk) -> None:
    async def conversation(client: Client, heard: Heard) -> None:
        intro, *links = (await client.call_tool("get-resource-links", {"count": 4})).content
        assert intro == TextContent("Here are 4 resource links to resources available in this server:")
        assert len(links) == 4
        for number, link in enumerate(links, start=1):
            assert isinstance(link, ResourceLink)
            (contents,) = (await client.read_resource(link.uri)).contents
            assert contents.uri == link.uri
            assert content_of(contents).startswith(f"Resource {number}: ")

    talk(conversation)


def content_of(contents: object) -> str:
    if isinstance(contents, BlobResourceContents):
        return base64.b64decode(contents.blob).decode()
    assert isinstance(contents, TextResourceContents)
    return contents.text


@pytest.mark.parametrize("kind", ["Text", "Blob"])
def test_embedded_resource(talk: Talk, kind: str) -> None:
    async def conversation(client: Client, heard: Heard) -> None:
        asked = {"resourceType": kind, "resourceId": 3}
        _, embedded, _ = (await client.call_tool("get-resource-reference", asked)).content
        assert isinstance(embedded, EmbeddedResource)
        assert embedded.resource.uri == f"demo://resource/dynamic/{kind.lower()}/3"
        assert content_of(embedded.resource).startswith("Resource 3: ")

    talk(conversation)


@pytest.mark.parametrize("kind", ["resource", "resourceLink"])
def test_uploaded_file_becomes_a_resource(talk: Talk, kind: str) -> None:
    async def conversation(client: Client, heard: Heard) -> None:
        asked = {"name": "words.gz", "data": "data:text/plain,some%20words", "outputType": kind}
        (block,) = (await client.call_tool("gzip-file-as-resource", asked)).content
        uri = "demo://resource/session/words.gz"
        if isinstance(block, EmbeddedResource):
            contents = block.resource
        else:
            assert block == ResourceLink(uri, "words.gz", mime_type="application/gzip")
            (contents,) = (await client.read_resource(uri)).contents
        assert isinstance(contents, BlobResourceContents)
        assert (contents.uri, contents.mime_type) == (uri, "application/gzip")
        assert gzip.decompress(base64.b64decode(contents.blob)) == b"some words"
        await heard.until(lambda: ResourceListChangedNotification() in heard.told)
        assert uri in {resource.uri async for resource in client.resources()}

    talk(conversation)


@pytest.mark.parametrize(
    ("tool", "arguments", "fault"),
    [
        ("echo", {}, "Invalid arguments for tool echo"),
        ("get-resource-reference", {"resourceId": -1}, "Invalid resourceId"),
        ("gzip-file-as-resource", {"data": "ftp://x.example/"}, "Unsupported URL protocol"),
        ("none", {}, "Tool none not found"),
    ],
)
def test_failing_call(talk: Talk, tool: str, arguments: dict[str, Any], fault: str) -> None:
    async def conversation(client: Client, heard: Heard) -> None:
        result = await client.call_tool(tool, arguments)
        assert result.is_error
        assert fault in result.text

    talk(conversation)


def test_progress_of_concurrent_operations(talk: Talk) -> None:
    async def conversation(client: Client, heard: Heard) -> None:
        async def operate(steps: int) -> None:
            reports: list[tuple[float, float | None]] = []
            answer = await client.call_tool(
                "trigger-long-running-operation",
                {"duration": 0.2, "steps": steps},
                on_progress=lambda progress, total, _: reports.append((progress, total)),
            )
            assert text_of(answer) == f"Long running operation completed. Duration: 0.2 seconds, Steps: {steps}."
            assert reports == [(step, steps) for step in range(1, steps + 1)]

        async with trio.open_nursery() as nursery:
            for steps in range(1, 6):
                nursery.start_soon(operate, steps)

    talk(conversation)


def test_cancelled_calls(talk: Talk) -> None:
    async def conversation(client: Client, heard: Heard) -> None:
        endless = {"duration": 0.5, "steps": 1}
        with trio.move_on_after(0.05) as scope:
            await client.call_tool("trigger-long-running-operation", endless)
        assert scope.cancelled_caught
        with pytest.raises(RequestTimeout):
            await client.call_tool("trigger-long-running-operation", endless, timeout=0.05)
        assert await report_of(client, "echo", {"message": "on"}) == "Echo: on"

    talk(conversation)


# Logging


def test_every_logging_level(talk: Talk) -> None:
    """Its messages are of random levels: whatever comes is at least what was asked for."""

    async def conversation(client: Client, heard: Heard) -> None:
        for rank, level in enumerate(LEVELS):
            await client.set_log_level(level)
            heard.logs.clear()
            assert (await report_of(client, "toggle-simulated-logging")).startswith("Started")
            if level == "debug":
                await heard.until(lambda: bool(heard.logs))
            assert (await report_of(client, "toggle-simulated-logging")).startswith("Stopped")
            assert all(LEVELS.index(log.level) >= rank for log in heard.logs)

    talk(conversation)


# Resources


def test_every_document_can_be_read(talk: Talk) -> None:
    async def conversation(client: Client, heard: Heard) -> None:
        for name in DOCUMENTS:
            uri = f"demo://resource/static/document/{name}.md"
            (contents,) = (await client.read_resource(uri)).contents
            assert (contents.uri, contents.mime_type) == (uri, "text/markdown")
            assert content_of(contents).startswith("# Everything Server")

    talk(conversation)


def test_every_template_can_be_read(talk: Talk) -> None:
    async def conversation(client: Client, heard: Heard) -> None:
        for template in TEMPLATES:
            (contents,) = (await client.read_resource(template.replace("{resourceId}", "7"))).contents
            assert content_of(contents).startswith("Resource 7: ")

    talk(conversation)


@pytest.mark.parametrize("uri", ["demo://resource/none", "demo://resource/dynamic/text/none"])
def test_unknown_resource(talk: Talk, uri: str) -> None:
    async def conversation(client: Client, heard: Heard) -> None:
        with pytest.raises(RequestError, match=uri):
            await client.read_resource(uri)

    talk(conversation)


def test_subscriptions(talk: Talk) -> None:
    one, other = (f"demo://resource/dynamic/text/{number}" for number in (1, 2))

    async def conversation(client: Client, heard: Heard) -> None:
        def updates() -> list[str]:
            return [each.uri for each in heard.told if isinstance(each, ResourceUpdatedNotification)]

        await client.subscribe_resource(one)
        await client.subscribe_resource(other)
        assert (await report_of(client, "toggle-subscriber-updates")).startswith("Started")
        await heard.until(lambda: len(updates()) == 2)
        assert sorted(updates()) == [one, other]
        assert (await report_of(client, "toggle-subscriber-updates")).startswith("Stopped")

        heard.told.clear()
        await client.unsubscribe_resource(one)
        await report_of(client, "toggle-subscriber-updates")
        await heard.until(lambda: bool(updates()))
        await report_of(client, "toggle-subscriber-updates")
        assert updates() == [other]

    talk(conversation)


# Prompts and completion


@pytest.mark.parametrize(
    ("prompt", "arguments", "text"),
    [
        ("simple-prompt", None, "This is a simple prompt without arguments."),
        ("args-prompt", {"city": "Oslo"}, "What's weather in Oslo?"),
        ("args-prompt", {"city": "Salem", "state": "Oregon"}, "What's weather in Salem, Oregon?"),
        (
            "completable-prompt",
            {"department": "Sales", "name": "Eve"},
            "Please promote Eve to the head of the Sales team.",
        ),
    ],
)
def test_text_prompts(talk: Talk, prompt: str, arguments: dict[str, str] | None, text: str) -> None:
    async def conversation(client: Client, heard: Heard) -> None:
        (message,) = (await client.get_prompt(prompt, arguments)).messages
        assert (message.role, message.content) == ("user", TextContent(text))

    talk(conversation)


@pytest.mark.parametrize("kind", ["Text", "Blob"])
def test_prompt_with_embedded_resource(talk: Talk, kind: str) -> None:
    async def conversation(client: Client, heard: Heard) -> None:
        asked = {"resourceType": kind, "resourceId": "5"}
        _, message = (await client.get_prompt("resource-prompt", asked)).messages
        assert isinstance(message.content, EmbeddedResource)
        assert content_of(message.content.resource).startswith("Resource 5: ")

    talk(conversation)


@pytest.mark.parametrize(
    ("prompt", "arguments"),
    [("none", {}), ("args-prompt", {}), ("resource-prompt", {"resourceType": "None", "resourceId": "1"})],
)
def test_unknown_prompt(talk: Talk, prompt: str, arguments: dict[str, str]) -> None:
    async def conversation(client: Client, heard: Heard) -> None:
        with pytest.raises(RequestError):
            await client.get_prompt(prompt, arguments)

    talk(conversation)


@pytest.mark.parametrize(
    ("reference", "argument", "value", "chosen", "values"),
    [
        (PromptReference("completable-prompt"), "department", "S", None, ("Sales", "Support")),
        (PromptReference("completable-prompt"), "name", "", {"department": "Sales"}, ("David", "Eve", "Frank")),
        (PromptReference("completable-prompt"), "name", "K", {"department": "Support"}, ("Kim",)),
        (PromptReference("completable-prompt"), "name", "", None, ()),
        (PromptReference("resource-prompt"), "resourceType", "B", None, ("Blob",)),
        (PromptReference("resource-prompt"), "resourceId", "12", None, ("12",)),
        *[(ResourceTemplateReference(template), "resourceId", "3", None, ("3",)) for template in sorted(TEMPLATES)],
        *[(ResourceTemplateReference(template), "resourceId", "x", None, ()) for template in sorted(TEMPLATES)],
    ],
)
def test_completion(
    talk: Talk,
    reference: PromptReference | ResourceTemplateReference,
    argument: str,
    value: str,
    chosen: dict[str, str] | None,
    values: tuple[str, ...],
) -> None:
    async def conversation(client: Client, heard: Heard) -> None:
        completion = (await client.complete(reference, argument, value, chosen=chosen)).completion
        assert (completion.values, completion.total, completion.has_more) == (values, len(values), False)

    talk(conversation)
