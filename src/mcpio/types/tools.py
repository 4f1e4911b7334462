"""Tools: functions that a server offers to the model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, TypeVar

from attrs import field

from mcpio.revisions import REV_2025_03_26, REV_2025_06_18, REV_2025_11_25, REV_2026_07_28, Revision
from mcpio.types._fields import Description, Payload, payload, wire, wired
from mcpio.types.messages import FinalResult, ListResult, NotificationPayload, ObjectPayload, RequestPayload

if TYPE_CHECKING:
    from mcpio.types.content import ContentBlock, Icon
    from mcpio.types.inputs import InputResponse
    from mcpio.types.tasks import TaskMetadata

__all__ = [
    "CallToolRequest",
    "CallToolResult",
    "ListToolsRequest",
    "ListToolsResult",
    "TaskSupport",
    "Tool",
    "ToolAnnotations",
    "ToolExecution",
    "ToolListChangedNotification",
]


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
class ToolAnnotations(Description):
    """A server's hints on the behaviour of its tool. Trust them only as much as the server (TOOL-17).

    ``None`` means that the hint is absent; the ``is_…`` properties fill in the specification's defaults.
    """

    SINCE: ClassVar[Revision] = REV_2025_03_26

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
class ToolExecution(Payload):
    """How to run a tool."""

    SINCE: ClassVar[Revision] = REV_2025_11_25
    UNTIL: ClassVar[Revision] = REV_2025_11_25

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
class ListToolsResult(ListResult):
    """A page of the tools. Only ``next_cursor`` of ``None`` ends the list: an empty string does not (GONE-05)."""

    ITEMWISE: ClassVar[str | None] = "tools"

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
        found: T = CONVERSIONS[0](self, kind)
        return found


@payload
class ToolListChangedNotification(NotificationPayload):
    """The list of tools changed."""
