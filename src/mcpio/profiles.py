"""Dialects of some peers, as tables of names, and the error codes of erlmcp.

Nothing of this is accepted or sent unless ``Options`` ask for it, and only in the handshake revisions: 2026-07-28
forbids codes that it does not define, and has no old names.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import attrs

__all__ = ["DIALECTS", "Alias", "Dialect", "ErlmcpCode", "ErlmcpExperimentalCode", "Profile"]

_NONE: Mapping[str, Any] = MappingProxyType({})


class Profile(enum.Enum):
    """A dialect, by name."""

    ERLMCP = "erlmcp"
    """The dialect of erlmcp and of guides based on it: notifications without a prefix, ``shutdown``, other codes."""
    LSP_ALIASES = "lsp-aliases"
    """``$/cancelRequest`` and ``$/progress`` of the Language Server Protocol. Never sent."""


@attrs.frozen
class Alias:
    """The meaning of a notification of another name."""

    method: str
    """The equivalent notification of the protocol."""
    members: Mapping[str, tuple[str, ...]] = _NONE
    """The members of that notification, each with its path in the params received; empty if the params are the same."""
    needed: tuple[str, ...] = ()
    """The members without which it remains an unknown notification."""
    constants: Mapping[str, Any] = _NONE
    """Members with a fixed value."""


@attrs.frozen(kw_only=True)
class Dialect:
    """The differences of one profile from the protocol."""

    notifications: Mapping[str, Alias] = _NONE
    """Notifications, by their name in the dialect."""
    cancelling: frozenset[str] = frozenset()
    """The dialect's notifications that may also be requests: the engine processes them and answers ``{}``."""
    closing: frozenset[str] = frozenset()
    """Requests to a server that it answers with ``{}``, and then closes gracefully."""
    tool_calls: frozenset[str] = frozenset()
    """Requests to a server that ``Options.on_tasks_create`` may turn into tool calls."""
    capabilities: Mapping[str, str] = _NONE
    """Capabilities, by their name in the dialect."""
    can_disable: bool = False
    """Whether a capability with ``"enabled": false`` counts as not declared. In the protocol its presence counts."""
    content_types: Mapping[str, str] = _NONE
    """The types of content blocks, by their name in the dialect."""
    loose_progress_token: bool = False
    """Whether a request's ``progressToken`` may stand in its params, outside ``_meta``."""
    codes: Mapping[str, int] = _NONE
    """The error codes of the dialect, by their purpose."""
    batches: bool = False
    """Whether an array is a batch in every revision."""
    any_event_type: bool = False
    """Whether server-sent events of every type are messages. In the protocol only those of type ``message`` are."""
    run_together: bool = False
    """Whether one line may hold several messages."""

    def spoken(self) -> Mapping[str, str]:
        """Return the dialect's names of notifications with the same params, by their official names."""
        return {
            alias.method: name
            for name, alias in self.notifications.items()
            if not alias.members and name not in self.cancelling
        }


