"""Names of members of ``_meta``: the protocol's own keys, and the rules for everyone else's.

The values of ``_meta`` stay plain JSON, whatever the key (META-01). Only keys that this side sends are checked
(META-07); received keys are taken as they are.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from mcpio.revisions import REV_2025_06_18, REV_2025_11_25, Revision

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
    "TASKS_EXTENSION",
    "fault_in_key",
    "fault_in_meta",
    "is_reserved",
]

META_PROGRESS_TOKEN: Final = "progressToken"
"""On requests: the token for their progress notifications (META-06)."""
META_RELATED_TASK: Final = "io.modelcontextprotocol/related-task"
"""2025-11-25: on messages that belong to a task (TASK-28). The value is a ``RelatedTaskMetadata``."""
META_MODEL_IMMEDIATE_RESPONSE: Final = "io.modelcontextprotocol/model-immediate-response"
"""2025-11-25: the text to give a model while a task runs (TASK-13)."""
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
TASKS_EXTENSION: Final = "io.modelcontextprotocol/tasks"
"""The tasks of 2026-07-28, among the ``extensions`` of capabilities."""
META_SUBSCRIPTION_ID: Final = "io.modelcontextprotocol/subscriptionId"
"""2026-07-28, on messages that belong to a subscription (ENV-09)."""


def fault_in_meta(meta: Mapping[str, Any]) -> str | None:
    """Return the fault of the first ill-formed key, or ``None`` if all keys are well-formed."""
    for key in meta:
        fault = fault_in_key(key)
        if fault is not None:
            return f"{key!r:.100} is not a key for _meta: {fault}"
    return None


def fault_in_key(key: object) -> str | None:
    """Return the fault of a key, or ``None`` if it is well-formed: ``name`` or ``prefix/name``.

    A prefix is dot-separated labels, each a letter, then letters, digits and hyphens, a hyphen never last (META-02).
    A name is empty, or letters, digits, ``-``, ``_`` and ``.``, beginning and ending with a letter or digit (META-03).
    """
    if not isinstance(key, str):
        return "it is not a string"
    prefix, slash, name = key.rpartition("/")
    for label in prefix.split(".") if slash else ():
        if not _LABEL.fullmatch(label):
            return f"{label!r:.100} is not a label of a prefix"
    return None if _NAME.fullmatch(name) else f"{name!r:.100} is not a name"


def is_reserved(key: str, revision: Revision | None = None) -> bool:
    """Whether a well-formed key has a prefix that is reserved for the protocol.

    From 2025-11-25 on it is one whose second label is ``mcp`` or ``modelcontextprotocol`` (META-04), in 2025-06-18 one
    whose last label but one is (META-05); earlier revisions reserve nothing. ``None`` asks for any of them.
    """
    prefix, slash, _ = key.rpartition("/")
    labels = prefix.split(".")
    if not slash or len(labels) < 2:
        return False
    first_shape = labels[-2] in _RESERVED and (revision is None or revision is REV_2025_06_18)
    second_shape = labels[1] in _RESERVED and (revision is None or revision >= REV_2025_11_25)
    return first_shape or second_shape


_LABEL = re.compile(r"[A-Za-z](?:[A-Za-z0-9-]*[A-Za-z0-9])?", re.ASCII)
_NAME = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?)?", re.ASCII)
_RESERVED = frozenset({"mcp", "modelcontextprotocol"})
