"""What other libraries call servers' and clients' methods: the error says what is here in their place."""

from __future__ import annotations

import re
from typing import Any

import pytest
from comparisons import rows
from tree import ROOT

from mcpio import Client, Context, Server
from mcpio.app.foreign_names import OF_CLIENTS, OF_CONTEXTS, OF_SERVERS, no_attribute

OWNERS = {"mcp": Server, "server": Server, "ctx": Context, "client": Client}
TABLES = {Server: OF_SERVERS, Context: OF_CONTEXTS, Client: OF_CLIENTS}


def bare(kind: Any) -> Any:
    """Return an object of a class, without its attributes."""
    return kind.__new__(kind)


@pytest.mark.parametrize("kind", TABLES)
def test_error_for_a_foreign_name_says_what_to_use(kind: type) -> None:
    found = bare(kind)
    for name, use in TABLES[kind].items():
        with pytest.raises(AttributeError) as caught:
            getattr(found, name)
        assert str(caught.value) == f"'{kind.__name__}' object has no attribute '{name}': use {use}"


@pytest.mark.parametrize("kind", TABLES)
def test_error_for_another_name_is_as_usual(kind: type) -> None:
    with pytest.raises(AttributeError, match=rf"^'{kind.__name__}' object has no attribute 'nothing'$") as caught:
        _ = bare(kind).nothing
    assert caught.value.name == "nothing"


@pytest.mark.parametrize("page", ["coming-from-fastmcp.md", "coming-from-the-sdk.md"])
def test_names_in_the_tables_of_the_docs_are_answered(page: str) -> None:
    for row in rows(ROOT / "docs" / page):
        for owner, name in re.findall(r"(?<!\")\b(mcp|server|ctx|client)\.(\w+)", row.theirs):
            kind = OWNERS[owner]
            assert hasattr(kind, name) or name in TABLES[kind], row.theirs


def test_names_that_exist_are_not_answered() -> None:
    assert not [name for kind, table in TABLES.items() for name in table if hasattr(kind, name)]


def test_error_without_a_replacement_names_the_class() -> None:
    assert str(no_attribute(3, "x", {})) == "'int' object has no attribute 'x'"


@pytest.mark.parametrize("name", ["set_state", "get_state"])
def test_state_of_a_client_is_not_sent_to_the_object_that_all_share(name: str) -> None:
    with pytest.raises(AttributeError, match=r"use a dictionary of your own by ctx\.peer\.principal; ctx\.state is"):
        getattr(bare(Context), name)
    assert "\n## State of a user\n" in (ROOT / "docs" / "servers.md").read_text()
