"""The keys of ``_meta``: the protocol's own, and what a key of one's own may look like."""

from __future__ import annotations

import re
from typing import Final

from mcpio.revisions import REV_2025_11_25, Revision

__all__ = [
    "META_CLIENT_CAPABILITIES",
    "META_CLIENT_INFO",
    "META_LOG_LEVEL",
    "META_MODEL_IMMEDIATE_RESPONSE",
    "META_PROGRESS_TOKEN",
    "META_PROTOCOL_VERSION",
    "META_RELATED_TASK",
    "META_SERVER_INFO",
    "META_SUBSCRIPTION_ID",
    "is_reserved_meta_key",
    "is_valid_meta_key",
]

META_PROGRESS_TOKEN: Final = "progressToken"
"""On requests: the token for their progress notifications (META-06)."""
META_RELATED_TASK: Final = "io.modelcontextprotocol/related-task"
"""2025-11-25: what belongs to a task (TASK-28). The value is a ``RelatedTaskMetadata``."""
META_MODEL_IMMEDIATE_RESPONSE: Final = "io.modelcontextprotocol/model-immediate-response"
"""2025-11-25: what a model may be told while a task runs (TASK-13)."""
META_PROTOCOL_VERSION: Final = "io.modelcontextprotocol/protocolVersion"
"""2026-07-28, on every request: its revision (ENV-01)."""
META_CLIENT_CAPABILITIES: Final = "io.modelcontextprotocol/clientCapabilities"
"""2026-07-28, on every request (ENV-01)."""
META_CLIENT_INFO: Final = "io.modelcontextprotocol/clientInfo"
"""2026-07-28, on every request unless configured otherwise (ENV-02)."""
META_LOG_LEVEL: Final = "io.modelcontextprotocol/logLevel"
"""2026-07-28, on requests: the least severe log messages wanted (ENV-08)."""
META_SERVER_INFO: Final = "io.modelcontextprotocol/serverInfo"
"""2026-07-28, on results (ENV-06)."""
META_SUBSCRIPTION_ID: Final = "io.modelcontextprotocol/subscriptionId"
"""2026-07-28, on what belongs to a subscription (ENV-09)."""


def is_valid_meta_key(key: str) -> bool:
    """Whether a key has the form that the protocol asks for: an optional prefix, then a name (META-02, META-03)."""
    return _KEY(key) is not None


def is_reserved_meta_key(key: str, revision: Revision) -> bool:
    """Whether the prefix of a key belongs to the protocol.

    Since 2025-11-25 its second label tells (META-04); before, the last but one (META-05).
    """
    prefix, slash, _ = key.rpartition("/")
    labels = prefix.split(".") if slash else []
    place = 1 if revision >= REV_2025_11_25 else -2
    return len(labels) > 1 and labels[place] in _OWN_LABELS


_LABEL = "[A-Za-z](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_NAME = "(?:[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)?"
_KEY = re.compile(rf"(?:{_LABEL}(?:\.{_LABEL})*/)?{_NAME}").fullmatch
_OWN_LABELS = {"modelcontextprotocol", "mcp"}
