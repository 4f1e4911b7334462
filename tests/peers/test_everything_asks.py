"""Our client and the reference server ``server-everything``: all that it asks, and tasks on both sides."""

from __future__ import annotations

import json
from typing import Any

import pytest
import trio
from everything import ASKING_TOOLS, PLAIN_TOOLS, Heard, Talk, report_of, text_of

from mcpio import CallToolRequest, Client, ClientCapabilities, RequestCancelled, TextContent
from mcpio.app import ClientOptions, TaskOptions
from mcpio.errors import SamplingRejected, URLElicitationRequired
from mcpio.types import (
    CreateMessageRequest,
    CreateMessageResult,
    ElicitAction,
    ElicitationCapability,
    ElicitFormRequest,
    ElicitResult,
    ElicitURLRequest,
    Root,
    TaskStatusNotification,
)


class Answers:
    """What answers the server's questions, and what it asked."""

    def __init__(self, form: ElicitResult | None = None, visit: ElicitAction = "accept") -> None:
        self.asked: list[Any] = []
        self._form = form or ElicitResult("accept", {"name": "Ada"})
        self._visit = visit

    def options(self) -> ClientOptions:
        return {
            "sampling": self.sample,
            "elicitation": self.elicit,
            "tasks": TaskOptions(poll_interval=0.1),
            "capabilities": ClientCapabilities(elicitation=ElicitationCapability(form={}, url={})),
        }

    def sample(self, scope: object, request: CreateMessageRequest) -> CreateMessageResult:
        self.asked.append(request)
        if "no" in content_text(request):
            raise SamplingRejected
        return CreateMessageResult("assistant", TextContent("4"), "a-model", "endTurn")

    async def elicit(self, scope: object, request: ElicitFormRequest | ElicitURLRequest) -> ElicitResult:
        self.asked.append(request)
        if isinstance(request, ElicitURLRequest):
            return ElicitResult(self._visit)
        return self._form


def content_text(request: CreateMessageRequest) -> str:
    (block,) = request.messages[0].blocks
    assert isinstance(block, TextContent)
    return block.text


def test_more_tools_for_a_client_with_capabilities(talk: Talk) -> None:
    async def conversation(client: Client, heard: Heard) -> None:
        assert {tool.name async for tool in client.tools()} == PLAIN_TOOLS | ASKING_TOOLS

    options: ClientOptions = {**Answers().options(), "roots": []}
    talk(conversation, **options)


def test_roots(talk: Talk) -> None:
    async def conversation(client: Client, heard: Heard) -> None:
        def updates() -> list[Any]:
            return [log.data for log in heard.logs if "Roots updated" in str(log.data)]

        await heard.until(lambda: len(updates()) == 1)
        assert "1. first\n   URI: file:///a" in await report_of(client, "get-roots-list")
        client.set_roots([Root("file:///b"), Root("file:///c", "third")])
        await heard.until(lambda: len(updates()) == 2)
        report = await report_of(client, "get-roots-list")
        assert "1. Unnamed Root\n   URI: file:///b" in report
        assert "2. third\n   URI: file:///c" in report

    talk(conversation, roots=[Root("file:///a", "first")])


def test_sampling(talk: Talk) -> None:
    answers = Answers()

    async def conversation(client: Client, heard: Heard) -> None:
        report = await report_of(client, "trigger-sampling-request", {"prompt": "2+2?", "maxTokens": 7})
        said = json.loads(report.removeprefix("LLM sampling result: "))
        assert said["content"] == {"type": "text", "text": "4"}
        assert (said["role"], said["model"], said["stopReason"]) == ("assistant", "a-model", "endTurn")
        (request,) = answers.asked
        assert content_text(request) == "Resource trigger-sampling-request context: 2+2?"
        assert (request.system_prompt, request.max_tokens) == ("You are a helpful test server.", 7)
        assert request.temperature == 0.7

        refused = await client.call_tool("trigger-sampling-request", {"prompt": "no"})
        assert refused.is_error
        assert "User rejected sampling request" in refused.text

    talk(conversation, **answers.options())


@pytest.mark.parametrize(
    ("answer", "report"),
    [
        (ElicitResult("accept", {"name": "Ada", "integer": 7}), "✅ User provided"),
        (ElicitResult("decline"), "❌ User declined"),
        (ElicitResult("cancel"), "⚠️ User cancelled"),
    ],
)
def test_elicitation_by_form(talk: Talk, answer: ElicitResult, report: str) -> None:
    answers = Answers(answer)

    async def conversation(client: Client, heard: Heard) -> None:
        said, *_, raw = (await client.call_tool("trigger-elicitation-request")).content
        assert isinstance(said, TextContent)
        assert isinstance(raw, TextContent)
        assert said.text.startswith(report)
        sent = json.loads(raw.text.partition("Raw result: ")[2])
        (request,) = answers.asked
        assert request.requested_schema.required == ("name",)
        if answer.action == "accept":
            # What the user left alone is filled in with the form's defaults.
            assert sent["content"] == {**FORM_DEFAULTS, "name": "Ada", "integer": 7}
        else:
            assert sent == {"action": answer.action}

    talk(conversation, **answers.options())


