"""A server that has everything the official conformance suite asks of one: ``python server.py --port 8000``."""

from __future__ import annotations

import argparse
import base64
import contextlib
from functools import partial
from typing import Any

import attrs
import trio

from mcpio import Context, Server, ToolError
from mcpio.app import Accepted, TaskOptions
from mcpio.errors import CapabilityMissing, RequestError
from mcpio.trio import run_tasks, serve_http
from mcpio.types import (
    AudioContent,
    BooleanSchema,
    CreateMessageRequest,
    ElicitFormRequest,
    ElicitSchema,
    EmbeddedResource,
    ImageContent,
    LegacyTitledEnumSchema,
    MultiSelectItems,
    NumberSchema,
    PrimitiveSchema,
    PromptMessage,
    SamplingMessage,
    StringSchema,
    TextContent,
    TextResourceContents,
    TitledChoice,
    TitledItems,
    TitledMultiSelectEnumSchema,
    TitledSingleSelectEnumSchema,
    UntitledMultiSelectEnumSchema,
    UntitledSingleSelectEnumSchema,
)

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
"""A picture of one pixel."""

WAV = bytes.fromhex("524946462600000057415645666d74201000000001000100401f0000803e000002001000646174610200000000 00")
"""One sample of silence."""

server = Server(
    "everything",
    "1.0.0",
    title="What the conformance suite asks for",
    tasks=TaskOptions(task_after=0.1, poll_interval=0.1),
)


def main() -> None:
    """Serve until the process is ended."""
    parser = argparse.ArgumentParser(description="Serve what the official conformance suite asks for.")
    parser.add_argument("--port", type=int, default=8000, help="0 for any that is free")
    trio.run(serve, parser.parse_args().port)


async def serve(port: int) -> None:
    """Serve, and print the URL when clients can come."""
    async with trio.open_nursery() as nursery:
        await nursery.start(run_tasks, server)
        listening = await nursery.start(partial(serve_http, server, port=port))
        print(listening.url, flush=True)


# Tools


@server.tool
def test_simple_text() -> str:
    """Return some text."""
    return "This is a simple text response for testing."


@server.tool
def test_image_content() -> ImageContent:
    """Return an image."""
    return ImageContent(base64.b64encode(PNG).decode(), "image/png")


@server.tool
def test_audio_content() -> AudioContent:
    """Return sound."""
    return AudioContent(base64.b64encode(WAV).decode(), "audio/wav")


@server.tool
def test_embedded_resource() -> EmbeddedResource:
    """Return a resource in the message itself."""
    return embedded("test://embedded-resource")


@server.tool(structured=False)
def test_multiple_content_types() -> list[Any]:
    """Return content of several kinds."""
    return [TextContent("Several kinds of content:"), test_image_content(), embedded("test://mixed-content")]


@server.tool
async def test_tool_with_logging(ctx: Context) -> str:
    """Log while it runs."""
    for step in ("started", "processing", "completed"):
        ctx.info(f"Tool execution {step}")
        await trio.sleep(0.05)
    return "Logged three messages."


@server.tool
def test_error_handling() -> str:
    """Fail."""
    raise ToolError("This tool intentionally returns an error for testing")


@server.tool
async def test_tool_with_progress(ctx: Context) -> str:
    """Report progress while it runs."""
    for percent in (0, 50, 100):
        ctx.progress(percent, 100, f"Completed {percent} of 100")
        await trio.sleep(0.05)
    return "Reported progress three times."


@server.tool
async def test_sampling(prompt: str, ctx: Context) -> str:
    """Ask the client's model."""
    answer = await ctx.sample(CreateMessageRequest((SamplingMessage("user", TextContent(prompt)),), 100))
    return f"LLM response: {answer.content}"


@server.tool
async def test_elicitation(message: str, ctx: Context) -> str:
    """Ask the user."""
    fields = {"username": StringSchema(title="User name"), "email": StringSchema(title="Email", format="email")}
    answer = await ctx.elicit(ElicitFormRequest(message, ElicitSchema(fields, ("username", "email"))))
    return f"User response: {answer.action}, {answer.content}"


@server.tool
async def test_elicitation_sep1034_defaults(ctx: Context) -> str:
    """Ask the user by a form whose fields have defaults."""
    fields: dict[str, PrimitiveSchema] = {
        "name": StringSchema(default="John Doe"),
        "age": NumberSchema("integer", default=30),
        "score": NumberSchema(default=95.5),
        "status": UntitledSingleSelectEnumSchema(("active", "inactive", "pending"), default="active"),
        "verified": BooleanSchema(default=True),
    }
    answer = await ctx.elicit(ElicitFormRequest("Please review and update these values", ElicitSchema(fields)))
    return f"Elicitation completed: {answer.action}, {answer.content}"


