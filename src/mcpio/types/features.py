"""What servers offer: the opening, tools, resources, prompts, completion, logs, discovery and subscriptions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal, TypeAlias, TypeVar, get_args

from attrs import field

from mcpio.revisions import REV_2025_03_26, REV_2025_06_18, REV_2025_11_25, REV_2026_07_28
from mcpio.types._fields import Description, Payload, payload, tagged, wire, wired
from mcpio.types.base import (
    CacheableResult,
    FinalResult,
    ListResult,
    NotificationPayload,
    ObjectPayload,
    RequestPayload,
    ResultPayload,
)

if TYPE_CHECKING:
    from mcpio.types.base import InputResponse
    from mcpio.types.content import Annotations, ContentBlock, Icon, ResourceContents, Role
    from mcpio.types.tasks import ClientTasksCapability, ServerTasksCapability, TaskMetadata

__all__ = [
    "LOGGING_LEVELS",
    "CallToolRequest",
    "CallToolResult",
    "CancelledNotification",
    "ClientCapabilities",
    "CompleteRequest",
    "CompleteResult",
    "Completion",
    "CompletionArgument",
    "CompletionContext",
    "CompletionReference",
    "DiscoverRequest",
    "DiscoverResult",
    "ElicitationCapability",
    "EmptyResult",
    "GetPromptRequest",
    "GetPromptResult",
    "Implementation",
    "InitializeRequest",
    "InitializeResult",
    "InitializedNotification",
    "ListPromptsRequest",
    "ListPromptsResult",
    "ListResourceTemplatesRequest",
    "ListResourceTemplatesResult",
    "ListResourcesRequest",
    "ListResourcesResult",
    "ListToolsRequest",
    "ListToolsResult",
    "LoggingLevel",
    "LoggingMessageNotification",
    "MissingRequiredClientCapabilityData",
    "PingRequest",
    "ProgressNotification",
    "Prompt",
    "PromptArgument",
    "PromptListChangedNotification",
    "PromptMessage",
    "PromptReference",
    "PromptsCapability",
    "ReadResourceRequest",
    "ReadResourceResult",
    "Resource",
    "ResourceListChangedNotification",
    "ResourceTemplate",
    "ResourceTemplateReference",
    "ResourceUpdatedNotification",
    "ResourcesCapability",
    "RootsCapability",
    "SamplingCapability",
    "ServerCapabilities",
    "SetLevelRequest",
    "SubscribeRequest",
    "SubscriptionFilter",
    "SubscriptionsAcknowledgedNotification",
    "SubscriptionsListenRequest",
    "SubscriptionsListenResult",
    "TaskSupport",
    "Tool",
    "ToolAnnotations",
    "ToolExecution",
    "ToolListChangedNotification",
    "ToolsCapability",
    "UnsubscribeRequest",
    "UnsupportedProtocolVersionData",
    "at_least",
]


# ------------------------------------------------------------------------------------------------------------ lifecycle
# The handshake, capabilities, and the messages that concern no feature: ping, progress, cancellation.


@payload
class Implementation(Description):
    """The name and version of a client or server: its own claim, never a basis for trust (ENV-07)."""

    name: str
    version: str
    title: str | None = wire(default=None, since=REV_2025_06_18)
    description: str | None = wire(default=None, since=REV_2025_11_25)
    icons: tuple[Icon, ...] = wire(default=(), since=REV_2025_11_25)
    website_url: str | None = wire(default=None, since=REV_2025_11_25)

    @property
    def display_name(self) -> str:
        """The title, or the name if the title is absent."""
        return self.name if self.title is None else self.title


# Capabilities: ``None`` means not declared, an empty object means declared without options (CAP-01).


@payload
class RootsCapability(Description):
    """The client can list its roots."""

    list_changed: bool | None = wire(default=None, until=REV_2025_11_25)


@payload
class SamplingCapability(Description):
    """The client can sample a model for the server."""

    context: Mapping[str, Any] | None = wire(default=None, since=REV_2025_11_25)
    """Present if the client honours ``include_context``."""
    tools: Mapping[str, Any] | None = wire(default=None, since=REV_2025_11_25)
    """Present if the client lets the model use tools (SAMP-05)."""


@payload
class ElicitationCapability(Description, since=REV_2025_06_18):
    """The client can ask its user. Without ``form`` and ``url`` it means ``form`` (ELIC-01)."""

    form: Mapping[str, Any] | None = wire(default=None, since=REV_2025_11_25)
    url: Mapping[str, Any] | None = wire(default=None, since=REV_2025_11_25)


@payload
class ToolsCapability(Description):
    """The server offers tools."""

    list_changed: bool | None = None


@payload
class ResourcesCapability(Description):
    """The server offers resources."""

    subscribe: bool | None = None
    list_changed: bool | None = None


@payload
class PromptsCapability(Description):
    """The server offers prompts."""

    list_changed: bool | None = None


@payload
class ClientCapabilities(Description):
    """The capabilities of a client (CAP-04). ``mcpio.methods.declares`` looks one up by its path."""

    roots: RootsCapability | None = None
    sampling: SamplingCapability | None = None
    elicitation: ElicitationCapability | None = wire(default=None, since=REV_2025_06_18)
    tasks: ClientTasksCapability | None = wire(default=None, since=REV_2025_11_25, until=REV_2025_11_25)
    experimental: Mapping[str, Any] | None = None
    extensions: Mapping[str, Any] | None = None
    """Settings by the extension's id. A member since 2026-07-28, sent and read in every revision (EXT-04)."""


