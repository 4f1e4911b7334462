from __future__ import annotations

import operator
import types
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import pytest
from hypothesis import given
from hypothesis import strategies as st
from normal import normal
from unchecked import unchecked

import mcpio.types
from mcpio.codec import Codec, codec
from mcpio.errors import InvalidMessage
from mcpio.methods import METHODS
from mcpio.revisions import REV_2024_11_05, REV_2025_06_18, REV_2025_11_25, REV_2026_07_28, REVISIONS, Revision
from mcpio.types import (
    AudioContent,
    CallToolRequest,
    CallToolResult,
    CancelledNotification,
    CompleteRequest,
    CreateMessageRequest,
    CreateMessageResult,
    CustomRequest,
    ElicitFormRequest,
    ElicitRequest,
    ElicitResult,
    ElicitSchema,
    EmbeddedResource,
    GetPromptRequest,
    GetPromptResult,
    InputRequiredResult,
    ListToolsResult,
    MalformedItem,
    PromptMessage,
    ReadResourceResult,
    Root,
    SamplingMessage,
    Task,
    TextContent,
    TextResourceContents,
    Tool,
    ToolUseContent,
    UnknownContent,
)
from mcpio.types._fields import Choice, Embedded, Member, OneOrMore, Payload, Unknown, members

D = codec(REV_2025_11_25)
BLOCKS = "TextContent or ImageContent or AudioContent or ResourceLink or EmbeddedResource or UnknownContent"

PAYLOADS: list[type[Payload]] = [
    found
    for found in (getattr(mcpio.types, name) for name in mcpio.types.__all__)
    if isinstance(found, type) and issubclass(found, Payload) and found is not Payload
]


# What a message may hold, by the types of its members


# Samples rather than strategies for what is passed through: making values, not converting them, takes the time here.
JSON = st.sampled_from(
    [None, True, 0, -1, 2**70, 0.5, -1e300, "", "text", "\u00e9", [], [1, [None]], {}, {"a": {"b": [0]}}]
)
OBJECTS = st.sampled_from([{}, {"a": 1}, {"a": None, "b c": [{}], "": {"a": "x"}}])
TEXTS = st.sampled_from(["", "a", "two words", "\u00e9\n", "5"])
CHECKED = ["", "file:///a", "aGk=", "image/png", "2025-01-12", "https://a/b.png", "data:,a"]
UNKNOWN: st.SearchStrategy[dict[str, Any]] = st.sampled_from(
    [{}, {}, {"unknown": None}, {"x-y": [1], "": {"a": 1}}, {"execution ": 0}]
)
PLAIN: dict[Any, st.SearchStrategy[Any]] = {
    str: TEXTS,
    bool: st.booleans(),
    int: st.sampled_from([0, 5, -(2**70)]),
    float: st.sampled_from([0, 0.5, 1]),  # within the limits that some have
    types.NoneType: st.none(),
    Any: JSON,
    Mapping[str, Any]: OBJECTS,
}


def raw_values(type_: Any, revision: Revision) -> st.SearchStrategy[Any]:
    """Return a strategy for the JSON values that are of a type in a revision."""
    if isinstance(type_, type) and issubclass(type_, Payload):
        return raw_objects(type_, revision)
    if type_ in PLAIN:
        return PLAIN[type_]
    if isinstance(type_, type) and issubclass(type_, Unknown):
        return st.fixed_dictionaries({"type": st.just("another kind")}, optional={"data": JSON})
    origin, arguments = get_origin(type_), get_args(type_)
    if origin is Literal:
        return st.sampled_from(arguments)
    if origin is tuple:
        return st.lists(raw_values(arguments[0], revision), max_size=2)
    if origin is Mapping:
        return st.dictionaries(TEXTS, raw_values(arguments[1], revision), max_size=2)
    if origin is Annotated and isinstance(arguments[1], OneOrMore) and revision < arguments[1].since:
        return raw_values(arguments[1].item, revision)
    if origin is Annotated and isinstance(arguments[1], Embedded):
        return embedded(revision, is_request=arguments[1].is_request)
    if origin is Annotated:
        return raw_values(arguments[0], revision)
    assert origin in (Union, types.UnionType), type_
    choices = [
        one for one in arguments if not (isinstance(one, type) and issubclass(one, Payload)) or exists(one, revision)
    ]
    return st.one_of([raw_values(one, revision) for one in choices])


