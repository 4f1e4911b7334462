"""The protocol's own keys in ``_meta``. Their values stay plain, as all of ``_meta`` does (META-01)."""

from __future__ import annotations

from typing import Final

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
