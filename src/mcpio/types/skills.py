"""Skills: folders of instructions that a server lets its clients read.

They are the extension ``io.modelcontextprotocol/skills``. The files of a skill are resources, and its entry says which
these are and what their bytes hash to.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from mcpio.types._fields import payload, wire
from mcpio.types.base import CacheableResult, ListResult, ObjectPayload, RequestPayload

if TYPE_CHECKING:
    from mcpio.types.features import Resource

__all__ = [
    "GetSkillRequest",
    "GetSkillResult",
    "ListSkillsRequest",
    "ListSkillsResult",
    "ReadDirectoryRequest",
    "ReadDirectoryResult",
    "SkillEntry",
]


@payload
class SkillEntry(ObjectPayload):
    """What a server says of a skill (SKILL-05)."""

    uri: str
    """The URI of its ``SKILL.md``."""
    frontmatter: Mapping[str, Any]
    """The whole frontmatter of ``SKILL.md``, as JSON."""
    resources: Any
    """A list of objects with the ``uri``, ``digest`` and ``size`` of each file, or ``"dynamic"``. Clients check it when
    they make a ``Skill`` of the entry."""


@payload
class ListSkillsRequest(RequestPayload):
    """Ask for a page of the skills: the first, without ``cursor``."""

    cursor: str | None = None


@payload
class ListSkillsResult(ListResult, itemwise="skills"):
    """A page of the skills. A server may serve others too, which ``skills/get`` knows (SKILL-07)."""

    skills: tuple[SkillEntry, ...]
    """The entries, each whole."""
    next_cursor: str | None = wire(default=None, strict=True)


@payload
class GetSkillRequest(RequestPayload):
    """Ask for the entry of a skill, by the URI of its ``SKILL.md``."""

    uri: str


@payload
class GetSkillResult(CacheableResult):
    """The entry of a skill, as it is now (SKILL-08)."""

    skill: SkillEntry
    """The entry."""


@payload
class ReadDirectoryRequest(RequestPayload):
    """Ask what is in a directory of a skill."""

    uri: str
    cursor: str | None = None


@payload
class ReadDirectoryResult(ListResult, itemwise="resources"):
    """The direct children of a directory; directories among them have the type ``inode/directory`` (SKILL-09)."""

    resources: tuple[Resource, ...]
    next_cursor: str | None = wire(default=None, strict=True)
