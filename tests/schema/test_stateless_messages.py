"""What the two engines say to each other in a stateless conversation, held to the official schema of 2026-07-28."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import jsonschema
from stateless import INFO, MODERN

from mcpio.engine.client import ClientConnection
from mcpio.engine.options import Options
from mcpio.engine.server import ServerConnection
from mcpio.errors import RequestError
from mcpio.events import RequestReceived
from mcpio.types import ElicitFormRequest, ElicitResult, ElicitSchema
from mcpio.types.base import InputRequiredResult
from mcpio.types.features import (
    CallToolRequest,
    CallToolResult,
    ClientCapabilities,
    CompleteRequest,
    CompleteResult,
    Completion,
    CompletionArgument,
    ElicitationCapability,
    GetPromptRequest,
    GetPromptResult,
    ListPromptsRequest,
    ListPromptsResult,
    ListResourcesRequest,
    ListResourcesResult,
    ListResourceTemplatesRequest,
    ListResourceTemplatesResult,
    ListToolsRequest,
    ListToolsResult,
    LoggingMessageNotification,
    PromptReference,
    PromptsCapability,
    ReadResourceRequest,
    ReadResourceResult,
    ResourcesCapability,
    ResourceUpdatedNotification,
    ServerCapabilities,
    SubscriptionFilter,
    SubscriptionsListenRequest,
    SubscriptionsListenResult,
    ToolListChangedNotification,
    ToolsCapability,
)

SCHEMA: dict[str, Any] = json.loads((Path(os.environ["MCPIO_SCHEMA_DIR"]) / "2026-07-28" / "schema.json").read_text())
OFFERS = ServerCapabilities(
    tools=ToolsCapability(True),
    prompts=PromptsCapability(True),
    resources=ResourcesCapability(True, True),
    completions={},
    logging={},
)
DECLARED = ClientCapabilities(elicitation=ElicitationCapability())
FORM = ElicitFormRequest("m", ElicitSchema({}))
FILTER = SubscriptionFilter(True, None, None, ("a:b",))

EXCHANGES: list[tuple[Any, Any]] = [
    (ListToolsRequest(), ListToolsResult(())),
    (CallToolRequest("x"), CallToolResult(())),
    (CallToolRequest("x"), InputRequiredResult({"k": FORM}, "s")),
    (CallToolRequest("x", input_responses={"k": ElicitResult("decline")}, request_state="s"), CallToolResult(())),
    (CallToolRequest("x"), RequestError(-32021, "m", {"requiredCapabilities": {"roots": {}}})),
    (CallToolRequest("x"), RequestError(-32022, "m", {"supported": ["2026-07-28"], "requested": "x"})),
    (ListPromptsRequest(), ListPromptsResult(())),
    (GetPromptRequest("p"), GetPromptResult(())),
    (ListResourcesRequest(), ListResourcesResult(())),
    (ListResourceTemplatesRequest(), ListResourceTemplatesResult(())),
    (ReadResourceRequest("a:b"), ReadResourceResult((), ttl_ms=5, cache_scope="public")),
    (CompleteRequest(PromptReference("p"), CompletionArgument("a", "b")), CompleteResult(Completion(()))),
]


def definition(name: str) -> dict[str, Any]:
    return {"$schema": SCHEMA["$schema"], "$defs": SCHEMA["$defs"], "$ref": f"#/$defs/{name}"}


def check(message: dict[str, Any], role: str, asked: dict[int, str]) -> None:
    if "method" in message:
        kind = "Request" if "id" in message else "Notification"
        jsonschema.validate(message, definition(f"JSONRPC{kind}"))
        jsonschema.validate(message, definition(f"{role}{kind}"))
        if kind == "Request":
            asked[message["id"]] = message["method"]
    elif "error" in message:
        jsonschema.validate(message, definition("JSONRPCErrorResponse"))
        named = {-32021: "MissingRequiredClientCapabilityError", -32022: "UnsupportedProtocolVersionError"}
        jsonschema.validate(message, definition(named[message["error"]["code"]]))
    else:
        jsonschema.validate(message, definition("JSONRPCResultResponse"))
        jsonschema.validate(message["result"], definition("ServerResult"))


def pump(source: Any, target: Any, role: str, asked: dict[int, str]) -> list[Any]:
    """Pass on what one side has to say, checked; return the events of the other."""
    for chunk in source.data_to_send(10**9):
        check(json.loads(chunk), role, asked)
        target.receive_data(chunk, 0.0)
    return list(target.events())


def test_every_message_of_a_stateless_conversation_follows_the_official_schema() -> None:
    options = Options(revisions=MODERN)
    client = ClientConnection(INFO, DECLARED, options=options)
    server = ServerConnection(INFO, OFFERS, instructions="i", options=options)
    asked: dict[int, str] = {}
    client.negotiate(0.0)
    pump(client, server, "Client", asked)
    pump(server, client, "Server", asked)
    client.log_level = "info"
    for request, answer in EXCHANGES:
        client.send_request(request, 0.0, progress=True)
        (event,) = pump(client, server, "Client", asked)
        assert isinstance(event, RequestReceived)
        server.send_progress(event.id, 1, 2, "half")
        server.send_notification(LoggingMessageNotification("error", {"a": 1}), related_to=event.id)
        if isinstance(answer, RequestError):
            server.send_error(event.id, answer)
        else:
            server.send_result(event.id, answer)
        pump(server, client, "Server", asked)
    for ends_here in (False, True):
        id = client.send_request(SubscriptionsListenRequest(FILTER), 0.0, timeout=None)
        (event,) = pump(client, server, "Client", asked)
        assert isinstance(event, RequestReceived)
        server.acknowledge(event.id, FILTER)
        server.send_notification(ToolListChangedNotification(), related_to=event.id)
        server.send_notification(ResourceUpdatedNotification("a:b"), related_to=event.id)
        names = [type(each).__name__ for each in pump(server, client, "Server", asked)]
        assert names == ["SubscriptionAcknowledged", "SubscriptionNotified", "SubscriptionNotified"]
        if ends_here:
            server.send_result(event.id, SubscriptionsListenResult())
            names = [type(each).__name__ for each in pump(server, client, "Server", asked)]
            assert names == ["ResponseReceived", "MessageIgnored"]
        else:
            assert client.cancel_request(id)
            list(client.events())
            pump(client, server, "Client", asked)
    assert set(asked.values()) >= {"server/discover", "subscriptions/listen", "tools/call"}
    assert client.pending.outgoing == ()
    assert server.pending.incoming == ()
