from __future__ import annotations

import pytest

from mcpio.auth import missing_scopes
from mcpio.auth.grant import format_scopes, parse_scopes, select_scopes

NONE: frozenset[str] = frozenset()


def test_scopes_are_written_sorted_and_read_back() -> None:
    assert format_scopes({"b", "a", "files:write"}) == "a b files:write"
    assert parse_scopes("a b files:write") == {"a", "b", "files:write"}
    assert parse_scopes("") == NONE


@pytest.mark.parametrize("scope", ["", "a b", 'a"', "a\\", "ä", "a\n"])
def test_writing_a_malformed_scope_raises(scope: str) -> None:
    with pytest.raises(ValueError, match="a scope must be"):
        format_scopes({scope})


@pytest.mark.req("AUTH-33")
def test_the_first_source_that_has_scopes_decides() -> None:
    challenged, listed = frozenset({"challenged"}), frozenset({"listed", "more"})
    assert select_scopes(None, challenged, listed, NONE, refreshable=True) == challenged
    assert select_scopes(None, NONE, listed, NONE, refreshable=True) == listed
    assert select_scopes(None, NONE, NONE, NONE, refreshable=True) == NONE
    assert select_scopes(frozenset({"given"}), challenged, listed, NONE, refreshable=True) == {"given"}


@pytest.mark.req("AUTH-40")
def test_offline_access_is_asked_for_only_where_it_is_listed_and_of_use() -> None:
    listed = frozenset({"offline_access"})
    assert select_scopes(None, NONE, NONE, listed, refreshable=True) == {"offline_access"}
    assert select_scopes(None, NONE, NONE, listed, refreshable=False) == NONE


@pytest.mark.req("AUTH-36")
def test_included_scopes_count_through_the_whole_hierarchy() -> None:
    hierarchy = {"admin": ["write"], "write": ["read", "admin"]}
    assert missing_scopes({"admin"}, {"read"}, hierarchy) == NONE
    assert missing_scopes({"write"}, {"read", "delete"}, hierarchy) == {"delete"}
    assert missing_scopes({"write"}, {"read"}) == {"read"}