def embedded(revision: Revision, *, is_request: bool) -> st.SearchStrategy[dict[str, Any]]:
    methods = [method for method in METHODS.values() if method.embedded]
    if not is_request:
        return st.one_of([raw_objects(method.result_type, revision) for method in methods])
    asked = [
        st.fixed_dictionaries(
            {"method": st.just(method.name), "params": raw_objects(method.params_type, revision).filter(bool)}
        )
        for method in methods
    ]
    return st.one_of([*asked, st.just({"method": "roots/list"})])


USE = ToolUseContent("1", "add", {})
RESOURCE = EmbeddedResource(TextResourceContents("a:b", ""))


def raw_objects(cls: type[Payload], revision: Revision) -> st.SearchStrategy[dict[str, Any]]:
    known = STRATEGIES.get((cls, revision.name))
    if known is None:
        known = STRATEGIES[cls, revision.name] = new_raw_objects(cls, revision)
    return known


STRATEGIES: dict[tuple[type[Payload], str], st.SearchStrategy[dict[str, Any]]] = {}


def new_raw_objects(cls: type[Payload], revision: Revision) -> st.SearchStrategy[dict[str, Any]]:
    if cls.__subclasses__() and cls.CHOICE is not None and "CHOICE" in vars(cls):
        return st.one_of([raw_objects(one, revision) for one in cls.__subclasses__() if exists(one, revision)])
    required: dict[str, Any] = {name: st.just(getattr(cls, name)) for name in cls.CONSTANTS}
    optional: dict[str, Any] = {}
    for member in members(cls):
        if member.exists_in(revision):
            needed = member.needed_in(revision) or member.wire.always or member.wire.required
            values = values_of(member, revision)
            (required if needed else optional)[member.name] = values
    known = st.fixed_dictionaries(required, optional=optional)
    names = {*required, *optional}
    unknown = UNKNOWN.map(lambda found: {name: value for name, value in found.items() if name not in names})
    return st.builds(operator.or_, known, unknown)


def values_of(member: Member, revision: Revision) -> st.SearchStrategy[Any]:
    if member.attribute == "output_schema" and revision <= member.wire.check_until:
        return st.sampled_from([{"type": "object"}, {"type": "object", "a": None}])
    if member.wire.check is not None and member.annotation.startswith("str"):
        return st.sampled_from([text for text in CHECKED if member.wire.check(text) is None])
    return st.deferred(lambda: raw_values(member.type_in(revision), revision))


def exists(cls: type[Payload], revision: Revision) -> bool:
    return cls.SINCE <= revision <= cls.UNTIL


FEATURES = sorted({cls.__module__ for cls in PAYLOADS})


def classes(feature: str, revision: Revision) -> list[type[Payload]]:
    return [cls for cls in PAYLOADS if cls.__module__ == feature and exists(cls, revision)]


@pytest.mark.req("RPC-17")
@pytest.mark.parametrize("feature", FEATURES)
@given(st.data())
def test_round_trip_loses_nothing(feature: str, data: st.DataObject) -> None:
    """What comes in goes out as it came, in every type and revision, unknown members at every depth included."""
    revision = data.draw(st.sampled_from([one for one in REVISIONS if classes(feature, one)]))
    cls = data.draw(st.sampled_from(classes(feature, revision)))
    raw = data.draw(raw_objects(cls, revision))
    odd: list[str] = []
    payload = codec(revision).decode(raw, cls, odd)
    assert normal(codec(revision).encode(payload)) == normal(raw)
    assert odd == []
    assert codec(revision).decode(raw, cls) == payload


