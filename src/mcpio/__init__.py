"""The Model Context Protocol as a pure state machine, and an application layer on top of it.

Here are the names that most programs need, each imported when it is first used. The parts have more:
``mcpio.types`` all payloads of all revisions, ``mcpio.codec``, ``mcpio.methods``, ``mcpio.testing``; and the drivers,
``mcpio.trio``, are imported by their own name, so that a program pays for Trio only if it uses it.
"""

from __future__ import annotations

TYPE_CHECKING = False
"""As in ``typing``, whose import would take longer than everything else here."""

if TYPE_CHECKING:
    from typing import Any

    from mcpio.app.client import CallOptions, Client, ClientOptions
    from mcpio.app.context import Context, RequestScope
    from mcpio.app.elicitation import Accepted, Cancelled, Declined
    from mcpio.app.forms import Form
    from mcpio.app.server import Lifespan, Server
    from mcpio.app.tasks.receiver import TaskOptions
    from mcpio.app.tasks.requester import TaskHandle
    from mcpio.backoff import Backoff
    from mcpio.engine.batches import BatchItem
    from mcpio.engine.client import ClientConnection
    from mcpio.engine.keep_alive import KeepAlive
    from mcpio.engine.limits import Limits, Timeout
    from mcpio.engine.options import Options
    from mcpio.engine.outbox import Outgoing
    from mcpio.engine.pending import Pending, Unanswered
    from mcpio.engine.server import ServerConnection
    from mcpio.engine.table import Phase
    from mcpio.engine.task_machine import TaskMachine
    from mcpio.engine.task_records import (
        StoreDelete,
        StoreLoad,
        StorePut,
        TaskChanged,
        TaskLimits,
        TaskOrphaned,
        TaskOutcome,
        TaskReplied,
        TaskStoreFailed,
    )
    from mcpio.errors import (
        AuthorizationRequired,
        ConnectFailed,
        ConnectionLost,
        ErrorCode,
        InvalidMessage,
        LocalProtocolError,
        McpError,
        MessageTooLarge,
        NoBackChannel,
        OutputFull,
        ProtocolError,
        Refusal,
        RemoteProtocolError,
        RequestCancelled,
        RequestError,
        RequestTimeout,
        SamplingRejected,
        ToolError,
        UnexpectedResponse,
        URLElicitationRequired,
        WebSocketClosed,
    )
    from mcpio.events import (
        Answered,
        CancelReceived,
        CloseReason,
        ConnectionClosed,
        Event,
        IgnoreReason,
        IncomingId,
        Initialized,
        MessageIgnored,
        Negotiated,
        NoiseReceived,
        NotificationReceived,
        OutgoingId,
        Peer,
        ProgressReceived,
        ProtocolViolated,
        RequestContext,
        RequestFailed,
        RequestReceived,
        ResponseReceived,
        VersionMismatched,
    )
    from mcpio.http.client.options import HttpClientOptions
    from mcpio.http.durable.records import (
        SessionDelete,
        SessionLoad,
        SessionSave,
        SessionSweep,
        StoredEvent,
        StoredSession,
    )
    from mcpio.http.model import Denied, RequestHead
    from mcpio.http.options import Cors, HostPolicy, HttpOptions
    from mcpio.observe.recording import Recorder
    from mcpio.observe.redaction import Redacting, Redactor
    from mcpio.observe.replayer import Replay, ReplayedCall, replay
    from mcpio.observe.tap import Observation, Tap
    from mcpio.profiles import Profile
    from mcpio.refusals import RefusalCode
    from mcpio.restarts import RestartPolicy, Restarts
    from mcpio.revisions import (
        HANDSHAKE_REVISIONS,
        LATEST_HANDSHAKE,
        REV_2024_11_05,
        REV_2025_03_26,
        REV_2025_06_18,
        REV_2025_11_25,
        REV_2026_07_28,
        REVISIONS,
        Era,
        Revision,
    )
    from mcpio.types import (
        Annotations,
        AudioContent,
        BlobResourceContents,
        CallToolRequest,
        CallToolResult,
        ClientCapabilities,
        CompleteRequest,
        CompleteResult,
        Completion,
        CompletionArgument,
        CompletionContext,
        ContentBlock,
        CreateMessageRequest,
        CreateMessageResult,
        CustomNotification,
        CustomRequest,
        ElicitationCapability,
        ElicitFormRequest,
        ElicitRequest,
        ElicitResult,
        ElicitURLRequest,
        EmbeddedResource,
        EmptyResult,
        GetPromptRequest,
        GetPromptResult,
        Icon,
        ImageContent,
        Implementation,
        InitializeResult,
        ListPromptsRequest,
        ListPromptsResult,
        ListResourcesRequest,
        ListResourcesResult,
        ListResourceTemplatesRequest,
        ListResourceTemplatesResult,
        ListRootsRequest,
        ListRootsResult,
        ListToolsRequest,
        ListToolsResult,
        LoggingLevel,
        LoggingMessageNotification,
        MalformedItem,
        ModelPreferences,
        PingRequest,
        Prompt,
        PromptArgument,
        PromptListChangedNotification,
        PromptMessage,
        PromptReference,
        PromptsCapability,
        RawNotification,
        RawRequest,
        ReadResourceRequest,
        ReadResourceResult,
        Resource,
        ResourceContents,
        ResourceLink,
        ResourceListChangedNotification,
        ResourcesCapability,
        ResourceTemplate,
        ResourceTemplateReference,
        ResourceUpdatedNotification,
        Root,
        RootsCapability,
        RootsListChangedNotification,
        SamplingCapability,
        SamplingMessage,
        ServerCapabilities,
        SetLevelRequest,
        SubscribeRequest,
        TextContent,
        TextResourceContents,
        Tool,
        ToolAnnotations,
        ToolListChangedNotification,
        ToolsCapability,
        UnknownContent,
        UnsubscribeRequest,
    )

    __version__: str