@payload
class ServerCapabilities(Description):
    """The capabilities of a server (CAP-03). ``mcpio.methods.declares`` looks one up by its path."""

    tools: ToolsCapability | None = None
    resources: ResourcesCapability | None = None
    prompts: PromptsCapability | None = None
    logging: Mapping[str, Any] | None = None
    completions: Mapping[str, Any] | None = wire(default=None, since=REV_2025_03_26)
    tasks: ServerTasksCapability | None = wire(default=None, since=REV_2025_11_25, until=REV_2025_11_25)
    experimental: Mapping[str, Any] | None = None
    extensions: Mapping[str, Any] | None = None
    """Settings by the extension's id. A member since 2026-07-28, sent and read in every revision (EXT-04)."""


@payload
class InitializeRequest(RequestPayload, until=REV_2025_11_25):
    """The first message of a handshake (LIFE-02)."""

    protocol_version: str
    capabilities: ClientCapabilities
    client_info: Implementation


@payload
class InitializeResult(ResultPayload, until=REV_2025_11_25):
    """The server's answer to ``initialize`` (LIFE-07)."""

    protocol_version: str
    capabilities: ServerCapabilities
    server_info: Implementation
    instructions: str | None = None
    """A hint for the model. Untrusted text (LIFE-16)."""


@payload
class InitializedNotification(NotificationPayload, until=REV_2025_11_25):
    """The client is ready (LIFE-08)."""


@payload
class PingRequest(RequestPayload, until=REV_2025_11_25):
    """Check that the peer responds. The answer is an ``EmptyResult``."""


@payload
class EmptyResult(FinalResult):
    """The result of a request that returns nothing."""


@payload
class CancelledNotification(NotificationPayload):
    """The sender cancels one of its requests."""

    request_id: int | str | None = wire(default=None, required=True, lenient=REV_2025_11_25)
    """The request's id on the wire. Required when sent; a peer of 2025-11-25 may leave it out."""
    reason: str | None = None


@payload
class ProgressNotification(NotificationPayload):
    """The progress of a request."""

    progress_token: int | str
    progress: float
    total: float | None = None
    message: str | None = wire(default=None, since=REV_2025_03_26)


# ---------------------------------------------------------------------------------------------------------------- tools
# Tools: functions that a server offers to the model.

T = TypeVar("T")

CONVERSIONS: Final[list[Callable[[CallToolResult, Any], Any]]] = []
"""Makes values of results: the application layer, which knows how, adds itself."""


def _fault_in_root(schema: Mapping[str, Any]) -> str | None:
    return None if schema.get("type", "object") == "object" else 'must have "type": "object" at its root'


def _fault_in_output(schema: Mapping[str, Any] | None) -> str | None:
    fits = schema is None or schema.get("type") == "object"
    return None if fits else 'must have "type": "object" at its root before 2026-07-28'