@pytest.mark.parametrize("revision", REVISIONS)
@given(st.data())
def test_decoding_anything_raises_only_invalid_message(revision: Revision, data: st.DataObject) -> None:
    """Any JSON value is read or refused; what is read goes out again, unless that is forbidden."""
    cls = data.draw(st.sampled_from(PAYLOADS))
    names = [*(member.name for member in members(cls)), *cls.CONSTANTS, "type", "x"]
    constants = [getattr(cls, name) for name in cls.CONSTANTS] or ["x"]
    values = st.sampled_from(constants) | JSON | OBJECTS | st.lists(OBJECTS, max_size=2)
    raw: Any = data.draw(JSON | st.dictionaries(st.sampled_from(names), values, max_size=6))
    payload = read_or_refused(raw, cls, revision)
    if payload is not None:
        written = written_or_refused(payload, revision)
        always = {member.name for member in members(cls) if member.wire.always}
        kept = {name: value for name, value in normal(raw).items() if name not in always}
        assert written is None or kept.items() <= normal(written).items()


def read_or_refused(raw: Any, cls: type[Payload], revision: Revision) -> Payload | None:
    try:
        return codec(revision).decode(raw, cls)
    except InvalidMessage as error:
        # A plain `raise` would do: what matters is that it says where and what.
        return None if error.revision == revision.name and error.reason else pytest.fail(str(error))


def written_or_refused(payload: Payload, revision: Revision) -> dict[str, Any] | None:
    try:
        return codec(revision).encode(payload)
    except InvalidMessage as error:
        expected = error.reason.startswith("must ") or isinstance(payload, CancelledNotification)
        return None if expected else pytest.fail(str(error))


# The rest in particular


def test_codec_of_a_revision_is_cached() -> None:
    assert codec(REV_2025_06_18) is codec(REV_2025_06_18)
    assert codec(REV_2025_06_18) is not codec(REV_2025_11_25)
    assert codec(REV_2025_06_18).revision is REV_2025_06_18


def test_separate_codec_behaves_the_same() -> None:
    raw = {"name": "echo", "arguments": {}}
    own = Codec(REV_2025_11_25)
    for _ in range(2):
        assert own.encode(own.decode(raw, CallToolRequest)) == raw


