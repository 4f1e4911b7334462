from __future__ import annotations

from typing import Any

import pytest

from mcpio.app.asking.rules import (
    advice_on_sampling,
    fault_in_elicitation,
    fault_in_elicited,
    fault_in_sampled,
    fault_in_sampling,
)
from mcpio.events import RequestContext
from mcpio.revisions import REV_2025_06_18, REV_2025_11_25, Era, Revision
from mcpio.types import (
    ClientCapabilities,
    CreateMessageRequest,
    CreateMessageResult,
    ElicitationCapability,
    ElicitFormRequest,
    ElicitRequest,
    ElicitResult,
    ElicitSchema,
    ElicitURLRequest,
    Implementation,
    SamplingCapability,
    SamplingMessage,
    TextContent,
    Tool,
    ToolChoice,
    ToolResultContent,
    ToolUseContent,
)

PLAIN = ClientCapabilities(sampling=SamplingCapability())
WITH_TOOLS = ClientCapabilities(sampling=SamplingCapability(tools={}))
TEXT = TextContent("text")


def use(id: str) -> ToolUseContent:
    return ToolUseContent(id, "tool", {})


def result(id: str) -> ToolResultContent:
    return ToolResultContent(id, (TEXT,))


def user(*content: Any) -> SamplingMessage:
    return SamplingMessage("user", content)


def assistant(*content: Any) -> SamplingMessage:
    return SamplingMessage("assistant", content)


@pytest.mark.req("SAMP-05", "SAMP-06")
@pytest.mark.parametrize(
    "wants", [{"tools": (Tool("a", {"type": "object"}),)}, {"tools": ()}, {"tool_choice": ToolChoice()}]
)
def test_tools_need_their_capability(wants: dict[str, Any]) -> None:
    request = CreateMessageRequest((user(TEXT),), 10, **wants)
    assert fault_in_sampling(request, PLAIN) == (
        "tools and toolChoice need the capability sampling.tools, which the client did not declare"
    )
    assert fault_in_sampling(request, WITH_TOOLS) is None


MIXED = "Tool results mixed with other content"
MISSING = "Tool result missing in request"
STRAY = "Tool result without a tool use"


@pytest.mark.req("SAMP-09", "SAMP-10", "TOOL-24")
@pytest.mark.parametrize(
    ("messages", "fault"),
    [
        ([], None),
        ([SamplingMessage("user", TEXT)], None),
        ([user(TEXT), assistant(TEXT)], None),
        ([user(TEXT), assistant(TEXT, use("1")), user(result("1")), assistant(TEXT)], None),
        ([assistant(use("1"), use("2")), user(result("2"), result("1"))], None),
        ([assistant(use("1")), user(result("1"), TEXT)], MIXED),
        ([assistant(use("1")), assistant(result("1"))], MIXED),
        ([assistant(use("1"))], MISSING),
        ([assistant(use("1")), user(TEXT)], MISSING),
        ([assistant(use("1"), use("2")), user(result("1"))], MISSING),
        ([assistant(use("1")), user(TEXT), user(result("1"))], MISSING),
        ([user(result("1"))], STRAY),
        ([assistant(use("1")), user(result("1"), result("2"))], STRAY),
    ],
)
def test_tool_results_follow_their_uses(messages: list[SamplingMessage], fault: str | None) -> None:
    assert fault_in_sampling(CreateMessageRequest(tuple(messages), 10), PLAIN) == fault


TOOLS = (Tool("a", {"type": "object"}),)


def asks(mode: Any, tools: Any = TOOLS) -> CreateMessageRequest:
    choice = None if mode is ... else ToolChoice(mode)
    return CreateMessageRequest((user(TEXT),), 10, tools=tools, tool_choice=choice)


@pytest.mark.req("SAMP-08")
@pytest.mark.parametrize(
    ("request_", "content", "stop", "fault"),
    [
        (asks(...), TEXT, None, None),
        (asks(...), use("1"), None, None),
        (asks(None), (TEXT, use("1"), use("2")), None, None),
        (asks("auto"), use("1"), None, None),
        (asks("required"), use("1"), None, None),
        (asks("none"), TEXT, None, None),
        (asks("required"), TEXT, "maxTokens", None),
        (asks("required"), TEXT, "endTurn", "the model uses no tool where it must"),
        (asks("none"), use("1"), None, "the model uses a tool where it may use none"),
        (asks(..., None), use("1"), None, "the model uses a tool where it may use none"),
        (asks(..., ()), use("1"), None, "the model uses a tool where it may use none"),
        (asks(...), result("1"), None, "a model has no tool results to give"),
    ],
)
def test_a_model_uses_tools_as_it_is_told(request_: Any, content: Any, stop: Any, fault: str | None) -> None:
    assert fault_in_sampled(CreateMessageResult("assistant", content, "model", stop), request_) == fault


def peer(capability: SamplingCapability, revision: Revision = REV_2025_11_25) -> RequestContext:
    capabilities = ClientCapabilities(sampling=capability)
    return RequestContext(Era.HANDSHAKE, revision, capabilities, Implementation("c", "1"), None, None, None)


@pytest.mark.req("SAMP-07")
@pytest.mark.parametrize(
    ("wants", "to", "advised"),
    [
        (None, peer(SamplingCapability()), False),
        ("none", peer(SamplingCapability()), False),
        ("thisServer", peer(SamplingCapability()), True),
        ("allServers", peer(SamplingCapability(tools={})), True),
        ("allServers", peer(SamplingCapability(context={})), False),
        ("allServers", peer(SamplingCapability(), REV_2025_06_18), False),
    ],
)
def test_context_of_servers_is_for_who_declared_it(wants: Any, to: RequestContext, advised: bool) -> None:
    request = CreateMessageRequest((user(TEXT),), 10, include_context=wants)
    assert (advice_on_sampling(request, to) is not None) is advised


FORM = ElicitFormRequest("hi", ElicitSchema({}))
URL = ElicitURLRequest("hi", "https://example.com", "1")


@pytest.mark.req("ELIC-01", "ELIC-02")
@pytest.mark.parametrize(
    ("declared", "form", "url"),
    [
        (None, False, False),
        (ElicitationCapability(), True, False),
        (ElicitationCapability(form={}), True, False),
        (ElicitationCapability(url={}), False, True),
        (ElicitationCapability(form={}, url={}), True, True),
    ],
)
def test_a_mode_needs_its_capability(declared: ElicitationCapability | None, form: bool, url: bool) -> None:
    capabilities = ClientCapabilities(elicitation=declared)
    for request, mode, allowed in ((FORM, "form", form), (URL, "url", url), (ElicitRequest("hi"), "form", form)):
        fault = f"mode {mode} needs the capability elicitation.{mode}, which the client did not declare"
        assert fault_in_elicitation(request, capabilities) == (None if allowed else fault)


@pytest.mark.req("ELIC-10", "ELIC-15")
@pytest.mark.parametrize(
    ("result", "request_", "fine"),
    [
        (ElicitResult("accept", {"a": 1}), FORM, True),
        (ElicitResult("accept"), FORM, True),
        (ElicitResult("accept"), URL, True),
        (ElicitResult("decline"), FORM, True),
        (ElicitResult("accept", {"a": 1}), URL, False),
        (ElicitResult("decline", {"a": 1}), FORM, False),
        (ElicitResult("cancel", {}), FORM, False),
    ],
)
def test_only_an_accepted_form_has_content(result: ElicitResult, request_: ElicitRequest, fine: bool) -> None:
    assert (fault_in_elicited(result, request_) is None) is fine