TaskSupport = Literal["forbidden", "optional", "required"]


@payload
class ToolAnnotations(Description, since=REV_2025_03_26):
    """A server's hints on the behaviour of its tool. Trust them only as much as the server (TOOL-17).

    ``None`` means that the hint is absent; the ``is_…`` properties fill in the specification's defaults.
    """

    title: str | None = None
    read_only_hint: bool | None = None
    destructive_hint: bool | None = None
    idempotent_hint: bool | None = None
    open_world_hint: bool | None = None

    @property
    def is_read_only(self) -> bool:
        """Whether the tool changes nothing. Default: no."""
        return self.read_only_hint is True

    @property
    def is_destructive(self) -> bool:
        """Whether the tool may delete or overwrite. Default: yes, unless it is read-only."""
        return not self.is_read_only and self.destructive_hint is not False

    @property
    def is_idempotent(self) -> bool:
        """Whether a second call with the same arguments changes nothing more. Default: no, unless it is read-only."""
        return self.is_read_only or self.idempotent_hint is True

    @property
    def is_open_world(self) -> bool:
        """Whether the tool deals with the outside world, such as the web. Default: yes."""
        return self.open_world_hint is not False


@payload
class ToolExecution(Payload, since=REV_2025_11_25, until=REV_2025_11_25):
    """How to run a tool."""

    task_support: TaskSupport | None = None
    """Whether a call may, must or must not be a task; ``None`` means ``"forbidden"`` (TASK-06)."""


@payload
class Tool(ObjectPayload):
    """A tool. The schemas are plain mappings with every keyword they came with (SCHEMA-07)."""

    name: str
    input_schema: Mapping[str, Any] = field(metadata=wired(check=_fault_in_root))
    description: str | None = None
    title: str | None = wire(default=None, since=REV_2025_06_18)
    output_schema: Mapping[str, Any] | None = wire(
        default=None, since=REV_2025_06_18, check=_fault_in_output, check_until=REV_2025_11_25
    )
    """Of an object; since 2026-07-28 any schema."""
    annotations: ToolAnnotations | None = wire(default=None, since=REV_2025_03_26)
    icons: tuple[Icon, ...] = wire(default=(), since=REV_2025_11_25)
    execution: ToolExecution | None = wire(default=None, since=REV_2025_11_25, until=REV_2025_11_25)

    @property
    def display_name(self) -> str:
        """The title, else the title in the annotations, else the name (TOOL-18)."""
        if self.title is not None:
            return self.title
        hinted = None if self.annotations is None else self.annotations.title
        return self.name if hinted is None else hinted


@payload
class ListToolsRequest(RequestPayload):
    """Ask for a page of the tools: the first, without ``cursor``."""

    cursor: str | None = None


@payload
class ListToolsResult(ListResult, itemwise="tools"):
    """A page of the tools. Only ``next_cursor`` of ``None`` ends the list: an empty string does not (GONE-05)."""

    tools: tuple[Tool, ...]
    next_cursor: str | None = wire(default=None, strict=True)


@payload
class CallToolRequest(RequestPayload):
    """Call a tool. ``arguments=None`` means the same as an empty mapping (TOOL-07)."""

    name: str
    arguments: Mapping[str, Any] | None = None
    task: TaskMetadata | None = wire(default=None, since=REV_2025_11_25, until=REV_2025_11_25, essential=True)
    """Asks for the call to run as a task (TASK-08)."""
    input_responses: Mapping[str, InputResponse] | None = wire(default=None, since=REV_2026_07_28, essential=True)
    """The answers to an ``InputRequiredResult``, by its keys (MRTR-06)."""
    request_state: str | None = wire(default=None, since=REV_2026_07_28, essential=True)
    """The server's state, returned untouched (MRTR-06)."""