else:

    def __getattr__(name: str) -> Any:
        # Hidden from type checkers, or to them every misspelt name would be there.
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        if name == "__version__":
            from importlib.metadata import version

            value: Any = version(__name__)
        else:
            from importlib import import_module

            value = getattr(import_module(f"{__name__}.{_MODULES.get(name, 'types')}"), name)
        globals()[name] = value
        return value


__all__ = [
    "HANDSHAKE_REVISIONS",
    "LATEST_HANDSHAKE",
    "REVISIONS",
    "REV_2024_11_05",
    "REV_2025_03_26",
    "REV_2025_06_18",
    "REV_2025_11_25",
    "REV_2026_07_28",
    "Accepted",
    "Annotations",
    "Answered",
    "AudioContent",
    "AuthorizationRequired",
    "Backoff",
    "BatchItem",
    "BlobResourceContents",
    "CallOptions",
    "CallToolRequest",
    "CallToolResult",
    "CancelReceived",
    "Cancelled",
    "Client",
    "ClientCapabilities",
    "ClientConnection",
    "ClientOptions",
    "CloseReason",
    "CompleteRequest",
    "CompleteResult",
    "Completion",
    "CompletionArgument",
    "CompletionContext",
    "ConnectFailed",
    "ConnectionClosed",
    "ConnectionLost",
    "ContentBlock",
    "Context",
    "Cors",
    "CreateMessageRequest",
    "CreateMessageResult",
    "CustomNotification",
    "CustomRequest",
    "Declined",
    "Denied",
    "ElicitFormRequest",
    "ElicitRequest",
    "ElicitResult",
    "ElicitURLRequest",
    "ElicitationCapability",
    "EmbeddedResource",
    "EmptyResult",
    "Era",
    "ErrorCode",
    "Event",
    "Form",
    "GetPromptRequest",
    "GetPromptResult",
    "HostPolicy",
    "HttpClientOptions",
    "HttpOptions",
    "Icon",
    "IgnoreReason",
    "ImageContent",
    "Implementation",
    "IncomingId",
    "InitializeResult",
    "Initialized",
    "InvalidMessage",
    "KeepAlive",
    "Lifespan",
    "Limits",
    "ListPromptsRequest",
    "ListPromptsResult",
    "ListResourceTemplatesRequest",
    "ListResourceTemplatesResult",
    "ListResourcesRequest",
    "ListResourcesResult",
    "ListRootsRequest",
    "ListRootsResult",
    "ListToolsRequest",
    "ListToolsResult",
    "LocalProtocolError",
    "LoggingLevel",
    "LoggingMessageNotification",
    "MalformedItem",
    "McpError",
    "MessageIgnored",
    "MessageTooLarge",
    "ModelPreferences",
    "Negotiated",
    "NoBackChannel",
    "NoiseReceived",
    "NotificationReceived",
    "Observation",
    "Options",
    "Outgoing",
    "OutgoingId",
    "OutputFull",
    "Peer",
    "Pending",
    "Phase",
    "PingRequest",
    "Profile",
    "ProgressReceived",
    "Prompt",
    "PromptArgument",
    "PromptListChangedNotification",
    "PromptMessage",
    "PromptReference",
    "PromptsCapability",
    "ProtocolError",
    "ProtocolViolated",
    "RawNotification",
    "RawRequest",
    "ReadResourceRequest",
    "ReadResourceResult",
    "Recorder",
    "Redacting",
    "Redactor",
    "Refusal",
    "RefusalCode",
    "RemoteProtocolError",
    "Replay",
    "ReplayedCall",
    "RequestCancelled",
    "RequestContext",
    "RequestError",
    "RequestFailed",
    "RequestHead",
    "RequestReceived",
    "RequestScope",
    "RequestTimeout",
    "Resource",
    "ResourceContents",
    "ResourceLink",
    "ResourceListChangedNotification",
    "ResourceTemplate",
    "ResourceTemplateReference",
    "ResourceUpdatedNotification",
    "ResourcesCapability",
    "ResponseReceived",
    "RestartPolicy",
    "Restarts",
    "Revision",
    "Root",
    "RootsCapability",
    "RootsListChangedNotification",
    "SamplingCapability",
    "SamplingMessage",
    "SamplingRejected",
    "Server",
    "ServerCapabilities",
    "ServerConnection",
    "SessionDelete",
    "SessionLoad",
    "SessionSave",
    "SessionSweep",
    "SetLevelRequest",
    "StoreDelete",
    "StoreLoad",
    "StorePut",
    "StoredEvent",
    "StoredSession",
    "SubscribeRequest",
    "Tap",
    "TaskChanged",
    "TaskHandle",
    "TaskLimits",
    "TaskMachine",
    "TaskOptions",
    "TaskOrphaned",
    "TaskOutcome",
    "TaskReplied",
    "TaskStoreFailed",
    "TextContent",
    "TextResourceContents",
    "Timeout",
    "Tool",
    "ToolAnnotations",
    "ToolError",
    "ToolListChangedNotification",
    "ToolsCapability",
    "URLElicitationRequired",
    "Unanswered",
    "UnexpectedResponse",
    "UnknownContent",
    "UnsubscribeRequest",
    "VersionMismatched",
    "WebSocketClosed",
    "__version__",
    "replay",
]