@pytest.mark.parametrize(
    ("raw", "cls", "path", "reason"),
    [
        ({"name": 5}, CallToolRequest, "name", "expected a string, got a number"),
        ([], CallToolRequest, "", "expected an object, got an array"),
        (
            {"messages": [{"role": "user", "content": {"type": "text"}}], "maxTokens": 1},
            CreateMessageRequest,
            "messages[0].content.text",
            "missing",
        ),
        ({"content": {}}, CallToolResult, "content", "expected an array, got an object"),
        ({"content": [5]}, CallToolResult, "content[0]", "expected an object, got a number"),
        (
            {"contents": [{"uri": "a:b"}]},
            ReadResourceResult,
            "contents[0]",
            "has none of the known shapes",
        ),
        (
            {"name": "a", "arguments": {"x y": 5}},
            GetPromptRequest,
            "arguments['x y']",
            "expected a string, got a number",
        ),
        (
            {"ref": {"type": "ref/tool"}, "argument": {"name": "a", "value": ""}},
            CompleteRequest,
            "ref.type",
            "'ref/tool' is not known here",
        ),
        (
            {"ref": {"name": "a"}, "argument": {"name": "a", "value": ""}},
            CompleteRequest,
            "ref.type",
            "missing",
        ),
        ({"requestId": 1.0}, CancelledNotification, "requestId", "expected an integer or a string, got a number"),
        ({"action": "accept", "content": {"a": [5]}}, ElicitResult, "content.a[0]", "expected a string, got a number"),
        (
            {"role": "robot", "content": {}},
            SamplingMessage,
            "role",
            "expected one of 'assistant', 'user', got 'robot'",
        ),
        ({"tools": [], "nextCursor": 5}, ListToolsResult, "nextCursor", "expected a string, got a number"),
        ({"tools": 5}, ListToolsResult, "tools", "expected an array, got a number"),
        (5, ListToolsResult, "", "expected an object, got a number"),
    ],
)
def test_fault_names_place_and_reason(raw: Any, cls: type[Payload], path: str, reason: str) -> None:
    with pytest.raises(InvalidMessage) as caught:
        D.decode(raw, cls)
    assert (caught.value.path, caught.value.reason, caught.value.revision) == (path, reason, "2025-11-25")
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    ("payload", "path", "reason"),
    [
        (unchecked(CallToolRequest("a"), name=5), "name", "expected a string, got a number"),
        (CallToolResult(("hi",)), "content[0]", f"expected {BLOCKS}, got a string"),  # type: ignore[arg-type]  # wrong on purpose
        (unchecked(CallToolResult(()), content="hi"), "content", "expected an array, got a string"),
        (CallToolResult((unchecked(TextContent("a"), text=5),)), "content[0].text", "expected a string, got a number"),
        (CallToolResult((Root("file:///a"),)), "content[0]", f"expected {BLOCKS}, got a Root"),  # type: ignore[arg-type]  # likewise
        (CallToolResult((USE,)), "content[0]", f"expected {BLOCKS}, got a ToolUseContent"),  # type: ignore[arg-type]  # likewise
        (
            GetPromptResult((unchecked(PromptMessage("user", TextContent("a")), content=USE),)),
            "messages[0].content",
            f"expected {BLOCKS}, got a ToolUseContent",
        ),
        (unchecked(SamplingMessage("user", ()), content=RESOURCE), "content", None),
        (
            unchecked(EmbeddedResource(TextResourceContents("a:b", "")), resource=Root("file:///a")),
            "resource",
            "expected TextResourceContents or BlobResourceContents, got a Root",
        ),
        (5, "", "expected a payload, got a number"),
        (None, "", "expected a payload, got null"),
        (Task("1", "lost", "", "", None), "status", None),  # type: ignore[arg-type]  # likewise
        (ElicitRequest("Who?"), "", "ElicitRequest is only a base: use one of its subclasses"),
        (
            ElicitFormRequest("Who?", ElicitSchema({"a b": 5})),  # type: ignore[dict-item]  # likewise
            "requestedSchema.properties['a b']",
            None,
        ),
        (InputRequiredResult(request_state="x"), "", "InputRequiredResult does not exist in 2025-11-25"),
    ],
)
@pytest.mark.req("TOOL-08", "SAMP-04")
def test_payload_inexpressible_in_the_revision_is_refused(payload: Any, path: str, reason: str | None) -> None:
    with pytest.raises(InvalidMessage) as caught:
        D.encode(payload)
    assert caught.value.path == path
    assert reason is None or caught.value.reason == reason
    assert caught.value.revision == "2025-11-25"


TOOL = {"name": "a", "inputSchema": {}}


@pytest.mark.req("CONT-04")
@pytest.mark.parametrize(
    ("raw", "cls", "dropped"),
    [
        ({"content": [], "isError": None}, CallToolResult, "CallToolResult.isError: expected a boolean, got null"),
        ({"content": [], "isError": "no"}, CallToolResult, "CallToolResult.isError: expected a boolean, got a string"),
        (
            {"content": [], "structuredContent": None},
            CallToolResult,
            "CallToolResult.structuredContent: expected an object, got null",
        ),
        (
            {"content": [], "structuredContent": []},
            CallToolResult,
            "CallToolResult.structuredContent: expected an object, got an array",
        ),
        ({"content": [], "_meta": None}, CallToolResult, "CallToolResult._meta: expected an object, got null"),
        (
            {"role": "assistant", "content": [], "model": "m", "stopReason": 5},
            CreateMessageResult,
            "CreateMessageResult.stopReason: expected a string, got a number",
        ),
        ({"name": "a", "_meta": None}, CallToolRequest, "CallToolRequest._meta: expected an object, got null"),
    ],
)
def test_optional_member_of_the_wrong_type_is_dropped_and_reported(
    raw: dict[str, Any], cls: type[Payload], dropped: str
) -> None:
    odd: list[str] = []
    read = D.decode(raw, cls, odd)
    (name,) = read.extra
    assert read == D.decode({key: value for key, value in raw.items() if key != name}, cls).__class__(
        **{one.attribute: getattr(read, one.attribute) for one in members(cls)}, extra={name: raw[name]}
    )
    assert odd == [dropped]
    assert D.encode(read) == raw