@payload
class CallToolResult(FinalResult):
    """The result of a tool. ``is_error`` marks a failure of its work, for the model to see (TOOL-10)."""

    content: tuple[ContentBlock, ...]
    structured_content: Any = wire(default=None, since=REV_2025_06_18, object_until=REV_2025_11_25)
    """An object, or ``None`` if absent; since 2026-07-28 any JSON value (GONE-07).

    JSON's null, which only 2026-07-28 allows, is ``None`` with ``"structured_content"`` in ``given``: see
    ``has_structured_content``.
    """
    is_error: bool = False

    @property
    def has_structured_content(self) -> bool:
        """Whether structured content is present: ``None`` may be JSON's null."""
        return self.structured_content is not None or "structured_content" in self.given

    @property
    def text(self) -> str:
        """The text blocks, joined by line breaks."""
        from mcpio.types.content import text_of

        return text_of(self.content)

    def into(self, kind: type[T]) -> T:
        """Return the structured content as a value of a type, such as ``City``, ``list[City]`` or ``int``.

        The types are those of a tool's arguments. A value that is no object comes as the member ``result`` of one.
        Without structured content, as before 2025-06-18, the one text block is read as JSON, and is itself the value
        where ``kind`` is ``str``.

        Raises ToolError with the text of a failure, InvalidMessage with the place of what does not fit, TypeError for a
        type that JSON cannot express, and RuntimeError before ``mcpio.app.Client`` was imported.
        """
        if not CONVERSIONS:
            raise RuntimeError("a result is made into types by the application layer: import mcpio.app.Client")
        converted: T = CONVERSIONS[0](self, kind)
        return converted


@payload
class ToolListChangedNotification(NotificationPayload):
    """The list of tools changed."""


# ------------------------------------------------------------------------------------------------------------ resources
# Resources: data that a server lets its clients read.


@payload
class Resource(ObjectPayload):
    """A resource. URIs are opaque strings, never normalised (RES-12)."""

    uri: str
    name: str
    title: str | None = wire(default=None, since=REV_2025_06_18)
    description: str | None = None
    mime_type: str | None = None
    size: int | None = None
    """In bytes, of the raw content."""
    annotations: Annotations | None = None
    icons: tuple[Icon, ...] = wire(default=(), since=REV_2025_11_25)

    @property
    def display_name(self) -> str:
        """The title, or the name if the title is absent."""
        return self.name if self.title is None else self.title


@payload
class ResourceTemplate(ObjectPayload):
    """A family of resources. ``uri_template`` follows RFC 6570; ``mime_type`` is set only if all of them share it."""

    uri_template: str
    name: str
    title: str | None = wire(default=None, since=REV_2025_06_18)
    description: str | None = None
    mime_type: str | None = None
    annotations: Annotations | None = None
    icons: tuple[Icon, ...] = wire(default=(), since=REV_2025_11_25)

    @property
    def display_name(self) -> str:
        """The title, or the name if the title is absent."""
        return self.name if self.title is None else self.title


@payload
class ListResourcesRequest(RequestPayload):
    """Ask for a page of the resources: the first, without ``cursor``."""

    cursor: str | None = None


@payload
class ListResourcesResult(ListResult, itemwise="resources"):
    """A page of the resources. Only ``next_cursor`` of ``None`` ends the list (GONE-05)."""

    resources: tuple[Resource, ...]
    next_cursor: str | None = wire(default=None, strict=True)


@payload
class ListResourceTemplatesRequest(RequestPayload):
    """Ask for a page of the resource templates: the first, without ``cursor``."""

    cursor: str | None = None


@payload
class ListResourceTemplatesResult(ListResult, itemwise="resource_templates"):
    """A page of the resource templates. Only ``next_cursor`` of ``None`` ends the list (GONE-05)."""

    resource_templates: tuple[ResourceTemplate, ...]
    next_cursor: str | None = wire(default=None, strict=True)


@payload
class ReadResourceRequest(RequestPayload):
    """Read a resource."""

    uri: str
    input_responses: Mapping[str, InputResponse] | None = wire(default=None, since=REV_2026_07_28, essential=True)
    """The answers to an ``InputRequiredResult``, by its keys (MRTR-06)."""
    request_state: str | None = wire(default=None, since=REV_2026_07_28, essential=True)
    """The server's state, returned untouched (MRTR-06)."""


