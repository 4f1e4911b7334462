"""Every payload of every revision. A name is looked up, and its module imported, when it is first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcpio._lazy import lazy_names

if TYPE_CHECKING:
    from mcpio.types._fields import MalformedItem as MalformedItem
    from mcpio.types._fields import Payload as Payload
    from mcpio.types.completion import *
    from mcpio.types.content import *
    from mcpio.types.custom import *
    from mcpio.types.discovery import *
    from mcpio.types.elicitation import *
    from mcpio.types.inputs import *
    from mcpio.types.lifecycle import *
    from mcpio.types.logging import *
    from mcpio.types.messages import *
    from mcpio.types.meta import META_CLIENT_CAPABILITIES as META_CLIENT_CAPABILITIES
    from mcpio.types.meta import META_CLIENT_INFO as META_CLIENT_INFO
    from mcpio.types.meta import META_LOG_LEVEL as META_LOG_LEVEL
    from mcpio.types.meta import META_MODEL_IMMEDIATE_RESPONSE as META_MODEL_IMMEDIATE_RESPONSE
    from mcpio.types.meta import META_PROGRESS_TOKEN as META_PROGRESS_TOKEN
    from mcpio.types.meta import META_PROTOCOL_VERSION as META_PROTOCOL_VERSION
    from mcpio.types.meta import META_RELATED_TASK as META_RELATED_TASK
    from mcpio.types.meta import META_SERVER_INFO as META_SERVER_INFO
    from mcpio.types.meta import META_SUBSCRIPTION_ID as META_SUBSCRIPTION_ID
    from mcpio.types.prompts import *
    from mcpio.types.resources import *
    from mcpio.types.roots import *
    from mcpio.types.sampling import *
    from mcpio.types.subscriptions import *
    from mcpio.types.tasks import *
    from mcpio.types.tools import *

    __all__: list[str]
else:
    __all__, __getattr__, __dir__ = lazy_names(
        __name__,
        {
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
            "discovery": (
                "DiscoverRequest DiscoverResult MissingRequiredClientCapabilityData UnsupportedProtocolVersionData"
            ),
            "inputs": "InputRequest InputRequiredResult InputResponse",
            "meta": (
                "META_CLIENT_CAPABILITIES META_CLIENT_INFO META_LOG_LEVEL META_MODEL_IMMEDIATE_RESPONSE "
                "META_PROGRESS_TOKEN META_PROTOCOL_VERSION META_RELATED_TASK META_SERVER_INFO META_SUBSCRIPTION_ID"
            ),
            "subscriptions": (
                "SubscriptionFilter SubscriptionsAcknowledgedNotification SubscriptionsListenRequest "
                "SubscriptionsListenResult"
            ),
            "custom": "CustomNotification CustomRequest RawNotification RawRequest",
        },
    )