@server.tool
async def test_elicitation_sep1330_enums(ctx: Context) -> str:
    """Ask the user to choose, in all five ways."""
    fields: dict[str, PrimitiveSchema] = {
        "untitledSingle": UntitledSingleSelectEnumSchema(("option1", "option2", "option3")),
        "titledSingle": TitledSingleSelectEnumSchema(titled("value")),
        "legacyEnum": LegacyTitledEnumSchema(("opt1", "opt2", "opt3"), ("Option 1", "Option 2", "Option 3")),
        "untitledMulti": UntitledMultiSelectEnumSchema(MultiSelectItems(("option1", "option2", "option3"))),
        "titledMulti": TitledMultiSelectEnumSchema(TitledItems(titled("value"))),
    }
    answer = await ctx.elicit(ElicitFormRequest("Please choose", ElicitSchema(fields)))
    return f"Elicitation completed: {answer.action}, {answer.content}"


@server.tool
async def test_reconnection(ctx: Context) -> str:
    """Have the client come back for the answer."""
    ctx.interrupt_stream(retry=0.5)
    await trio.sleep(0.1)
    return "Delivered after the stream was interrupted."


CONTACT = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}


@server.tool(input_schema=CONTACT)
def json_schema_2020_12_tool(**contact: Any) -> str:
    """Take what a schema with every keyword of JSON Schema 2020-12 describes."""
    return f"Got {contact}"


# Without a session: revision 2026-07-28


@attrs.frozen
class Person:
    """Who somebody is."""

    name: str


@attrs.frozen
class Favorite:
    """What somebody likes."""

    color: str


@attrs.frozen
class Topic:
    """What something is about."""

    context: str


@attrs.frozen
class Consent:
    """Whether to go on."""

    ok: bool = True


CAPITAL = CreateMessageRequest((SamplingMessage("user", TextContent("What is the capital of France?")),), 100)


@server.tool
async def test_input_required_result_elicitation(ctx: Context) -> str:
    """Ask the user who they are."""
    match await ctx.elicit("What is your name?", Person, key="user_name"):
        case Accepted(Person(name)):
            return f"Hello, {name}!"
    return "Hello!"


@server.tool
async def test_input_required_result_sampling(ctx: Context) -> str:
    """Ask the model."""
    return f"The model says: {(await ctx.sample(CAPITAL, key='capital_question')).text}"


@server.tool
async def test_input_required_result_list_roots(ctx: Context) -> str:
    """Ask for the roots."""
    return f"The client has {len(await ctx.roots(key='client_roots'))} roots."


@server.tool
async def test_input_required_result_request_state(ctx: Context) -> str:
    """Ask, and remember something until the answer comes."""
    number = await ctx.once("number", lambda: 42)
    answer = await ctx.elicit("Go on?", Consent, key="confirm")
    return f"state-ok: {number} was remembered, and the answer is {answer.action}."


@server.tool
async def test_input_required_result_multiple_inputs(ctx: Context) -> str:
    """Ask for everything at once."""
    flow = ctx.flow_id
    name, capital, roots = await ctx.together(
        ctx.elicit("What is your name?", Person, key="user_name"),
        ctx.sample(CAPITAL, key="capital_question"),
        ctx.roots(key="client_roots"),
    )
    return f"{name.action}, {capital.text}, {len(roots)} roots, in call {flow}."


@server.tool
async def test_input_required_result_multi_round(ctx: Context) -> str:
    """Ask twice, the second time with what the first answer says."""
    flow = ctx.flow_id
    name = await ctx.elicit("Step 1: what is your name?", Person, key="step1")
    color = await ctx.elicit(f"Step 2, after you said {name.action}: your favorite color?", Favorite, key="step2")
    return f"{name.action} and {color.action}, in call {flow}."


@server.tool
async def test_input_required_result_tampered_state(ctx: Context) -> str:
    """Ask, with a state that nobody may alter."""
    flow = ctx.flow_id
    return f"{(await ctx.elicit('Go on?', Consent, key='confirm')).action}, in call {flow}."


@server.tool
async def test_input_required_result_capabilities(ctx: Context) -> str:
    """Ask for whatever the client can answer."""
    said = []
    for ask in (lambda: ctx.elicit("What is your name?", Person), lambda: ctx.sample(CAPITAL), ctx.roots):
        with contextlib.suppress(CapabilityMissing):
            said.append(await ask())
    return f"{len(said)} answers."


@server.prompt
async def test_input_required_result_prompt(ctx: Context) -> str:
    """Ask the user what the prompt is about."""
    match await ctx.elicit("What is it about?", Topic, key="user_context"):
        case Accepted(Topic(context)):
            return f"Tell me about {context}."
    return "Tell me something."


@server.tool
async def test_missing_capability(ctx: Context) -> str:
    """Ask the model, which takes a client that has one."""
    return (await ctx.sample(CAPITAL)).text


@server.tool
async def test_streaming_elicitation(ctx: Context) -> str:
    """Ask the user, in whatever way the client's revision has."""
    return (await ctx.elicit("Go on?", Consent)).action


@server.tool
async def test_logging_tool(ctx: Context) -> str:
    """Log, for requests that ask for it."""
    ctx.info("Logged by test_logging_tool")
    return "Logged."