@payload
class ReadResourceResult(CacheableResult):
    """The contents of a resource; a directory, for example, may have several (RES-03)."""

    contents: tuple[ResourceContents, ...]

    @property
    def text(self) -> str:
        """The text contents, joined by line breaks."""
        from mcpio.types.content import TextResourceContents

        return "\n".join(part.text for part in self.contents if isinstance(part, TextResourceContents))


@payload
class SubscribeRequest(RequestPayload, until=REV_2025_11_25):
    """Ask for notifications when a resource changes (RES-06)."""

    uri: str


@payload
class UnsubscribeRequest(RequestPayload, until=REV_2025_11_25):
    """End a subscription."""

    uri: str


@payload
class ResourceUpdatedNotification(NotificationPayload):
    """A subscribed resource, or one below it, changed (RES-07)."""

    uri: str


@payload
class ResourceListChangedNotification(NotificationPayload):
    """The list of resources changed."""


# -------------------------------------------------------------------------------------------------------------- prompts
# Prompts: message templates that a server offers to users.


@payload
class PromptArgument(Payload):
    """An argument that a prompt takes."""

    name: str
    description: str | None = None
    required: bool = False
    title: str | None = wire(default=None, since=REV_2025_06_18)


@payload
class Prompt(ObjectPayload):
    """A prompt."""

    name: str
    description: str | None = None
    arguments: tuple[PromptArgument, ...] = wire(default=(), strict=True)
    title: str | None = wire(default=None, since=REV_2025_06_18)
    icons: tuple[Icon, ...] = wire(default=(), since=REV_2025_11_25)

    @property
    def display_name(self) -> str:
        """The title, or the name if the title is absent."""
        return self.name if self.title is None else self.title


@payload
class PromptMessage(Payload):
    """One message of a prompt."""

    role: Role
    content: ContentBlock

    @property
    def text(self) -> str:
        """The text of the content; empty if it is not a text block."""
        from mcpio.types.content import text_of

        return text_of((self.content,))


@payload
class ListPromptsRequest(RequestPayload):
    """Ask for a page of the prompts: the first, without ``cursor``."""

    cursor: str | None = None


@payload
class ListPromptsResult(ListResult, itemwise="prompts"):
    """A page of the prompts. Only ``next_cursor`` of ``None`` ends the list (GONE-05)."""

    prompts: tuple[Prompt, ...]
    next_cursor: str | None = wire(default=None, strict=True)


@payload
class GetPromptRequest(RequestPayload):
    """Ask for a prompt, filled in with string arguments."""

    name: str
    arguments: Mapping[str, str] | None = None
    input_responses: Mapping[str, InputResponse] | None = wire(default=None, since=REV_2026_07_28, essential=True)
    """The answers to an ``InputRequiredResult``, by its keys (MRTR-06)."""
    request_state: str | None = wire(default=None, since=REV_2026_07_28, essential=True)
    """The server's state, returned untouched (MRTR-06)."""


@payload
class GetPromptResult(FinalResult):
    """A prompt, filled in."""

    messages: tuple[PromptMessage, ...]
    description: str | None = None


@payload
class PromptListChangedNotification(NotificationPayload):
    """The list of prompts changed."""


# ----------------------------------------------------------------------------------------------------------- completion
# Completion: suggestions for an argument of a prompt or a resource template.


@payload
class PromptReference(Payload):
    """A reference to a prompt."""

    type: ClassVar[Literal["ref/prompt"]] = "ref/prompt"

    name: str
    title: str | None = wire(default=None, since=REV_2025_06_18)


@payload
class ResourceTemplateReference(Payload):
    """A reference to a resource or a resource template, called ``ResourceReference`` before 2025-06-18."""

    type: ClassVar[Literal["ref/resource"]] = "ref/resource"

    uri: str
    """A URI, or a template of RFC 6570."""


CompletionReference: TypeAlias = Annotated[
    PromptReference | ResourceTemplateReference, tagged(PromptReference, ResourceTemplateReference)
]
"""The only two kinds: ``ref/tool`` is refused (COMP-02)."""


@payload
class CompletionArgument(Payload):
    """The argument to complete, and its text so far."""

    name: str
    value: str


@payload
class CompletionContext(Payload, since=REV_2025_06_18):
    """The values of the other arguments chosen so far (COMP-03)."""

    arguments: Mapping[str, str] | None = None


