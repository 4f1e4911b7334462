"""Dialects that some peers speak beside the protocol, as data: which of their words stand for which of its own.

Nothing of this is accepted or sent unless ``Options`` ask for it, and only in the handshake revisions: 2026-07-28
forbids codes that it does not define, and has no use for old names.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import attrs

from mcpio.erlmcp_codes import ErlmcpCode

__all__ = ["DIALECTS", "Alias", "Dialect", "Profile"]

_NONE: Mapping[str, Any] = MappingProxyType({})


class Profile(enum.Enum):
    """A dialect, by name."""

    ERLMCP = "erlmcp"
    """What erlmcp and guides written after it say: notifications without a prefix, ``shutdown``, codes of its own."""
    LSP_ALIASES = "lsp-aliases"
    """``$/cancelRequest`` and ``$/progress``, as the Language Server Protocol has them. Never sent."""


@attrs.frozen
class Alias:
    """What a notification of another name stands for."""

    method: str
    """The notification of the protocol."""
    members: Mapping[str, tuple[str, ...]] = _NONE
    """Its members, and where the other has them: steps into its params. Empty: the params are the same."""
    needed: tuple[str, ...] = ()
    """Members without which it stands for nothing, and stays the unknown notification that it is."""
    constants: Mapping[str, Any] = _NONE
    """Members that are always the same."""


@attrs.frozen(kw_only=True)
class Dialect:
    """What one profile says in another way than the protocol."""

    notifications: Mapping[str, Alias] = _NONE
    """Notifications, by their name in the dialect."""
    cancelling: frozenset[str] = frozenset()
    """Those of them that may come as a request too: they do what they say and are answered with ``{}``."""
    closing: frozenset[str] = frozenset()
    """Requests to a server that are answered with ``{}``, whereupon it closes in order."""
    tool_calls: frozenset[str] = frozenset()
    """Requests to a server that ``Options.on_tasks_create`` may turn into tool calls."""
    capabilities: Mapping[str, str] = _NONE
    """Capabilities, by their name in the dialect."""
    can_disable: bool = False
    """Whether a capability with ``"enabled": false`` is not declared. In the protocol its presence counts."""
    content_types: Mapping[str, str] = _NONE
    """Types of content blocks, by their name in the dialect."""
    loose_progress_token: bool = False
    """Whether a request's ``progressToken`` may stand in its params, outside ``_meta``."""
    codes: Mapping[str, int] = _NONE
    """Error codes of its own, by what they are for."""
    batches: bool = False
    """Whether arrays are batches in every revision."""
    any_event_type: bool = False
    """Whether server-sent events of every type are messages. In the protocol those of type ``message`` are."""
    run_together: bool = False
    """Whether messages may follow each other on one line."""

    def spoken(self) -> Mapping[str, str]:
        """Return what it calls notifications of the protocol, by their official name: those with the same params."""
        return {
            alias.method: name
            for name, alias in self.notifications.items()
            if not alias.members and name not in self.cancelling
        }


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
