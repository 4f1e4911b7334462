from __future__ import annotations

import pytest

from mcpio.app.context import Context
from mcpio.app.registry.base import RegisteredFunction, Registry


class Entry:
    def __init__(self, description: str) -> None:
        self.description = description
        self.enabled = True
        self.mount = None
        self.endpoint = RegisteredFunction(lambda: None, blocking=False, context=Context)


class Watched:
    def __init__(self) -> None:
        self.changes = 0
        self.registry: Registry[Entry] = Registry("thing", self._changed)

    def _changed(self) -> None:
        self.changes += 1

    def add(self, *names: str) -> None:
        for name in names:
            self.registry.add(name, Entry(name))

    def shown(self, cursor: str | None = None, size: int | None = None) -> tuple[list[str], str | None]:
        page = self.registry.page(cursor, size)
        return page.items, page.next_cursor


@pytest.fixture
def watched() -> Watched:
    return Watched()


def test_entries_are_listed_in_registration_order(watched: Watched) -> None:
    watched.add("b", "a", "c")
    assert watched.shown() == (["b", "a", "c"], None)
    assert [entry.description for entry in watched.registry] == ["b", "a", "c"]
    assert len(watched.registry) == 3
    assert watched.changes == 3


def test_duplicate_name_is_refused(watched: Watched) -> None:
    watched.add("a")
    with pytest.raises(ValueError, match=r"^there is a thing 'a' already: remove it first, or choose another name$"):
        watched.add("a")
    assert watched.changes == 1
    watched.registry.remove("a")
    watched.add("a")
    assert watched.shown() == (["a"], None)


def test_entry_is_found_by_name(watched: Watched) -> None:
    watched.add("a")
    found = watched.registry.find("a")
    assert found is not None
    assert found.description == "a"
    assert watched.registry.find("b") is None
    assert "a" in watched.registry
    assert "b" not in watched.registry
    assert 5 not in watched.registry


def test_disabled_entry_is_kept_but_not_listed(watched: Watched) -> None:
    watched.add("a", "b")
    watched.registry.disable("a")
    watched.registry.disable("a")
    assert watched.changes == 3
    assert watched.shown() == (["b"], None)
    assert "a" not in watched.registry
    assert len(watched.registry) == 2
    assert [entry.description for entry in watched.registry.everything()] == ["a", "b"]
    watched.registry.enable("a")
    assert watched.shown() == (["a", "b"], None)
    assert watched.changes == 4


def test_change_of_a_disabled_entry_is_not_notified(watched: Watched) -> None:
    hidden = Entry("a")
    hidden.enabled = False
    watched.registry.add("a", hidden)
    watched.registry.remove("a")
    assert watched.changes == 0
    assert len(watched.registry) == 0


@pytest.mark.parametrize("act", ["remove", "enable", "disable"])
def test_unknown_entry_raises(watched: Watched, act: str) -> None:
    with pytest.raises(KeyError, match="there is no thing 'a'"):
        getattr(watched.registry, act)("a")


@pytest.mark.req("PAGE-01", "PAGE-04")
def test_pages_stay_consistent_while_entries_change(watched: Watched) -> None:
    watched.add("a", "b", "c", "d")
    first, cursor = watched.shown(size=2)
    assert first == ["a", "b"]
    watched.registry.remove("a")
    watched.registry.disable("c")
    watched.add("e")
    assert watched.shown(cursor, size=2) == (["d", "e"], None)
