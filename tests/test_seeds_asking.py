"""The source documents' claims on sampling, elicitation and roots (SEEDS.md), row by row, and other bad questions.

A client that can be asked everything gets the questions as they stand there; what is wrong never reaches its functions.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from linked import Link

from mcpio.app.server import Server
from mcpio.engine.table import Role
from mcpio.types import (
    ClientCapabilities,
    CreateMessageResult,
    ElicitationCapability,
    ElicitResult,
    Root,
    SamplingCapability,
    TextContent,
)

EVERYTHING = ClientCapabilities(
    sampling=SamplingCapability(tools={}, context={}), elicitation=ElicitationCapability(form={}, url={})
)
MESSAGES = [{"role": "user", "content": {"type": "text", "text": "hi"}}]
USE = {"type": "tool_use", "id": "1", "name": "search", "input": {}}
FORM = {"type": "object", "properties": {}}
VISIT = {"mode": "url", "message": "Go", "url": "https://example.com", "elicitationId": "1"}


def asked(method: str, params: Any, **options: Any) -> tuple[dict[str, Any], list[Any], Link]:
    """Ask a client; return its answer, what reached its functions, and the link."""
    seen: list[Any] = []

    def sample(_: Any, request: Any) -> CreateMessageResult:
        seen.append(request)
        return CreateMessageResult("assistant", TextContent("hello"), "model")

    def elicit(_: Any, request: Any) -> ElicitResult:
        seen.append(request)
        return ElicitResult("accept")

    given: dict[str, Any] = {"sampling": sample, "elicitation": elicit, "roots": [Root("file:///a")]}
    link = Link(Server("s"), **{"capabilities": EVERYTHING, **given, **options}, era="handshake")
    link.pair.client.receive_data(_line({"jsonrpc": "2.0", "id": "x", "method": method, "params": params}), 0)
    link.run()
    return json.loads(link.pair.sent(Role.CLIENT).splitlines()[-1]), seen, link


def _line(message: dict[str, Any]) -> bytes:
    return json.dumps(message).encode() + b"\n"


@pytest.mark.req("SAMP-02", "SAMP-13", "SAMP-14")
def test_c26_sampling_request_carries_preferences_and_limits() -> None:
    params = {
        "messages": MESSAGES,
        "modelPreferences": {"hints": [{"name": "sonnet"}], "costPriority": 0.5},
        "temperature": 0.7,
        "maxTokens": 100,
    }
    answer, (request,), _ = asked("sampling/createMessage", params)
    assert answer["result"] == {"role": "assistant", "content": {"type": "text", "text": "hello"}, "model": "model"}
    assert (request.max_tokens, request.temperature) == (100, 0.7)


@pytest.mark.req("ROOT-02")
@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("roots/list", {}),
        ("elicitation/create", {"message": "Who?", "requestedSchema": FORM}),
        ("sampling/createMessage", {"messages": MESSAGES, "maxTokens": 1}),
    ],
    ids=["C38", "C39", "C26"],
)
def test_c38_c39_server_refuses_sampling_and_elicitation(method: str, params: Any) -> None:
    link = Link(Server("s"), roots=[Root("file:///a")])
    link.pair.server.receive_data(_line({"jsonrpc": "2.0", "id": "x", "method": method, "params": params}), 0)
    link.run()
    error = json.loads(link.pair.sent(Role.SERVER).splitlines()[-1])["error"]
    assert error == {"code": -32601, "message": f"Method not found: {method}"}


@pytest.mark.req("ELIC-01", "ELIC-03", "ELIC-14")
def test_c41_elicitation_by_form_and_by_url() -> None:
    form = {"message": "Who?", "requestedSchema": FORM}
    for params in (form, {"mode": "form", **form}, VISIT):
        answer, seen, _ = asked("elicitation/create", params)
        assert answer["result"]["action"] == "accept"
        assert len(seen) == 1


@pytest.mark.req("SAMP-02", "SAMP-06", "SAMP-08", "SAMP-09", "SAMP-10", "ELIC-04", "ELIC-14", "ROOT-02")
@pytest.mark.parametrize(
    ("method", "params", "reason"),
    [
        pytest.param(
            "sampling/createMessage",
            {"conversation": [], "toolChoice": "auto", "tools": ["search"]},
            "params.messages: missing",
            id="C27",
        ),
        pytest.param(
            "sampling/createMessage",
            {"messages": MESSAGES, "maxTokens": 1, "toolChoice": "auto"},
            "params.toolChoice: expected an object",
            id="C27-choice",
        ),
        pytest.param(
            "sampling/createMessage",
            {"messages": MESSAGES, "maxTokens": 1, "tools": ["search"]},
            "params.tools[0]: expected an object",
            id="C27-tools",
        ),
        pytest.param(
            "elicitation/create",
            {"conversation": [], "request": "?", "schema": {"type": "string", "format": "password", "default": "x"}},
            "params.message: missing",
            id="C40",
        ),
        pytest.param(
            "elicitation/create",
            {"message": "?", "requestedSchema": {"type": "string", "format": "password"}},
            "params.requestedSchema",
            id="C40-schema",
        ),
        ("elicitation/create", {"message": "?"}, "params.requestedSchema: missing"),
        ("elicitation/create", {"requestedSchema": FORM}, "params.message: missing"),
        ("elicitation/create", {"mode": "voice", "message": "?", "requestedSchema": FORM}, "params.mode"),
        ("elicitation/create", {**VISIT, "url": "javascript:alert(1)"}, "a web address must begin with https://"),
        ("elicitation/create", {**VISIT, "url": 5}, "params.url: expected a string"),
        ("elicitation/create", {**VISIT, "elicitationId": None}, "params.elicitationId"),
        ("sampling/createMessage", {"messages": MESSAGES}, "params.maxTokens: missing"),
        ("sampling/createMessage", {"messages": {}, "maxTokens": 1}, "params.messages: expected an array"),
        ("sampling/createMessage", {"messages": MESSAGES, "maxTokens": "1"}, "params.maxTokens: expected an integer"),
        (
            "sampling/createMessage",
            {"messages": MESSAGES, "maxTokens": 1, "toolChoice": {"mode": "any"}},
            "params.toolChoice.mode",
        ),
        (
            "sampling/createMessage",
            {"messages": [{"role": "assistant", "content": USE}], "maxTokens": 1},
            "Tool result missing in request",
        ),
        ("roots/list", [], "params is not an object"),
    ],
)
def test_c27_c40_malformed_question_is_not_shown(method: str, params: Any, reason: str) -> None:
    answer, seen, _ = asked(method, params)
    assert answer["error"]["code"] == -32602
    assert reason in answer["error"]["message"]
    assert seen == []


@pytest.mark.req("ELIC-05")
def test_pattern_in_a_form_is_kept_and_not_evaluated() -> None:
    field = {"type": "string", "pattern": "(a+)+$"}
    answer, (request,), _ = asked(
        "elicitation/create", {"message": "?", "requestedSchema": {"type": "object", "properties": {"a": field}}}
    )
    assert answer["result"]["action"] == "accept"
    assert request.requested_schema.properties["a"].extra == {"pattern": "(a+)+$"}


@pytest.mark.req("CAP-04", "ELIC-01")
def test_b2_client_capabilities_follow_its_callbacks() -> None:
    _, _, link = asked("roots/list", {}, capabilities=None)
    first = json.loads(link.pair.sent(Role.CLIENT).splitlines()[0])
    assert first["params"]["capabilities"] == {"roots": {"listChanged": True}, "sampling": {}, "elicitation": {}}


@pytest.mark.req("CAP-04")
@pytest.mark.parametrize(
    "capabilities",
    [{"sampling": {}, "elicitation": {}}, {"roots": {"enabled": True}, "sampling": {"enabled": True}}],
    ids=["B5", "B6"],
)
def test_client_capability_declared_by_a_server_is_ignored(capabilities: dict[str, Any]) -> None:
    link = Link(Server("s"), shake_hands=False)
    shake = link.start(link.client.initialize())
    result = {
        "protocolVersion": "2025-11-25",
        "capabilities": capabilities,
        "serverInfo": {"name": "s", "version": "1"},
    }
    assert shake.state == "returned"
    other = Link(Server("s"), shake_hands=False).pair.client
    other.send_initialize(now=0.0)
    other.data_to_send()
    other.receive_data(_line({"jsonrpc": "2.0", "id": 1, "result": result}), 0.0)
    list(other.events())
    assert other.peer is not None
    assert {**other.peer.capabilities.extra} == capabilities


@pytest.mark.req("CAP-04")
@pytest.mark.parametrize("enabled", [True, False])
def test_b6_client_declares_a_capability_by_presence(enabled: bool) -> None:
    server = Server("s").connection()
    params = {
        "protocolVersion": "2025-11-25",
        "capabilities": {"roots": {"enabled": enabled}, "sampling": {"enabled": enabled}},
        "clientInfo": {"name": "c", "version": "1"},
    }
    server.receive_data(_line({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}), 0.0)
    list(server.events())
    assert server.peer is not None
    capabilities: Any = server.peer.capabilities
    assert capabilities.roots.extra == {"enabled": enabled}
    assert capabilities.sampling.extra == {"enabled": enabled}


@pytest.mark.req("ELIC-16")
@pytest.mark.parametrize("params", [{}, {"elicitationId": 5}, {"elicitationId": "unknown"}])
def test_malformed_completion_of_a_url_elicitation_is_not_reported(params: Any) -> None:
    heard: list[Any] = []
    link = Link(Server("s"), capabilities=EVERYTHING, on_notification=heard.append)
    told = {"jsonrpc": "2.0", "method": "notifications/elicitation/complete", "params": params}
    link.pair.client.receive_data(_line(told), 0)
    link.run()
    assert heard == []