@payload
class CompleteRequest(RequestPayload):
    """Ask for completions of an argument."""

    ref: CompletionReference
    argument: CompletionArgument
    context: CompletionContext | None = wire(default=None, since=REV_2025_06_18)


@payload
class Completion(Payload):
    """At most 100 values, the best first (COMP-04, COMP-07)."""

    values: tuple[str, ...]
    total: int | None = None
    """The total number of values, if known."""
    has_more: bool | None = None


@payload
class CompleteResult(FinalResult):
    """The completions of an argument."""

    completion: Completion


# -------------------------------------------------------------------------------------------------------------- logging
# Log messages from a server to its client.

LoggingLevel = Literal["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]

LOGGING_LEVELS: Final[tuple[LoggingLevel, ...]] = get_args(LoggingLevel)
"""Every level, the least severe first, as in RFC 5424 (LOG-02)."""


def at_least(level: LoggingLevel, threshold: LoggingLevel) -> bool:
    """Whether a message of ``level`` passes when ``threshold`` is the least severe one wanted (LOG-03)."""
    return _RANKS[level] >= _RANKS[threshold]


_RANKS = {level: rank for rank, level in enumerate(LOGGING_LEVELS)}


@payload
class SetLevelRequest(RequestPayload, until=REV_2025_11_25):
    """Ask for log messages of a level and above."""

    level: LoggingLevel


@payload
class LoggingMessageNotification(NotificationPayload):
    """A log message. ``data`` is any JSON value (LOG-05); it never holds secrets (LOG-07)."""

    level: LoggingLevel
    data: Any
    logger: str | None = None


# ------------------------------------------------------------------------------------------------------------ discovery
# Discovery of a stateless server's abilities, and the errors for missing ones (2026-07-28).


@payload
class DiscoverRequest(RequestPayload, since=REV_2026_07_28):
    """Ask for the server's revisions and capabilities (VER-03)."""


@payload
class DiscoverResult(CacheableResult, since=REV_2026_07_28):
    """The server's revisions and capabilities. Its name and version are in ``meta`` (VER-03)."""

    supported_versions: tuple[str, ...]
    capabilities: ServerCapabilities
    instructions: str | None = None
    """A hint for the model. Untrusted text."""


@payload
class UnsupportedProtocolVersionData(Payload, since=REV_2026_07_28):
    """The ``data`` of error -32022 (VER-01)."""

    supported: tuple[str, ...]
    requested: str


@payload
class MissingRequiredClientCapabilityData(Payload, since=REV_2026_07_28):
    """The ``data`` of error -32021: the capabilities that the request should have declared (ENV-05)."""

    required_capabilities: ClientCapabilities


# -------------------------------------------------------------------------------------------------------- subscriptions
# Subscriptions: notifications of changes, for clients that asked for them (2026-07-28).


@payload
class SubscriptionFilter(Payload, since=REV_2026_07_28):
    """The changes to notify of (SUB-01)."""

    tools_list_changed: bool | None = None
    prompts_list_changed: bool | None = None
    resources_list_changed: bool | None = None
    resource_subscriptions: tuple[str, ...] | None = None
    """The URIs of resources."""
    task_ids: tuple[str, ...] | None = None
    """The ids of tasks, of the tasks extension (XTASK-11)."""

    @property
    def is_empty(self) -> bool:
        """Whether it names no change at all."""
        lists = self.tools_list_changed or self.prompts_list_changed or self.resources_list_changed
        return not (lists or self.resource_subscriptions or self.task_ids)


@payload
class SubscriptionsListenRequest(RequestPayload, since=REV_2026_07_28):
    """Ask for notifications of changes for as long as the request runs."""

    notifications: SubscriptionFilter


@payload
class SubscriptionsListenResult(FinalResult, since=REV_2026_07_28):
    """The server ends the subscription; ``meta`` has its id (SUB-08)."""


@payload
class SubscriptionsAcknowledgedNotification(NotificationPayload, since=REV_2026_07_28):
    """The part of the filter that the server honours: the first message of a subscription (SUB-02)."""

    notifications: SubscriptionFilter
