"""Capabilities of either side: none, and all."""

from __future__ import annotations

from typing import Any

from mcpio.engine.table import Role
from mcpio.types import ElicitationCapability, PromptsCapability, RootsCapability, SamplingCapability
from mcpio.types.features import ClientCapabilities, ResourcesCapability, ServerCapabilities, ToolsCapability
from mcpio.types.tasks import ClientTasksCapability, ServerTasksCapability

__all__ = ["EVERYTHING", "NOTHING", "other"]

NOTHING: dict[Role, Any] = {Role.CLIENT: ClientCapabilities(), Role.SERVER: ServerCapabilities()}
EVERYTHING: dict[Role, Any] = {
    Role.CLIENT: ClientCapabilities(
        roots=RootsCapability(list_changed=True),
        sampling=SamplingCapability(),
        elicitation=ElicitationCapability(form={}, url={}),
        tasks=ClientTasksCapability(list={}, cancel={}),
    ),
    Role.SERVER: ServerCapabilities(
        tools=ToolsCapability(list_changed=True),
        resources=ResourcesCapability(subscribe=True, list_changed=True),
        prompts=PromptsCapability(list_changed=True),
        logging={},
        completions={},
        tasks=ServerTasksCapability(list={}, cancel={}),
        extensions={"io.modelcontextprotocol/skills": {"directoryRead": True}},
    ),
}


def other(role: Role) -> Role:
    return Role.SERVER if role is Role.CLIENT else Role.CLIENT