class ErlmcpCode(enum.IntEnum):
    """The error codes of erlmcp, by its names.

    mcpio sends only the three that `Profile.ERLMCP` needs, and only if asked to. Most of the others lie in ranges that
    the protocol or JSON-RPC reserve, and some mean another thing there (-32002, -32020 to -32022). Received, they are
    ``RequestError.code`` like any other.
    """

    CUSTOM_SERVER_ERROR = -32000

    RESOURCE_NOT_FOUND = -32001
    TOOL_NOT_FOUND = -32002
    PROMPT_NOT_FOUND = -32003
    CAPABILITY_NOT_SUPPORTED = -32004
    NOT_INITIALIZED = -32005
    SUBSCRIPTION_FAILED = -32006
    VALIDATION_FAILED = -32007
    TRANSPORT_ERROR = -32008
    TIMEOUT = -32009
    RATE_LIMITED = -32010

    TOOL_DESCRIPTION_TOO_LONG = -32011
    MESSAGE_TOO_LARGE = -32012
    INVALID_CONTENT_TYPE = -32013
    CONTENT_TOO_LARGE = -32014
    INVALID_ENCODING = -32015
    BINARY_DATA_TOO_LARGE = -32016
    TEXT_TOO_LONG = -32017
    INVALID_MIME_TYPE = -32018
    UNSUPPORTED_MEDIA_TYPE = -32019
    MEDIA_TYPE_NOT_ACCEPTABLE = -32020

    RESOURCE_TEMPLATE_NOT_FOUND = -32021
    INVALID_URI = -32022
    URI_SYNTAX_ERROR = -32023
    URI_TOO_LONG = -32024
    RESOURCE_ACCESS_DENIED = -32025
    RESOURCE_ALREADY_EXISTS = -32026
    RESOURCE_LOCKED = -32027
    RESOURCE_VERSION_MISMATCH = -32028
    TEMPLATE_RENDER_FAILED = -32029
    INVALID_URI_TEMPLATE = -32030

    TOOL_EXECUTION_FAILED = -32031
    TOOL_TIMEOUT = -32032
    TOOL_CANCELLED = -32033
    INVALID_TOOL_ARGUMENTS = -32034
    TOOL_DISABLED = -32035
    TOOL_RESULT_TOO_LARGE = -32036
    TOOL_NOT_ALLOWED = -32037
    MAX_CONCURRENT_TOOLS = -32038
    TOOL_DEPENDENCY_FAILED = -32039
    TOOL_SCHEMA_INVALID = -32040

    URL_ELICITATION_REQUIRED = -32042
    PROMPT_ARGUMENT_MISSING = -32043
    PROMPT_RENDER_FAILED = -32044
    INVALID_PROMPT_ARGUMENTS = -32045
    SAMPLING_FAILED = -32046
    SAMPLING_TIMEOUT = -32047
    INVALID_MODEL_PREFERENCES = -32048
    MODEL_NOT_AVAILABLE = -32049
    SAMPLING_RATE_LIMITED = -32050

    AUTHENTICATION_FAILED = -32051
    AUTHORIZATION_FAILED = -32052
    INVALID_CREDENTIALS = -32053
    TOKEN_EXPIRED = -32054
    INSUFFICIENT_PERMISSIONS = -32055
    ACCESS_DENIED = -32056
    SESSION_EXPIRED = -32057
    SESSION_NOT_FOUND = -32058
    INVALID_TOKEN = -32059
    UNAUTHORIZED_OPERATION = -32060

    UNSUPPORTED_PROTOCOL_VERSION = -32061
    PROTOCOL_VERSION_MISMATCH = -32062
    CAPABILITY_NEGOTIATION_FAILED = -32063
    INCOMPATIBLE_CAPABILITIES = -32064
    METHOD_NOT_SUPPORTED = -32065
    NOTIFICATION_NOT_SUPPORTED = -32066
    REQUEST_ID_INVALID = -32067
    REQUEST_ID_CONFLICT = -32068
    BATCH_REQUEST_TOO_LARGE = -32069
    BATCH_PARTIAL_FAILURE = -32070

    INVALID_CURSOR = -32071
    CURSOR_EXPIRED = -32072
    PAGINATION_NOT_SUPPORTED = -32073
    PAGE_SIZE_TOO_LARGE = -32074
    PAGE_SIZE_INVALID = -32075
    INVALID_OFFSET = -32076
    CURSOR_REQUIRES_PARAMETER = -32077
    CURSOR_ENCODING_FAILED = -32078
    PAGINATION_LIMIT_EXCEEDED = -32079
    CURSOR_POSITION_INVALID = -32080

    TASK_NOT_FOUND = -32081
    TASK_ALREADY_EXISTS = -32082
    TASK_FAILED = -32083
    TASK_CANCELLED = -32084
    TASK_TIMEOUT = -32085
    TASK_STATE_INVALID = -32086
    MAX_CONCURRENT_TASKS = -32087
    TASK_DEPENDENCY_FAILED = -32088
    TASK_RESULT_NOT_READY = -32089
    TASK_ALREADY_COMPLETED = -32090

    INVALID_PROGRESS_TOKEN = -32091
    PROGRESS_TOKEN_EXPIRED = -32092
    PROGRESS_UPDATE_FAILED = -32093
    NOTIFICATION_FAILED = -32094
    NOTIFICATION_QUEUE_FULL = -32095
    INVALID_NOTIFICATION_TYPE = -32096
    NOTIFICATION_NOT_DELIVERED = -32097
    PROGRESS_VALUE_INVALID = -32098
    PROGRESS_TOTAL_INVALID = -32099

    PROMPT_TOO_LARGE = -32101
    DANGEROUS_PATTERN_DETECTED = -32102
    INVALID_VARIABLE_NAME = -32103
    PROMPT_RATE_LIMITED = -32104

    COMPLETION_NOT_FOUND = -32110
    INVALID_COMPLETION_REFERENCE = -32111
    INVALID_COMPLETION_ARGUMENT = -32112
    COMPLETION_FAILED = -32113


class ErlmcpExperimentalCode(enum.IntEnum):
    """The codes that erlmcp calls experimental, just above the refusals (E8)."""

    ELICITATION_FAILED = 1090
    ELICITATION_TIMEOUT = 1091
    ELICITATION_CANCELLED = 1092
    INVALID_ELICITATION_MODE = 1093
    ELICITATION_SECURITY_ERROR = 1094
    TASK_NOT_FOUND = 1095
    TASK_DEPENDENCY_FAILED = 1096
    TASK_CANCELLED = 1097
    TASK_TIMEOUT = 1098
    INVALID_TASK_STATE = 1099


DIALECTS: Final[Mapping[Profile, Dialect]] = MappingProxyType(
    {
        Profile.ERLMCP: Dialect(
            notifications={
                "progress": Alias("notifications/progress"),
                "resources/updated": Alias("notifications/resources/updated"),
                "resources/list_changed": Alias("notifications/resources/list_changed"),
                "tools/list_changed": Alias("notifications/tools/list_changed"),
                "prompts/list_changed": Alias("notifications/prompts/list_changed"),
                "requests/cancel": Alias("notifications/cancelled"),
            },
            cancelling=frozenset({"requests/cancel"}),
            closing=frozenset({"shutdown"}),
            tool_calls=frozenset({"tasks/create"}),
            capabilities={"completion": "completions"},
            can_disable=True,
            content_types={"resource/link": "resource_link"},
            loose_progress_token=True,
            codes={
                "not initialized": int(ErlmcpCode.NOT_INITIALIZED),
                "initialized already": int(ErlmcpCode.NOT_INITIALIZED),
                "message too large": int(ErlmcpCode.MESSAGE_TOO_LARGE),
            },
            batches=True,
            run_together=True,
            any_event_type=True,
        ),
        Profile.LSP_ALIASES: Dialect(
            notifications={
                "$/cancelRequest": Alias("notifications/cancelled", {"requestId": ("id",)}, ("requestId",)),
                "$/progress": Alias(
                    "notifications/progress",
                    {
                        "progressToken": ("token",),
                        "progress": ("value", "percentage"),
                        "message": ("value", "message"),
                    },
                    ("progressToken", "progress"),
                    {"total": 100},
                ),
            },
        ),
    }
)
"""Every profile's dialect."""
