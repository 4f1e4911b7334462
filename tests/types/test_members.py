from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
import pytest

from mcpio.revisions import REV_2024_11_05, REV_2025_06_18, REV_2025_11_25, REV_2026_07_28
from mcpio.types import CallToolRequest, CallToolResult, CancelledNotification, Icon, ListToolsResult, Tool
from mcpio.types._fields import Payload
from mcpio.types._members import Member, members


def member(cls: type[Payload], attribute: str) -> Member:
    return next(one for one in members(cls) if one.attribute == attribute)


def test_the_members_of_a_class_come_before_those_of_its_bases() -> None:
    assert [one.name for one in members(CallToolRequest)] == [
        *("name", "arguments", "task", "inputResponses", "requestState"),
        "_meta",
    ]
    assert [one.name for one in members(ListToolsResult)] == [
        *("tools", "nextCursor"),
        *("_meta", "resultType", "ttlMs", "cacheScope"),
    ]


def test_the_members_are_found_once() -> None:
    assert members(CallToolRequest) is members(CallToolRequest)


def test_names_follow_from_attributes_or_are_given() -> None:
    assert member(CallToolResult, "is_error").name == "isError"
    assert member(CallToolResult, "meta").name == "_meta"


def test_a_member_exists_in_some_revisions() -> None:
    execution = member(Tool, "execution")
    assert not execution.exists_in(REV_2025_06_18)
    assert execution.exists_in(REV_2025_11_25)
    assert not execution.exists_in(REV_2026_07_28)


def test_a_member_may_be_needed() -> None:
    assert member(Tool, "name").needed_in(REV_2024_11_05)
    assert member(Tool, "name").default is attrs.NOTHING
    assert not member(Tool, "description").needed_in(REV_2024_11_05)
    request_id = member(CancelledNotification, "request_id")
    assert request_id.needed_in(REV_2025_06_18)
    assert not request_id.needed_in(REV_2025_11_25)
    assert request_id.type_in(REV_2025_11_25) == int | str


def test_a_type_is_looked_up_where_it_is_declared() -> None:
    assert member(Tool, "name").type_in(REV_2025_11_25) is str
    assert member(Tool, "icons").type_in(REV_2025_11_25) == tuple[Icon, ...]
    assert member(ListToolsResult, "cache_scope").type_in(REV_2026_07_28).__args__ == ("public", "private")


def test_a_type_may_differ_by_revision() -> None:
    structured = member(CallToolResult, "structured_content")
    assert structured.type_in(REV_2025_11_25) == Mapping[str, Any]
    assert structured.type_in(REV_2026_07_28) is Any


def test_a_class_derived_without_attrs_has_the_members_of_its_base() -> None:
    class Derived(Tool):
        pass

    assert [one.name for one in members(Derived)] == [one.name for one in members(Tool)]
    assert member(Derived, "icons").type_in(REV_2025_11_25) == tuple[Icon, ...]


def test_a_name_that_nobody_knows_is_an_error() -> None:
    @attrs.frozen
    class Wrong(Payload):
        x: Lemon  # type: ignore[name-defined]  # noqa: F821  # the test is that it is found out

    with pytest.raises(NameError, match="Lemon"):
        member(Wrong, "x").type_in(REV_2025_11_25)
