from __future__ import annotations

from typing import Any

import pytest
from linked import Link

from mcpio.app.context import Context
from mcpio.app.server import Server
from mcpio.errors import ErrorCode, InvalidMessage, RequestError
from mcpio.types import (
    EmbeddedResource,
    GetPromptResult,
    ImageContent,
    PromptArgument,
    PromptMessage,
    TextContent,
    TextResourceContents,
    Tool,
)

both = pytest.mark.parametrize("later", [False, True], ids=["at once", "later"])
IMAGE = ImageContent("AAAA", "image/png")
ANSWER = PromptMessage("assistant", TextContent("Gladly."))
RESOURCE = EmbeddedResource(TextResourceContents("notes://a", "text", "text/plain"))


def giving(value: Any, *, later: bool = False) -> Link:
    server = Server("s")

    def at_once() -> Any:
        """Say it."""
        return value

    async def in_a_task() -> Any:
        """Say it."""
        return value

    server.prompt(in_a_task if later else at_once, name="say")
    return Link(server, era="handshake")


def user(content: Any) -> PromptMessage:
    return PromptMessage("user", content)


@both
@pytest.mark.req("PROM-04")
@pytest.mark.parametrize(
    ("value", "messages"),
    [
        ("Hello", (user(TextContent("Hello")),)),
        (IMAGE, (user(IMAGE),)),
        (RESOURCE, (user(RESOURCE),)),
        (RESOURCE.resource, (user(RESOURCE),)),
        (ANSWER, (ANSWER,)),
        (["Hello", ANSWER, IMAGE], (user(TextContent("Hello")), ANSWER, user(IMAGE))),
        ([], ()),
    ],
)
def test_messages_of_each_return_value(later: bool, value: Any, messages: Any) -> None:
    link = giving(value, later=later)
    assert link.do(link.client.get_prompt("say")) == GetPromptResult(messages, "Say it.")
    assert link.reports == []


def test_prompt_result_is_sent_unchanged() -> None:
    result = GetPromptResult((ANSWER,), "Another")
    link = giving(result)
    assert link.do(link.client.get_prompt("say")) == result


@both
@pytest.mark.req("PROM-05")
@pytest.mark.parametrize(
    ("value", "fault"),
    [
        (None, "prompt say: a message must be text, content or a PromptMessage, not None"),
        ({"a": 1}, "prompt say: a message must be text, content or a PromptMessage, not {'a': 1}"),
        (["Hello", 5], "prompt say: a message must be text, content or a PromptMessage, not 5"),
        (Tool("a", {}), "the result must be text, a content block or plain data, not a Tool"),
    ],
)
def test_prompt_returning_other_types_is_an_internal_error(later: bool, value: Any, fault: str) -> None:
    link = giving(value, later=later)
    with pytest.raises(RequestError, match=r"^Internal error \(-32603\)$"):
        link.do(link.client.get_prompt("say"))
    assert link.reports == ["the handler of prompts/get 'say' failed"]
    assert str(link.errors[0]) == fault


@pytest.mark.req("PROM-08")
@pytest.mark.parametrize("wrap", [lambda resource: resource, user])
def test_resource_in_a_prompt_needs_a_mime_type(wrap: Any) -> None:
    link = giving(wrap(EmbeddedResource(TextResourceContents("notes://a", "text"))))
    with pytest.raises(RequestError, match="Internal error"):
        link.do(link.client.get_prompt("say"))
    assert str(link.errors[0]) == "prompt say: a resource in a prompt must have a mime_type, not None"


# Arguments


def reviewing() -> Link:
    server = Server("s")

    @server.prompt
    def review(code: str, ctx: Context, lines: int = 10, strict: bool = False) -> str:
        """Review code.

        Args:
            code: What to review.
            lines: How many lines.
        """
        return f"{code} {lines} {strict} {ctx.state}"

    return Link(server, state="ada", era="handshake")


def text_of(result: GetPromptResult) -> str:
    (message,) = result.messages
    assert isinstance(message.content, TextContent)
    return message.content.text


@pytest.mark.req("PROM-02")
def test_prompt_arguments_are_listed() -> None:
    link = reviewing()
    (shown,) = link.do(link.client.list_prompts()).prompts
    assert shown.description == "Review code."
    assert shown.arguments == (
        PromptArgument("code", "What to review.", True),
        PromptArgument("lines", "How many lines.", False),
        PromptArgument("strict", None, False),
    )


@pytest.mark.req("PROM-03")
@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"code": "5"}, "5 10 False ada"),
        ({"code": "x", "lines": "7", "strict": "true"}, "x 7 True ada"),
    ],
)
def test_prompt_arguments_are_strings(arguments: Any, text: str) -> None:
    link = reviewing()
    assert text_of(link.do(link.client.get_prompt("review", arguments))) == text


@pytest.mark.req("PROM-05", "PROM-06")
@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        (None, "arguments: missing argument code"),
        ({"code": "x", "lines": "many"}, 'arguments.lines: expected an integer, got "many"'),
        ({"code": "x", "more": "y"}, 'arguments: unknown argument "more"'),
    ],
)
def test_invalid_prompt_arguments_are_a_protocol_error(arguments: Any, fault: str) -> None:
    link = reviewing()
    with pytest.raises(RequestError) as caught:
        link.do(link.client.get_prompt("review", arguments))
    assert caught.value.code == ErrorCode.INVALID_PARAMS
    assert caught.value.message.startswith(f"Invalid arguments for review: {fault}")
    assert caught.value.data["path"].startswith("arguments")
    assert link.reports == []


@pytest.mark.req("PROM-05")
def test_unknown_prompt_is_a_protocol_error() -> None:
    link = reviewing()
    with pytest.raises(RequestError, match=r"^Unknown prompt: other \(-32602\)$"):
        link.do(link.client.get_prompt("other"))


@pytest.mark.req("PROM-05")
def test_exception_inside_a_prompt_is_an_internal_error() -> None:
    server = Server("s")

    @server.prompt
    def fail() -> str:
        raise InvalidMessage("inside", "not theirs")

    link = Link(server)
    with pytest.raises(RequestError, match=r"^Internal error \(-32603\)$"):
        link.do(link.client.get_prompt("fail"))
    assert link.reports == ["the handler of prompts/get 'fail' failed"]