@server.tool
def test_trigger_tool_change() -> str:
    """Change the list of tools, and change it back."""
    server.tool(test_simple_text, name="test_temporary_tool")
    server.tools.remove("test_temporary_tool")
    return "The list of tools changed twice."


@server.tool
def test_trigger_prompt_change() -> str:
    """Change the list of prompts, and change it back."""
    server.prompt(test_simple_prompt, name="test_temporary_prompt")
    server.prompts.remove("test_temporary_prompt")
    return "The list of prompts changed twice."


REGIONAL = {
    "type": "object",
    "properties": {"region": {"type": "string", "x-mcp-header": "Region"}},
    "required": ["region"],
}


@server.tool(input_schema=REGIONAL)
def test_custom_header(region: str) -> str:
    """Take an argument that a header field repeats, for proxies."""
    return f"Served in {region}."


# Tools that run as tasks: the extension of 2026-07-28


@attrs.frozen
class Deletion:
    """Whether to delete."""

    confirm: bool


@server.tool
def greet(name: str) -> str:
    """Greet somebody, at once."""
    return f"Hello, {name}!"


@server.tool(task_support="optional")
async def slow_compute(ctx: Context, seconds: float = 1.0, label: str = "") -> str:
    """Take some time, as a task for clients that take tasks."""
    await ctx.sleep(seconds)
    return f"Computed {label or 'something'} in {seconds} seconds."


@server.tool(task_support="required")
async def failing_job(ctx: Context) -> str:
    """Fail after a while: the task is completed, by an error of the tool."""
    await ctx.sleep(1.0)
    raise ToolError("This job intentionally fails")


@server.tool(task_support="required")
async def protocol_error_job() -> str:
    """Fail by an error of the protocol: the task has failed."""
    raise RequestError(-32603, "This job intentionally ends in a protocol error")


@server.tool(task_support="required")
async def confirm_delete(filename: str, ctx: Context) -> str:
    """Ask the user inside of a task."""
    answer = await ctx.elicit(f"Delete {filename}?", Deletion)
    is_sure = isinstance(answer, Accepted) and answer.value.confirm
    return f"{filename} was {'deleted' if is_sure else 'kept'}."


@server.tool(task_support="required")
async def multi_input(ctx: Context) -> str:
    """Ask two questions at once inside of a task."""
    name, friend = await ctx.together(
        ctx.elicit("What is your name?", Person, key="name"),
        ctx.elicit("And that of your friend?", Person, key="friend"),
    )
    return f"{name.action} and {friend.action}."


@server.tool(task_support="required", becomes_task=True)
async def test_tool_with_task(ctx: Context) -> str:
    """Ask the user before the task begins."""
    answer = await ctx.elicit("What is your name?", Person, key="user_name")
    await ctx.become_task()
    return f"Hello, {answer.value.name}!" if isinstance(answer, Accepted) else "Hello!"


# Resources


@server.resource("test://static-text", mime_type="text/plain")
def static_text() -> str:
    """Return some text that never changes."""
    return "This is the content of the static text resource."


@server.resource("test://static-binary", mime_type="image/png")
def static_binary() -> bytes:
    """Return a picture that never changes."""
    return PNG


@server.resource("test://watched-resource", mime_type="text/plain")
def watched_resource() -> str:
    """Return what clients subscribe to."""
    return "This resource may change."


@server.resource("test://template/{id}/data", mime_type="application/json")
def template_data(id: str) -> dict[str, str]:
    """Return what belongs to an id."""
    return {"id": id, "data": f"Data for ID: {id}"}


# Prompts


@server.prompt
def test_simple_prompt() -> str:
    """Give a prompt without arguments."""
    return "This is a simple prompt for testing."


@server.prompt
def test_prompt_with_arguments(arg1: str, arg2: str) -> str:
    """Give a prompt with two arguments."""
    return f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"


@server.prompt
def test_prompt_with_embedded_resource(resourceUri: str) -> list[PromptMessage]:  # noqa: N803  (the suite's name)
    """Give a prompt with a resource in it."""
    request = TextContent("Please process the embedded resource above.")
    return [PromptMessage("user", embedded(resourceUri)), PromptMessage("user", request)]


@server.prompt
def test_prompt_with_image() -> list[PromptMessage]:
    """Give a prompt with an image in it."""
    request = TextContent("Please analyze the image above.")
    return [PromptMessage("user", test_image_content()), PromptMessage("user", request)]


@server.completion("arg1", prompt="test_prompt_with_arguments")
def complete_arg1(value: str) -> list[str]:
    """Suggest what begins like the text so far."""
    return [name for name in ("testing", "tester", "tomorrow") if name.startswith(value)]


def embedded(uri: str) -> EmbeddedResource:
    """Return some text as a resource inside a message."""
    return EmbeddedResource(TextResourceContents(uri, "This is an embedded resource.", "text/plain"))


def titled(name: str) -> tuple[TitledChoice, ...]:
    """Return three choices, each with a title."""
    return tuple(TitledChoice(f"{name}{number}", f"Choice {number}") for number in (1, 2, 3))


if __name__ == "__main__":
    main()
