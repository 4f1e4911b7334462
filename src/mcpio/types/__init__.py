"""Every payload of every revision. A name is looked up, and its module imported, when it is first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcpio._lazy import lazy_names

if TYPE_CHECKING:
    from mcpio.types._fields import MalformedItem as MalformedItem
    from mcpio.types._fields import Payload as Payload
    from mcpio.types.asking import *
    from mcpio.types.base import *
    from mcpio.types.base import META_CLIENT_CAPABILITIES as META_CLIENT_CAPABILITIES
    from mcpio.types.base import META_CLIENT_INFO as META_CLIENT_INFO
    from mcpio.types.base import META_LOG_LEVEL as META_LOG_LEVEL
    from mcpio.types.base import META_MODEL_IMMEDIATE_RESPONSE as META_MODEL_IMMEDIATE_RESPONSE
    from mcpio.types.base import META_PROGRESS_TOKEN as META_PROGRESS_TOKEN
    from mcpio.types.base import META_PROTOCOL_VERSION as META_PROTOCOL_VERSION
    from mcpio.types.base import META_RELATED_TASK as META_RELATED_TASK
    from mcpio.types.base import META_SERVER_INFO as META_SERVER_INFO
    from mcpio.types.base import META_SUBSCRIPTION_ID as META_SUBSCRIPTION_ID
    from mcpio.types.content import *
    from mcpio.types.features import *
    from mcpio.types.skills import *
    from mcpio.types.tasks import *

    __all__: list[str]
else:
    __all__, __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "_fields": "MalformedItem Payload",
            "base": (
                "CacheScope CacheableResult CustomNotification CustomRequest FinalResult InputRequest "
                "InputRequiredResult InputResponse ListResult META_CLIENT_CAPABILITIES META_CLIENT_INFO "
                "META_LOG_LEVEL META_MODEL_IMMEDIATE_RESPONSE META_PROGRESS_TOKEN META_PROTOCOL_VERSION "
                "META_RELATED_TASK META_SERVER_INFO META_SUBSCRIPTION_ID NotificationPayload ObjectPayload "
                "RawNotification RawRequest RequestPayload ResultPayload"
            ),
            "content": (
                "Annotations AudioContent BlobResourceContents ContentBlock EmbeddedResource Icon IconTheme "
                "ImageContent ResourceContents ResourceLink Role TextContent TextResourceContents UnknownContent "
                "annotations_of"
            ),
            "features": (
                "CallToolRequest CallToolResult CancelledNotification ClientCapabilities CompleteRequest "
                "CompleteResult Completion CompletionArgument CompletionContext CompletionReference DiscoverRequest "
                "DiscoverResult ElicitationCapability EmptyResult GetPromptRequest GetPromptResult Implementation "
                "InitializeRequest InitializeResult InitializedNotification LOGGING_LEVELS ListPromptsRequest "
                "ListPromptsResult ListResourceTemplatesRequest ListResourceTemplatesResult ListResourcesRequest "
                "ListResourcesResult ListToolsRequest ListToolsResult LoggingLevel LoggingMessageNotification "
                "MissingRequiredClientCapabilityData PingRequest ProgressNotification Prompt PromptArgument "
                "PromptListChangedNotification PromptMessage PromptReference PromptsCapability ReadResourceRequest "
                "ReadResourceResult Resource ResourceListChangedNotification ResourceTemplate "
                "ResourceTemplateReference ResourceUpdatedNotification ResourcesCapability RootsCapability "
                "SamplingCapability ServerCapabilities SetLevelRequest SubscribeRequest SubscriptionFilter "
                "SubscriptionsAcknowledgedNotification SubscriptionsListenRequest SubscriptionsListenResult "
                "TaskSupport Tool ToolAnnotations ToolExecution ToolListChangedNotification ToolsCapability "
                "UnsubscribeRequest UnsupportedProtocolVersionData at_least"
            ),
            "asking": (
                "BooleanSchema CreateMessageRequest CreateMessageResult ElicitAction ElicitFormRequest "
                "ElicitRequest ElicitResult ElicitSchema ElicitURLRequest ElicitValue "
                "ElicitationCompleteNotification IncludeContext LegacyTitledEnumSchema ListRootsRequest "
                "ListRootsResult ModelHint ModelPreferences MultiSelectItems NumberSchema PrimitiveSchema Root "
                "RootsListChangedNotification SamplingContent SamplingContents SamplingMessage StringFormat "
                "StringSchema TitledChoice TitledItems TitledMultiSelectEnumSchema TitledSingleSelectEnumSchema "
                "ToolChoice ToolChoiceMode ToolResultContent ToolUseContent URLElicitationRequiredData "
                "UnknownSchema UntitledMultiSelectEnumSchema UntitledSingleSelectEnumSchema"
            ),
            "tasks": (
                "CancelTaskRequest CancelTaskResult ClientTaskRequestsCapability ClientTasksCapability "
                "CreateTaskResult ElicitationTasksCapability GetTaskPayloadRequest GetTaskPayloadResult "
                "GetTaskRequest GetTaskResult ListTasksRequest ListTasksResult RelatedTaskMetadata "
                "SamplingTasksCapability ServerTaskRequestsCapability ServerTasksCapability Task TaskMetadata "
                "TaskStatus TaskStatusNotification ToolTasksCapability"
            ),
            "skills": (
                "GetSkillRequest GetSkillResult ListSkillsRequest ListSkillsResult ReadDirectoryRequest "
                "ReadDirectoryResult SkillEntry"
            ),
        },
    )