@pytest.mark.req("CONT-04", "META-01")
@pytest.mark.parametrize("odd_member", [{"_meta": None}, {"annotations": []}, {"outputSchema": "x"}, {"icons": [5]}])
def test_malformed_optional_member_keeps_its_tool(odd_member: dict[str, Any]) -> None:
    odd: list[str] = []
    page = D.decode({"tools": [TOOL, {**TOOL, **odd_member}, {}]}, ListToolsResult, odd)
    assert page.tools == (Tool("a", {}), Tool("a", {}, extra=odd_member))
    assert [bad.index for bad in page.malformed] == [2]
    assert len(odd) == 1


@pytest.mark.parametrize(
    ("raw", "cls", "path"),
    [
        ({"name": "a", "arguments": []}, CallToolRequest, "arguments"),
        ({"name": "a", "_meta": []}, CallToolRequest, "_meta"),
        ({"requestId": 1, "reason": 5}, CancelledNotification, "reason"),
        ({"messages": [], "maxTokens": 1, "temperature": "hot"}, CreateMessageRequest, "temperature"),
        ({"messages": [], "maxTokens": 1, "toolChoice": {"mode": "maybe"}}, CreateMessageRequest, "toolChoice.mode"),
        ({"messages": [], "maxTokens": 1, "tools": [{**TOOL, "outputSchema": 5}]}, CreateMessageRequest, None),
    ],
)
def test_requests_and_notifications_are_decoded_strictly(
    raw: dict[str, Any], cls: type[Payload], path: str | None
) -> None:
    odd: list[str] = []
    with pytest.raises(InvalidMessage) as caught:
        D.decode(raw, cls, odd)
    assert path in {None, caught.value.path}
    assert odd == []


@pytest.mark.req("CONT-04", "CAP-01")
def test_descriptions_inside_requests_are_decoded_tolerantly() -> None:
    text = {"type": "text", "text": "hi", "annotations": {"audience": "user", "priority": 1}}
    raw = {"messages": [{"role": "user", "content": text}], "maxTokens": 1, "modelPreferences": {"hints": "fast"}}
    odd: list[str] = []
    request = D.decode(raw, CreateMessageRequest, odd)
    assert [type(block) for block in request.messages[0].blocks] == [TextContent]
    assert [one.partition(":")[0] for one in odd] == ["Annotations.audience", "ModelPreferences.hints"]
    assert D.encode(request) == raw


@pytest.mark.parametrize("revision", [REV_2025_11_25, REV_2026_07_28])
def test_strict_member_of_a_result_of_the_wrong_type_is_refused(revision: Revision) -> None:
    with pytest.raises(InvalidMessage, match=r"^nextCursor: "):
        codec(revision).decode({"tools": [], "nextCursor": 5}, ListToolsResult)
    with pytest.raises(InvalidMessage, match=r"^content: "):
        codec(revision).decode({"action": "accept", "content": 5}, ElicitResult)
    with pytest.raises(InvalidMessage, match=r"^resultType: "):
        codec(REV_2026_07_28).decode({"content": [], "resultType": 5}, CallToolResult)


def test_report_of_dropped_members_is_bounded() -> None:
    raw = {"content": [{"type": "text"}] * 1000}
    odd: list[str] = []
    assert len(D.decode(raw, CallToolResult, odd).content) == 1000
    assert odd == ["TextContent.text: missing"] * 20


