"""Every method of the protocol, one row each: types, direction, capability, revisions."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from functools import cached_property
from importlib import import_module
from types import MappingProxyType
from typing import Any, Final, Literal

import attrs

from mcpio.revisions import REV_2024_11_05, REV_2025_03_26, REV_2025_06_18, REV_2025_11_25, REV_2026_07_28, Revision
from mcpio.types._fields import Payload

__all__ = [
    "METHODS",
    "TASK_EXTENSION_METHODS",
    "Direction",
    "Kind",
    "Method",
    "check_method",
    "declares",
    "method_of",
    "official_name",
]


class Kind(enum.Enum):
    """Whether a method is a request or a notification."""

    REQUEST = "request"
    NOTIFICATION = "notification"


class Direction(enum.Enum):
    """The role that receives a message."""

    TO_SERVER = "to the server"
    TO_CLIENT = "to the client"
    BOTH = "to either"


@attrs.frozen
class Method:
    """A row of the table. Types are named ``"module:Class"``, with a module of ``mcpio.types``."""

    name: str
    kind: Kind
    direction: Direction
    params: str
    result: str | None = None
    """The type of the result; ``None`` for a notification."""
    capability: tuple[str, ...] = ()
    """The capability that the method requires, as a path of attributes of the capabilities; empty for none."""
    holder: Literal["sender", "receiver"] = "receiver"
    """The side that must declare the capability."""
    since: Revision = REV_2024_11_05
    until: Revision = REV_2026_07_28
    gated_since: Revision = REV_2024_11_05
    """The first revision that has the capability; earlier revisions require none."""
    stateless: Direction | None = None
    """The direction in the stateless era, if it differs."""
    embedded: bool = False
    """Whether it is a value inside an ``InputRequiredResult`` in the stateless era, not a message (MRTR-03)."""
    may_ask: bool = False
    """Whether the answer may be an ``InputRequiredResult`` in the stateless era (MRTR-01)."""
    task_capability: tuple[str, ...] = ()
    """The capability of a receiver that runs the request as a task on demand (2025-11-25); empty for never."""

    @cached_property
    def params_type(self) -> type[Any]:
        """The payload class of the params, imported when first asked for."""
        return _load(self.params)

    @cached_property
    def result_type(self) -> type[Any]:
        """The payload class of the result, imported when first asked for. Raises TypeError for a notification."""
        if self.result is None:
            raise TypeError(f"{self.name} is a notification and has no result")
        return _load(self.result)

    def exists_in(self, revision: Revision) -> bool:
        """Whether the revision has the message."""
        return self.since <= revision <= self.until

    def capability_in(self, revision: Revision) -> tuple[str, ...]:
        """Return the capability that the method requires in a revision; empty for none."""
        return self.capability if revision >= self.gated_since else ()

    def direction_in(self, revision: Revision) -> Direction:
        """Return the role that receives the message in a revision."""
        return self.direction if self.stateless is None or revision < REV_2026_07_28 else self.stateless


def method_of(payload: Any) -> Method:
    """Return the method of a payload or of a payload class.

    Raises KeyError for anything that has no method, such as results, ``CustomRequest`` and ``CustomNotification``.
    """
    cls = payload if isinstance(payload, type) else payload.__class__
    for base in cls.__mro__:
        method = _BY_PARAMS.get(base.__name__)
        if method is not None:
            return method
    raise KeyError(cls.__name__)


def check_method(name: str) -> None:
    """Raise ValueError for a misspelt method of the protocol. Other names may be those of an extension."""
    if name in METHODS:
        return
    from difflib import get_close_matches  # for mistakes only

    close = get_close_matches(name, METHODS, 1, 0.8)
    if close or name.partition("/")[0] in {each.partition("/")[0] for each in METHODS}:
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise ValueError(f"the protocol has no method {name!r:.100}{hint}")


def official_name(payload: Any, name: str) -> str:
    """Return the official name of the method of a payload that was received as ``name``, perhaps in a dialect."""
    if name in METHODS:
        return name
    try:
        return method_of(payload).name
    except KeyError:
        return name


def why_no_input(name: str) -> str:
    """Say that the method of a stateless request cannot ask for input, and which can (MRTR-01)."""
    asking = ", ".join(method.name for method in METHODS.values() if method.may_ask)
    return f"{name} cannot ask for input: only {asking} can"


def declares(capabilities: Any, path: tuple[str, ...]) -> bool:
    """Return whether ``ClientCapabilities`` or ``ServerCapabilities`` declare the capability at ``path`` (CAP-01).

    A step is an attribute, or a key of a mapping (``("extensions", "io.modelcontextprotocol/tasks")``). ``None`` and
    ``False`` mean not declared, an empty object means declared. ``elicitation`` without a mode declares the form
    (ELIC-01).
    """
    value = capabilities
    for step in path:
        value = getattr(value, step, None) if isinstance(value, Payload) else _entry(value, step)
        if value is None or value is False:
            return path == _FORM and _has_plain_elicitation(capabilities)
    return True


def _entry(value: Any, step: str) -> Any:
    return value.get(step) if isinstance(value, Mapping) else None


_FORM = ("elicitation", "form")


def _has_plain_elicitation(capabilities: Any) -> bool:
    elicitation = getattr(capabilities, "elicitation", None)
    return elicitation is not None and elicitation.url is None


def _load(name: str) -> type[Any]:
    module, _, attribute = name.partition(":")
    loaded: type[Any] = getattr(import_module(f"mcpio.types.{module}"), attribute)
    return loaded


_D = REV_2025_11_25
_TO_SERVER, _TO_CLIENT, _BOTH = Direction


def _request(name: str, direction: Direction, params: str, result: str, *capability: str, **more: Any) -> Method:
    return Method(name, Kind.REQUEST, direction, params, result, capability, **more)


def _notification(name: str, direction: Direction, params: str, *capability: str, **more: Any) -> Method:
    return Method(f"notifications/{name}", Kind.NOTIFICATION, direction, params, None, capability, "sender", **more)


_SKILLS = ("extensions", "io.modelcontextprotocol/skills")

_ROWS = (
    _request("initialize", _TO_SERVER, "features:InitializeRequest", "features:InitializeResult", until=_D),
    _notification("initialized", _TO_SERVER, "features:InitializedNotification", until=_D),
    _request("ping", _BOTH, "features:PingRequest", "features:EmptyResult", until=_D),
    _notification("cancelled", _BOTH, "features:CancelledNotification"),
    _notification("progress", _BOTH, "features:ProgressNotification", stateless=_TO_CLIENT),
    _request("tools/list", _TO_SERVER, "features:ListToolsRequest", "features:ListToolsResult", "tools"),
    _request(
        "tools/call",
        _TO_SERVER,
        "features:CallToolRequest",
        "features:CallToolResult",
        "tools",
        may_ask=True,
        task_capability=("tasks", "requests", "tools", "call"),
    ),
    _notification("tools/list_changed", _TO_CLIENT, "features:ToolListChangedNotification", "tools", "list_changed"),
    _request(
        "resources/list", _TO_SERVER, "features:ListResourcesRequest", "features:ListResourcesResult", "resources"
    ),
    _request(
        "resources/templates/list",
        _TO_SERVER,
        "features:ListResourceTemplatesRequest",
        "features:ListResourceTemplatesResult",
        "resources",
    ),
    _request(
        "resources/read",
        _TO_SERVER,
        "features:ReadResourceRequest",
        "features:ReadResourceResult",
        "resources",
        may_ask=True,
    ),
    _request(
        "resources/subscribe",
        _TO_SERVER,
        "features:SubscribeRequest",
        "features:EmptyResult",
        "resources",
        "subscribe",
        until=_D,
    ),
    _request(
        "resources/unsubscribe",
        _TO_SERVER,
        "features:UnsubscribeRequest",
        "features:EmptyResult",
        "resources",
        "subscribe",
        until=_D,
    ),
    _notification("resources/updated", _TO_CLIENT, "features:ResourceUpdatedNotification", "resources", "subscribe"),
    _notification(
        "resources/list_changed",
        _TO_CLIENT,
        "features:ResourceListChangedNotification",
        "resources",
        "list_changed",
    ),
    _request("prompts/list", _TO_SERVER, "features:ListPromptsRequest", "features:ListPromptsResult", "prompts"),
    _request(
        "prompts/get", _TO_SERVER, "features:GetPromptRequest", "features:GetPromptResult", "prompts", may_ask=True
    ),
    _notification(
        "prompts/list_changed", _TO_CLIENT, "features:PromptListChangedNotification", "prompts", "list_changed"
    ),
    _request(
        "completion/complete",
        _TO_SERVER,
        "features:CompleteRequest",
        "features:CompleteResult",
        "completions",
        gated_since=REV_2025_03_26,
    ),
    _request("logging/setLevel", _TO_SERVER, "features:SetLevelRequest", "features:EmptyResult", "logging", until=_D),
    _notification("message", _TO_CLIENT, "features:LoggingMessageNotification", "logging"),
    _request(
        "sampling/createMessage",
        _TO_CLIENT,
        "asking:CreateMessageRequest",
        "asking:CreateMessageResult",
        "sampling",
        until=_D,
        embedded=True,
        task_capability=("tasks", "requests", "sampling", "create_message"),
    ),
    _request(
        "roots/list",
        _TO_CLIENT,
        "asking:ListRootsRequest",
        "asking:ListRootsResult",
        "roots",
        until=_D,
        embedded=True,
    ),
    _notification(
        "roots/list_changed", _TO_SERVER, "asking:RootsListChangedNotification", "roots", "list_changed", until=_D
    ),
    _request(
        "elicitation/create",
        _TO_CLIENT,
        "asking:ElicitRequest",
        "asking:ElicitResult",
        "elicitation",
        since=REV_2025_06_18,
        until=_D,
        embedded=True,
        task_capability=("tasks", "requests", "elicitation", "create"),
    ),
    Method(
        "notifications/elicitation/complete",
        Kind.NOTIFICATION,
        _TO_CLIENT,
        "asking:ElicitationCompleteNotification",
        capability=("elicitation", "url"),
        since=_D,
        until=_D,
    ),
    _request("tasks/get", _BOTH, "tasks:GetTaskRequest", "tasks:GetTaskResult", "tasks", since=_D, until=_D),
    _request(
        "tasks/result",
        _BOTH,
        "tasks:GetTaskPayloadRequest",
        "tasks:GetTaskPayloadResult",
        "tasks",
        since=_D,
        until=_D,
    ),
    _request(
        "tasks/list", _BOTH, "tasks:ListTasksRequest", "tasks:ListTasksResult", "tasks", "list", since=_D, until=_D
    ),
    _request(
        "tasks/cancel",
        _BOTH,
        "tasks:CancelTaskRequest",
        "tasks:CancelTaskResult",
        "tasks",
        "cancel",
        since=_D,
        until=_D,
    ),
    _notification("tasks/status", _BOTH, "tasks:TaskStatusNotification", "tasks", since=_D, until=_D),
    _request(
        "server/discover",
        _TO_SERVER,
        "features:DiscoverRequest",
        "features:DiscoverResult",
        since=REV_2026_07_28,
    ),
    _request(
        "subscriptions/listen",
        _TO_SERVER,
        "features:SubscriptionsListenRequest",
        "features:SubscriptionsListenResult",
        since=REV_2026_07_28,
    ),
    _notification(
        "subscriptions/acknowledged",
        _TO_CLIENT,
        "features:SubscriptionsAcknowledgedNotification",
        since=REV_2026_07_28,
    ),
    # Of the skills extension.
    _request("skills/list", _TO_SERVER, "skills:ListSkillsRequest", "skills:ListSkillsResult", *_SKILLS),
    _request("skills/get", _TO_SERVER, "skills:GetSkillRequest", "skills:GetSkillResult", *_SKILLS),
    _request(
        "resources/directory/read",
        _TO_SERVER,
        "skills:ReadDirectoryRequest",
        "skills:ReadDirectoryResult",
        *_SKILLS,
        "directoryRead",
    ),
    # Of the tasks extension. Its requests are custom ones: see ``TASK_EXTENSION_METHODS``.
    _notification(
        "tasks",
        _TO_CLIENT,
        "tasks:TaskNotification",
        "extensions",
        "io.modelcontextprotocol/tasks",
        since=REV_2026_07_28,
    ),
)

METHODS: Final[Mapping[str, Method]] = MappingProxyType({row.name: row for row in _ROWS})
"""Every method of every revision, by its name on the wire."""

TASK_EXTENSION_METHODS: Final = frozenset({"tasks/get", "tasks/update", "tasks/cancel"})
"""The requests of the tasks extension of 2026-07-28: custom ones, two of them with names of methods of 2025-11-25."""

_BY_PARAMS = {row.params.partition(":")[2]: row for row in _ROWS}
