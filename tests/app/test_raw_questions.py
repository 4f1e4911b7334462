"""Rules of the requests that a server sends its client: each side of ours towards a peer that a test plays."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from rawpeer import Played, played_client, played_server

from mcpio import Context, Server
from mcpio.app.asking import Accepted
from mcpio.app.client import Client, client_connection
from mcpio.types import (
    CreateMessageRequest,
    CreateMessageResult,
    ElicitFormRequest,
    ElicitResult,
    EmbeddedResource,
    ImageContent,
    ModelHint,
    ModelPreferences,
    ResourceLink,
    Root,
    SamplingMessage,
    TextContent,
    TextResourceContents,
    UnknownSchema,
)

TEXT = {"type": "text", "text": "hi"}
IMAGE = {"type": "image", "data": "aGk=", "mimeType": "image/png"}
AUDIO = {"type": "audio", "data": "aGk=", "mimeType": "audio/wav"}
ASKED = {"maxTokens": 10, "messages": [{"role": "user", "content": TEXT}]}


def sample(_: Any, __: CreateMessageRequest) -> CreateMessageResult:
    return CreateMessageResult("assistant", TextContent("yes"), "small", stop_reason="endTurn")


CALLBACKS: dict[str, Any] = {
    "sampling": sample,
    "roots": [Root("file:///a", "A")],
    "elicitation": lambda _, __: ElicitResult("decline"),
}
QUESTIONS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "sampling": (
        "sampling/createMessage",
        ASKED,
        {
            "role": "assistant",
            "content": {"type": "text", "text": "yes"},
            "model": "small",
            "stopReason": "endTurn",
        },
    ),
    "roots": ("roots/list", {}, {"roots": [{"uri": "file:///a", "name": "A"}]}),
    "elicitation": (
        "elicitation/create",
        {"message": "Who?", "requestedSchema": {"type": "object", "properties": {}}},
        {"action": "decline"},
    ),
}


def hello_of(**options: Any) -> dict[str, Any]:
    """Return the capabilities that a client declares."""
    connection = client_connection(era="handshake", **options)
    played: Played[Client] = Played(connection)
    played.session = Client(connection, played, era="handshake", **options)
    played.start(played.session.initialize())
    declared: dict[str, Any] = played.asked("initialize")["params"]["capabilities"]
    return declared


@pytest.mark.req("SAMP-01", "SAMP-03", "ROOT-01", "ROOT-05", "ELIC-01", "ELIC-10", "ELIC-23")
@pytest.mark.parametrize("what", QUESTIONS)
def test_client_answers_only_questions_that_it_declared(what: str) -> None:
    method, params, result = QUESTIONS[what]
    assert what in hello_of(**{what: CALLBACKS[what]})
    assert what not in hello_of()
    asked = played_client({}, **{what: CALLBACKS[what]})
    asked.say({"id": "q", "method": method, "params": params})
    assert asked.got() == [{"jsonrpc": "2.0", "id": "q", "result": result}]
    silent = played_client({})
    silent.say({"id": "q", "method": method, "params": params})
    (answer,) = silent.got()
    assert answer["error"]["code"] == -32601


@pytest.mark.req("SAMP-04")
@pytest.mark.parametrize(
    ("revision", "content", "is_taken"),
    [
        ("2024-11-05", TEXT, True),
        ("2024-11-05", IMAGE, True),
        ("2025-03-26", AUDIO, True),
        ("2025-06-18", [TEXT], False),
        ("2025-11-25", [TEXT, IMAGE, AUDIO], True),
        ("2025-11-25", {"type": "image", "data": "aGk="}, False),
    ],
)
def test_client_takes_the_contents_that_a_revision_allows_in_messages(
    revision: str, content: Any, is_taken: bool
) -> None:
    peer = played_client({}, revision, sampling=sample)
    params = {"maxTokens": 10, "messages": [{"role": "user", "content": content}]}
    peer.say({"id": "q", "method": "sampling/createMessage", "params": params})
    (answer,) = peer.got()
    assert answer.get("error", {}).get("code") == (None if is_taken else -32602)


@pytest.mark.req("SAMP-04")
@pytest.mark.parametrize(
    ("content", "text"),
    [
        (TextContent("hi"), "yes"),
        (ImageContent("aGk=", "image/png"), "yes"),
        (ResourceLink(uri="file:///a", name="a"), "'show' failed"),
        (EmbeddedResource(TextResourceContents("file:///a", "x")), "'show' failed"),
    ],
    ids=["text", "image", "link", "resource"],
)
def test_server_asks_a_model_by_no_resources(content: Any, text: str) -> None:
    server = Server("showing")

    @server.tool
    async def show(ctx: Context) -> str:
        found = await ctx.sample(CreateMessageRequest((SamplingMessage("user", content),), 10))
        return str(getattr(found.content, "text", ""))

    peer = played_server(server, {"sampling": {}})
    peer.say({"id": 1, "method": "tools/call", "params": {"name": "show"}})
    (message,) = peer.got()
    if message.get("method") == "sampling/createMessage":
        assert message["params"]["messages"][0]["content"]["type"] in ("text", "image")
        peer.answer(message, **QUESTIONS["sampling"][2])
        (message,) = peer.got()
    assert message["result"]["content"][0]["text"].startswith(text)


@pytest.mark.req("SAMP-03")
@pytest.mark.parametrize(
    "wrong",
    [{"role": "system"}, {"content": 5}, {"model": None}],
    ids=["role", "content", "model"],
)
def test_server_refuses_a_sampled_message_that_breaks_the_schema(wrong: dict[str, Any]) -> None:
    answer = answered({"sampling": {}}, {**QUESTIONS["sampling"][2], **wrong})
    assert answer.startswith("'ask' failed: InvalidMessage")


@pytest.mark.req("SAMP-03", "SAMP-17")
@pytest.mark.parametrize("reason", ["endTurn", "stopSequence", "maxTokens", "x-other"])
def test_server_takes_any_reason_to_stop(reason: str) -> None:
    assert answered({"sampling": {}}, {**QUESTIONS["sampling"][2], "stopReason": reason}) == f"yes small {reason}"


@pytest.mark.req("SAMP-17")
def test_client_gives_the_preferences_of_the_server_to_the_program() -> None:
    seen: list[CreateMessageRequest] = []

    def choose(_: Any, request: CreateMessageRequest) -> CreateMessageResult:
        seen.append(request)
        return sample(_, request)

    peer = played_client({}, sampling=choose)
    preferences = {"hints": [{"name": "small"}, {}], "costPriority": 0.5, "speedPriority": 1}
    peer.say({"id": 1, "method": "sampling/createMessage", "params": {**ASKED, "modelPreferences": preferences}})
    assert [request.model_preferences for request in seen] == [
        ModelPreferences((ModelHint("small"), ModelHint()), cost_priority=0.5, speed_priority=1)
    ]


FIELDS: dict[str, tuple[dict[str, Any], Any, Any]] = {
    "number": ({"type": "number", "title": "N", "minimum": 1, "maximum": 2.5}, 1.5, 3),
    "integer": ({"type": "integer", "description": "n", "minimum": 1}, 2, 2.5),
    "whole number as a float": ({"type": "integer"}, 2.0, "2"),
    "boolean": ({"type": "boolean", "default": True}, False, 0),
    "names of an enumeration": ({"type": "string", "enum": ["a", "b"], "enumNames": ["A", "B"]}, "b", "A"),
    "enumeration": ({"type": "string", "enum": ["a", "b"]}, "a", "c"),
    "titles": ({"type": "string", "oneOf": [{"const": "a", "title": "A"}]}, "a", "A"),
    "several": ({"type": "array", "items": {"type": "string", "enum": ["a", "b"]}, "minItems": 1}, ["a"], []),
    "several titles": (
        {"type": "array", "items": {"anyOf": [{"const": "a", "title": "A"}]}, "maxItems": 1},
        ["a"],
        ["a", "a"],
    ),
}


@pytest.mark.req("ELIC-06", "ELIC-07", "ELIC-08", "ELIC-10", "ELIC-12")
@pytest.mark.parametrize("field", FIELDS)
def test_client_answers_a_form_only_by_what_fits_it(field: str) -> None:
    schema, good, bad = FIELDS[field]
    form = {"message": "?", "requestedSchema": {"type": "object", "properties": {"x": schema}, "required": ["x"]}}
    for value, fits in ((good, True), (bad, False)):
        peer = played_client({}, elicitation=lambda _, __, value=value: ElicitResult("accept", {"x": value}))
        peer.say({"id": "q", "method": "elicitation/create", "params": form})
        (answer,) = peer.got()
        if fits:
            assert answer["result"] == {"action": "accept", "content": {"x": value}}
        else:
            assert answer["error"]["code"] == -32603


@pytest.mark.req("ELIC-06", "ELIC-07", "ELIC-08")
@pytest.mark.parametrize("field", FIELDS)
def test_client_reads_every_kind_of_field(field: str) -> None:
    seen: list[Any] = []

    def look(_: Any, request: Any) -> ElicitResult:
        assert isinstance(request, ElicitFormRequest)
        seen.append(request.requested_schema.properties["x"])
        return ElicitResult("cancel")

    peer = played_client({}, elicitation=look)
    form = {"message": "?", "requestedSchema": {"type": "object", "properties": {"x": FIELDS[field][0]}}}
    peer.say({"id": 1, "method": "elicitation/create", "params": form})
    assert peer.got() == [{"jsonrpc": "2.0", "id": 1, "result": {"action": "cancel"}}]
    assert not isinstance(seen[0], UnknownSchema)


@pytest.mark.req("ELIC-09")
def test_client_fills_in_the_defaults_of_fields_that_were_left_out() -> None:
    fields = {
        "name": {"type": "string", "default": "Ada"},
        "age": {"type": "integer", "default": 3},
        "sizes": {"type": "array", "items": {"type": "string", "enum": ["s", "l"]}, "default": ["s"]},
        "mail": {"type": "string"},
    }
    peer = played_client({}, elicitation=lambda _, __: ElicitResult("accept", {"age": 4}))
    form = {"message": "?", "requestedSchema": {"type": "object", "properties": fields}}
    peer.say({"id": 1, "method": "elicitation/create", "params": form})
    (answer,) = peer.got()
    assert answer["result"]["content"] == {"name": "Ada", "age": 4, "sizes": ["s"]}


@attrs.frozen
class Seat:
    row: int
    by_window: bool = True


@pytest.mark.req("ELIC-06", "ELIC-10", "ELIC-11", "ELIC-12")
@pytest.mark.parametrize(
    ("result", "text"),
    [
        ({"action": "accept", "content": {"row": 4}}, "Accepted 4"),
        ({"action": "decline"}, "Declined"),
        ({"action": "cancel"}, "Cancelled"),
        ({"action": "accept", "content": {"row": "4"}}, "'book' failed: InvalidMessage"),
        ({"action": "accept"}, "'book' failed: InvalidMessage"),
        ({"action": "agree", "content": {"row": 4}}, "'book' failed: InvalidMessage"),
    ],
)
def test_server_distinguishes_the_answers_to_a_form(result: dict[str, Any], text: str) -> None:
    assert answered({"elicitation": {}}, result, "book").startswith(text)


@pytest.mark.req("ELIC-06", "ELIC-01")
def test_server_sends_the_schema_of_a_form() -> None:
    peer = played_server(asking(), {"elicitation": {}})
    peer.say({"id": 1, "method": "tools/call", "params": {"name": "book"}})
    assert peer.asked("elicitation/create")["params"] == {
        "message": "Which seat?",
        "requestedSchema": {
            "type": "object",
            "properties": {"row": {"type": "integer"}, "by_window": {"type": "boolean", "default": True}},
            "required": ["row"],
        },
    }


def asking() -> Server:
    server = Server("asking")

    @server.tool
    async def ask(ctx: Context) -> str:
        request = CreateMessageRequest((SamplingMessage("user", TextContent("hi")),), 10)
        found = await ctx.sample(request)
        assert isinstance(found.content, TextContent)
        return f"{found.content.text} {found.model} {found.stop_reason}"

    @server.tool
    async def book(ctx: Context) -> str:
        found = await ctx.elicit("Which seat?", Seat)
        return f"Accepted {found.value.row}" if isinstance(found, Accepted) else type(found).__name__

    return server


def answered(capabilities: dict[str, Any], result: dict[str, Any], tool: str = "ask") -> str:
    """Call a tool whose question has that answer, and return the text of its result."""
    peer = played_server(asking(), capabilities)
    peer.say({"id": 1, "method": "tools/call", "params": {"name": tool}})
    (question,) = peer.got()
    peer.answer(question, **result)
    (answer,) = peer.got()
    text: str = answer["result"]["content"][0]["text"]
    return text