FORM_DEFAULTS = {
    "firstLine": "It was a dark and stormy night.",
    "integer": 42,
    "number": 3.14,
    "untitledSingleSelectEnum": "Monica",
    "untitledMultipleSelectEnum": ["Guitar"],
    "titledSingleSelectEnum": "hero-1",
    "titledMultipleSelectEnum": ["fish-1"],
    "legacyTitledEnum": "pet-1",
}


@pytest.mark.parametrize(
    ("action", "report"),
    [
        ("accept", "✅ User completed the URL elicitation flow."),
        ("decline", "❌ User declined to open the URL"),
        ("cancel", "⚠️ User cancelled the URL elicitation"),
    ],
)
def test_elicitation_by_url(talk: Talk, action: ElicitAction, report: str) -> None:
    answers = Answers(visit=action)

    async def conversation(client: Client, heard: Heard) -> None:
        asked = {"url": "https://a.example/form", "message": "Please sign.", "elicitationId": "this"}
        assert report in await report_of(client, "trigger-url-elicitation", asked)
        (request,) = answers.asked
        assert (request.url, request.message, request.elicitation_id) == tuple(asked.values())

    talk(conversation, **answers.options())


def test_url_elicitation_required_error(talk: Talk) -> None:
    answers = Answers()

    async def conversation(client: Client, heard: Heard) -> None:
        asked = {"url": "https://a.example/form", "errorPath": True}
        with pytest.raises(URLElicitationRequired) as caught:
            await client.call_tool("trigger-url-elicitation", asked)
        (needed,) = caught.value.elicitations
        assert needed.url == "https://modelcontextprotocol.io"
        assert answers.asked == []
        assert "✅ User completed" in await report_of(client, "trigger-url-elicitation", asked)

    talk(conversation, **answers.options())


# Tasks. What it does as a task takes seconds by design, so that it is all done at once.


def test_tasks_on_both_sides(talk: Talk) -> None:
    answers = Answers(ElicitResult("accept", {"name": "Ada", "interpretation": "snake"}))

    async def conversation(client: Client, heard: Heard) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(be_asked_as_tasks, client)
            nursery.start_soon(research, client)
            nursery.start_soon(research_what_is_unclear, client, heard)
            nursery.start_soon(give_research_up, client)
        statuses = sorted([task.status async for task in client.tasks()])
        assert statuses == ["cancelled", "completed", "completed"]

    talk(conversation, **answers.options())


async def be_asked_as_tasks(client: Client) -> None:
    report = await report_of(client, "trigger-sampling-request-async", {"prompt": "2+2?"})
    assert report.startswith("[COMPLETED] Async sampling completed!")
    assert '"text": "4"' in report
    report = await report_of(client, "trigger-elicitation-request-async")
    assert report.startswith("[COMPLETED] User provided the requested information!")
    assert "- Name: Ada" in report


async def research(client: Client) -> None:
    """Call a tool that must be a task: the client finds that out by itself."""
    assert (await report_of(client, "simulate-research-query", {"topic": "rivers"})).startswith(
        "# Research Report: rivers\n"
    )


async def research_what_is_unclear(client: Client, heard: Heard) -> None:
    """Begin a task, watch it, and be asked in the middle of it."""
    request = CallToolRequest("simulate-research-query", {"topic": "python", "ambiguous": True})
    task = await client.start_task(request)
    assert task.last is not None
    assert task.last.status == "working"
    assert task.last.poll_interval == 1000
    assert "# Research Report: python (snake)" in text_of(await task.result())
    assert (await client.get_task(task.id)).status == "completed"
    assert text_of(await client.task_result(task.id)) == text_of(await task.result())
    told = {each.status for each in heard.told if isinstance(each, TaskStatusNotification) and each.task_id == task.id}
    assert told == {"working", "input_required", "completed"}


async def give_research_up(client: Client) -> None:
    task = await client.start_task(CallToolRequest("simulate-research-query", {"topic": "lakes"}))
    assert (await task.cancel()).status == "cancelled"
    with pytest.raises(RequestCancelled):
        await task.result()
