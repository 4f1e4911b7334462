"""Every payload of every revision. A name is looked up, and its module imported, when it is first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcpio._lazy import names_by_use

if TYPE_CHECKING:
    from mcpio.types._fields import (
        MalformedItem,
        Payload,
    )
    from mcpio.types.completion import (
        CompleteRequest,
        CompleteResult,
        Completion,
        CompletionArgument,
        CompletionContext,
        CompletionReference,
        PromptReference,
        ResourceTemplateReference,
    )
    from mcpio.types.content import (
        Annotations,
        AudioContent,
        BlobResourceContents,
        ContentBlock,
        EmbeddedResource,
        Icon,
        IconTheme,
        ImageContent,
        ResourceContents,
        ResourceLink,
        Role,
        TextContent,
        TextResourceContents,
        UnknownContent,
        annotations_of,
    )
    from mcpio.types.custom import CustomNotification, CustomRequest, RawNotification, RawRequest
    from mcpio.types.discovery import (
        DiscoverRequest,
        DiscoverResult,
        MissingRequiredClientCapabilityData,
        UnsupportedProtocolVersionData,
    )
    from mcpio.types.elicitation import (
        BooleanSchema,
        ElicitAction,
        ElicitationCompleteNotification,
        ElicitFormRequest,
        ElicitRequest,
        ElicitResult,
        ElicitSchema,
        ElicitURLRequest,
        ElicitValue,
        LegacyTitledEnumSchema,
        MultiSelectItems,
        NumberSchema,
        PrimitiveSchema,
        StringFormat,
        StringSchema,
        TitledChoice,
        TitledItems,
        TitledMultiSelectEnumSchema,
        TitledSingleSelectEnumSchema,
        UnknownSchema,
        UntitledMultiSelectEnumSchema,
        UntitledSingleSelectEnumSchema,
        URLElicitationRequiredData,
    )
    from mcpio.types.inputs import InputRequest, InputRequiredResult
    from mcpio.types.lifecycle import (
        CancelledNotification,
        ClientCapabilities,
        ElicitationCapability,
        EmptyResult,
        Implementation,
        InitializedNotification,
        InitializeRequest,
        InitializeResult,
        PingRequest,
        ProgressNotification,
        PromptsCapability,
        ResourcesCapability,
        RootsCapability,
        SamplingCapability,
        ServerCapabilities,
        ToolsCapability,
    )
    from mcpio.types.logging import (
        LOGGING_LEVELS,
        LoggingLevel,
        LoggingMessageNotification,
        SetLevelRequest,
        at_least,
    )
    from mcpio.types.messages import (
        CacheableResult,
        CacheScope,
        FinalResult,
        ListResult,
        NotificationPayload,
        ObjectPayload,
        RequestPayload,
        ResultPayload,
    )
    from mcpio.types.meta import (
        META_CLIENT_CAPABILITIES,
        META_CLIENT_INFO,
        META_LOG_LEVEL,
        META_MODEL_IMMEDIATE_RESPONSE,
        META_PROGRESS_TOKEN,
        META_PROTOCOL_VERSION,
        META_RELATED_TASK,
        META_SERVER_INFO,
        META_SUBSCRIPTION_ID,
    )
    from mcpio.types.prompts import (
        GetPromptRequest,
        GetPromptResult,
        ListPromptsRequest,
        ListPromptsResult,
        Prompt,
        PromptArgument,
        PromptListChangedNotification,
        PromptMessage,
    )
    from mcpio.types.resources import (
        ListResourcesRequest,
        ListResourcesResult,
        ListResourceTemplatesRequest,
        ListResourceTemplatesResult,
        ReadResourceRequest,
        ReadResourceResult,
        Resource,
        ResourceListChangedNotification,
        ResourceTemplate,
        ResourceUpdatedNotification,
        SubscribeRequest,
        UnsubscribeRequest,
    )
    from mcpio.types.roots import (
        ListRootsRequest,
        ListRootsResult,
        Root,
        RootsListChangedNotification,
    )
    from mcpio.types.sampling import (
        CreateMessageRequest,
        CreateMessageResult,
        IncludeContext,
        ModelHint,
        ModelPreferences,
        SamplingContent,
        SamplingContents,
        SamplingMessage,
        ToolChoice,
        ToolChoiceMode,
        ToolResultContent,
        ToolUseContent,
    )
    from mcpio.types.subscriptions import (
        SubscriptionFilter,
        SubscriptionsAcknowledgedNotification,
        SubscriptionsListenRequest,
        SubscriptionsListenResult,
    )
    from mcpio.types.tasks import (
        CancelTaskRequest,
        CancelTaskResult,
        ClientTaskRequestsCapability,
        ClientTasksCapability,
        CreateTaskResult,
        ElicitationTasksCapability,
        GetTaskPayloadRequest,
        GetTaskPayloadResult,
        GetTaskRequest,
        GetTaskResult,
        ListTasksRequest,
        ListTasksResult,
        RelatedTaskMetadata,
        SamplingTasksCapability,
        ServerTaskRequestsCapability,
        ServerTasksCapability,
        Task,
        TaskMetadata,
        TaskStatus,
        TaskStatusNotification,
        ToolTasksCapability,
    )
    from mcpio.types.tools import (
        CallToolRequest,
        CallToolResult,
        ListToolsRequest,
        ListToolsResult,
        TaskSupport,
        Tool,
        ToolAnnotations,
        ToolExecution,
        ToolListChangedNotification,
    )

__all__ = [
    "LOGGING_LEVELS",
    "META_CLIENT_CAPABILITIES",
    "META_CLIENT_INFO",
    "META_LOG_LEVEL",
    "META_MODEL_IMMEDIATE_RESPONSE",
    "META_PROGRESS_TOKEN",
    "META_PROTOCOL_VERSION",
    "META_RELATED_TASK",
    "META_SERVER_INFO",
    "META_SUBSCRIPTION_ID",
    "Annotations",
    "AudioContent",
    "BlobResourceContents",
    "BooleanSchema",
    "CacheScope",
    "CacheableResult",
    "CallToolRequest",
    "CallToolResult",
    "CancelTaskRequest",
    "CancelTaskResult",
    "CancelledNotification",
    "ClientCapabilities",
    "ClientTaskRequestsCapability",
    "ClientTasksCapability",
    "CompleteRequest",
    "CompleteResult",
    "Completion",
    "CompletionArgument",
    "CompletionContext",
    "CompletionReference",
    "ContentBlock",
    "CreateMessageRequest",
    "CreateMessageResult",
    "CreateTaskResult",
    "CustomNotification",
    "CustomRequest",
    "DiscoverRequest",
    "DiscoverResult",
    "ElicitAction",
    "ElicitFormRequest",
    "ElicitRequest",
    "ElicitResult",
    "ElicitSchema",
    "ElicitURLRequest",
    "ElicitValue",
    "ElicitationCapability",
    "ElicitationCompleteNotification",
    "ElicitationTasksCapability",
    "EmbeddedResource",
    "EmptyResult",
    "FinalResult",
    "GetPromptRequest",
    "GetPromptResult",
    "GetTaskPayloadRequest",
    "GetTaskPayloadResult",
    "GetTaskRequest",
    "GetTaskResult",
    "Icon",
    "IconTheme",
    "ImageContent",
    "Implementation",
    "IncludeContext",
    "InitializeRequest",
    "InitializeResult",
    "InitializedNotification",
    "InputRequest",
    "InputRequiredResult",
    "LegacyTitledEnumSchema",
    "ListPromptsRequest",
    "ListPromptsResult",
    "ListResourceTemplatesRequest",
    "ListResourceTemplatesResult",
    "ListResourcesRequest",
    "ListResourcesResult",
    "ListResult",
    "ListRootsRequest",
    "ListRootsResult",
    "ListTasksRequest",
    "ListTasksResult",
    "ListToolsRequest",
    "ListToolsResult",
    "LoggingLevel",
    "LoggingMessageNotification",
    "MalformedItem",
    "MissingRequiredClientCapabilityData",
    "ModelHint",
    "ModelPreferences",
    "MultiSelectItems",
    "NotificationPayload",
    "NumberSchema",
    "ObjectPayload",
    "Payload",
    "PingRequest",
    "PrimitiveSchema",
    "ProgressNotification",
    "Prompt",
    "PromptArgument",
    "PromptListChangedNotification",
    "PromptMessage",
    "PromptReference",
    "PromptsCapability",
    "RawNotification",
    "RawRequest",
    "ReadResourceRequest",
    "ReadResourceResult",
    "RelatedTaskMetadata",
    "RequestPayload",
    "Resource",
    "ResourceContents",
    "ResourceLink",
    "ResourceListChangedNotification",
    "ResourceTemplate",
    "ResourceTemplateReference",
    "ResourceUpdatedNotification",
    "ResourcesCapability",
    "ResultPayload",
    "Role",
    "Root",
    "RootsCapability",
    "RootsListChangedNotification",
    "SamplingCapability",
    "SamplingContent",
    "SamplingContents",
    "SamplingMessage",
    "SamplingTasksCapability",
    "ServerCapabilities",
    "ServerTaskRequestsCapability",
    "ServerTasksCapability",
    "SetLevelRequest",
    "StringFormat",
    "StringSchema",
    "SubscribeRequest",
    "SubscriptionFilter",
    "SubscriptionsAcknowledgedNotification",
    "SubscriptionsListenRequest",
    "SubscriptionsListenResult",
    "Task",
    "TaskMetadata",
    "TaskStatus",
    "TaskStatusNotification",
    "TaskSupport",
    "TextContent",
    "TextResourceContents",
    "TitledChoice",
    "TitledItems",
    "TitledMultiSelectEnumSchema",
    "TitledSingleSelectEnumSchema",
    "Tool",
    "ToolAnnotations",
    "ToolChoice",
    "ToolChoiceMode",
    "ToolExecution",
    "ToolListChangedNotification",
    "ToolResultContent",
    "ToolTasksCapability",
    "ToolUseContent",
    "ToolsCapability",
    "URLElicitationRequiredData",
    "UnknownContent",
    "UnknownSchema",
    "UnsubscribeRequest",
    "UnsupportedProtocolVersionData",
    "UntitledMultiSelectEnumSchema",
    "UntitledSingleSelectEnumSchema",
    "annotations_of",
    "at_least",
]

_HOME = {
    "_fields": "MalformedItem Payload",
    "messages": (
        "CacheScope CacheableResult FinalResult ListResult NotificationPayload ObjectPayload RequestPayload "
        "ResultPayload"
    ),
    "content": (
        "Annotations AudioContent BlobResourceContents ContentBlock EmbeddedResource Icon IconTheme "
        "ImageContent ResourceContents ResourceLink Role TextContent TextResourceContents UnknownContent "
        "annotations_of"
    ),
    "lifecycle": (
        "CancelledNotification ClientCapabilities ElicitationCapability EmptyResult Implementation "
        "InitializeRequest InitializeResult InitializedNotification PingRequest ProgressNotification "
        "PromptsCapability ResourcesCapability RootsCapability SamplingCapability ServerCapabilities "
        "ToolsCapability"
    ),
    "tools": (
        "CallToolRequest CallToolResult ListToolsRequest ListToolsResult TaskSupport Tool ToolAnnotations "
        "ToolExecution ToolListChangedNotification"
    ),
    "resources": (
        "ListResourceTemplatesRequest ListResourceTemplatesResult ListResourcesRequest ListResourcesResult "
        "ReadResourceRequest ReadResourceResult Resource ResourceListChangedNotification ResourceTemplate "
        "ResourceUpdatedNotification SubscribeRequest UnsubscribeRequest"
    ),
    "prompts": (
        "GetPromptRequest GetPromptResult ListPromptsRequest ListPromptsResult Prompt PromptArgument "
        "PromptListChangedNotification PromptMessage"
    ),
    "sampling": (
        "CreateMessageRequest CreateMessageResult IncludeContext ModelHint ModelPreferences SamplingContent "
        "SamplingContents SamplingMessage ToolChoice ToolChoiceMode ToolResultContent ToolUseContent"
    ),
    "elicitation": (
        "BooleanSchema ElicitAction ElicitFormRequest ElicitRequest ElicitResult ElicitSchema "
        "ElicitURLRequest ElicitValue ElicitationCompleteNotification LegacyTitledEnumSchema MultiSelectItems "
        "NumberSchema PrimitiveSchema StringFormat StringSchema TitledChoice TitledItems "
        "TitledMultiSelectEnumSchema TitledSingleSelectEnumSchema URLElicitationRequiredData UnknownSchema "
        "UntitledMultiSelectEnumSchema UntitledSingleSelectEnumSchema"
    ),
    "roots": "ListRootsRequest ListRootsResult Root RootsListChangedNotification",
    "logging": "LOGGING_LEVELS LoggingLevel LoggingMessageNotification SetLevelRequest at_least",
    "completion": (
        "CompleteRequest CompleteResult Completion CompletionArgument CompletionContext CompletionReference "
        "PromptReference ResourceTemplateReference"
    ),
    "tasks": (
        "CancelTaskRequest CancelTaskResult ClientTaskRequestsCapability ClientTasksCapability "
        "CreateTaskResult ElicitationTasksCapability GetTaskPayloadRequest GetTaskPayloadResult "
        "GetTaskRequest GetTaskResult ListTasksRequest ListTasksResult RelatedTaskMetadata "
        "SamplingTasksCapability ServerTaskRequestsCapability ServerTasksCapability Task TaskMetadata "
        "TaskStatus TaskStatusNotification ToolTasksCapability"
    ),
    "discovery": "DiscoverRequest DiscoverResult MissingRequiredClientCapabilityData UnsupportedProtocolVersionData",
    "inputs": "InputRequest InputRequiredResult",
    "meta": (
        "META_CLIENT_CAPABILITIES META_CLIENT_INFO META_LOG_LEVEL META_MODEL_IMMEDIATE_RESPONSE "
        "META_PROGRESS_TOKEN META_PROTOCOL_VERSION META_RELATED_TASK META_SERVER_INFO META_SUBSCRIPTION_ID"
    ),
    "subscriptions": (
        "SubscriptionFilter SubscriptionsAcknowledgedNotification SubscriptionsListenRequest SubscriptionsListenResult"
    ),
    "custom": "CustomNotification CustomRequest RawNotification RawRequest",
}
"""The module of each name."""

if not TYPE_CHECKING:
    __getattr__, __dir__ = names_by_use(__name__, _HOME)
