"""Public names of many servers' tools: they do not collide, whatever the servers are called and offer."""

from __future__ import annotations

import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from work import steps_of

from mcpio.app import PublicNames


def test_name_is_the_server_and_the_tool() -> None:
    names = PublicNames(["files", "my notes!", "__"])
    names.record("files", ["read", "list_all"])
    assert names.public("files", "read") == "files__read"
    assert names.public("my notes!", "add") == "my-notes__add"
    assert names.public("__", "x") == "server__x"
    assert names.find("files__list_all") == "list_all"
    assert names.find("files__delete") is None
    assert names.server_of("my-notes__anything") == "my notes!"


@pytest.mark.req("GONE-08")
def test_similar_server_names_get_distinct_tool_names() -> None:
    names = PublicNames(["a b", "a-b", "a b!", "a-b-2", "a__b", "a_b"])
    prefixes = [
        names.public(server, "x").partition("__")[0] for server in ("a b", "a-b", "a b!", "a-b-2", "a__b", "a_b")
    ]
    assert prefixes == ["a-b", "a-b-2", "a-b-3", "a-b-2-2", "a_b", "a_b-2"]


def test_name_with_other_characters_or_too_long_gets_a_digest() -> None:
    names = PublicNames(["files"])
    odd, long = names.public("files", "read/all ü"), names.public("files", "r" * 100)
    assert re.fullmatch(r"files__read_all__[0-9a-f]{8}", odd)
    assert re.fullmatch(r"files__r{48}_[0-9a-f]{8}", long)
    assert len(long) == 64
    twin = odd.removeprefix("files__")  # a tool that has this very name
    assert names.public("files", twin) != odd


def test_unknown_name_explained() -> None:
    names = PublicNames(["files", "web"])
    names.record("files", ["read"])
    with pytest.raises(LookupError, match="no server has the prefix of 'fils__read'; there are files, web"):
        names.server_of("fils__read")
    with pytest.raises(LookupError, match="there are none"):
        PublicNames([]).server_of("x")
    assert str(names.missing("files__red")) == (
        "the server 'files' lists nothing under the name 'files__red'; did you mean 'files__read'?"
    )
    assert str(names.missing("files__xyz")) == "the server 'files' lists nothing under the name 'files__xyz'"


_items = st.text(st.characters(codec="utf-8"), max_size=80)


@given(st.lists(st.tuples(st.sampled_from(["a", "a_b", "a__b", "a-", "_a", "b"]) | _items, _items), max_size=8))
def test_names_are_unique_valid_and_lead_back(offered: list[tuple[str, str]]) -> None:
    servers = list(dict.fromkeys(server for server, _ in offered))
    names = PublicNames(servers)
    public = {(server, item): names.public(server, item) for server, item in offered}
    assert len(set(public.values())) == len(public)
    for server in servers:
        names.record(server, [item for each, item in offered if each == server])
    for (server, item), name in public.items():
        assert re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name)
        assert (names.server_of(name), names.find(name)) == (server, item)


def test_unknown_name_is_compared_with_few_names() -> None:
    letters = "abcdefgh" * 7
    public = PublicNames(["s"])
    public.record("s", ["".join(random.Random(seed).sample(letters, 56)) for seed in range(20_000)])
    assert steps_of(lambda: public.missing(public.public("s", letters))) < 20_000_000
    public.record("s", ["x" * 56])
    assert "did you mean" not in str(public.missing("s__" + "x" * 1_000_000))
