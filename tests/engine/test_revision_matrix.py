"""Every set of a client's revisions against every set of a server's, and each method and member in each revision."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from wires import INFO, one, request, sent

from mcpio.engine.client import ClientConnection
from mcpio.engine.gates import addressed_to
from mcpio.engine.options import Options
from mcpio.engine.server import ServerConnection
from mcpio.engine.table import Role
from mcpio.errors import ConnectFailed, LocalProtocolError
from mcpio.events import (
    Answered,
    CloseReason,
    ConnectionClosed,
    Initialized,
    Negotiated,
    NotificationReceived,
    RequestFailed,
    RequestReceived,
    ResponseReceived,
    VersionMismatched,
)
from mcpio.methods import METHODS, Kind, Method
from mcpio.revisions import HANDSHAKE_REVISIONS, REV_2025_03_26, REV_2025_06_18, REV_2025_11_25, Revision
from mcpio.testing import Pair, pair
from mcpio.types import (
    AudioContent,
    CallToolRequest,
    CallToolResult,
    CancelTaskRequest,
    CancelTaskResult,
    ClientCapabilities,
    ClientTasksCapability,
    CompleteRequest,
    CompleteResult,
    Completion,
    CompletionArgument,
    CompletionContext,
    CreateMessageRequest,
    CreateMessageResult,
    ElicitationCapability,
    ElicitationCompleteNotification,
    ElicitFormRequest,
    ElicitResult,
    ElicitURLRequest,
    EmptyResult,
    GetPromptRequest,
    GetPromptResult,
    GetSkillRequest,
    GetSkillResult,
    GetTaskPayloadRequest,
    GetTaskPayloadResult,
    GetTaskRequest,
    GetTaskResult,
    Icon,
    Implementation,
    ListPromptsRequest,
    ListPromptsResult,
    ListResourcesRequest,
    ListResourcesResult,
    ListResourceTemplatesRequest,
    ListResourceTemplatesResult,
    ListRootsRequest,
    ListRootsResult,
    ListSkillsRequest,
    ListSkillsResult,
    ListTasksRequest,
    ListTasksResult,
    ListToolsRequest,
    ListToolsResult,
    LoggingMessageNotification,
    PingRequest,
    Prompt,
    PromptListChangedNotification,
    PromptReference,
    PromptsCapability,
    ReadDirectoryRequest,
    ReadDirectoryResult,
    ReadResourceRequest,
    ReadResourceResult,
    Resource,
    ResourceLink,
    ResourceListChangedNotification,
    ResourcesCapability,
    ResourceUpdatedNotification,
    RootsCapability,
    RootsListChangedNotification,
    SamplingCapability,
    SamplingMessage,
    ServerCapabilities,
    ServerTasksCapability,
    SetLevelRequest,
    SkillEntry,
    SubscribeRequest,
    TaskMetadata,
    TaskStatusNotification,
    TextContent,
    Tool,
    ToolAnnotations,
    ToolListChangedNotification,
    ToolsCapability,
    UnsubscribeRequest,
)
from mcpio.types.asking import ElicitSchema
from mcpio.types.features import ToolExecution

SUBSETS = [subset for size in range(1, 5) for subset in itertools.combinations(HANDSHAKE_REVISIONS, size)]
EVERYTHING = ServerCapabilities(
    tools=ToolsCapability(True),
    resources=ResourcesCapability(True, True),
    prompts=PromptsCapability(True),
    completions={},
    logging={},
    tasks=ServerTasksCapability(list={}, cancel={}),
    extensions={"io.modelcontextprotocol/skills": {"directoryRead": True}},
)
ALL_OF_A_CLIENT = ClientCapabilities(
    roots=RootsCapability(True),
    sampling=SamplingCapability(),
    elicitation=ElicitationCapability(form={}, url={}),
    tasks=ClientTasksCapability(list={}, cancel={}),
)


def joined(of_client: tuple[Revision, ...], of_server: tuple[Revision, ...], **more: Any) -> Pair:
    """Return a client and a server that declare everything, after their handshake."""
    client = ClientConnection(
        more.get("info", INFO), more.get("client", ALL_OF_A_CLIENT), options=Options(revisions=of_client)
    )
    server = ServerConnection(
        more.get("info", INFO), more.get("server", EVERYTHING), options=Options(revisions=of_server)
    )
    link = pair(client, server)
    link.handshake()
    return link


# Negotiation


@pytest.mark.req("LIFE-03", "LIFE-04", "LIFE-05", "LIFE-06", "LIFE-23")
@pytest.mark.parametrize("of_server", SUBSETS, ids=lambda subset: "/".join(map(str, subset)))
def test_roles_agree_on_a_common_revision_or_disconnect(of_server: tuple[Revision, ...]) -> None:
    for of_client in SUBSETS:
        link = joined(of_client, of_server)
        asked = max(of_client)
        answered = asked if asked in of_server else max(of_server)
        assert json.loads(link.sent(Role.CLIENT).splitlines()[0])["params"]["protocolVersion"] == asked.name
        assert json.loads(link.sent(Role.SERVER).splitlines()[0])["result"]["protocolVersion"] == answered.name
        if answered in of_client:
            assert link.client.revision is link.server.revision is answered
            assert [type(event) for event in link.client_events] == [Negotiated]
            assert [type(event) for event in link.server_events] == [Negotiated, Initialized]
        else:
            failed, mismatched, closed = link.client_events
            assert isinstance(failed, RequestFailed)
            assert isinstance(failed.error, ConnectFailed)
            assert mismatched == VersionMismatched(asked.name, answered.name)
            assert isinstance(closed, ConnectionClosed)
            assert closed.reason is CloseReason.VERSION_MISMATCH
            assert b"notifications/initialized" not in link.sent(Role.CLIENT)


# Methods

STATUS: tuple[Any, ...] = ("t", "working", "2025-11-25T00:00:00Z", "2025-11-25T00:00:00Z", None)
CALLS: dict[str, tuple[Any, Any]] = {
    "ping": (PingRequest(), EmptyResult()),
    "tools/list": (ListToolsRequest(), ListToolsResult(())),
    "tools/call": (CallToolRequest("x"), CallToolResult(())),
    "resources/list": (ListResourcesRequest(), ListResourcesResult(())),
    "resources/templates/list": (ListResourceTemplatesRequest(), ListResourceTemplatesResult(())),
    "resources/read": (ReadResourceRequest("x:y"), ReadResourceResult(())),
    "resources/subscribe": (SubscribeRequest("x:y"), EmptyResult()),
    "resources/unsubscribe": (UnsubscribeRequest("x:y"), EmptyResult()),
    "prompts/list": (ListPromptsRequest(), ListPromptsResult(())),
    "prompts/get": (GetPromptRequest("x"), GetPromptResult(())),
    "completion/complete": (
        CompleteRequest(PromptReference("p"), CompletionArgument("a", "v")),
        CompleteResult(Completion(())),
    ),
    "logging/setLevel": (SetLevelRequest("info"), EmptyResult()),
    "sampling/createMessage": (
        CreateMessageRequest((SamplingMessage("user", TextContent("x")),), 10),
        CreateMessageResult("assistant", TextContent("y"), "m"),
    ),
    "roots/list": (ListRootsRequest(), ListRootsResult(())),
    "elicitation/create": (ElicitFormRequest("m", ElicitSchema({})), ElicitResult("decline")),
    "tasks/get": (GetTaskRequest("t"), GetTaskResult(*STATUS)),
    "tasks/result": (GetTaskPayloadRequest("t"), GetTaskPayloadResult()),
    "tasks/list": (ListTasksRequest(), ListTasksResult(())),
    "tasks/cancel": (CancelTaskRequest("t"), CancelTaskResult(*STATUS)),
    "skills/list": (ListSkillsRequest(), ListSkillsResult(())),
    "skills/get": (GetSkillRequest("x:y"), GetSkillResult(SkillEntry("x:y", {}, "dynamic"))),
    "resources/directory/read": (ReadDirectoryRequest("x:y"), ReadDirectoryResult(())),
}
NOTIFICATIONS: dict[str, Any] = {
    "notifications/tools/list_changed": ToolListChangedNotification(),
    "notifications/resources/list_changed": ResourceListChangedNotification(),
    "notifications/resources/updated": ResourceUpdatedNotification("x:y"),
    "notifications/prompts/list_changed": PromptListChangedNotification(),
    "notifications/message": LoggingMessageNotification("info", 1),
    "notifications/roots/list_changed": RootsListChangedNotification(),
    "notifications/elicitation/complete": ElicitationCompleteNotification("e"),
    "notifications/tasks/status": TaskStatusNotification(*STATUS),
}
BY_THE_ENGINE = {"initialize", "notifications/initialized", "notifications/cancelled", "notifications/progress"}
IN_THE_HANDSHAKE_ERA = [row for row in METHODS.values() if row.since <= REV_2025_11_25]


def test_matrix_covers_every_method() -> None:
    assert CALLS.keys() | NOTIFICATIONS.keys() | BY_THE_ENGINE == {row.name for row in IN_THE_HANDSHAKE_ERA}


def sides(link: Pair, method: Method) -> list[tuple[Any, Any, list[Any], list[Any]]]:
    """Return who may send a message and who receives it, with what each reported."""
    both = [
        (link.client, link.server, link.client_events, link.server_events),
        (link.server, link.client, link.server_events, link.client_events),
    ]
    return [each for each in both if addressed_to(method, each[1].role)]


@pytest.mark.req("LIFE-14", "CAP-05", "RPC-16")
@pytest.mark.parametrize("revision", HANDSHAKE_REVISIONS, ids=str)
@pytest.mark.parametrize("name", CALLS)
def test_only_requests_of_the_revision_are_sent_and_served(name: str, revision: Revision) -> None:
    method = METHODS[name]
    asked, answer = CALLS[name]
    link = joined((revision,), (revision,))
    for asker, answerer, heard, told in sides(link, method):
        if not method.exists_in(revision):
            with pytest.raises(LocalProtocolError, match=f"{name} does not exist in revision {revision}"):
                asker.send_request(asked, now=0.0)
            refused = one(answerer, request(name, 77))
            assert isinstance(refused, Answered)
            assert refused.error is not None
            assert refused.error.code == -32601
            answerer.data_to_send()
            continue
        asker.send_request(asked, now=0.0, cookie="mine")
        link.run()
        if name != "ping":
            assert isinstance(told[-1], RequestReceived)
            assert type(told[-1].request) is type(asked)
            answerer.send_result(told[-1].id, answer)
            link.run()
        assert isinstance(heard[-1], ResponseReceived)
        assert (heard[-1].cookie, type(heard[-1].result)) == ("mine", type(answer))


@pytest.mark.req("LIFE-14", "CAP-05")
@pytest.mark.parametrize("revision", HANDSHAKE_REVISIONS, ids=str)
@pytest.mark.parametrize("name", NOTIFICATIONS)
def test_only_notifications_of_the_revision_are_sent(name: str, revision: Revision) -> None:
    method, notification = METHODS[name], NOTIFICATIONS[name]
    link = joined((revision,), (revision,))
    for teller, _, _, heard in sides(link, method):
        if not method.exists_in(revision):
            with pytest.raises(LocalProtocolError, match=f"{name} does not exist in revision {revision}"):
                teller.send_notification(notification)
            continue
        teller.send_notification(notification)
        link.run()
        assert isinstance(heard[-1], NotificationReceived)
        assert type(heard[-1].notification) is type(notification)


@pytest.mark.req("CAP-01", "CAP-05", "CAP-06", "RPC-16")
@pytest.mark.parametrize("revision", HANDSHAKE_REVISIONS, ids=str)
@pytest.mark.parametrize("name", [*CALLS, *NOTIFICATIONS])
def test_undeclared_methods_are_neither_sent_nor_served(name: str, revision: Revision) -> None:
    method = METHODS[name]
    link = joined((revision,), (revision,), client=ClientCapabilities(), server=ServerCapabilities())
    needs = method.exists_in(revision) and bool(method.capability_in(revision))
    for sender, receiver, _, _ in sides(link, method):
        try:
            if method.kind is Kind.REQUEST:
                sender.send_request(CALLS[name][0], now=0.0)
            else:
                sender.send_notification(NOTIFICATIONS[name])
            was_sent = True
        except LocalProtocolError:
            was_sent = False
        assert was_sent is (method.exists_in(revision) and not needs)
        if needs and method.kind is Kind.REQUEST:
            refused = one(receiver, request(name, 77))
            assert isinstance(refused, Answered)
            assert refused.error is not None
            assert refused.error.code == -32601


# Members

ICON = Icon("https://example.org/i.png")
TOOL = Tool(
    "t",
    {"type": "object"},
    title="T",
    output_schema={"type": "object"},
    annotations=ToolAnnotations(read_only_hint=True),
    icons=(ICON,),
    execution=ToolExecution("optional"),
)
A_MEMBERS = {"name", "inputSchema"}


def answered(revision: Revision, ask: Any, answer: Any) -> dict[str, Any]:
    """Have a client ask and a server answer; return the result as it was on the wire."""
    link = joined((revision,), (revision,))
    link.client.send_request(ask, now=0.0)
    link.run()
    event = link.server_events[-1]
    assert isinstance(event, RequestReceived)
    link.server.send_result(event.id, answer)
    (message,) = sent(link.server)
    found: dict[str, Any] = message["result"]
    return found


@pytest.mark.req("LIFE-14")
@pytest.mark.parametrize(
    ("ask", "answer", "path", "members"),
    [
        (
            ListToolsRequest(),
            ListToolsResult((TOOL,)),
            ("tools", 0),
            [
                A_MEMBERS,
                A_MEMBERS | {"annotations"},
                A_MEMBERS | {"annotations", "title", "outputSchema"},
                A_MEMBERS | {"annotations", "title", "outputSchema", "icons", "execution"},
            ],
        ),
        (
            ListResourcesRequest(),
            ListResourcesResult((Resource("r", "x:y", title="T", size=5, icons=(ICON,), meta={"a": 1}),)),
            ("resources", 0),
            [
                {"name", "uri", "size"},
                {"name", "uri", "size"},
                {"name", "uri", "size", "title", "_meta"},
                {"name", "uri", "size", "title", "_meta", "icons"},
            ],
        ),
        (
            ListPromptsRequest(),
            ListPromptsResult((Prompt("p", title="T", icons=(ICON,)),)),
            ("prompts", 0),
            [{"name"}, {"name"}, {"name", "title"}, {"name", "title", "icons"}],
        ),
        (
            CallToolRequest("x"),
            CallToolResult((), structured_content={"a": 1}),
            (),
            [{"content"}, {"content"}, {"content", "structuredContent"}, {"content", "structuredContent"}],
        ),
    ],
    ids=["a tool", "a resource", "a prompt", "structured content"],
)
def test_decoration_unknown_to_the_revision_is_omitted(ask: Any, answer: Any, path: Any, members: Any) -> None:
    for revision, expected in zip(HANDSHAKE_REVISIONS, members, strict=True):
        found: Any = answered(revision, ask, answer)
        for step in path:
            found = found[step]
        assert set(found) == expected, revision


@pytest.mark.parametrize(
    ("since", "answer"),
    [
        (REV_2025_03_26, CallToolResult((AudioContent("AAAA", "audio/wav"),))),
        (REV_2025_06_18, CallToolResult((ResourceLink("r", "x:y"),))),
    ],
    ids=["audio", "a link"],
)
def test_content_unknown_to_the_revision_is_refused(since: Revision, answer: Any) -> None:
    for revision in HANDSHAKE_REVISIONS:
        if revision >= since:
            assert len(answered(revision, CallToolRequest("x"), answer)["content"]) == 1
        else:
            with pytest.raises(LocalProtocolError, match=f"does not exist in {revision}"):
                answered(revision, CallToolRequest("x"), answer)


@pytest.mark.req("LIFE-14")
def test_requests_omit_decoration_and_refuse_changed_meaning() -> None:
    complete = CompleteRequest(PromptReference("p"), CompletionArgument("a", "v"), CompletionContext({"b": "c"}))
    for revision in HANDSHAKE_REVISIONS:
        link = joined((revision,), (revision,))
        link.client.send_request(complete, now=0.0)
        assert ("context" in sent(link.client)[0]["params"]) is (revision >= REV_2025_06_18)
        with pytest.raises(LocalProtocolError, match="task"):
            link.client.send_request(CallToolRequest("x", task=TaskMetadata()), now=0.0)
        tools = CreateMessageRequest((SamplingMessage("user", TextContent("x")),), 10, tools=(TOOL,))
        two = CreateMessageRequest((SamplingMessage("user", (TextContent("x"), TextContent("y"))),), 10)
        for sampling in (tools, two):
            if revision < REV_2025_11_25:
                with pytest.raises(LocalProtocolError, match=r"tools: does not exist in|before 2025-11-25"):
                    link.server.send_request(sampling, now=0.0)
        if revision < REV_2025_11_25:
            with pytest.raises(LocalProtocolError, match="does not exist"):
                link.server.send_request(ElicitURLRequest("m", "https://x", "e"), now=0.0)
        assert sent(link.server) == []


@pytest.mark.req("PROG-02")
def test_progress_message_is_omitted_where_unknown() -> None:
    for revision in HANDSHAKE_REVISIONS:
        link = joined((revision,), (revision,))
        link.client.send_request(CallToolRequest("x"), now=0.0, progress=True)
        link.run()
        (id,) = link.server.pending.incoming
        link.server.send_progress(id, 1, message="m")
        assert ("message" in sent(link.server)[0]["params"]) is (revision >= REV_2025_03_26)


@pytest.mark.req("LIFE-15", "CAP-01", "CAP-06")
def test_server_info_is_written_in_the_revision() -> None:
    info = Implementation("n", "1", title="T", description="d", icons=(ICON,), website_url="https://example.org")
    known = [
        {"name", "version"},
        {"name", "version"},
        {"name", "version", "title"},
        {"name", "version", "title", "description", "icons", "websiteUrl"},
    ]
    for revision, members in zip(HANDSHAKE_REVISIONS, known, strict=True):
        link = joined((revision,), (revision,), info=info)
        hello = json.loads(link.sent(Role.CLIENT).splitlines()[0])["params"]
        welcome = json.loads(link.sent(Role.SERVER).splitlines()[0])["result"]
        assert set(hello["clientInfo"]) == set(welcome["serverInfo"]) == members
        assert ("completions" in welcome["capabilities"]) is (revision >= REV_2025_03_26)
        assert ("elicitation" in hello["capabilities"]) is (revision >= REV_2025_06_18)
        for capabilities in (hello["capabilities"], welcome["capabilities"]):
            assert ("tasks" in capabilities) is (revision is REV_2025_11_25)