_HOME = {
    "revisions": (
        "Era HANDSHAKE_REVISIONS LATEST_HANDSHAKE REVISIONS REV_2024_11_05 REV_2025_03_26 REV_2025_06_18 "
        "REV_2025_11_25 REV_2026_07_28 Revision"
    ),
    "errors": (
        "AuthorizationRequired ConnectFailed ConnectionLost ErrorCode InvalidMessage LocalProtocolError "
        "McpError MessageTooLarge NoBackChannel OutputFull ProtocolError Refusal RemoteProtocolError RequestCancelled "
        "RequestError RequestTimeout SamplingRejected ToolError URLElicitationRequired UnexpectedResponse "
        "WebSocketClosed"
    ),
    "refusals": "RefusalCode",
    "backoff": "Backoff",
    "restarts": "RestartPolicy Restarts",
    "events": (
        "Answered CancelReceived CloseReason ConnectionClosed Event IgnoreReason IncomingId Initialized "
        "MessageIgnored Negotiated NoiseReceived NotificationReceived OutgoingId Peer ProgressReceived "
        "ProtocolViolated RequestContext RequestFailed RequestReceived ResponseReceived VersionMismatched"
    ),
    "engine.client": "ClientConnection",
    "engine.server": "ServerConnection",
    "engine.options": "Options",
    "engine.batches": "BatchItem",
    "profiles": "Profile",
    "engine.keep_alive": "KeepAlive",
    "engine.limits": "Limits Timeout",
    "engine.table": "Phase",
    "engine.outbox": "Outgoing",
    "engine.pending": "Pending Unanswered",
    "observe.recording": "Recorder",
    "observe.redaction": "Redacting Redactor",
    "observe.replayer": "Replay ReplayedCall replay",
    "observe.tap": "Observation Tap",
    "http.client.options": "HttpClientOptions",
    "http.model": "Denied RequestHead",
    "http.options": "Cors HostPolicy HttpOptions",
    "http.durable.records": "SessionDelete SessionLoad SessionSave SessionSweep StoredEvent StoredSession",
    "app.server": "Lifespan Server",
    "app.client": "CallOptions Client ClientOptions",
    "app.context": "Context RequestScope",
    "app.tasks.requester": "TaskHandle",
    "app.elicitation": "Accepted Declined Cancelled",
    "app.forms": "Form",
    "app.tasks.receiver": "TaskOptions",
    "engine.task_machine": "TaskMachine",
    "engine.task_records": (
        "StoreDelete StoreLoad StorePut TaskChanged TaskLimits TaskOrphaned TaskOutcome TaskReplied TaskStoreFailed"
    ),
}
"""The module of each name; all others are payloads."""

_MODULES = {name: module for module, names in _HOME.items() for name in names.split()}


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