def test_class_unknown_to_the_revision_is_refused() -> None:
    with pytest.raises(InvalidMessage, match=r"^InputRequiredResult does not exist in 2025-11-25$"):
        D.decode({"requestState": "s"}, InputRequiredResult)


def test_choice_depends_on_the_revision() -> None:
    raw = {"type": "audio", "data": "", "mimeType": "x/y"}
    (block,) = codec(REV_2024_11_05).decode({"content": [raw]}, CallToolResult).content
    assert block == UnknownContent("audio", raw)
    assert D.decode({"content": [raw]}, CallToolResult).content == (AudioContent("", "x/y"),)


def test_base_class_decodes_to_its_subclasses() -> None:
    read = D.decode({"message": "Who?", "requestedSchema": {"type": "object", "properties": {}}}, ElicitRequest)
    assert type(read) is ElicitFormRequest


def test_list_in_place_of_a_tuple_is_encoded() -> None:
    block = EmbeddedResource(TextResourceContents("a:b", "hi"))
    written = D.encode(CallToolResult([block]))  # type: ignore[arg-type]  # a caller without a type checker
    assert written == {"content": [{"type": "resource", "resource": {"uri": "a:b", "text": "hi"}}]}


def test_malformed_items_are_set_aside_only_if_the_list_is_valid() -> None:
    raw = {"tools": [5, {"name": "a", "inputSchema": {}}], "_meta": {"x": 1}}
    page = D.decode(raw, ListToolsResult)
    assert page == ListToolsResult(
        (Tool("a", {}),),
        malformed=(MalformedItem(0, 5, "expected an object, got a number"),),
        meta={"x": 1},
    )
    assert D.encode(page) == raw


def test_one_or_more() -> None:
    several = SamplingMessage("user", (TextContent("a"), TextContent("b")))
    one = SamplingMessage("user", (TextContent("a"),))
    assert [block["text"] for block in D.encode(several)["content"]] == ["a", "b"]
    assert D.encode(one)["content"]["text"] == "a"
    assert codec(REV_2025_06_18).encode(one)["content"]["text"] == "a"
    assert D.encode(SamplingMessage("user", TextContent("a")))["content"]["text"] == "a"
    with pytest.raises(InvalidMessage, match=r"^content: has 2 items: before 2025-11-25 it is a single one$"):
        codec(REV_2025_06_18).encode(several)
    with pytest.raises(InvalidMessage, match=r"^content\[1\]: expected TextContent or .*, got null$"):
        D.encode(SamplingMessage("user", (TextContent("a"), None)))  # type: ignore[arg-type]  # wrong on purpose


def test_null_is_kept_as_a_value() -> None:
    raw = {"taskId": "1", "status": "working", "createdAt": "", "lastUpdatedAt": "", "ttl": None}
    assert D.encode(D.decode(raw, Task)) == raw


def test_encoding_returns_a_new_object() -> None:
    request = CallToolRequest("echo", {"text": "hi"}, meta={"a": 1})
    written = D.encode(request)
    written["name"] = "other"
    written["_meta"] = {**written["_meta"], "progressToken": 5}
    assert D.encode(request) == {"name": "echo", "arguments": {"text": "hi"}, "_meta": {"a": 1}}


def test_any_mapping_is_converted() -> None:
    raw = types.MappingProxyType({"name": "echo", "arguments": types.MappingProxyType({"a": 1})})
    request = D.decode(raw, CallToolRequest)
    assert type(D.encode(request)["arguments"]) is dict
    assert D.encode(CustomRequest("x/y", types.MappingProxyType({"a": 1}))) == {"a": 1}


def test_subclass_of_a_payload_is_converted() -> None:
    class Loud(CallToolRequest):
        pass

    read = D.decode({"name": "echo"}, Loud)
    assert type(read) is Loud
    assert D.encode(read) == {"name": "echo"}


def test_choice_without_member_and_unknown_is_refused() -> None:
    assert Choice(lambda raw: None).member is None
    assert codec(REV_2026_07_28).encode(InputRequiredResult(request_state="x"))["resultType"] == "input_required"
